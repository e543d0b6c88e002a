"""A meta-evaluation whole: all models made, observed and attacked, all their numbers, the result and its page.

The models are independent once Retrain and the model that is unlearned are done, so processes share them. Every finished
model and observation stays under the hash of what decides it: a second call repeats nothing, and a killed one continues. The
page has one table, one figure, and sentences that a fixed rule chooses.
"""

import json
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes

from lethe.audits import in_processes
from lethe.errors import plural
from lethe.io.cache import cache_key, module_of
from lethe.io.files import SCHEMA_VERSION, atomic_folder, write_json, write_text
from lethe.io.tables import write_parquet
from lethe.registry import LIKELIHOODS
from lethe.report import svg
from lethe.report.page import provenance
from lethe.report.templates import templates
from lethe.statistics.bound import coverage
from lethe.text import NONE, listing, number
from studies.meta_evaluation.estimates import Estimate, PairTest
from studies.meta_evaluation.numbers import KNOWLEDGE, Number, numbers
from studies.meta_evaluation.observing import Observation
from studies.meta_evaluation.workshop import PoolModel, State, Workshop
from studies.meta_evaluation.worth import (
    AUC,
    ClaimOutcome,
    Member,
    MetaResult,
    Target,
    Worth,
    meta_result,
)

ATTACKED: tuple[State, ...] = ("relearned", "quantised")
OUT = Path("data/meta")


class Work:
    def __init__(self, shop: Workshop):
        self.shop = shop
        self.retrain, self.base = (
            Observation(shop, model) for model in (shop.models["retrain"], shop.base)
        )

    def member(self, name: str) -> Member:
        model = self.shop.models[name]
        plain = Observation(self.shop, model)
        states: dict[State, dict[str, Number]] = {"plain": self.numbers(plain)}
        # An unlearned model that counts in no R and Q is not attacked.
        least = self.shop.meta.unlearned.utility * self.base.seen.utility
        if model.role == "retrain" or (model.role == "unlearned" and plain.seen.utility >= least):
            states |= {
                state: self.numbers(Observation(self.shop, model, state)) for state in ATTACKED
            }
        back = self.comes_back(model) if model.role == "unlearned" else {}
        about = (name, model.role, model.kind, self.shop.knows(model), plain.seen.utility)
        return Member(*about, states, plain.seen.work, back)

    def numbers(self, observation: Observation) -> dict[str, Number]:
        params, meta = self.shop.params, self.shop.meta
        key = cache_key(
            "studies.meta_evaluation.numbers",
            *(module_of(KNOWLEDGE[name]) for name in KNOWLEDGE if name not in KNOWLEDGE.registered),
            settings=[
                params.metrics,
                params.epsilon_star,
                params.exact,
                meta.answers,
                meta.leak_at,
            ],
            observed=[observation.root.name, self.retrain.root.name],
            foreign=list(KNOWLEDGE),
        )
        place = self.shop.folder / "numbers" / f"{key}.json"
        # The code of a member that a program registers is in no key.
        if KNOWLEDGE.registered or LIKELIHOODS.registered or not place.is_file():
            values = numbers(observation.seen, self.retrain.seen, params)
            # Python's own JSON, for this module alone: it knows NaN and Infinity.
            write_text(place, json.dumps([asdict(one) for one in values.values()]))
        rows = json.loads(place.read_text(encoding="utf-8"))
        return {row["name"]: Number(**row | {"parts": tuple(row["parts"])}) for row in rows}

    def comes_back(self, model: PoolModel) -> dict[Target, float]:
        metrics = self.shop.params.metrics
        targets: dict[Target, str] = {"leaks": metrics.binary} if metrics.binary else {}
        targets["mean"] = metrics.leak
        draws = [
            Observation(self.shop, model, "few", draw).comes_back(list(targets.values()))
            for draw in range(self.shop.meta.predict.draws)
        ]
        return {
            target: float(np.mean([one[name] for one in draws])) for target, name in targets.items()
        }


