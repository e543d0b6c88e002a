"""`lethe.extract`: how likely a model continues each window of a text, verbatim and nearly so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.api.result import Measurement, Place, View, documented, folder_of, name_of, short, source_of
from lethe.errors import BadInput, plural
from lethe.io.json_files import read_text
from lethe.results.extraction import Extraction
from lethe.statistics.extraction import CHANCES, EXTRACTABLE, QUERIES, discoverable, longest_run
from lethe.steps.extract import ExtractSettings, measured

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.results.table import Result
    from lethe.results.verdict import Verdict
    from lethe.sampling.engine import Checkpoint
    from lethe.sampling.extraction import Window

FIRST = 10  # windows in a terminal
DEFAULTS = ExtractSettings()


@dataclass(frozen=True, repr=False)
class Extracted(Measurement):
    """The result of `extract`: the windows (``passages``) under the model, and the same windows under the references."""

    found: Extraction
    references: tuple[Extraction, ...]
    settings: ExtractSettings
    tokens: int

    @property
    def p_z(self) -> np.ndarray:
        """The probability of each window, (windows,)."""
        return self.found.p_z

    @cached_property
    def verdict(self) -> Verdict:
        """The word on verbatim extraction, with windows as questions."""
        from lethe.results.extraction import verdict_of

        others = [each.verbatim_ends() for each in self.references]
        return verdict_of(self.found.verbatim_ends(), others, self.settings.alpha, self.settings.tau)

    @cached_property
    def near_verdict(self) -> Verdict | None:
        """The word on near-verbatim extraction of the searched windows; None where none was searched."""
        from lethe.results.extraction import verdict_of

        if not self.found.searched:
            return None
        others = [each.near_ends() for each in self.references]
        return verdict_of(self.found.near_ends(), others, self.settings.alpha, self.settings.tau)

    def headline(self) -> str:
        """Return the word on verbatim extraction and how many windows it is about, in one short line."""
        beyond, total = " beyond the reference models" if self.references else "", plural(len(self.p_z), "window")
        if self.verdict.word == "leaks":
            return f"{self.found.name}: {self.verdict.leaking:,} of {total} can be extracted{beyond}"
        return f"{self.found.name}: none of {total} is proved to be extractable{beyond}"

    def to_frame(self) -> pd.DataFrame:
        """One row per window: its place, p_z with its ends, the ends of near-verbatim extraction, and the passage."""
        import pandas as pd

        rows = []
        for place, passage in enumerate(self.found.passages):
            lower, upper = self.found.ends(passage)
            near = self.found.interval(passage)
            row = {"window": passage.id, "start": passage.start, "p_z": passage.p_z}
            row |= {"p_z_lower": lower, "p_z_upper": upper}
            row |= {"near_lower": near and near.lower, "near_upper": near and near.upper}
            row |= {f"p_z_{each.name}": each.passages[place].p_z for each in self.references}
            rows.append({**row, "suffix": passage.suffix})
        return pd.DataFrame(rows)

    def sentences(self) -> list[str]:
        from lethe.results.extraction import WORDS
        from lethe.results.verdict import sentence

        settings, name, run = self.settings, self.found.name, self._longest_run()
        lines = [sentence(self.verdict, name, words=WORDS)]
        if self.near_verdict is not None:
            edits = plural(settings.distance, f"{settings.unit[:-1]} edit")
            lines.append(sentence(self.near_verdict, f"{name}, within {edits}", words=WORDS))
        hits, windows = int((self.p_z >= EXTRACTABLE).sum()), plural(len(self.p_z), "window")
        longest = f"the longest run with p_z of at least one half is {plural(run[1], 'window')} from {run[0]}"
        lines.append(
            f"Verbatim: {hits:,} of {windows} have p_z of at least {EXTRACTABLE:g}; the largest is {self.p_z.max():.3g}; "
            f"{longest if run[1] else 'no window has p_z of at least one half'}."
        )
        if not self.references:
            lines.append(
                "No reference model was given, so a window that any model would guess counts as extractable."
            )
        lines.append(
            f"p_z is exact for temperature {settings.temperature:g}, top-k {settings.top_k} and top-p {settings.top_p:g}, "
            f"up to a logit error of {self.found.rounding.allowance:.2g} (measured, not proved)."
        )
        return lines

    def _longest_run(self) -> tuple[str | None, int]:
        first, length = longest_run(self.p_z)
        return self.found.passages[first].id if length else None, length

    def as_json(self) -> dict[str, object]:
        from lethe.results.extraction import passage_json

        (first, length), hits = self._longest_run(), self.p_z >= EXTRACTABLE
        windows = []
        for place, passage in enumerate(self.found.passages):
            references = {each.name: each.passages[place].p_z for each in self.references}
            windows.append({**passage_json(self.found, passage), "references": references})
        return {
            "model": self.found.name,
            "references": [each.name for each in self.references],
            "settings": self.settings.model_dump(),
            "alpha": self.settings.alpha,
            "logit_allowance": self.found.rounding.allowance,
            "tokens": self.tokens,
            "n_windows": len(self.p_z),
            "extractable": {"threshold": EXTRACTABLE, "windows": int(hits.sum()), "share": float(hits.mean())},
            "longest_run": {"windows": length, "from": first},
            "discoverable": [
                {"queries": n, "chance": chance, "share": float(share)}
                for n, row in zip(QUERIES, discoverable(self.p_z), strict=True)
                for chance, share in zip(CHANCES, row, strict=True)
            ],
            "verdict": asdict(self.verdict),
            "near_verdict": asdict(self.near_verdict) if self.near_verdict else None,
            "windows": windows,
            "sentences": self.sentences(),
        }

    def views(self) -> list[View]:
        rows = []
        for place in (-self.p_z).argsort(kind="stable")[:FIRST].tolist():
            passage = self.found.passages[place]
            near = self.found.interval(passage)
            row = [passage.id, f"{passage.p_z:.3g}", f"{near.lower:.3g} to {near.upper:.3g}" if near else None]
            row += [f"{each.passages[place].p_z:.3g}" for each in self.references]
            rows.append([*row, short(passage.suffix)])
        head = ["window", "p_z", "nearly verbatim", *[f"p_z of {each.name}" for each in self.references], "suffix"]
        by_queries = [
            [f"{n:,}", *[f"{share:.1%}" for share in row]]
            for n, row in zip(QUERIES, discoverable(self.p_z), strict=True)
        ]
        chances = ["queries", *[f"with chance {chance:g}" for chance in CHANCES]]
        return [
            View(f"{self.found.name}: the windows that come out most easily", head, rows),
            View("windows that come out", chances, by_queries, self.sentences()),
        ]

    def rows(self) -> list[Result]:
        from lethe.results.extraction import rows_of

        return [row for each in (self.found, *self.references) for row in rows_of(each)]


@documented
def extract(
    model: Place | PreTrainedModel,
    text: Place,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    reference: Sequence[str] | None = None,
    prefix: int = DEFAULTS.prefix,
    suffix: int = DEFAULTS.suffix,
    stride: int = DEFAULTS.stride,
    temperature: float = DEFAULTS.temperature,
    top_k: int = DEFAULTS.top_k,
    top_p: float = DEFAULTS.top_p,
    near: int = DEFAULTS.near,
    distance: int = DEFAULTS.distance,
    unit: str = DEFAULTS.unit,
    beam: int = DEFAULTS.beam,
    further: int = DEFAULTS.further,
    samples: int = DEFAULTS.samples,
    alpha: float = DEFAULTS.alpha,
    tau: float = DEFAULTS.tau,
    seed: int = DEFAULTS.seed,
    dtype: str = DEFAULTS.dtype,
    memory: int = DEFAULTS.memory,
    scratch: Place | None = None,
) -> Extracted:
    """Measure how likely a model continues each window of a text, verbatim and nearly so.

    Parameters
    ----------
    text : A plain text file in UTF-8.
    reference : A model folder that did not learn the text, such as Retrain: what it continues as well is guessable.
        Repeatable.
    prefix : Tokens that the model is given.
    suffix : Tokens that it must continue with.
    stride : Tokens from one window to the next.
    near : Windows, spread evenly, that are also searched for continuations that are nearly the suffix.
    distance : The most edits of a continuation that is nearly the suffix.
    unit : What an edit changes: "tokens", or "words" of the text.
    beam : Prefixes of each length that constrained beam search keeps.
    further : Further prefixes of each length that are read.
    samples : About how many continuations of what stays open are sampled per window; 0 leaves certain ends alone.
    alpha : The probability with which a sampled end, or the word of the verdict, may fail, above 0 and at most 0.5.
    tau : The probability from which a window counts as extractable.

    Notes
    -----
    p_z is the product of the next-token probabilities along the suffix, from one pass per window (Cooper et al., arXiv
    2505.12546). Near-verbatim extraction is a continuation within ``distance`` edits of the suffix (arXiv 2603.24917).

    Examples
    --------
    >>> import lethe
    >>> extracted = lethe.extract("my-model", "forget.jsonl", prefix=4, suffix=3)
    >>> bool((extracted.p_z <= 1).all())
    True
    """
    given = dict(locals())
    from lethe.models.in_memory import lent
    from lethe.sampling.extraction import windows_of

    settings = ExtractSettings(**{name: given[name] for name in ExtractSettings.model_fields})
    source, whole, read = source_of(model, tokenizer), read_text(text), list[list[int]]()
    place = Path(scratch) if scratch else None

    def windows(checkpoint: Checkpoint) -> list[Window]:
        tokens = checkpoint.tokenizer(whole, add_special_tokens=False)["input_ids"]
        if tokens != (read or [tokens])[0]:
            raise BadInput(
                f"reference: {checkpoint.source} splits the text into other tokens. Name a model of the same tokenizer."
            )
        read.append(tokens)
        if windows := windows_of(tokens, settings.prefix, settings.suffix, settings.stride):
            return windows
        raise BadInput(
            f"text: holds {len(tokens)} tokens, too few for a window of {settings.prefix} + {settings.suffix}. "
            "Give a longer text, or smaller --prefix and --suffix."
        )

    with lent(source):
        extraction = measured(name_of(source), source, windows, settings, place)
    others = [
        measured(name_of(folder), folder, windows, settings, place) for folder in map(folder_of, reference or [])
    ]
    return Extracted(extraction, tuple(others), settings, len(read[0]))
