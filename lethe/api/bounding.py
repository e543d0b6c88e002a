"""`lethe.bounds`: bounds on the whole output distribution, from scores."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import numpy as np

from lethe.api.parameters import Place, Typed, documented
from lethe.api.result import Measurement, View, frame
from lethe.config.evaluating import METRICS
from lethe.errors import BadInput, BadValue, check, plural
from lethe.io.facts import DOCUMENTED
from lethe.io.judged_answers import judge_in, read_calibration
from lethe.io.tables import read_table
from lethe.labels.random_labels import Drawn, label_rows
from lethe.measure import prompts as bounded
from lethe.measure import scores as scored
from lethe.measure.scores import Missing, Scores
from lethe.measure.stated import LEAKS, Stated
from lethe.results import licence
from lethe.results.table import Numbers, Result, Results, Rows
from lethe.results.views import ALONE
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.bounds import BELOW_1, possible
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import QUERIES, pass_hat_k

if TYPE_CHECKING:
    import pandas as pd

AnyScores: TypeAlias = Annotated["Scores | pd.DataFrame | Place", Typed(Path)]
STOPPED = "anytime_upper"  # the metric after a stop
SHOWN = 20  # prompts in a table for people
QUANTITY = dict.fromkeys(("m_mu", "mean_upper", STOPPED), "the mean score") | {
    "m_bin": "the probability of a leak"
}
TRUE_LEAK = "the true probability of a leak, the judge's error included,"
BY_LABELS = "the true probability of a leak, by labels alone,"
# The columns of the table for people: head and exported name.
COLUMNS = {
    "n": "n",
    "mean": "mean",
    "mean <= (betting)": "tighter_mean_upper",
    "M_mu": "m_mu",
    "M_bin": "m_bin",
    "sd": "sd",
    "sd <= (betting)": "tighter_sd_upper",
}
OF_LEAKS = ("leak_at_k", "leak_at_k_worst")  # quantities that are about leaks and no score
PLAIN = {"n": "n", "mean": "mean", "sd": "sd", "max": "max"}  # where nothing may be claimed
AT_THE_STOP = {
    "n": "n",
    "mean": "mean",
    "mean <= (anytime)": "anytime_upper",
    "mean >= (anytime)": "anytime_lower",
    "sd": "sd",
    "sd <= (anytime)": "anytime_sd_upper",
}


@dataclass(frozen=True, repr=False)
class Bounds(Measurement):
    """The result of `bounds`: its rows (of a run that a rule could stop early only anytime-valid ones), the prompts, and
    the log. Where there is a reason in ``refused``, nothing is claimed, and the rows have no bounds. Where there is one in
    ``unpointed``, the bounds are those of the score as recorded, and nothing is said of leaks.
    """

    settings: bounded.MeasureSettings
    prompts: tuple[scored.PromptScores, ...]
    results: tuple[Result, ...]
    source: str = "scores"
    log: scored.LogScores | None = None
    refused: tuple[str, ...] = ()
    unpointed: tuple[str, ...] = ()
    stated: Stated = LEAKS
    VIEW = "bounds"

    def rows(self) -> list[Result]:
        """The rows with what is recorded of the log among the settings."""
        recorded = self.stated.as_json()
        if self.log:
            recorded["log"] = self.log.facts()
        return [
            replace(row, evidence={**row.facts, **recorded}) if row.quantity == "settings" else row
            for row in self.results
        ]

    @cached_property
    def questions(self) -> dict[str, Numbers]:
        return Results({"": tuple(row for row in self.results if row.split != ALONE)}).questions("")

    @cached_property
    def model(self) -> Numbers:
        """What holds of all prompts."""
        return Numbers([row for row in self.results if row.scope == "model"])

    @cached_property
    def metric(self) -> str:
        """The bound by which prompts are compared."""
        return str(self.model.facts("settings").get("metric", ""))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per prompt: its single numbers and those of each threshold and k."""
        return frame({"prompt_id": item, **own.columns} for item, own in self.questions.items())

    def worst(self) -> bounded.Worst:
        """Return the prompt with the largest bound, which covers the worst of the prompts; an error where there is none."""
        if self.refused:
            raise BadInput(f"{self.source}: no bound is stated. {' '.join(self.refused)}")
        worst = bounded.worst_of(self.results, *bounded.METRIC[self.metric])
        assert worst is not None  # every prompt has a bound of this metric
        return worst

    def worst_by_judge(self) -> bounded.Worst | None:
        """Return the prompt with the largest bound of the true leak probability; None where the judge does not fit."""
        bound = self.model.upper("leak_worst", "judged")
        each = (
            {item: own.upper("leak", "judged") for item, own in self.questions.items()}
            if bound
            else {}
        )
        uppers = {item: own.value for item, own in each.items() if own}
        return bounded.Worst(max(uppers, key=uppers.__getitem__), bound) if bound else None

    def worst_by_labels(self) -> bounded.Worst | None:
        """Return the prompt with the largest bound of the true leak probability by its labels alone.

        None unless every prompt has labels: a prompt without labels may be the worst.
        """
        ends: dict[str, Bound] = {}
        for item, numbers in self.questions.items():
            end = numbers.upper("leak", "labelled")
            if end is None:
                return None
            ends[item] = end
        item = max(ends, key=lambda name: ends[name].value)
        return bounded.Worst(item, replace(ends[item], covers=Covers.WORST_PROMPT))

    def sentences(self) -> list[str]:
        if self.refused:
            reasons = [f"Nothing is claimed of these scores: {reason}" for reason in self.refused]
            return [*self.stated.sentences(), *reasons]
        return [*self.stated.sentences(), *self.unpointed, *self._of_bounds()]

    @cached_property
    def _quantity(self) -> Mapping[str, str]:
        """The words for the quantity of a metric: of leaks, or of the score as recorded."""
        return (
            QUANTITY | {"m_bin": "the probability of a score of 1"} if self.unpointed else QUANTITY
        )

    def _of_bounds(self) -> list[str]:
        model, of, worst = self.model, f"the {plural(len(self.questions), 'prompt')}", self.worst()
        largest = f"The bound is that of {worst.prompt_id}."
        if self.metric == STOPPED:
            each = f"{replace(worst.bound, covers=Covers.ONE_PROMPT).guarantee(of)} ({worst.bound.method})"
            return [
                f"A stopping rule looked at the answers: {bounded.REASON}.",
                f"Each bound of a prompt: {each}.",
                f"{worst.bound.sentence(self._quantity[self.metric], of)} {largest}",
            ]
        lines = [
            end.sentence(BY_LABELS, of)
            for row in model.series("leak", "labelled")
            for end in row.ends
        ]
        if end := next(iter(self.questions.values())).upper("score_betting"):
            lines.append(f"Each bound of a prompt: {end.guarantee(of)}.")
        lines.append(
            f"{worst.bound.sentence(f'{self._quantity[self.metric]} ({self.metric})', of)} {largest}"
        )
        if pooled := model.upper("leak"):
            lines.append(pooled.sentence(self._quantity["m_bin"], of))
        lines += [
            f"{self._quantity['m_mu'].capitalize()} is {least.significant()} to {most.significant()} {most.on(of)}, "
            f"each side {most.level()}, assuming {most.assumes} ({most.method})."
            for least, most in (row.ends for row in model.series("score_population"))
        ]
        for row in (*_asked(model, "leak_at_k_worst"), *_asked(model, "leak_at_k")):
            (lower, upper), k = row.ends, f"{bounded.SHOWN_QUERIES:,}"
            least = replace(lower, value=min(lower.value, BELOW_1))
            lines.append(
                f"Leak@{k}, the probability of a leak in {k} answers, is {_range((least, upper), of)} ({upper.method})."
            )
        lines += self._by_judge(of) + [
            f"Share of prompts whose {self.metric} exceeds {self.settings.share_above:g}: {row.estimate:.3f} "
            "(a count, no joint guarantee)."
            for row in model.series("share_above")
        ]
        return [
            *lines,
            *self._together(of),
            *(
                f"Pass^{row.at:.10g}, the probability that all of {plural(int(row.at or 0), 'answer')} score 1, is "
                f"{'' if row.estimate is None else f'{row.estimate:.3f} (estimate), '}{_range(row.ends, of)}."
                for row in model.series("pass_hat_k")
            ),
        ]

    def _by_judge(self, of: str) -> list[str]:
        rates = [
            row
            for name in ("sensitivity", "false_positive")
            for row in self.model.series(name, "judged")
        ]
        if not rates or (judge := self.settings.calibration) is None:
            return []
        least, most = rates[0].ends[0], rates[1].ends[1]
        lines = [
            f"The judge called {judge.leaks_called:,} of {judge.leaks:,} leaks a leak and {judge.clean_called:,} of "
            f"{judge.clean:,} clean answers, by a person's labels: sensitivity at least {least.percent()}, false positive "
            f"rate at most {most.percent()}, each {most.level()}."
        ]
        if pooled := self.model.upper("leak", "judged"):
            lines.append(pooled.sentence(TRUE_LEAK, of))
        if (worst := self.worst_by_judge()) is None:
            fits = {
                item: own.estimate("judge_fits", "judged") for item, own in self.questions.items()
            }
            misfits = [item for item, fit in fits.items() if fit == 0]
            return [
                *lines,
                f"The verdicts on {len(misfits)} of {of} do not fit the calibration (first: {misfits[0]}): no leak "
                "probability explains them. The calibration describes other answers, so no prompt has a bound. Label "
                "random draws of this run: `lethe label`.",
            ]
        return [
            *lines,
            f"{worst.bound.sentence(TRUE_LEAK, of)} The bound is that of {worst.prompt_id}.",
            *(
                f"Leak@{bounded.SHOWN_QUERIES:,} of true leaks is {_range(row.ends, of)}."
                for row in _asked(self.model, "leak_at_k_worst", "judged")
            ),
        ]

    def _together(self, of: str) -> list[str]:
        """What holds for all prompts together, if it was asked."""
        if (row := self.model.row("together")) is None:
            return []
        (claim,), each = row.ends, self.questions.values()
        bounds = [bound for own in each if (bound := own.upper("leak_together"))]
        listed = sum(own.row("certified_together") is not None for own in each)
        lines = []
        if bounds:
            largest = max(bounds, key=lambda bound: bound.value)
            lines = [
                f"Bounds for every prompt, all true together: {largest.guarantee(of)} ({largest.method})."
            ]
        certified = (
            f"Certified: {self.model.values['certified_together']} of {plural(listed, 'prompt')}."
        )
        return [*lines, f"{certified} {claim.sentence(self._quantity[row.facts['metric']], of)}"]

    def views(self) -> list[View]:
        columns, notes = AT_THE_STOP if self.metric == STOPPED else COLUMNS, self.sentences()
        if self.refused:
            columns = PLAIN
        shown = list(self.questions.items())[:SHOWN]
        rows = [[item, *(_shown(own, name) for name in columns.values())] for item, own in shown]
        absent = sum(prompt.missing for prompt in self.prompts)
        if absent and self.metric != STOPPED and not self.refused:
            worst = self.settings.missing == "worst"
            rule = (
                "each counts against each bound" if worst else "left out, as if missing at random"
            )
            notes.append(
                f"{plural(absent, 'missing score')}: {rule}; plain statistics are over the judged ones."
            )
        if more := len(self.questions) - len(rows):
            notes.append(f"{plural(more, 'more prompt')}: see --json or to_frame().")
        before = self.log.sentences() if self.log else []
        return [View(self.source, ["prompt", *columns], rows, [*before, *notes])]


