"""Stage `extract@MODEL` and `lethe extract`: how likely a model continues each window, verbatim and nearly so."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.measuring import Extract, ExtractSettings, Model, Sample
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
    name: str, extract: Extract | None, sample: Sample, model: Model, root: Path = Path("data")
) -> None:
    """Write ``root/results/extract/name.parquet``: the answer to each question of the splits forget and retain is a window.

    The table is empty where ``extract`` is None; a model that cannot be scanned has one row: the reason.
    """
    rows, reason = [], ""
    if model.served:
        reason = "a served model has no weights here"
    elif model.adaptive_threshold is not None:
        reason = "adaptive temperature depends on the tokens before, and p_z is about a fixed temperature"
    elif extract is not None:
        settings = ExtractSettings(**extract.model_dump(), dtype=sample.dtype)
        places = {split: root / "dataset" / f"{split}.jsonl" for split in ("forget", RETAIN)}
        splits = {
            split: read_split(split, place.parent)
            for split, place in places.items()
            if place.is_file()
        }
        try:
            windows_of = partial(windows_of_rows, splits, prompt=sample.prompt, settings=settings)
            own = measured(name, Path(model.path), windows_of, settings, SCRATCH)
            rows = rows_of(own)
            print(f"{name}: {plural(len(rows), 'row')} about {plural(len(own.p_z), 'window')}")
        except NoKeys as refusal:
            reason = str(refusal)
    if extract is not None and reason:
        rows = [table.result(name, "model", "windows", "exact", text=reason)]
        print(f"{name}: no extraction: {reason}")
    table.write(table.place(root, "extract", name), rows)


def windows_of_rows(
    splits: dict[str, list[Row]], opened: models.Model, prompt: str, settings: ExtractSettings
) -> list[Window]:
    """A window per row, in the order of the text where rows have ``start``: the last tokens of its prompt, and the first
    of its answer."""
    encoder, windows = Encoder(opened.tokenizer, prompt), list[Window]()
    every = [
        (dict(row).get("start", 0), split, row) for split, rows in splits.items() for row in rows
    ]
    for _, split, row in sorted(every, key=itemgetter(0)):
        example = encoder.example(row)
        answer = tuple(token for token in example.answer if token != opened.tokenizer.eos_token_id)
        if example.prompt and answer:
            cut = example.prompt[-settings.prefix :], answer[: settings.suffix]
            windows.append(Window(len(windows), *cut, row["id"], split))
    return windows


def measured(
    name: str,
    source: Source,
    windows_of: Callable[[models.Model], list[Window]],
    settings: ExtractSettings,
    scratch: Path | None = None,
    estimate: bool = False,
) -> Extraction:
    """Scan the windows of a model and search ``near`` of them. With ``scratch`` an interrupted call resumes; ``estimate``
    prints time and memory beforehand."""
    from lethe.sampling.predictor import ModelPredictor, measured_allowance

    prepare_torch()
    predictor = ModelPredictor(source, Options(dtype=settings.dtype), settings.memory * MIB)
    drawing = {key: getattr(settings, key) for key in ("temperature", "top_k", "top_p")}
    law = Law(predictor.checkpoint.end_ids, settings.suffix, **drawing)
    windows = windows_of(predictor.checkpoint)
    if not windows:
        raise BadInput("No question has a prompt and an answer with tokens; a window needs both.")
    longest = max(len(window.suffix) for window in windows)
    size, context = (
        max(len(window.prefix) for window in windows) + longest,
        predictor.checkpoint.context,
    )
    if context and context < size:
        raise BadValue(
            "prefix + suffix", size, f"at most {context}, the longest input of the model"
        )
    prefixes = [np.array(window.prefix) for window in _spread(windows, MEASURED)]
    allowance = measured_allowance(predictor, prefixes, longest)
    modules, device = (
        ("lethe.sampling.extraction", "lethe.sampling.predictor"),
        predictor.forward.device.type,
    )
    read = [[window.start, window.prefix, window.suffix] for window in windows]
    done = finished_of(
        scratch, source, *modules, settings=settings.model_dump(), windows=read, device=device
    )
    work = Work(name, predictor, law, settings, done)
    searched = _spread([window for window in windows if window.split != RETAIN], settings.near)
    if estimate:
        work.announce(windows, searched)
    chances, near = work.scanned(windows), work.searched(searched)
    decode = predictor.checkpoint.tokenizer.batch_decode
    texts = (
        decode([list(getattr(window, part)) for window in windows]) for part in ("prefix", "suffix")
    )
    passages = tuple(
        Passage(
            window.id,
            window.start,
            before,
            after,
            tuple(chance),
            near.get(window.start),
            window.split,
        )
        for window, before, after, chance in zip(windows, *texts, chances, strict=True)
    )
    work.done.clear()
    return Extraction(
        name, passages, Rounding(allowance, longest, settings.temperature), settings.alpha
    )


def _spread(windows: Sequence[Window], count: int) -> list[Window]:
    """``count`` windows at even distances, chosen before any probability is known."""
    places = np.unique(
        np.linspace(0, len(windows) - 1, min(count, len(windows))).round().astype(int)
    )
    return [windows[place] for place in places]


@dataclass
class Work:
    """The windows of one model; what is ``done`` is not computed again."""

    name: str
    predictor: ModelPredictor
    law: Law
    settings: ExtractSettings
    done: MutableMapping[str, dict[str, Json]]

    def announce(self, windows: Sequence[Window], searched: Sequence[Window]) -> None:
        """Say what is left to do: at once from the scan of a few windows, then from the first search, which is kept."""
        blocks = [at for at in range(0, len(windows), BLOCK) if f"scan {at}" not in self.done]
        left = [window for at in blocks for window in windows[at : at + BLOCK]]
        near, own = (
            [window for window in searched if f"near {window.start}" not in self.done],
            self.settings,
        )
        if (
            len(left) * (own.prefix + own.suffix)
            + len(near) * (own.beam + own.further) * own.suffix
            < WORTH
        ):
            return
        memory = f"{own.memory:,} MiB of memory beside the model"
        if pilot := _spread(left, TIMED) if left else []:
            begun = time.perf_counter()
            for _ in extraction.scan(self.predictor, pilot, self.law, own.memory * MIB):
                pass
            self._say(
                f"{plural(len(left), 'window')} to scan",
                len(left) / len(pilot),
                begun,
                f", and at most {memory}",
            )
        if near:
            begun = time.perf_counter()
            self.searched(near[:1])
            self._say(
                f"{plural(len(near), 'window')} to search",
                len(near),
                begun,
                ", by the time of the first",
            )

    def _say(self, what: str, times: float, begun: float, more: str) -> None:
        took = duration((time.perf_counter() - begun) * times)
        tell(f"{self.name}: {what} take about {took}{more}.")

    def scanned(self, windows: Sequence[Window]) -> list[list[float]]:
        chances: list[list[float]] = []
        for start in progress(
            range(0, len(windows), BLOCK), f"extract {self.name}", f"blocks of {BLOCK} windows"
        ):
            if (key := f"scan {start}") not in self.done:
                block, memory = windows[start : start + BLOCK], self.settings.memory * MIB
                scanned = extraction.scan(self.predictor, block, self.law, memory)
                self.done[key] = {"chances": [each.tolist() for each in scanned]}
            chances += self.done[key]["chances"]
        return chances

    @cached_property
    def pieces(self) -> Sequence[bytes] | None:
        if self.settings.unit != "words":
            return None
        return spelling_of(self.predictor.checkpoint.tokenizer, self.predictor.vocabulary).in_bytes

    def searched(self, windows: Sequence[Window]) -> dict[int, Near]:
        near_by_start = {}
        for window in progress(windows, f"near-verbatim {self.name}", "windows"):
            if (key := f"near {window.start}") not in self.done:
                path = extraction.path_of(self.predictor, window, self.law)
                near = extraction.near_verbatim(
                    self.predictor, window, self.law, self.settings, path, self.pieces
                )
                self.done[key] = asdict(near)
            near_by_start[window.start] = restored(Near, self.done[key])
        return near_by_start
