"""Stage `extract@MODEL` and `lethe extract`: how likely a model continues each window, verbatim and nearly so."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.measuring import Extract, ExtractSettings, ModelEntry, SampleSettings
from lethe.errors import BadInput, BadValue, plural
from lethe.io.artifacts import Row, read_split
from lethe.io.files import Json, restored
from lethe.models import model as models
from lethe.models.checkpoints import Source, prepare_torch
from lethe.models.encoding import Encoder
from lethe.progress import duration, progress, tell
from lethe.results import table
from lethe.results.extraction import RETAIN, Extraction, Near, Passage, rows_of
from lethe.sampling import extraction
from lethe.sampling.answer_tree.spelling import spelling_of
from lethe.sampling.draws import Law
from lethe.sampling.engine import SCRATCH, NoKeys, Options, finished_of
from lethe.sampling.extraction import Window
from lethe.statistics.answer_tree import Rounding

if TYPE_CHECKING:
    from lethe.sampling.predictor import ModelPredictor

BLOCK = 64  # windows of a scan that are kept together
MEASURED = 2  # windows on which the error of the logits is measured
TIMED = 4  # windows whose scan gives the time of all
WORTH = 1 << 12  # tokens; less work ends before an estimate helps
MIB = 1 << 20


def run(
    name: str,
    extract: Extract | None,
    sample: SampleSettings,
    model: ModelEntry,
    root: Path = Path("data"),
) -> None:
    """Write ``root/results/extract/name.parquet``: the answer to each question of the splits forget and retain is a window.

    The table is empty where ``extract`` is None; a model that cannot be scanned has a single row: the reason.
    """
    rows: list[table.Result] = []
    reason = ""
    if model.served:
        reason = "a served model has no weights here"
    elif model.adaptive_threshold is not None:
        reason = "adaptive temperature depends on the tokens before, and p_z is about a fixed temperature"
    elif extract is not None:
        settings = ExtractSettings(**extract.model_dump(), dtype=sample.dtype)
        splits = {}
        for split in ("forget", RETAIN):
            place = root / "dataset" / f"{split}.jsonl"
            if place.is_file():
                splits[split] = read_split(split, place.parent)
        windows_of = partial(windows_of_rows, splits, prompt=sample.prompt, settings=settings)
        try:
            text = measured(name, Path(model.path), windows_of, settings, SCRATCH)
            rows = rows_of(text)
            print(f"{name}: {plural(len(rows), 'row')} about {plural(len(text.p_z), 'window')}")
        except NoKeys as refusal:
            reason = str(refusal)
    if extract is not None and reason:
        rows = [table.result(name, "model", "windows", "exact", text=reason)]
        print(f"{name}: no extraction: {reason}")
    table.write(table.place(root, "extract", name), rows)


def windows_of_rows(
    splits: dict[str, list[Row]], opened: models.Model, prompt: str, settings: ExtractSettings
) -> list[Window]:
    """A window per row: the last tokens of its prompt, and the first of its answer without its end.

    The windows are in the order of the text where rows have ``start``. A row without a prompt or an answer has none.

    Parameters
    ----------
    splits
        The rows of each split.
    opened
        The model, whose tokenizer reads them.
    prompt
        The template of prompts.
    settings
        The lengths of prefix and suffix, in tokens.
    """
    encoder = Encoder(opened.tokenizer, prompt)
    end = opened.tokenizer.eos_token_id
    starts: list[tuple[Json, str, Row]] = []
    for split, rows in splits.items():
        for row in rows:
            starts.append((dict(row).get("start", 0), split, row))

    windows: list[Window] = []
    for _, split, row in sorted(starts, key=itemgetter(0)):
        example = encoder.example(row)
        answer = tuple(token for token in example.answer if token != end)
        if not example.prompt or not answer:
            continue
        prefix = example.prompt[-settings.prefix :]
        suffix = answer[: settings.suffix]
        windows.append(Window(len(windows), prefix, suffix, row["id"], split))
    return windows


def measured(
    name: str,
    source: Source,
    windows_of: Callable[[models.Model], list[Window]],
    settings: ExtractSettings,
    scratch: Path | None = None,
    estimate: bool = False,
) -> Extraction:
    """Scan the windows of a model, and search around ``near`` of them.

    Parameters
    ----------
    name
        The name of the model in the results.
    source
        The model, or where it lies.
    windows_of
        Makes the windows, from the opened model.
    settings
        The lengths, the law of an answer, and the extent of the search.
    scratch
        A folder, with which an interrupted call resumes; None keeps nothing.
    estimate
        Whether to print time and memory beforehand.

    Raises
    ------
    BadInput
        If there is no window.
    BadValue
        If the model's context does not hold the longest window.
    NoKeys
        If the model has no key-value cache that agrees with whole passes.
    """
    from lethe.sampling.predictor import ModelPredictor, measured_allowance

    prepare_torch()
    predictor = ModelPredictor(source, Options(dtype=settings.dtype), settings.memory * MIB)
    checkpoint = predictor.checkpoint
    law = Law(
        checkpoint.end_ids,
        settings.suffix,
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
    )

    windows = windows_of(checkpoint)
    if not windows:
        raise BadInput("No question has a prompt and an answer with tokens; a window needs both.")
    longest = max(len(window.suffix) for window in windows)
    _check_length(windows, longest, checkpoint.context)

    # How far the logits of this model on this machine may be off, in nats.
    prefixes = [np.array(window.prefix) for window in _spread(windows, MEASURED)]
    allowance = measured_allowance(predictor, prefixes, longest)

    done = finished_of(
        scratch,
        source,
        "lethe.sampling.extraction",
        "lethe.sampling.predictor",
        settings=settings.model_dump(),
        windows=[[window.start, window.prefix, window.suffix] for window in windows],
        device=predictor.forward.device.type,
    )
    work = Work(name, predictor, law, settings, done)
    of_forget = [window for window in windows if window.split != RETAIN]
    to_search = _spread(of_forget, settings.near)
    if estimate:
        work.announce(windows, to_search)
    chances = work.scanned(windows)
    near = work.searched(to_search)
    passages = _passages(windows, chances, near, checkpoint.tokenizer.batch_decode)
    work.done.clear()

    rounding = Rounding(allowance, longest, settings.temperature)
    return Extraction(name, passages, rounding, settings.alpha)


def _check_length(windows: Sequence[Window], longest: int, context: int | None) -> None:
    """Raises `BadValue` where the model's context does not hold the longest prefix and suffix."""
    size = longest + max(len(window.prefix) for window in windows)
    if context and context < size:
        legal = f"at most {context}, the longest input of the model"
        raise BadValue("prefix + suffix", size, legal)


