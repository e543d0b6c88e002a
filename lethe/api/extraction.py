"""`lethe.extract`: how likely a model continues each window of a text, verbatim and nearly so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.api.result import Measurement, View
from lethe.errors import BadInput, plural
from lethe.statistics.extraction import CHANCES, EXTRACTABLE, QUERIES, discoverable, longest_run
from lethe.steps.extract import ExtractSettings

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.results.extraction import Extraction
    from lethe.results.table import Result
    from lethe.results.verdict import Verdict

NAME = "model"  # the name of a model in memory
SHOWN, LONGEST = 10, 60  # windows in a terminal, and characters of their suffixes
DEFAULTS = ExtractSettings()


@dataclass(frozen=True, repr=False)
class Extracted(Measurement):
    """The result of `extract`.

    Attributes
    ----------
    found : Extraction
        The windows (``passages``) under the model, in the order of the text.
    references : tuple of Extraction
        The same windows under the reference models.
    settings : ExtractSettings
        The windows, the decoding rule and the effort.
    """

    found: Extraction
    references: tuple[Extraction, ...]
    settings: ExtractSettings

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
        count, beyond = self.verdict.leaking, " beyond the reference models" if self.references else ""
        total = plural(len(self.p_z), "window")
        if self.verdict.word == "leaks":
            return f"{self.found.name}: {count:,} of {total} can be extracted{beyond}"
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
        """Return the verdict, what comes out with how many queries, and what the numbers assume."""
        from lethe.results.extraction import WORDS
        from lethe.results.verdict import sentence

        settings, run = self.settings, self._longest_run()
        said = [sentence(self.verdict, self.found.name, words=WORDS)]
        if self.near_verdict is not None:
            name = f"{self.found.name}, within {plural(settings.distance, 'token edit')}"
            said.append(sentence(self.near_verdict, name, words=WORDS))
        hits, windows = int((self.p_z >= EXTRACTABLE).sum()), plural(len(self.p_z), "window")
        longest = f"the longest run with p_z of at least one half is {plural(run[1], 'window')} from {run[0]}"
        said.append(
            f"Verbatim: {hits:,} of {windows} have p_z of at least {EXTRACTABLE:g}; the largest is {self.p_z.max():.3g}; "
            f"{longest if run[1] else 'no window has p_z of at least one half'}."
        )
        if not self.references:
            said.append(
                "No reference model was given, so a window that any model would guess counts as extractable."
            )
        said.append(
            f"p_z is exact for temperature {settings.temperature:g}, top-k {settings.top_k} and top-p {settings.top_p:g}, "
            f"up to a logit error of {self.found.rounding.allowance:.2g} (measured, not proved)."
        )
        return said

    def _longest_run(self) -> tuple[str | None, int]:
        first, length = longest_run(self.p_z)
        return self.found.passages[first].id if length else None, length

    def as_json(self) -> dict[str, object]:
        """The keys of `lethe extract --json`."""
        from lethe.results.extraction import passage_json

        first, length = self._longest_run()
        hits = self.p_z >= EXTRACTABLE
        return {
            "model": self.found.name,
            "references": [each.name for each in self.references],
            "settings": asdict(self.settings),
            "alpha": self.settings.alpha,
            "logit_allowance": self.found.rounding.allowance,
            "tokens": len(self.found.tokens),
            "n_windows": len(self.p_z),
            "extractable": {
                "threshold": EXTRACTABLE,
                "windows": int(hits.sum()),
                "share": float(hits.mean()),
            },
            "longest_run": {"windows": length, "from": first},
            "discoverable": [
                {"queries": n, "chance": chance, "share": float(share)}
                for n, row in zip(QUERIES, discoverable(self.p_z), strict=True)
                for chance, share in zip(CHANCES, row, strict=True)
            ],
            "verdict": asdict(self.verdict),
            "near_verdict": asdict(self.near_verdict) if self.near_verdict else None,
            "windows": [
                {
                    **passage_json(self.found, passage),
                    "references": {each.name: each.passages[place].p_z for each in self.references},
                }
                for place, passage in enumerate(self.found.passages)
            ],
            "sentences": self.sentences(),
        }

    def views(self) -> list[View]:
        """The windows that come out most easily, and the share of windows by number of queries."""
        rows = []
        for place in (-self.p_z).argsort(kind="stable")[:SHOWN].tolist():
            passage = self.found.passages[place]
            near = self.found.interval(passage)
            row = [passage.id, f"{passage.p_z:.3g}", f"{near.lower:.3g} to {near.upper:.3g}" if near else None]
            row += [f"{each.passages[place].p_z:.3g}" for each in self.references]
            rows.append([*row, _short(passage.suffix)])
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
        """Return the rows of the table of results: every window, and the numbers of the text."""
        from lethe.results.extraction import rows_of

        return [row for each in (self.found, *self.references) for row in rows_of(each)]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def extract(
    model: str | os.PathLike[str] | PreTrainedModel,
    text: str | os.PathLike[str],
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
    beam: int = DEFAULTS.beam,
    further: int = DEFAULTS.further,
    samples: int = DEFAULTS.samples,
    alpha: float = DEFAULTS.alpha,
    tau: float = DEFAULTS.tau,
    seed: int = DEFAULTS.seed,
    dtype: str = DEFAULTS.dtype,
    memory: int = DEFAULTS.memory,
    scratch: str | os.PathLike[str] | None = None,
) -> Extracted:
    """Measure how likely a model continues each window of a text, verbatim and nearly so.

    Parameters
    ----------
    model : str, path or transformers.PreTrainedModel
        A Hugging Face model folder (safetensors), or a causal language model in memory with a key-value cache.
    text : path
        A plain text file in UTF-8.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        The tokenizer of a model in memory.
    reference : sequence of str, optional
        A model folder that did not learn the text, such as Retrain: what it continues as well is guessable. Repeatable.
    prefix : int
        Tokens that the model is given.
    suffix : int
        Tokens that it must continue with.
    stride : int
        Tokens from one window to the next.
    temperature : float
        The sampling temperature.
    top_k : int
        Keep the K most likely tokens; 0 keeps all.
    top_p : float
        Keep the most likely tokens of this mass.
    near : int
        Windows, spread evenly, that are also searched for continuations that are nearly the suffix.
    distance : int
        The most token edits of a continuation that is nearly the suffix.
    beam : int
        Prefixes of each length that constrained beam search keeps.
    further : int
        Further prefixes of each length that are read.
    samples : int
        About how many continuations of what stays open are sampled per window; 0 leaves certain ends alone.
    alpha : float
        The probability with which a sampled end, or the word of the verdict, may fail, above 0 and at most 0.5.
    tau : float
        The probability from which a window counts as extractable.
    seed : int
        The seed of the sampled continuations.
    dtype : str
        auto, float32, bfloat16 or float16.
    memory : int
        MiB for the rows in flight.
    scratch : path, optional
        A folder in which finished windows are kept: an interrupted call resumes there. The command keeps them.

    Returns
    -------
    Extracted
        The numbers of every window, of the text, and the verdict.

    Notes
    -----
    p_z is the product of the next-token probabilities along the suffix, from one pass per window (Cooper et al., arXiv
    2505.12546). Near-verbatim extraction is a continuation within ``distance`` token edits of the suffix (arXiv 2603.24917).

    Examples
    --------
    >>> import lethe
    >>> found = lethe.extract("my-model", "forget.jsonl", prefix=4, suffix=3)
    >>> bool((found.p_z <= 1).all())
    True
    """
    from lethe.api.sources import folder_of, source_of
    from lethe.models.in_memory import lent
    from lethe.steps.extract import extract as measure
    from lethe.steps.extract import read_text

    settings = ExtractSettings(
        prefix=prefix,
        suffix=suffix,
        stride=stride,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        near=near,
        distance=distance,
        beam=beam,
        further=further,
        samples=samples,
        alpha=alpha,
        tau=tau,
        seed=seed,
        dtype=dtype,
        memory=memory,
    )
    source, whole = source_of(model, tokenizer), read_text(Path(text))
    place = Path(scratch) if scratch else None
    name = source.resolve().name if isinstance(source, Path) else NAME
    with lent(source):
        found = measure(name, source, whole, settings, place)
    others = []
    for folder in map(folder_of, reference or []):
        other = measure(folder.resolve().name, folder, whole, settings, place)
        if other.tokens != found.tokens:
            raise BadInput(
                f"reference: {folder} splits the text into other tokens than {name}. Name a model of the same tokenizer."
            )
        others.append(other)
    return Extracted(found, tuple(others), settings)
