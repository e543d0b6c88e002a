"""`lethe.exact` and `lethe.extract`: what next-token probabilities prove about a forget set, and about a text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.api import parameters as common
from lethe.api.parameters import ModelOrPlace, Place, PlaceInPython, Rows, Tokenizer, rows_of
from lethe.api.result import Measurement, View, frame, short
from lethe.config.evaluating import EXACT, SAMPLE, Endpoint, ExtractSettings
from lethe.errors import BadArguments, BadFile, BadInput, check, plural
from lethe.io.files import read_text
from lethe.results import views
from lethe.results.extraction import Extraction
from lethe.results.extraction import rows_of as window_rows
from lethe.results.table import Result
from lethe.statistics.extraction import CHANCES, EXTRACTABLE, QUERIES, discoverable, longest_run
from lethe.text import queries
from lethe.verdict.rules import Verdict, sentence
from lethe.verdict.windows import WORDS, verdict_of

if TYPE_CHECKING:
    import pandas as pd

    from lethe.sampling.engine import Checkpoint
    from lethe.sampling.extraction import Window
    from lethe.statistics.leak_trees import Certificates

COLUMNS = (
    "id",
    "lower",
    "upper",
    "upper_certain",
    "lower_sampled",
    "rows",
    "sampled",
    "sampled_leaks",
)


CLAIMS = (
    *("lower", "upper", "upper_certain", "lower_sampled"),
    *("verdict", "queries_from", "queries_to"),
)


@dataclass(frozen=True, repr=False)
class ExactBounds(Measurement):
    """The result of `exact`: the answer tree of each question with its ends, and the summary over the questions."""

    certificates: Certificates
    VIEW = "exact"

    @property
    def refused(self) -> tuple[str, ...]:
        """Why no end may be claimed (`lethe.results.licence`); empty where it may."""
        return self.certificates.refused

    def to_frame(self) -> pd.DataFrame:
        """One row per question: the ends, the rows, the sampled answers, the verdict and the likeliest leaking text."""
        rows = []
        for tree in self.certificates.trees:
            row = {column: getattr(tree, column) for column in COLUMNS}
            row |= {"verdict": self.certificates.verdicts[tree.id]}
            row |= dict(zip(("queries_from", "queries_to"), tree.queries_until_half, strict=True))
            if self.refused:
                row |= dict.fromkeys(CLAIMS)
            rows.append(
                {
                    **row,
                    "heaviest_leak": tree.heaviest_leaks[0].text if tree.heaviest_leaks else None,
                }
            )
        return frame(rows).rename(columns={"id": "prompt_id"})

    def sentences(self) -> list[str]:
        return self.certificates.sentences()

    def views(self) -> list[View]:
        rows: list[list[object]] = []
        for tree in self.certificates.trees:
            likeliest = short(tree.heaviest_leaks[0].text) if tree.heaviest_leaks else None
            if self.refused:
                rows.append([tree.id, None, None, None, None, likeliest])
                continue
            ends = [tree.bounds["lower"], tree.bounds["upper"]]
            until = queries(tree.queries_until_half)
            rows.append([tree.id, *ends, self.certificates.verdicts[tree.id], until, likeliest])
        head = ["question", "P(leak) >=", "P(leak) <=", "verdict"]
        head += ["queries until an even chance", "likeliest leak found"]
        title = f"{self.certificates.name}: {self.certificates.how.leak}"
        return [View(title, head, rows, self.sentences())]

    def rows(self) -> list[Result]:
        from lethe.results.exact_bounds import rows_of, summary_of

        return [*rows_of(self.certificates), summary_of(self.certificates)]


@common.documented
def exact(
    model: ModelOrPlace,
    data: Rows,
    *,
    tokenizer: Tokenizer = None,
    rows: int = EXACT.rows,
    alpha: float = EXACT.alpha,
    target: float | None = EXACT.target,
    exact_only: bool = EXACT.exact_only,
    temperature: float = SAMPLE.temperature,
    top_k: int = SAMPLE.top_k,
    top_p: float = SAMPLE.top_p,
    adaptive_threshold: float | None = None,
    max_new_tokens: int = SAMPLE.max_new_tokens,
    prompt: Place | None = None,
    scorer: str = EXACT.scorer,
    above: float = EXACT.above,
    tau: float = EXACT.tau,
    seed: int = EXACT.seed,
    dtype: str = SAMPLE.dtype,
    memory: int = EXACT.memory,
    scratch: PlaceInPython = None,
    endpoint: str | None = None,
    key_env: str | None = None,
    requests: int | None = None,
) -> ExactBounds:
    """Bound how likely each question is to make the model leak, from its next-token probabilities.

    A guided tree of answers proves leaks down to 1e-12 from below; the remainder is sampled and bounded from above.

    Parameters
    ----------
    data : The forget set: JSON lines with id, question, answer, keywords. In Python also such rows.
    rows : The approximate number of tokens that the model processes per question.
    alpha : The probability with which each upper bound may fail, above 0 and at most 0.5. Lower bounds are certain.
    target : Sample until a question without a sampled leak is bounded by this probability, regardless of ``rows``.
    exact_only : Draw no sample: both ends are certain, and the upper one is wide.
    scorer : The definition of a leak: "keyword_leak", "exact_match", or another text scorer with ``above``.
    memory : MiB for the rows in flight.
    endpoint : The address of vLLM's server, up to /v1: certain ends as the server states its probabilities; ``model`` is
        the server's name of the model.
    key_env : The environment variable that holds the server's key.
    requests : The most requests to the server for a question; one opens a prefix. [default: 500]
    tau : The probability per query at which a question is proved to leak, or bounded.
    seed : The seed of the sample of the unexplored mass.

    Notes
    -----
    Bounds assume that the computed logits err by at most the measured allowance, which the result states. Upper bounds also
    assume independent Poisson draws from the unexplored mass, which Lethe makes (Garwood, "Fiducial limits for the
    Poisson distribution", Biometrika 28, 1936).

    Examples
    --------
    >>> import lethe
    >>> rows = [{"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]}]
    >>> result = lethe.exact("my-model", rows, rows=400, max_new_tokens=4)
    >>> tree = result.certificates.trees[0]
    >>> tree.lower <= tree.upper, tree.bounds["lower"].level(), len(result.to_frame())
    (True, 'with certainty', 1)
    """
    given = dict(locals())
    from lethe.models.checkpoints import lent
    from lethe.steps.exact import ExactSettings, certify, certify_served

    given["prompt"] = None if prompt is None else str(prompt)
    check(
        target is None or not exact_only,
        "target",
        target,
        "left out with exact_only, which draws no sample",
    )
    settings = ExactSettings(
        **{name: given[name] for name in ExactSettings.model_fields if name in given}
    )
    if requests is not None and endpoint is None:
        raise BadArguments(("requests", "endpoint"), common.OF_A_SERVER)
    check(requests is None or requests > 0, "requests", requests, "at least 1")
    source = common.origin_of(model, tokenizer, {"endpoint": endpoint, "key_env": key_env})
    questions = rows_of(data, "data")
    if not questions:
        raise BadFile(
            str(data) if isinstance(data, (str, os.PathLike)) else "data", "holds no question"
        )
    if isinstance(source, Endpoint):
        return ExactBounds(
            certify_served(common.name_of(source), source, questions, settings, requests or 500)
        )
    place = Path(scratch) if scratch else None
    with lent(source):
        return ExactBounds(
            certify(common.name_of(source), source, questions, settings, place, estimate=True)
        )


FIRST = 10  # windows in a terminal
DEFAULTS = ExtractSettings()


@dataclass(frozen=True, repr=False)
class Extracted(Measurement):
    """The result of `extract`: the windows (``passages``) under the model, and the same windows under the references."""

    extraction: Extraction
    references: tuple[Extraction, ...]
    settings: ExtractSettings
    tokens: int

    @property
    def p_z(self) -> np.ndarray:
        """The probability of each window, (windows,)."""
        return self.extraction.p_z

    @cached_property
    def verdict(self) -> Verdict:
        """The word on verbatim extraction, with windows as questions."""
        ends, *others = (each.verbatim_ends() for each in (self.extraction, *self.references))
        return verdict_of(ends, others, self.settings.alpha, self.settings.tau)

    @cached_property
    def near_verdict(self) -> Verdict | None:
        """The word on near-verbatim extraction of the searched windows; None where none was searched."""
        if not self.extraction.searched:
            return None
        ends, *others = (each.near_ends() for each in (self.extraction, *self.references))
        return verdict_of(ends, others, self.settings.alpha, self.settings.tau)

    def headline(self) -> str:
        """Return the word on verbatim extraction and how many windows it is about, in one short line."""
        beyond, total = (
            " beyond the reference models" if self.references else "",
            plural(len(self.p_z), "window"),
        )
        if self.verdict.word == "leaks":
            return f"{self.extraction.name}: {self.verdict.leaking:,} of {total} can be extracted{beyond}"
        return f"{self.extraction.name}: none of {total} is proved to be extractable{beyond}"

    def to_frame(self) -> pd.DataFrame:
        """One row per window: its place, p_z with its ends, the ends of near-verbatim extraction, and the passage."""
        rows = []
        for place, passage in enumerate(self.extraction.passages):
            lower, upper = self.extraction.ends(passage)
            near = self.extraction.interval(passage)
            row = {"window": passage.id, "start": passage.start, "p_z": passage.p_z}
            row |= {"p_z_lower": lower, "p_z_upper": upper}
            row |= {"near_lower": near and near.lower, "near_upper": near and near.upper}
            row |= {f"p_z_{each.name}": each.passages[place].p_z for each in self.references}
            rows.append({**row, "suffix": passage.suffix})
        return frame(rows)

    def sentences(self) -> list[str]:
        settings, name, (first, length) = self.settings, self.extraction.name, longest_run(self.p_z)
        lines = [sentence(self.verdict, name, words=WORDS)]
        if self.near_verdict is not None:
            edits = plural(settings.distance, f"{settings.unit[:-1]} edit")
            lines.append(sentence(self.near_verdict, f"{name}, within {edits}", words=WORDS))
        hits, windows = int((self.p_z >= EXTRACTABLE).sum()), plural(len(self.p_z), "window")
        run = f"{plural(length, 'window')} from {self.extraction.passages[first].id}"
        longest = f"the longest run with p_z of at least one half is {run}"
        lines.append(
            f"Verbatim: {hits:,} of {windows} have p_z of at least {EXTRACTABLE:g}; the largest is {self.p_z.max():.3g}; "
            f"{longest if length else 'no window has p_z of at least one half'}."
        )
        if not self.references:
            guessed = "a window that any model would guess counts as extractable"
            lines.append(f"No reference model was given, so {guessed}.")
        law = f"temperature {settings.temperature:g}, top-k {settings.top_k} and top-p {settings.top_p:g}"
        error = f"up to a logit error of {self.extraction.rounding.allowance:.2g} (measured, not proved)"
        return [*lines, f"p_z is exact for {law}, {error}."]

    def as_json(self) -> dict[str, object]:
        references = [window_rows(each) for each in self.references]
        suffixes = [passage.suffix for passage in self.extraction.passages]
        return {
            **views.extraction(window_rows(self.extraction), references, suffixes),
            "settings": self.settings.model_dump(),
            "tokens": self.tokens,
            "verdict": asdict(self.verdict),
            "near_verdict": asdict(self.near_verdict) if self.near_verdict else None,
            "sentences": self.sentences(),
        }

    def views(self) -> list[View]:
        rows = []
        for place in (-self.p_z).argsort(kind="stable")[:FIRST].tolist():
            passage = self.extraction.passages[place]
            near = self.extraction.interval(passage)
            row = [
                passage.id,
                f"{passage.p_z:.3g}",
                f"{near.lower:.3g} to {near.upper:.3g}" if near else None,
            ]
            row += [f"{each.passages[place].p_z:.3g}" for each in self.references]
            rows.append([*row, short(passage.suffix, 36)])
        head = [
            "window",
            "p_z",
            "nearly verbatim",
            *[f"p_z of {each.name}" for each in self.references],
            "suffix",
        ]
        shares = zip(QUERIES, discoverable(self.p_z), strict=True)
        by_queries = [[f"{n:,}", *[f"{share:.1%}" for share in row]] for n, row in shares]
        chances = ["queries", *[f"with chance {chance:g}" for chance in CHANCES]]
        return [
            View(f"{self.extraction.name}: the windows that come out most easily", head, rows),
            View("windows that come out", chances, by_queries, self.sentences()),
        ]

    def rows(self) -> list[Result]:
        return [row for each in (self.extraction, *self.references) for row in window_rows(each)]


@common.documented
def extract(
    model: ModelOrPlace,
    text: Place,
    *,
    tokenizer: Tokenizer = None,
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
    scratch: PlaceInPython = None,
) -> Extracted:
    """Measure how likely a model continues each window of a text, verbatim and nearly so.

    Parameters
    ----------
    text : A plain text file in UTF-8.
    reference : A model folder that did not learn the text, such as Retrain: a window that it continues as well is
        guessable. Repeatable.
    prefix : The number of tokens that the model reads.
    suffix : The number of tokens with which it must continue.
    stride : The number of tokens from one window to the next.
    near : Windows, spread evenly, that are also searched for continuations that are nearly the suffix.
    distance : The most edits of a continuation that is nearly the suffix.
    unit : The unit of an edit: "tokens", or "words" of the text.
    beam : Prefixes of each length that constrained beam search keeps.
    further : Further prefixes of each length that are read.
    samples : The approximate number of continuations sampled per window; 0 keeps both ends certain.
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
    from lethe.models.checkpoints import lent
    from lethe.sampling.extraction import windows_of
    from lethe.steps.extract import measured

    settings = ExtractSettings(**{name: given[name] for name in ExtractSettings.model_fields})
    source, whole, read = common.source_of(model, tokenizer), read_text(text), list[list[int]]()
    place = Path(scratch) if scratch else None

    def windows(checkpoint: Checkpoint) -> list[Window]:
        tokens = checkpoint.tokenizer(whole, add_special_tokens=False)["input_ids"]
        if tokens != (read or [tokens])[0]:
            problem = f"{checkpoint.source} splits the text into other tokens"
            raise BadInput(f"reference: {problem}. Name a model of the same tokenizer.")
        read.append(tokens)
        if windows := windows_of(tokens, settings.prefix, settings.suffix, settings.stride):
            return windows
        few = f"{len(tokens)} tokens, too few for a window of {settings.prefix} + {settings.suffix}"
        raise BadFile(text, f"holds {few}", "Give a longer text, or smaller --prefix and --suffix.")

    with lent(source):
        extraction = measured(
            common.name_of(source), source, windows, settings, place, estimate=True
        )
    folders = map(common.folder_of, reference or [])
    others = [
        measured(common.name_of(one), one, windows, settings, place, estimate=True)
        for one in folders
    ]
    return Extracted(extraction, tuple(others), settings, len(read[0]))
