"""`lethe extract`: how likely a model continues each window of a text, verbatim and nearly so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.errors import BadFile, BadInput, BadValue
from lethe.progress import progress
from lethe.results.extraction import Extraction, Near, Passage
from lethe.statistics.answer_tree import Masses, Remainder, Rounding

if TYPE_CHECKING:
    from lethe.io.scratch import Kept
    from lethe.models.in_memory import Source
    from lethe.sampling.draws import Law
    from lethe.sampling.extraction import Search, Window
    from lethe.sampling.predictor import ModelPredictor

BLOCK = 64  # windows of a scan that are kept together
MEASURED = 2  # windows on which the error of the logits is measured
MIB = 1 << 20


@dataclass(frozen=True)
class ExtractSettings:
    """The settings of `lethe extract`, with every default.

    ``near`` windows, spread evenly over the text, are also searched for continuations within ``distance`` tokens of the true
    one. ``tau`` is the probability from which a window counts as extractable (Cooper et al., arXiv 2505.12546).
    """

    prefix: int = 50
    suffix: int = 50
    stride: int = 10
    temperature: float = 1.0
    top_k: int = 40
    top_p: float = 1.0
    near: int = 0
    distance: int = 5
    beam: int = 20
    further: int = 20
    samples: int = 64
    alpha: float = 0.01
    tau: float = 0.001
    seed: int = 0
    dtype: str = "auto"
    memory: int = 1024

    def __post_init__(self) -> None:
        for name, good, legal in [
            ("near", self.near >= 0, "a whole number of at least 0"),
            ("tau", 0 < self.tau < 1, "a number between 0 and 1"),
            ("memory", self.memory >= 1, "a whole number of MiB from 1"),
        ]:
            if not good:
                raise BadValue(name, getattr(self, name), legal)

    def search(self) -> Search:
        """The effort of a near-verbatim search."""
        from lethe.sampling.extraction import Search

        return Search(self.distance, self.beam, self.further, self.samples, self.alpha, self.seed)

    def law(self, end_ids: tuple[int, ...]) -> Law:
        """The decoding rule."""
        from lethe.sampling.draws import Law

        return Law(end_ids, self.suffix, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)


def extract(
    name: str, source: Source, text: str, settings: ExtractSettings, scratch: Path | None = None
) -> Extraction:
    """Measure every window of a text."""
    from lethe.models.checkpoints import prepare_torch
    from lethe.sampling.engine import Options
    from lethe.sampling.extraction import windows_of
    from lethe.sampling.predictor import ModelPredictor, measured_allowance

    law = settings.law(())
    settings.search()
    prepare_torch()
    predictor = ModelPredictor(source, Options(dtype=settings.dtype), settings.memory * MIB)
    law = settings.law(predictor.checkpoint.end_ids)
    tokens = _tokens(predictor, text)
    windows = windows_of(tokens, settings.prefix, settings.suffix, settings.stride)
    if not windows:
        raise BadInput(
            f"text: holds {len(tokens)} tokens, too few for a window of {settings.prefix} + {settings.suffix}. "
            "Give a longer text, or smaller --prefix and --suffix."
        )
    size, context = settings.prefix + settings.suffix, predictor.checkpoint.context
    if context and context < size:
        raise BadValue("prefix + suffix", size, f"at most {context}, the longest input of the model")
    measured = [np.array(window.prefix) for window in _spread(windows, MEASURED)]
    allowance = measured_allowance(predictor, measured, settings.suffix)
    kept = None if scratch is None else _kept(scratch, source, settings, tokens, predictor)
    chances = _scanned(name, predictor, windows, law, settings, kept)
    near = _searched(name, predictor, windows, law, settings, kept)
    texts = [
        predictor.checkpoint.tokenizer.batch_decode([list(part) for part in parts])
        for parts in ([window.prefix for window in windows], [window.suffix for window in windows])
    ]
    passages = tuple(
        Passage(f"w{window.start:06d}", window.start, before, after, tuple(chance), near.get(window.start))
        for window, before, after, chance in zip(windows, *texts, chances, strict=True)
    )
    if kept is not None:
        kept.clear()
    rounding = Rounding(allowance, settings.suffix, settings.temperature)
    return Extraction(name, passages, tuple(tokens), settings.stride, rounding, settings.alpha)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise BadFile(path, str(reason), "Name a plain text file.") from error


def _tokens(predictor: ModelPredictor, text: str) -> list[int]:
    tokens: list[int] = predictor.checkpoint.tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokens


def _spread(windows: Sequence[Window], count: int) -> list[Window]:
    """``count`` windows at even distances, chosen before any probability is known."""
    places = np.unique(np.linspace(0, len(windows) - 1, min(count, len(windows))).round().astype(int))
    return [windows[place] for place in places]


def _kept(
    scratch: Path, source: Source, settings: ExtractSettings, tokens: Sequence[int], predictor: ModelPredictor
) -> Kept:
    from lethe.io.cache import cache_key, versions
    from lethe.io.scratch import Kept
    from lethe.sampling.store import LIBRARIES, model_digest

    key = cache_key(
        "lethe.sampling.extraction",
        "lethe.sampling.predictor",
        settings=asdict(settings),
        tokens=list(tokens),
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
    kept: Kept | None,
) -> list[list[float]]:
    """The probability of each suffix token of each window; finished blocks are kept."""
    from lethe.sampling.extraction import scan

    chances: list[list[float]] = []
    for start in progress(range(0, len(windows), BLOCK), f"extract {name}", f"blocks of {BLOCK} windows"):
        key = f"scan {start}"
        done = kept[key]["chances"] if kept is not None and key in kept else None
        if done is None:
            block = windows[start : start + BLOCK]
            done = [each.tolist() for each in scan(predictor, block, law, settings.memory * MIB)]
            if kept is not None:
                kept[key] = {"chances": done}
        chances += done
    return chances


def _searched(
    name: str,
    predictor: ModelPredictor,
    windows: Sequence[Window],
    law: Law,
    settings: ExtractSettings,
    kept: Kept | None,
) -> dict[int, Near]:
    """The near-verbatim searches by the start of their window; finished ones are kept."""
    from lethe.sampling.extraction import near_verbatim, path_of

    ends: dict[int, Near] = {}
    for window in progress(_spread(windows, settings.near), f"near-verbatim {name}", "windows"):
        key = f"near {window.start}"
        if kept is not None and key in kept:
            ends[window.start] = near_of(kept[key])
            continue
        searched = near_verbatim(predictor, window, law, settings.search(), path_of(predictor, window, law))
        ends[window.start] = Near(searched.masses, searched.remainder, searched.rows)
        if kept is not None:
            kept[key] = asdict(ends[window.start])
    return ends


def near_of(values: dict[str, Any]) -> Near:
    """The search that `dataclasses.asdict` wrote."""
    masses = {**values["masses"]}
    leak, clean = (tuple(masses.pop(key)) for key in ("leak_by_length", "clean_by_length"))
    return Near(Masses(leak, clean, **masses), Remainder(**values["remainder"]), values["rows"])