def _shown(own: Numbers, name: str) -> object:
    bound = own.bounds.get(name)
    return (
        (possible(bound) if name == "tighter_sd_upper" else bound)
        if bound
        else own.columns.get(name)
    )


def _range(ends: Sequence[Bound], of: str) -> str:
    lower, upper = ends
    return (
        f"{lower.significant()} to {upper.significant()} {upper.on(of)}, each side {upper.level()}, "
        f"assuming {upper.assumes}"
    )


def _asked(model: Numbers, quantity: str, basis: str = "sampled") -> list[Result]:
    """The row of so many queries as a sentence names."""
    return [row for row in model.series(quantity, basis) if row.at == bounded.SHOWN_QUERIES]


@documented
def bounds(
    scores: AnyScores,
    alpha: float = METRICS.alpha,
    *,
    threshold: float | Sequence[float] = METRICS.thresholds,
    missing: Literal["worst", "drop"] | None = None,
    score: str | None = None,
    filter: str | None = None,
    together: Literal["none", "bonferroni", "holm"] = "none",
    share_above: float = METRICS.share_above,
    calibration: Place | Calibration | None = None,
    labels: Place | None = None,
    pass_at: str | Sequence[str | int] = (),
    by: str | None = None,
    leak_is: Literal["high", "low"] | None = None,
) -> Bounds:
    """Bound the leakage of each prompt, of the worst prompt and of the average, from the scores of sampled answers.

    Parameters
    ----------
    scores : Scores in [0, 1] of independent answers, in sampling order. A file: CSV, Parquet or JSON lines with `score`,
        optionally `prompt_id`, `sample` (sample -1, the greedy answer, is left out) and `stopped` (true where a rule could
        stop the draws), or a log of another tool, found by its content (see `lethe log`). In Python also n scores of one
        prompt, an array (prompts, n), the scores by prompt, or such a table.
    threshold : Bound the share of answers with a score above this; repeatable. [default: .1 .25 .5 .75 .9]
    missing : worst: a missing score counts against each bound; drop: leave it out. [default: an error; of a log: worst]
    score : The score of a log [default: its first], or the column of a table. A=B is 1 where two columns agree, such as a
        judge's and a person's.
    together : bonferroni: bounds that hold for all prompts together; holm: the list of prompts certified under
        ``share_above``; with probability 1 - alpha none of them is wrong. JSON: the key `together`.
    share_above : The threshold: prompts whose bound exceeds it are counted, and ``together`` certifies prompts under it.
    calibration : The error of the judge whose verdicts the scores are: a file of answers with `label` (a person's) and
        `verdict` (the judge's), both 0 or 1, or counts. Adds bounds of the true leak probability, `judged`.
    labels : A person's labels of random draws of these answers: `prompt_id`, `sample`, `label` (0 or 1). Adds bounds of the
        true leak probability by these labels alone, `labelled`.
    pass_at : Numbers of answers k, such as 1,2,4, where a score of 1 is a right answer: adds pass^k, the probability that
        all of k answers are right, beside leak@k, the probability that any of k scores 1, both on average over the prompts.
    by : The column of a table that names the prompt. [default: prompt_id]

    Notes
    -----
    Each bound of a prompt holds by itself with probability 1 - alpha, assuming independent draws for the prompt.
    The bounds assume nothing about the distribution. The largest bound covers the worst prompt without a correction.
    The sharper bounds (`tighter`) bet on one answer after the other, so the order of the rows counts.

    Leak@k, for scores that are all 0 or 1, is the probability that at least one of k answers leaks. Each side of its band
    holds at alpha for all k at once. The estimate has no guarantee and nears 1 as k nears n.

    `population` (JSON) bounds the mean score over all prompts like these, as if these were a random sample of them; each
    prompt counts by the mean of its answers. `pooled` is about these prompts alone.

    The JSON keys m_sigma and m_mu_lower keep their published forms: m_sigma may exceed .5, which no sd of such scores
    does, and m_mu_lower is 0 for scores of 0 and 1. `tighter` has the sharper bounds.

    With a calibration, the judge's sensitivity, its false positive rate and the share of verdicts share alpha in thirds.
    With ``missing`` worst, the values over the judged scores alone are the JSON key `judged_alone`.

    A log adds the key `log`. Answers that are copies are refused. A run that a rule could stop early gets only
    anytime-valid values: the others are null, with the reason.

    Examples
    --------
    >>> import lethe
    >>> result = lethe.bounds([0] * 97 + [1] * 3, alpha=0.05)
    >>> print(result.worst().bound.significant())
    0.07572

    Several prompts, and the prompts that are certified together:

    >>> result = lethe.bounds({"ada": [0] * 400, "bo": [0, 1] * 200}, together="holm")
    >>> result.as_json()["together"]["certified"]
    ['ada']
    """
    check(0 <= share_above <= 1, "share_above", share_above, "a number in [0, 1]")
    settings = bounded.MeasureSettings(
        alpha=alpha,
        thresholds=(threshold,) if isinstance(threshold, (int, float)) else tuple(threshold),
        missing=missing,
        together=together,
        share_above=share_above,
        calibration=calibration_of(calibration, missing, scores),
    )
    numbers = pass_at if isinstance(pass_at, str) else ",".join(map(str, pass_at))
    parts = [part.strip() for part in numbers.split(",")] if pass_at or pass_at == "" else []
    if not all(k.isdecimal() and 0 < len(k) < 10 and int(k) for k in parts):
        raise BadValue("pass_at", pass_at, "whole numbers of at least 1, such as 1,2,4")
    ks = tuple(dict.fromkeys(map(int, parts)))
    log, source, stopped = None, "scores", False
    known = licence.Source()
    if isinstance(scores, (str, os.PathLike)):
        source = str(scores)
        read = scored.read_any_scores(Path(source), missing, score, filter, by, leak_is)
        log = read.log
        stopped = log.log.stopping == scored.EARLY if log else scored.could_stop(Path(source))
        if log is None:
            known = licence.of_drawing(scored.record_of_draws(Path(source)), ())
    elif hasattr(scores, "columns"):
        stopped = scored.says_stopped(scores)
        read = scored.of_frame(scores, missing, score or DOCUMENTED, by, leak_is)
    else:
        stated = replace(LEAKS, leak_is=leak_is)
        read = scored.ReadScores(scored.as_prompts(scores, missing), stated, missing)
    read = read.pointed()
    settings = replace(settings, missing=read.missing)
    rows, prompts = Rows(Path(source).stem), tuple(read.prompts)
    asked = [
        *(["together"] if together != "none" else []),
        *(["judged"] if calibration is not None else []),
        *(["labelled"] if labels is not None else []),
        *(["pass_hat_k", "leak_at_k"] if ks else []),
    ]
    result = partial(_licensed, settings, read, source, asked)
    if stopped:
        given = {
            "together": together != "none" and together,
            "calibration": calibration and "a file",
        }
        for name, value in (given | {"labels": labels, "pass_at": ks}).items():
            if value:
                legal = "none" if name == "together" else "left out"
                raise BadValue(name, value, f"{legal} for a run that stopped early")
        bounded.measure_stopped(rows, prompts, settings)
        return result(rows.rows, known)
    bounded.measure_file(rows, prompts, settings)
    rate = bounded.counts_of([prompt.scores for prompt in prompts])
    if ks and np.isnan(rate.leaks).any():
        raise BadValue("pass_at", pass_at, "left out unless all scores are 0 or 1")
    if labels is not None:
        known = known.joined(label_rows(rows, labels, _drawn(prompts, read.missing), alpha))
    if ks:
        add = partial(rows.add, "model", split="forget")
        bounded.band_rows(
            add, "pass_hat_k", "sampled", pass_hat_k(rate.leaks, rate.n, rate.missing, alpha, ks)
        )
        bounded.band_rows(
            add, "leak_at_k", "sampled", rate.mean(alpha, [k for k in ks if k not in QUERIES])
        )
    return result(rows.rows, known)


