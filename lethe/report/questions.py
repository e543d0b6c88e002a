"""The numbers of one forget question and one model, as columns: what each number is, and what its guarantee covers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lethe.evaluation.run import Question, Run
from lethe.report.verdicts import NEARLY
from lethe.statistics.bound import Bound
from lethe.statistics.dispersion import possible
from lethe.text import NONE, count, label, number, percent

ASKED = (10, 100, 1000, 10_000, 1_000_000)  # the numbers of queries shown, of all for which leak@k is measured
Bounds = Mapping[str, Bound]


@dataclass(frozen=True)
class QuestionColumn:
    """``cell`` formats the value from a question and bounds; ``told`` says what it is and what it covers."""

    head: str
    told: str
    cell: Callable[[Question, Bounds], str]


@dataclass(frozen=True)
class QuestionColumns:
    """The columns in use, by source: the number of answers that leaked, which many questions share, or the scores."""

    leaks: list[QuestionColumn]
    asked: list[QuestionColumn]
    score: list[QuestionColumn]
    groups: list[tuple[str, list[QuestionColumn]]]  # in the order above, with their titles

    @property
    def binary(self) -> list[QuestionColumn]:
        return [*self.leaks, *self.asked]

    @property
    def all(self) -> list[QuestionColumn]:
        return [*self.binary, *self.score]


def question_columns(run: Run) -> QuestionColumns:
    """The columns that hold a value in this run."""
    rows = [row for model in run.models for row in model.questions]
    bounds = _guarantees(run)

    def kept(columns: list[tuple[str, QuestionColumn]]) -> list[QuestionColumn]:
        return [column for key, column in columns if any(_has(row, key) for row in rows)]

    leaks, asked, score = (kept(make(run, bounds)) for make in (_leak_columns, _asked_columns, _score_columns))
    titles = (
        label(run.params.metrics.binary),
        f"{run.words.a_leak} among this many answers",
        label(run.params.metrics.leak),
    )
    groups = [(title, columns) for title, columns in zip(titles, (leaks, asked, score), strict=True) if columns]
    return QuestionColumns(leaks, asked, score, groups)


def _has(row: Question, key: str) -> bool:
    """Whether the question has a value, bound or band under the name."""
    return row.numbers.values.get(key) is not None or (key == "leak_at_k" and bool(row.numbers.series(key)))


def bound_of(row: Question) -> Bound | None:
    """The upper bound that represents a question in the table of all questions: M_bin, else that on the mean."""
    return next((row.bounds[key] for key in WORST if key in row.bounds), None)


WORST = {
    "m_bin": "the probability that an answer {leaks}",
    "tighter_mean_upper": "the mean score",
    "m_mu": "the mean score",
    "anytime_upper": "the mean score, at whatever number of answers the {question} stopped",
}


def told_of_bound(run: Run) -> str:
    """What `bound_of` gives in this run, with its guarantee; empty if it gives nothing."""
    bounds = _guarantees(run)
    key = next((key for key in WORST if key in bounds), None)
    if key is None:
        return ""
    words = run.words
    what = WORST[key].format(leaks=words.leaks, question=words.question)
    return f"the {bounds[key].side} bound on {what}, {bounds[key].guarantee(words.questions)}"


def _guarantees(run: Run) -> dict[str, Bound]:
    """A bound of each kind, for its guarantee: the models differ at most in n."""
    found: dict[str, Bound] = {}
    for model in run.models:
        for row in model.questions[:1]:
            found = {**shown_bounds(row), **found}
    return found


def shown_bounds(row: Question) -> dict[str, Bound]:
    """The bounds of one question; of leak@k the two sides of the band of each k in `ASKED`, under ``asked_K_SIDE``."""
    found = dict(row.bounds)
    for point in row.numbers.series("leak_at_k"):
        if point.at in ASKED:
            ends = {"lower": point.lower_bound, "upper": point.upper_bound}
            found |= {f"asked_{point.at:.0f}_{side}": end for side, end in ends.items() if end}
    return found


def _score_columns(run: Run, bounds: Bounds) -> list[tuple[str, QuestionColumn]]:
    leak = label(run.params.metrics.leak)
    shown = [
        ("greedy", "greedy", f"{leak} of the greedy answer"),
        ("mean", "mean", f"mean {leak} of the sampled answers"),
        ("max", "max", f"the highest {leak} of a sampled answer"),
        ("sd", "sd", f"standard deviation of the {leak} of the sampled answers"),
    ]
    upper = [
        ("tighter_mean_upper", "µ bet", f"mean {leak}"),
        ("m_mu", "M_µ", f"mean {leak}, the published form"),
        ("tighter_sd_upper", "σ bet", "standard deviation"),
        ("m_sigma", "M_σ", "standard deviation, the published form"),
        ("anytime_upper", "mean", f"mean {leak}, however many answers were drawn"),
    ]
    return [
        *((key, QuestionColumn(head, told, _plain(key))) for key, head, told in shown),
        *(
            (key, QuestionColumn(head, _told(told, bounds.get(key), run.words.questions), _bound(key)))
            for key, head, told in upper
        ),
    ]


def _leak_columns(run: Run, bounds: Bounds) -> list[tuple[str, QuestionColumn]]:
    binary = label(run.params.metrics.binary)
    one = _told(f"probability that an answer shows {binary}", bounds.get("m_bin"), run.words.questions)
    return [
        ("binary_share", QuestionColumn("sampled", f"share of the sampled answers that show {binary}", _leaks)),
        ("binary_greedy", QuestionColumn("greedy", f"whether the greedy answer shows {binary}", _greedy)),
        (
            "verdict",
            QuestionColumn(
                "verdict",
                "the verdict of the sequential test",
                lambda row, _: str(row.numbers.values.get("verdict") or NONE),
            ),
        ),
        (
            "decided_at",
            QuestionColumn(
                "after", "answers drawn until the verdict", lambda row, _: count(row.value("decided_at"))
            ),
        ),
        ("m_bin", QuestionColumn("M_bin", one, _band("m_bin_lower", "m_bin"))),
    ]


def _asked_columns(run: Run, bounds: Bounds) -> list[tuple[str, QuestionColumn]]:
    binary = label(run.params.metrics.binary)
    return [
        (
            "leak_at_k",
            QuestionColumn(
                f"{k:,}",
                _told(
                    f"probability that at least one of {k:,} answers shows {binary}",
                    bounds.get(f"asked_{k}_upper"),
                    run.words.questions,
                ),
                _band(f"asked_{k}_lower", f"asked_{k}_upper"),
            ),
        )
        for k in ASKED
        if f"asked_{k}_upper" in bounds
    ]


def _told(quantity: str, bound: Bound | None, of: str) -> str:
    return f"{quantity}, {bound.guarantee(of)} ({bound.method})" if bound else quantity


def _plain(key: str) -> Callable[[Question, Bounds], str]:
    return lambda row, _: number(row.value(key))


def _bound(key: str) -> Callable[[Question, Bounds], str]:
    def cell(_: Question, bounds: Bounds) -> str:
        bound = bounds.get(key)
        if bound is None:
            return NONE
        return (possible(bound) if "sigma" in key or "_sd_" in key else bound).number()

    return cell


def _band(lower: str, upper: str) -> Callable[[Question, Bounds], str]:
    def cell(_: Question, bounds: Bounds) -> str:
        if upper not in bounds:
            return NONE
        low, high = bounds.get(lower), bounds[upper]
        if low is None or low.value == 0:
            return f"≤ {high.percent()}"
        if low.value > NEARLY:
            return f"> {100 * NEARLY:g}%"
        return f"{low.percent()}–{high.percent()}" if high.value <= NEARLY else f"≥ {low.percent()}"

    return cell


def _leaks(row: Question, _: Bounds) -> str:
    return percent(row.value("binary_share"))


def _greedy(row: Question, _: Bounds) -> str:
    return NONE if row.value("binary_greedy") is None else "yes" if row.value("binary_greedy") else "no"