def _passages(
    windows: Sequence[Window],
    chances: Sequence[Sequence[float]],
    near: Mapping[int, Near],
    decode: Callable[[list[list[int]]], list[str]],
) -> tuple[Passage, ...]:
    """The windows with their texts and numbers; ``near`` is by the start of a window."""
    prefixes = decode([list(window.prefix) for window in windows])
    suffixes = decode([list(window.suffix) for window in windows])
    passages = []
    for place, window in enumerate(windows):
        passage = Passage(
            id=window.id,
            start=window.start,
            prefix=prefixes[place],
            suffix=suffixes[place],
            chances=tuple(chances[place]),
            near=near.get(window.start),
            split=window.split,
        )
        passages.append(passage)
    return tuple(passages)


def _spread(windows: Sequence[Window], count: int) -> list[Window]:
    """``count`` windows at even distances, chosen before any probability is known."""
    n = min(count, len(windows))
    even = np.linspace(0, len(windows) - 1, n)
    places = np.unique(even.round().astype(int))
    return [windows[place] for place in places]


@dataclass
class Work:
    """The windows of one model.

    Attributes
    ----------
    name
        The name of the model.
    predictor, law
        The model, and how an answer is drawn from its logits.
    done
        What was computed, by the start of a block or a window; it is not computed again.
    """

    name: str
    predictor: ModelPredictor
    law: Law
    settings: ExtractSettings
    done: MutableMapping[str, dict[str, Json]]

    def announce(self, windows: Sequence[Window], searched: Sequence[Window]) -> None:
        """Say what is left to do: at once from the scan of a few windows, then from the first search, which is kept."""
        settings = self.settings
        to_scan: list[Window] = []
        for start in range(0, len(windows), BLOCK):
            if f"scan {start}" not in self.done:
                to_scan += windows[start : start + BLOCK]
        to_search = [window for window in searched if f"near {window.start}" not in self.done]
        scanned_tokens = len(to_scan) * (settings.prefix + settings.suffix)
        searched_tokens = len(to_search) * (settings.beam + settings.further) * settings.suffix
        if scanned_tokens + searched_tokens < WORTH:
            return

        if to_scan:
            pilot = _spread(to_scan, TIMED)
            begun = time.perf_counter()
            for _ in extraction.scan(self.predictor, pilot, self.law, settings.memory * MIB):
                pass
            seconds = (time.perf_counter() - begun) * len(to_scan) / len(pilot)
            memory = f", and at most {settings.memory:,} MiB of memory beside the model"
            self._say(f"{plural(len(to_scan), 'window')} to scan", seconds, memory)
        if to_search:
            begun = time.perf_counter()
            self.searched(to_search[:1])
            seconds = (time.perf_counter() - begun) * len(to_search)
            by_first = ", by the time of the first"
            self._say(f"{plural(len(to_search), 'window')} to search", seconds, by_first)

    def _say(self, work: str, seconds: float, more: str) -> None:
        """Print how long a piece of work takes."""
        tell(f"{self.name}: {work} take about {duration(seconds)}{more}.")

    def scanned(self, windows: Sequence[Window]) -> list[list[float]]:
        """The probability of each token of each window's suffix."""
        chances: list[list[float]] = []
        starts = range(0, len(windows), BLOCK)
        unit = f"blocks of {BLOCK} windows"
        for start in progress(starts, f"extract {self.name}", unit):
            key = f"scan {start}"
            if key not in self.done:
                block = windows[start : start + BLOCK]
                memory = self.settings.memory * MIB
                scanned = extraction.scan(self.predictor, block, self.law, memory)
                self.done[key] = {"chances": [suffix.tolist() for suffix in scanned]}
            chances += self.done[key]["chances"]
        return chances

    @cached_property
    def pieces(self) -> Sequence[bytes] | None:
        """The bytes of each token, where the edit distance counts words."""
        if self.settings.unit != "words":
            return None
        tokenizer = self.predictor.checkpoint.tokenizer
        return spelling_of(tokenizer, self.predictor.vocabulary).in_bytes

    def searched(self, windows: Sequence[Window]) -> dict[int, Near]:
        """What was explored and sampled of each window, by its start."""
        near_by_start = {}
        for window in progress(windows, f"near-verbatim {self.name}", "windows"):
            key = f"near {window.start}"
            if key not in self.done:
                path = extraction.path_of(self.predictor, window, self.law)
                near = extraction.near_verbatim(
                    self.predictor, window, self.law, self.settings, path, self.pieces
                )
                self.done[key] = asdict(near)
            near_by_start[window.start] = restored(Near, self.done[key])
        return near_by_start