def _licensed(
    settings: bounded.MeasureSettings,
    read: scored.ReadScores,
    place: str,
    asked: Sequence[str],
    rows: Sequence[Result],
    beside: licence.Source,
) -> Bounds:
    """The result with its bounds, or without them where nothing may be claimed; ``asked`` are the keys of further claims.

    ``beside`` is what is known beside what the scores state: of their draws, and of the labels.

    Where it is only unknown which end of a score is a leak, the bounds are those of the score as recorded, and what is said
    of leaks is left out.
    """
    known = read.stated.source().joined(beside)
    known = replace(known, below_own_mean=licence.below_own_mean(rows))
    refused, unpointed = licence.refusals(known), list[str]()
    if refused and not licence.refusals(replace(known, score_means="leak")):
        refused, unpointed = [], refused
        rows = [row for row in rows if row.quantity not in OF_LEAKS]
    if refused:
        rows = licence.without_claims(rows)
    record = {"refused": refused, "unpointed": unpointed, "asked": list(asked)}
    if refused or unpointed:
        rows = [
            replace(row, evidence={**row.facts, **record}) if row.quantity == "settings" else row
            for row in rows
        ]
    return Bounds(
        settings,
        tuple(read.prompts),
        tuple(rows),
        place,
        read.log,
        refused=tuple(refused),
        unpointed=tuple(unpointed),
        stated=read.stated,
    )