def gather(shop: Workshop, at_once: int = 1) -> tuple[MetaResult, list[Member]]:
    pickled = pickle.dumps((shop.params, shop.scratch))
    first = ["retrain", shop.base.name]  # which all others read
    rest = [name for name in shop.models if name not in first]
    members = in_processes(_work_one, [(pickled, name) for name in first], "models", 1)
    members += in_processes(_work_one, [(pickled, name) for name in rest], "models", at_once)
    in_order = sorted(members, key=lambda one: list(shop.models).index(one.name))
    return meta_result(in_order, shop.meta), in_order


def _work_one(pickled: bytes, name: str) -> Member:
    return _opened(pickled).member(name)


@lru_cache(maxsize=1)  # a process reads the data and Retrain once for all its models
def _opened(pickled: bytes) -> Work:
    return Work(Workshop(*pickle.loads(pickled)))


def table_of(members: Sequence[Member]) -> pd.DataFrame:
    """One row per model, state and number: the value as printed, and the value that is larger for more knowledge."""
    rows = [
        (member.name, member.role, state, one.name, one.value, one.knows)
        for member in members
        for state, numbers in member.states.items()
        for one in numbers.values()
    ]
    return pd.DataFrame(rows, columns=["model", "role", "state", "number", "value", "knows"])


def write(
    name: str, shop: Workshop, result: MetaResult, members: Sequence[Member], root: Path = Path()
) -> Path:
    made_by = provenance(root, shop.folder)
    place = root / OUT / name
    with atomic_folder(place) as folder:
        about = {"name": name, "settings": shop.meta.model_dump(mode="json"), "provenance": made_by}
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **about, **asdict(result)})
        write_parquet(folder / "numbers.parquet", table_of(members))
        write_text(folder / "index.html", page(name, result, shop.meta.headline, made_by))
    return place


LABELS = 1.9  # inches beside the axes for the names
PAIRS = 12  # pairs named in a sentence
WHAT = {
    "leaks": "the share of leaking answers that comes back",
    "mean": "the mean score that comes back",
}


class Column(NamedTuple):
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


