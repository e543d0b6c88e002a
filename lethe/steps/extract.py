"""Stage `extract@MODEL` and `lethe extract`: how likely a model continues each window, verbatim and nearly so."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.config.evaluating import SAMPLE, Extract
from lethe.config.fields import Count, Direct
from lethe.errors import BadInput, BadValue, plural

if TYPE_CHECKING:
    from lethe.config.evaluating import Model, Sample
    from lethe.io.artifacts import Row
    from lethe.models.in_memory import Source
    from lethe.results.extraction import Extraction, Near
    from lethe.sampling.draws import Law
    from lethe.sampling.engine import Checkpoint
    from lethe.sampling.extraction import Search, Window
    from lethe.sampling.predictor import ModelPredictor

BLOCK = 64  # windows of a scan that are kept together
MEASURED = 2  # windows on which the error of the logits is measured
MIB = 1 << 20


class ExtractSettings(Direct, Extract):
    """The settings of extraction, and of a call on a text."""

    stride: Count = 10
    dtype: str = SAMPLE.dtype

    def search(self) -> Search:
        from lethe.sampling.extraction import Search

        return Search(**{name: getattr(self, name) for name in Search.__dataclass_fields__})

    def law(self, end_ids: tuple[int, ...] = ()) -> Law:
        from lethe.sampling.draws import Law

        return Law(end_ids, self.suffix, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)


def run(name: str, extract: Extract | None, sample: Sample, model: Model, root: Path = Path("data")) -> None:
    """Write ``root/results/extract/name.parquet``: the answer to each question of the splits forget and retain is a window.

    The table is empty where ``extract`` is None; a model that cannot be scanned has one row: the reason.
    """
    from lethe.results import table
    from lethe.results.extraction import rows_of
    from lethe.sampling.predictor import NoKeys
    from lethe.sampling.store import SCRATCH

    rows, reason = [], ""
    if model.served:
        reason = "a served model has no weights here"
    elif model.adaptive_threshold is not None:
        reason = "adaptive temperature depends on the tokens before, and p_z is about a fixed temperature"
    elif extract is not None:
        settings = ExtractSettings(**extract.model_dump(), dtype=sample.dtype)
        try:
            extraction = measured(
                name,
                Path(model.path),
                lambda checkpoint: windows_of_rows(_rows(root / "dataset"), checkpoint, sample.prompt, settings),
                settings,
                SCRATCH,
            )
            rows = rows_of(extraction)
            print(f"{name}: {plural(len(rows), 'row')} about {plural(len(extraction.p_z), 'window')}")
        except NoKeys as refusal:
            reason = str(refusal)
    if extract is not None and reason:
        rows = [table.result(name, "model", "windows", "exact", text=reason)]
        print(f"{name}: no extraction: {reason}")
    table.write(table.place(root, "extract", name), rows)


def _rows(dataset: Path) -> dict[str, list[Row]]:
    from lethe.io.artifacts import read_split
    from lethe.results.extraction import KEPT

    return {
        split: read_split(split, dataset) for split in ("forget", KEPT) if (dataset / f"{split}.jsonl").is_file()
    }


def windows_of_rows(
    splits: dict[str, list[Row]], checkpoint: Checkpoint, prompt: str, settings: ExtractSettings
) -> list[Window]:
    """A window per row, in the order of the text where rows have ``start``: the last tokens of its prompt, and the first
    of its answer."""
    from lethe.models.encoding import Encoder
    from lethe.sampling.extraction import Window

    encoder, windows = Encoder(checkpoint.tokenizer, prompt), list[Window]()
    every = [(dict(row).get("start", 0), split, row) for split, rows in splits.items() for row in rows]
    for _, split, row in sorted(every, key=itemgetter(0)):
        example = encoder.example(row)
        answer = tuple(token for token in example.answer if token != checkpoint.tokenizer.eos_token_id)
        if example.prompt and answer:
            cut = example.prompt[-settings.prefix :], answer[: settings.suffix]
            windows.append(Window(len(windows), *cut, row["id"], split))
    return windows


def measured(
    name: str,
    source: Source,
    windows_of: Callable[[Checkpoint], list[Window]],
    settings: ExtractSettings,
    scratch: Path | None = None,
) -> Extraction:
    """Scan the windows of a model and search ``near`` of them. With ``scratch`` an interrupted call resumes."""
    import numpy as np

    from lethe.models.checkpoints import prepare_torch
    from lethe.results.extraction import KEPT, Extraction, Passage
    from lethe.sampling.engine import Options
    from lethe.sampling.predictor import ModelPredictor, measured_allowance
    from lethe.statistics.answer_tree import Rounding

    settings.law(), settings.search()  # refuse what is out of range before the model is loaded
    prepare_torch()
    predictor = ModelPredictor(source, Options(dtype=settings.dtype), settings.memory * MIB)
    tokenizer, law = predictor.checkpoint.tokenizer, settings.law(predictor.checkpoint.end_ids)
    windows = windows_of(predictor.checkpoint)
    if not windows:
        raise BadInput("No question has a prompt and an answer with tokens; a window needs both.")
    longest = max(len(window.suffix) for window in windows)
    size, context = max(len(window.prefix) for window in windows) + longest, predictor.checkpoint.context
    if context and context < size:
        raise BadValue("prefix + suffix", size, f"at most {context}, the longest input of the model")
    allowance = measured_allowance(
        predictor, [np.array(window.prefix) for window in _spread(windows, MEASURED)], longest
    )
    done = {} if scratch is None else _finished(scratch, source, settings, windows, predictor)
    chances = _scanned(name, predictor, windows, law, settings, done)
    asked = [window for window in windows if window.split != KEPT]
    near = _searched(name, predictor, _spread(asked, settings.near), law, settings, done)
    texts = [
        tokenizer.batch_decode([list(part) for part in parts])
        for parts in ([window.prefix for window in windows], [window.suffix for window in windows])
    ]
    passages = tuple(
        Passage(window.id, window.start, before, after, tuple(chance), near.get(window.start), window.split)
        for window, before, after, chance in zip(windows, *texts, chances, strict=True)
    )
    done.clear()
    return Extraction(name, passages, Rounding(allowance, longest, settings.temperature), settings.alpha)


def _spread(windows: Sequence[Window], count: int) -> list[Window]:
    """``count`` windows at even distances, chosen before any probability is known."""
    import numpy as np

    places = np.unique(np.linspace(0, len(windows) - 1, min(count, len(windows))).round().astype(int))
    return [windows[place] for place in places]


Finished = MutableMapping[str, dict[str, Any]]


def _finished(
    scratch: Path, source: Source, settings: ExtractSettings, windows: Sequence[Window], predictor: ModelPredictor
) -> Finished:
    from lethe.io.cache import Kept, cache_key, versions
    from lethe.sampling.store import LIBRARIES, model_digest

    key = cache_key(
        "lethe.sampling.extraction",
        "lethe.sampling.predictor",
        settings=settings.model_dump(),
        windows=[[window.start, window.prefix, window.suffix] for window in windows],
        model=model_digest(source),
        device=predictor.forward.device.type,
        libraries=versions(*LIBRARIES),
    )
    return Kept(scratch, key)


def _scanned(
    name: str,
    predictor: ModelPredictor,
    windows: Sequence[Window],
    law: Law,
    settings: ExtractSettings,
    done: Finished,
) -> list[list[float]]:
    from lethe.progress import progress
    from lethe.sampling.extraction import scan

    chances: list[list[float]] = []
    for start in progress(range(0, len(windows), BLOCK), f"extract {name}", f"blocks of {BLOCK} windows"):
        key = f"scan {start}"
        if key not in done:
            scanned = scan(predictor, windows[start : start + BLOCK], law, settings.memory * MIB)
            done[key] = {"chances": [each.tolist() for each in scanned]}
        chances += done[key]["chances"]
    return chances


def _searched(
    name: str,
    predictor: ModelPredictor,
    windows: Sequence[Window],
    law: Law,
    settings: ExtractSettings,
    done: Finished,
) -> dict[int, Near]:
    from lethe.io.json_files import restored
    from lethe.progress import progress
    from lethe.results.extraction import Near
    from lethe.sampling.answer_tree.spelling import spelling_of
    from lethe.sampling.extraction import near_verbatim, path_of

    pieces = None
    if windows and settings.unit == "words":
        pieces = spelling_of(predictor.checkpoint.tokenizer, predictor.vocabulary).in_bytes
    for window in progress(windows, f"near-verbatim {name}", "windows"):
        if (key := f"near {window.start}") not in done:
            path = path_of(predictor, window, law)
            done[key] = asdict(near_verbatim(predictor, window, law, settings.search(), path, pieces))
    return {window.start: restored(Near, done[f"near {window.start}"]) for window in windows}
