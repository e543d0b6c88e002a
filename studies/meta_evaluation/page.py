"""The page of a meta-evaluation: one table, one figure, and sentences that a fixed rule chooses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from lethe.errors import plural
from lethe.report import svg
from lethe.report.templates import templates
from lethe.statistics.bound import coverage
from lethe.text import NONE, count, listing, number
from studies.meta_evaluation.estimates import Estimate, PairTest
from studies.meta_evaluation.worth import AUC, ClaimOutcome, ClaimTest, MetaResult, Target, Worth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = 1.9  # inches beside the axes for the names
PAIRS = 12  # pairs named in a sentence
WHAT = {"leaks": "the share of leaking answers that comes back", "mean": "the mean score that comes back"}
KEPT = 10  # unlearned models below which R and Q of a number are no ground for a sentence


@dataclass(frozen=True)
class Column:
    """One column of the table: its head on the page and, where it is shown there, on the command line."""

    title: str
    text: Callable[[Worth], str]
    terminal: str = ""


COLUMNS = (
    Column("number", lambda one: one.name, "number"),
    Column("knows more", lambda one: "larger" if one.larger else "smaller"),
    Column("AUC", lambda one: shown(one.auc), "AUC"),
    Column("AUC per question", lambda one: shown(one.auc_each), "per question"),
    Column("R", lambda one: shown(one.one_sided.relearning)),
    Column("Q", lambda one: shown(one.one_sided.quantisation)),
    Column("of models", lambda one: str(one.kept)),
    Column("robustness", lambda one: shown(one.one_sided.both), "robustness"),
    Column("symmetric", lambda one: shown(one.symmetric.both)),
    Column("prediction: leaks", lambda one: shown(one.prediction), "leaks"),
    Column("prediction: mean", lambda one: shown(one.prediction_mean), "mean"),
    Column("seconds per model", lambda one: _cost(one.cost.seconds, 2), "seconds"),
    Column("rows per model", lambda one: _cost(one.cost.rows, 0), "rows"),
    Column("missing", lambda one: str(one.missing)),
)
TERMINAL = tuple(column for column in COLUMNS if column.terminal)

QUALITY = ("kind", "pool", "models", "mean utility", "least utility", "left out")


def page(name: str, result: MetaResult, headline: Sequence[str], provenance: Mapping[str, object]) -> str:
    best = [one for one in result.worth if one.auc.known and one.name in headline]
    return (
        templates(count, plural)
        .from_string((Path(__file__).parent / "meta.html").read_text(encoding="utf-8"))
        .render(
            title=f"meta-evaluation {name}",
            name=name,
            result=result,
            guarantee=guarantee(result),
            head=[column.title for column in COLUMNS],
            rows=rows(result),
            figure=figure(best),
            comes_back=WHAT[target_of(best)],
            sentences=sentences(result),
            claims=[(one, claim_sentence(one)) for one in result.claims],
            quality_head=QUALITY,
            quality=quality_rows(result),
            provenance=provenance,
        )
    )


def rows(result: MetaResult, columns: Sequence[Column] = COLUMNS) -> list[list[str]]:
    return [[column.text(one) for column in columns] for one in result.worth]


def table(name: str, result: MetaResult, folder: Path) -> tuple[str, list[str], list[list[str]], list[str]]:
    claims = [f"{one.text}: {one.verdict}. {claim_sentence(one)}" for one in result.claims]
    return (
        f"Meta-evaluation {name}: {sum(result.knows.values())} models that know, "
        f"{sum(result.lacks.values())} that lack, {sum(result.unlearned.values())} unlearned",
        [column.terminal for column in TERMINAL],
        rows(result, TERMINAL),
        [guarantee(result), *sentences(result), *claims, f"The page: {folder}/index.html"],
    )


def quality_rows(result: MetaResult) -> list[list[str]]:
    """One row of text per kind of pool models: their utility, and how many are left out for it."""
    return [
        [
            one.kind,
            "know" if one.knows else "lack",
            str(one.models),
            number(one.mean),
            number(one.least),
            str(one.left_out),
        ]
        for one in result.quality
    ]


def _cost(value: float, digits: int) -> str:
    return NONE if math.isnan(value) else number(value, digits)


def shown(estimate: Estimate) -> str:
    """An estimate with its interval, rounded outward; a dash without a value, the value alone without an interval."""
    if not estimate.known:
        return NONE
    if math.isnan(estimate.low):
        return number(estimate.value)
    low, high = estimate.bounds()
    return f"{number(estimate.value)} ({low.number()} to {high.number()})"


def guarantee(result: MetaResult) -> str:
    return (
        f"Each interval holds with probability about {coverage(result.alpha)} by itself, for the questions and the data of "
        "this run. An interval of the AUC assumes that the models of a pool are independent draws; an interval over "
        "unlearned models draws whole methods, and robustness has none below ten methods. The interval of a number that is "
        "chosen because it is the highest has no level."
    )


def target_of(worth: Sequence[Worth]) -> Target:
    """The prediction of the figure: of the share of leaking answers, or of the mean score where the share has no value."""
    return "leaks" if any(one.prediction.known for one in worth) else "mean"


def figure(best: Sequence[Worth]) -> Markup:
    """AUC and AUC per question with their intervals, and the prediction of what comes back, a row per number."""
    with svg.style("meta"):
        canvas, axes = svg.canvas(6.6, 0.8 + 0.19 * max(1, len(best)), LABELS)
        draw(axes, best, target_of(best), svg.ACCENT, svg.WARM, svg.MUTED)
        axes.set_xlabel("AUC, rank correlation")
        return svg.inline(
            canvas,
            "meta",
            "AUC and AUC per question of each number with their intervals, and how it predicts what comes back",
        )


def draw(axes: Axes, best: Sequence[Worth], target: Target, accent: str, warm: str, muted: str) -> None:
    """Draw numbers from above to below: AUC (dot, bar), AUC per question (square, line), prediction (diamond)."""
    least = 0.5
    for row, one in enumerate(reversed(best)):
        axes.plot([one.auc.low, one.auc.high], [row, row], color=accent, alpha=0.3, linewidth=5)
        axes.plot([one.auc.value], [row], "o", color=accent, markersize=3.5)
        least = min(least, one.auc.low)
        if one.auc_each.known:
            axes.plot([one.auc_each.low, one.auc_each.high], [row, row], color=accent, linewidth=0.8)
            axes.plot([one.auc_each.value], [row], "s", color=accent, markersize=6, markerfacecolor="none")
            least = min(least, one.auc_each.low)
        back = one.prediction if target == "leaks" else one.prediction_mean
        if back.known:
            axes.plot([back.value], [row], "D", color=warm, markersize=3)
            least = min(least, back.value)
    axes.axvline(0.5, color=muted, linewidth=0.6)
    axes.set_yticks(range(len(best)), [one.name for one in reversed(best)])
    axes.set_ylim(-0.7, max(1, len(best)) - 0.3)
    axes.set_xlim(least - 0.03, 1.03)


def sentences(result: MetaResult) -> list[str]:
    """What the numbers show, by a rule that was fixed before the first run; later changes are of words and of ties."""
    known = [one for one in result.worth if one.auc.known]
    if not known:
        return ["No number has a value for models of both pools."]
    best = known[0]
    equal = [one.name for one in known if one.auc.value == best.auc.value]
    said = [
        f"The highest AUC of telling the models apart is {number(best.auc.value)}: {listing(equal)}.",
        _cheapest(known, best),
        _noise(known),
        _best_of(known, "one_sided", "survives relearning and quantisation best, by OpenUnlearning's definition"),
        _prediction(known, "leaks"),
        _prediction(known, "mean"),
        _quality(result),
        _pairs(result.pairs, result.alpha),
    ]
    if result.unpaired:
        said.append(
            f"Not compared in pairs, because some model lacks the number: {listing(list(result.unpaired))}."
        )
    return [one for one in said if one]


def _cheapest(known: Sequence[Worth], best: Worth) -> str:
    """The cheapest number whose AUC is at least the lower end of the interval of the highest."""
    near = [one for one in known if one.auc.value >= best.auc.low and not math.isnan(one.cost.rows)]
    if not near:
        return ""
    least = min(near, key=lambda one: (one.cost.rows, one.name))
    return (
        f"The cheapest number whose AUC lies within the interval of the highest, {shown(best.auc)}, is {least.name}: "
        f"{number(least.cost.rows, 0)} rows and "
        f"{number(least.cost.seconds, 2)} processor seconds per model."
    )


def _noise(known: Sequence[Worth]) -> str:
    unclear = [one.name for one in known if one.auc.low <= 0.5 <= one.auc.high]
    wrong = [one.name for one in known if one.auc.high < 0.5]
    said = f"Not shown to tell the models apart (the interval holds 0.5): {listing(unclear)}."
    return said + (f" Larger where less is known: {listing(wrong)}." if wrong else "")


def _best_of(known: Sequence[Worth], which: str, text: str) -> str:
    there = [one for one in known if getattr(one, which).both.known and one.auc.low > 0.5 and one.kept >= KEPT]
    if not there:
        return "No number that tells the models apart has a value of R and Q."
    best = max(there, key=lambda one: getattr(one, which).both.value)
    return f"{best.name} {text}: {number(getattr(best, which).both.value)}, over {plural(best.kept, 'model')}."


def _prediction(known: Sequence[Worth], target: str) -> str:
    found = {one.name: one.prediction if target == "leaks" else one.prediction_mean for one in known}
    there = {name: estimate for name, estimate in found.items() if estimate.known}
    if not there:
        return f"Nothing can be said about {WHAT[target]}: too few unlearned models, or all alike."
    best = max(there, key=lambda name: there[name].value)
    return (
        f"{best} predicts best {WHAT[target]} after relearning a few rows: rank correlation "
        f"{number(there[best].value)}, over "
        f"{plural(there[best].n, 'model')}."
    )


def _quality(result: MetaResult) -> str:
    left_out = sum(one.left_out for one in result.quality)
    models = sum(one.models for one in result.quality)
    said = f"{left_out} of {plural(models, 'pool model')} {'is' if left_out == 1 else 'are'} left out for too small a utility"
    found = result.utility_auc
    if not found.known:
        return f"{said}."
    differ = "does not show" if found.low <= 0.5 <= found.high else "shows"
    return (
        f"{said}. Utility alone tells the others apart with AUC {shown(found)}, which {differ} a difference in the quality "
        "of training."
    )


def _pairs(pairs: Sequence[PairTest], alpha: float) -> str:
    if not pairs:
        return ""
    held = [pair for pair in pairs if pair.holds]
    said = f"Of {plural(len(pairs), 'pair')} of headline numbers, {len(held)} are told apart at {alpha:g} (Holm)"
    if not held:
        return f"{said}."
    above: dict[str, list[str]] = {}
    for pair in sorted(held, key=lambda pair: pair.adjusted)[:PAIRS]:
        larger, smaller = (pair.first, pair.second) if pair.difference > 0 else (pair.second, pair.first)
        above.setdefault(smaller, []).append(larger)
    named = [f"{listing(larger)} above {smaller}" for smaller, larger in above.items()]
    more = f"; and {plural(len(held) - PAIRS, 'further pair')}" if len(held) > PAIRS else ""
    return f"{said}: {'; '.join(named)}{more}."


def claim_sentence(claim: ClaimOutcome) -> str:
    """The outcome of every test of one claim of the README."""
    return " ".join(_test_sentence(claim, test) for test in claim.tests)


def _test_sentence(claim: ClaimOutcome, test: ClaimTest) -> str:
    what = "Telling models apart" if test.by == AUC else f"Predicting {WHAT[test.by]}"
    kind = "AUC" if test.by == AUC else "rank correlation"
    if math.isnan(test.difference):
        return f"{what}: {'an' if test.by == AUC else 'a'} {kind} has no value."
    return (
        f"{what}: the {kind} of {claim.better} minus that of {claim.than} is {_signed(test.difference)} (Holm's p-value "
        f"{_p(test.adjusted)}): {test.verdict}."
    )


def _signed(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:+.3f}"


def _p(value: float) -> str:
    return NONE if math.isnan(value) else number(value, 4, "up")