def page(
    name: str, result: MetaResult, headline: Sequence[str], provenance: Mapping[str, object]
) -> str:
    best = [one for one in result.worth if one.auc.defined and one.name in headline]
    template = templates().from_string((Path(__file__).parent / "meta.html").read_text("utf-8"))
    return template.render(
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


def rows(result: MetaResult, columns: Sequence[Column] = COLUMNS) -> list[list[str]]:
    return [[column.text(one) for column in columns] for one in result.worth]


def table(
    name: str, result: MetaResult, folder: Path
) -> tuple[str, list[str], list[list[str]], list[str]]:
    claims = [f"{one.text}: {one.verdict}. {claim_sentence(one)}" for one in result.claims]
    return (
        f"Meta-evaluation {name}: {sum(result.knows.values())} models that know, "
        f"{sum(result.lacks.values())} that lack, {sum(result.unlearned.values())} unlearned",
        [column.terminal for column in TERMINAL],
        rows(result, TERMINAL),
        [guarantee(result), *sentences(result), *claims, f"The page: {folder}/index.html"],
    )


def quality_rows(result: MetaResult) -> list[list[str]]:
    side = {True: "know", False: "lack"}
    return [
        [
            one.kind,
            side[one.knows],
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
    if not estimate.defined:
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
    return "leaks" if any(one.prediction.defined for one in worth) else "mean"


def figure(best: Sequence[Worth]) -> Markup:
    shows = "AUC and AUC per question of each number with their intervals, and how it predicts what comes back"
    with svg.style("meta"):
        canvas, axes = svg.canvas(6.6, 0.8 + 0.19 * max(1, len(best)), LABELS)
        draw(axes, best, target_of(best), svg.ACCENT, svg.WARM, svg.MUTED)
        axes.set_xlabel("AUC, rank correlation")
        return svg.inline(canvas, "meta", shows)


def draw(
    axes: Axes, best: Sequence[Worth], target: Target, accent: str, warm: str, muted: str
) -> None:
    """Draw numbers from above to below: AUC (dot, bar), AUC per question (square, line), prediction (diamond)."""
    ends = [0.5]
    for row, one in enumerate(reversed(best)):
        axes.plot([one.auc.low, one.auc.high], [row, row], color=accent, alpha=0.3, linewidth=5)
        axes.plot([one.auc.value], [row], "o", color=accent, markersize=3.5)
        if one.auc_each.defined:
            axes.plot(
                [one.auc_each.low, one.auc_each.high], [row, row], color=accent, linewidth=0.8
            )
            axes.plot(
                [one.auc_each.value], [row], "s", color=accent, markersize=6, markerfacecolor="none"
            )
        back = one.prediction if target == "leaks" else one.prediction_mean
        if back.defined:
            axes.plot([back.value], [row], "D", color=warm, markersize=3)
        ends += [
            value for value in (one.auc.low, one.auc_each.low, back.value) if not math.isnan(value)
        ]
    axes.axvline(0.5, color=muted, linewidth=0.6)
    axes.set_yticks(range(len(best)), [one.name for one in reversed(best)])
    axes.set_ylim(-0.7, max(1, len(best)) - 0.3)
    axes.set_xlim(min(ends) - 0.03, 1.03)


def sentences(result: MetaResult) -> list[str]:
    """What the numbers show, by a rule that was fixed before the first run; later changes are of words and of ties."""
    ranked = [one for one in result.worth if one.auc.defined]
    if not ranked:
        return ["No number has a value for models of both pools."]
    best = ranked[0]
    equal = [one.name for one in ranked if one.auc.value == best.auc.value]
    unclear = [one.name for one in ranked if one.auc.low <= 0.5 <= one.auc.high]
    wrong = [one.name for one in ranked if one.auc.high < 0.5]
    lines = [
        f"The highest AUC of telling the models apart is {number(best.auc.value)}: {listing(equal)}.",
        f"Not shown to tell the models apart (the interval holds 0.5): {listing(unclear)}."
        + (f" Larger where less is known: {listing(wrong)}." if wrong else ""),
        _quality(result),
        _pairs(result.pairs, result.alpha),
    ]
    if result.unpaired:
        lines.append(
            f"Not compared in pairs, because some model lacks the number: {listing(list(result.unpaired))}."
        )
    return [one for one in lines if one]


def _quality(result: MetaResult) -> str:
    left_out = sum(one.left_out for one in result.quality)
    models = sum(one.models for one in result.quality)
    text = f"{left_out} of {plural(models, 'pool model')} {'is' if left_out == 1 else 'are'} left out for too small a utility"
    auc = result.utility_auc
    if not auc.defined:
        return f"{text}."
    differ = "does not show" if auc.low <= 0.5 <= auc.high else "shows"
    return (
        f"{text}. Utility alone tells the others apart with AUC {shown(auc)}, which {differ} a difference in the quality "
        "of training."
    )


def _pairs(pairs: Sequence[PairTest], alpha: float) -> str:
    if not pairs:
        return ""
    apart = [pair for pair in pairs if pair.holds]
    text = f"Of {plural(len(pairs), 'pair')} of headline numbers, {len(apart)} are told apart at {alpha:g} (Holm)"
    if not apart:
        return f"{text}."
    above: dict[str, list[str]] = {}
    for pair in sorted(apart, key=lambda pair: pair.adjusted)[:PAIRS]:
        larger, smaller = (
            (pair.first, pair.second) if pair.difference > 0 else (pair.second, pair.first)
        )
        above.setdefault(smaller, []).append(larger)
    named = [f"{listing(larger)} above {smaller}" for smaller, larger in above.items()]
    more = f"; and {plural(len(apart) - PAIRS, 'further pair')}" if len(apart) > PAIRS else ""
    return f"{text}: {'; '.join(named)}{more}."


def claim_sentence(claim: ClaimOutcome) -> str:
    lines = []
    for test in claim.tests:
        what, kind = f"Predicting {WHAT.get(test.by)}", "rank correlation"
        if test.by == AUC:
            what, kind = "Telling models apart", "AUC"
        outcome = "has no value"
        if not math.isnan(test.difference):
            p_value = number(test.adjusted, 4, "upper")
            outcome = f"is {test.difference:+.3f} (Holm's p-value {p_value}): {test.verdict}"
        lines.append(f"{what}: the {kind} of {claim.better} minus that of {claim.than} {outcome}.")
    return " ".join(lines)
