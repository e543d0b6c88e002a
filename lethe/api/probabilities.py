"""`lethe.exact` and `lethe.extract`: what next-token probabilities prove about a forget set, and about a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.api.parameters import (
    OF_A_SERVER,
    ModelOrPlace,
    Place,
    PlaceInPython,
    Rows,
    Tokenizer,
    documented,
    file_of,
    folder_of,
    name_of,
    origin_of,
    source_of,
    text_of,
)
from lethe.api.result import Measurement, View, frame, short
from lethe.config.measuring import EXACT, SAMPLE, Endpoint, ExtractSettings
from lethe.data.rows import dataset_rows
from lethe.errors import BadArguments, BadFile, BadInput, check, plural
from lethe.io.files import read_text
from lethe.results import views
from lethe.results.extraction import Extraction
from lethe.results.extraction import rows_of as window_rows
from lethe.results.table import Result
from lethe.statistics.extraction import CHANCES, EXTRACTABLE, QUERIES, discoverable, longest_run
from lethe.text import queries
from lethe.verdict.sentence import sentence
from lethe.verdict.verdict import Verdict
from lethe.verdict.windows import WORDS, verdict_of

if TYPE_CHECKING:
    import pandas as pd

    from lethe.models.model import Model
    from lethe.sampling.extraction import Window
    from lethe.statistics.leak_trees import AnswerTree, Certificates

REQUESTS = 500  # to a server, for a question
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

    @property
    def refused(self) -> tuple[str, ...]:
        """Why no end may be claimed (`lethe.results.licence`); empty where it may."""
        return self.certificates.refused

    def as_json(self) -> views.Document:
        return views.exact(self.rows())

    def to_frame(self) -> pd.DataFrame:
        """One row per question: the ends, the rows, the sampled answers, the verdict and the likeliest leaking text."""
        rows = []
        for tree in self.certificates.trees:
            row = {column: getattr(tree, column) for column in COLUMNS}
            row["verdict"] = self.certificates.verdicts[tree.id]
            row["queries_from"], row["queries_to"] = tree.queries_until_half
            if self.refused:
                row |= dict.fromkeys(CLAIMS)
            row["heaviest_leak"] = _heaviest_leak(tree)
            rows.append(row)
        return frame(rows).rename(columns={"id": "prompt_id"})

    def sentences(self) -> list[str]:
        return self.certificates.sentences()

    def views(self) -> list[View]:
        rows: list[list[object]] = []
        for tree in self.certificates.trees:
            text = _heaviest_leak(tree)
            likeliest = None if text is None else short(text)
            if self.refused:
                rows.append([tree.id, None, None, None, None, likeliest])
                continue
            lower, upper = tree.bounds["lower"], tree.bounds["upper"]
            verdict = self.certificates.verdicts[tree.id]
            until = queries(tree.queries_until_half)
            rows.append([tree.id, lower, upper, verdict, until, likeliest])
        head = ["question", "P(leak) >=", "P(leak) <=", "verdict"]
        head += ["queries until an even chance", "likeliest leak found"]
        title = f"{self.certificates.name}: {self.certificates.how.leak}"
        return [View(title, head, rows, self.sentences())]

    def rows(self) -> list[Result]:
        from lethe.results.exact_bounds import rows_of, summary_of

        return [*rows_of(self.certificates), summary_of(self.certificates)]


def _heaviest_leak(tree: AnswerTree) -> str | None:
    """The text of the likeliest leak that was found in an answer tree."""
    return tree.heaviest_leaks[0].text if tree.heaviest_leaks else None


@documented
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
    from lethe.models.checkpoints import lent
    from lethe.steps.exact import ExactSettings, certify, certify_served

    legal = "left out with exact_only, which draws no sample"
    check(target is None or not exact_only, "target", target, legal)
    settings = ExactSettings(
        rows=rows,
        alpha=alpha,
        target=target,
        exact_only=exact_only,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        adaptive_threshold=adaptive_threshold,
        max_new_tokens=max_new_tokens,
        prompt=text_of(prompt),
        scorer=scorer,
        above=above,
        tau=tau,
        seed=seed,
        dtype=dtype,
        memory=memory,
    )
    if requests is not None and endpoint is None:
        raise BadArguments(("requests", "endpoint"), OF_A_SERVER)
    check(requests is None or requests > 0, "requests", requests, "at least 1")
    source = origin_of(model, tokenizer, {"endpoint": endpoint, "key_env": key_env})
    questions = dataset_rows(data, "data")
    if not questions:
        raise BadFile(file_of(data, "data"), "holds no question")
    name = name_of(source)
    if isinstance(source, Endpoint):
        most = requests or REQUESTS
        return ExactBounds(certify_served(name, source, questions, settings, most))
    place = Path(scratch) if scratch else None
    with lent(source):
        return ExactBounds(
            certify(
                name,
                source,
                questions,
                settings,
                place,
                estimate=True,
            )
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
        ends = self.extraction.verbatim_ends()
        others = [reference.verbatim_ends() for reference in self.references]
        return verdict_of(ends, others, self.settings.alpha, self.settings.tau)

    @cached_property
    def near_verdict(self) -> Verdict | None:
        """The word on near-verbatim extraction of the searched windows; None where none was searched."""
        if not self.extraction.searched:
            return None
        ends = self.extraction.near_ends()
        others = [reference.near_ends() for reference in self.references]
        return verdict_of(ends, others, self.settings.alpha, self.settings.tau)

    def headline(self) -> str:
        """Return the word on verbatim extraction and how many windows it is about, in one short line."""
        name = self.extraction.name
        windows = plural(len(self.p_z), "window")
        beyond = " beyond the reference models" if self.references else ""
        if self.verdict.word == "leaks":
            return f"{name}: {self.verdict.leaking:,} of {windows} can be extracted{beyond}"
        return f"{name}: none of {windows} is proved to be extractable{beyond}"

    def to_frame(self) -> pd.DataFrame:
        """One row per window: its place, p_z with its ends, the ends of near-verbatim extraction, and the passage."""
        rows = []
        for place, passage in enumerate(self.extraction.passages):
            lower, upper = self.extraction.ends(passage)
            near = self.extraction.interval(passage)
            row = {"window": passage.id, "start": passage.start, "p_z": passage.p_z}
            row |= {"p_z_lower": lower, "p_z_upper": upper}
            row |= {"near_lower": near and near.lower, "near_upper": near and near.upper}
            for reference in self.references:
                row[f"p_z_{reference.name}"] = reference.passages[place].p_z
            rows.append({**row, "suffix": passage.suffix})
        return frame(rows)

    def sentences(self) -> list[str]:
        settings, name = self.settings, self.extraction.name
        lines = [sentence(self.verdict, name, words=WORDS)]
        if self.near_verdict is not None:
            edits = plural(settings.distance, f"{settings.unit[:-1]} edit")
            lines.append(sentence(self.near_verdict, f"{name}, within {edits}", words=WORDS))
        hits = int((self.p_z >= EXTRACTABLE).sum())
        windows = plural(len(self.p_z), "window")
        lines.append(
            f"Verbatim: {hits:,} of {windows} have p_z of at least {EXTRACTABLE:g}; the largest is {self.p_z.max():.3g}; "
            f"{self._longest_run()}."
        )
        if not self.references:
            guessed = "a window that any model would guess counts as extractable"
            lines.append(f"No reference model was given, so {guessed}.")
        law = f"temperature {settings.temperature:g}, top-k {settings.top_k} and top-p {settings.top_p:g}"
        error = f"up to a logit error of {self.extraction.rounding.allowance:.2g} (measured, not proved)"
        return [*lines, f"p_z is exact for {law}, {error}."]

    def _longest_run(self) -> str:
        first, length = longest_run(self.p_z)
        if not length:
            return "no window has p_z of at least one half"
        run = f"{plural(length, 'window')} from {self.extraction.passages[first].id}"
        return f"the longest run with p_z of at least one half is {run}"

    def as_json(self) -> dict[str, object]:
        references = list(map(window_rows, self.references))
        suffixes = [passage.suffix for passage in self.extraction.passages]
        near_verdict = None if self.near_verdict is None else asdict(self.near_verdict)
        return {
            **views.extraction(window_rows(self.extraction), references, suffixes),
            "access": "log-probabilities",
            "settings": self.settings.model_dump(),
            "tokens": self.tokens,
            "verdict": asdict(self.verdict),
            "near_verdict": near_verdict,
            "sentences": self.sentences(),
        }

    def views(self) -> list[View]:
        title = f"{self.extraction.name}: the windows that come out most easily"
        head = ["window", "p_z", "nearly verbatim"]
        head += [f"p_z of {reference.name}" for reference in self.references]
        order = (-self.p_z).argsort(kind="stable")
        rows = [self._row_of(place) for place in order[:FIRST].tolist()]
        chances = ["queries", *(f"with chance {chance:g}" for chance in CHANCES)]
        by_queries = []
        for number, shares in zip(QUERIES, discoverable(self.p_z), strict=True):
            by_queries.append([f"{number:,}", *(f"{share:.1%}" for share in shares)])
        return [
            View(title, [*head, "suffix"], rows),
            View("windows that come out", chances, by_queries, self.sentences()),
        ]

    def _row_of(self, place: int) -> list[object]:
        """A window in a table for people."""
        passage = self.extraction.passages[place]
        near = self.extraction.interval(passage)
        row: list[object] = [passage.id, f"{passage.p_z:.3g}", None]
        if near:
            row[-1] = f"{near.lower:.3g} to {near.upper:.3g}"
        for reference in self.references:
            row.append(f"{reference.passages[place].p_z:.3g}")
        return [*row, short(passage.suffix, 36)]

    def rows(self) -> list[Result]:
        rows = window_rows(self.extraction)
        for reference in self.references:
            rows += window_rows(reference)
        return rows


@documented
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
    memory : MiB for the rows in flight.

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
    from lethe.models.checkpoints import lent
    from lethe.steps.extract import measured

    settings = ExtractSettings(
        prefix=prefix,
        suffix=suffix,
        stride=stride,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        near=near,
        distance=distance,
        unit=unit,  # type: ignore[arg-type]  # another word is refused
        beam=beam,
        further=further,
        samples=samples,
        alpha=alpha,
        tau=tau,
        seed=seed,
        dtype=dtype,
        memory=memory,
    )
    source = source_of(model, tokenizer)
    windows = _Windows(text, read_text(text), settings)
    place = Path(scratch) if scratch else None
    with lent(source):
        extraction = measured(
            name_of(source),
            source,
            windows,
            settings,
            place,
            estimate=True,
        )
    references = []
    for folder in map(folder_of, reference or []):
        name = name_of(folder)
        references.append(
            measured(
                name,
                folder,
                windows,
                settings,
                place,
                estimate=True,
            )
        )
    return Extracted(extraction, tuple(references), settings, len(windows.tokens))


class _Windows:
    """Cuts the text into the windows of a model; every further model must split the text into the same tokens."""

    def __init__(self, place: Place, text: str, settings: ExtractSettings):
        self.place = place
        self.text = text
        self.settings = settings
        self.tokens: list[int] = []

    def __call__(self, checkpoint: Model) -> list[Window]:
        from lethe.sampling.extraction import windows_of

        settings = self.settings
        tokens = checkpoint.tokenizer(self.text, add_special_tokens=False)["input_ids"]
        if self.tokens and tokens != self.tokens:
            problem = f"{checkpoint.source} splits the text into other tokens"
            raise BadInput(f"reference: {problem}. Name a model of the same tokenizer.")
        self.tokens = tokens
        windows = windows_of(tokens, settings.prefix, settings.suffix, settings.stride)
        if not windows:
            size = f"{settings.prefix} + {settings.suffix}"
            problem = f"holds {len(tokens)} tokens, too few for a window of {size}"
            remedy = "Give a longer text, or smaller --prefix and --suffix."
            raise BadFile(self.place, problem, remedy)
        return windows