def _drawn(prompts: Sequence[scored.PromptScores], missing: Missing | None) -> dict[str, Drawn]:
    """The answers that labels may be of."""
    drawn: dict[str, Drawn] = {}
    for prompt in prompts:
        dropped = prompt.missing if missing == "drop" else 0
        verdict_of_sample: dict[str, float] | None = None
        if prompt.samples is not None and np.isin(prompt.scores, (0.0, 1.0)).all():
            samples = map(str, prompt.samples.tolist())
            verdict_of_sample = dict(zip(samples, prompt.scores.tolist(), strict=True))
        drawn[prompt.prompt_id] = Drawn(prompt.n + dropped, verdict_of_sample)
    return drawn


def calibration_of(
    given: Place | Calibration | None, missing: Missing | None, scores: object = None
) -> Calibration | None:
    """Return the judge's error as counts; the column ``judge`` of a table of ``scores`` must name the same judge."""
    if given is None or isinstance(given, Calibration):
        return given
    if isinstance(scores, (str, os.PathLike)) and Path(scores).suffix in (
        ".csv",
        ".parquet",
        ".jsonl",
    ):
        scores = read_table(scores, text=["judge"])
    judge = judge_in("scores", scores) if hasattr(scores, "columns") else None
    answers = read_calibration(given, missing or "worst", judge)
    return Calibration.of(answers.labels, answers.verdicts, judge=answers.judge)
