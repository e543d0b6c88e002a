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
from lethe.config.measuring import METRICS
from lethe.errors import BadInput, BadValue, check, plural
from lethe.io.artifacts import record_of_draws
from lethe.io.facts import DOCUMENTED, says_stopped
from lethe.io.files import Json
from lethe.io.judged_answers import judge_in, read_calibration
from lethe.io.logs._log import EARLY
from lethe.io.tables import read_table
from lethe.labels.random_labels import PromptAnswers, label_rows
from lethe.measure import prompts as bounded
from lethe.measure.log_scores import LogScores
from lethe.measure.score_files import ReadScores, as_frame, could_stop, of_frame, read_any_scores
from lethe.measure.scores import Missing, PromptScores, Scores, as_prompts
from lethe.measure.stated import LEAKS, Stated
from lethe.results import licence, quantities, views
from lethe.results.gate import GatedQuestion
from lethe.results.table import Numbers, Result, Results, Rows
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.bounds import BELOW_1, leak_bounds, possible
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import QUERIES, pass_hat_k

if TYPE_CHECKING:
    import pandas as pd

AnyScores: TypeAlias = Annotated["Scores | pd.DataFrame | Place", Typed(Path)]
STOPPED = "anytime_upper"  # the metric after a stop
TABLES = (".csv", ".parquet", ".jsonl")
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
    prompts: tuple[PromptScores, ...]
    results: tuple[Result, ...]
    source: str = "scores"
    log: LogScores | None = None
    refused: tuple[str, ...] = ()
    unpointed: tuple[str, ...] = ()
    stated: Stated = LEAKS
    understood: str | None = None

    def rows(self) -> list[Result]:
        """The rows with what is recorded of the log among the settings."""
        recorded: dict[str, Json] = self.stated.as_json()
        if self.understood:
            recorded["understood"] = self.understood
        if self.log:
            recorded["log"] = self.log.facts()
        return _with_settings(self.results, recorded)

    @cached_property
    @bounded.without_collector()
    def questions(self) -> dict[str, Numbers]:
        rows = tuple(row for row in self.results if row.split != views.ALONE)
        return Results({"": rows}).questions("")

    @cached_property
    def model(self) -> Numbers:
        """What holds of all prompts."""
        return Numbers([row for row in self.results if row.scope == "model"])

    @cached_property
    def metric(self) -> str:
        """The bound by which prompts are compared."""
        return str(self.model.facts("settings").get("metric", ""))

    def as_json(self) -> views.Document:
        return views.bounds(self.rows())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per prompt: its single numbers and those of each threshold and k."""
        rows = []
        for item, numbers in self.questions.items():
            rows.append({"prompt_id": item, **numbers.columns})
        return frame(rows)

    def worst(self) -> bounded.Worst:
        """Return the prompt with the largest bound, which covers the worst of the prompts; an error where there is none."""
        if self.refused:
            raise BadInput(f"{self.source}: no bound is stated. {' '.join(self.refused)}")
        worst = bounded.worst_of(self.results, *bounded.METRIC[self.metric])
        assert worst is not None  # every prompt has a bound of this metric
        return worst

    def ends(self) -> list[GatedQuestion]:
        """Both ends of each prompt by the metric of `worst`; a prompt without a lower end has 0."""
        return self._gated(*bounded.METRIC[self.metric])

    def ends_by_labels(self) -> list[GatedQuestion]:
        """Both ends of the leak probability of each prompt with labels, by its labels alone."""
        return self._gated("leak", "labelled")

    def _gated(self, quantity: str, basis: str) -> list[GatedQuestion]:
        gated = []
        for item, numbers in self.questions.items():
            upper = numbers.upper(quantity, basis)
            if upper is None:
                continue
            lowers = [row.lower for row in numbers.series(quantity, basis) if row.lower is not None]
            gated.append(GatedQuestion(item, max(lowers, default=0.0), upper.value))
        return gated

    def worst_by_judge(self) -> bounded.Worst | None:
        """Return the prompt with the largest bound of the true leak probability; None where the judge does not fit."""
        bound = self.model.upper("leak_worst", "judged")
        if bound is None:
            return None
        ends: dict[str, Bound] = {}
        for item, numbers in self.questions.items():
            end = numbers.upper("leak", "judged")
            if end is not None:
                ends[item] = end
        return bounded.Worst(_largest(ends), bound)

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
        item = _largest(ends)
        return bounded.Worst(item, replace(ends[item], covers=Covers.WORST_PROMPT))

    def sentences(self) -> list[str]:
        if self.refused:
            reasons = [f"Nothing is claimed of these scores: {reason}" for reason in self.refused]
            return [*self.stated.sentences(), *reasons]
        return [*self.stated.sentences(), *self.unpointed, *self._of_bounds()]

    def brief(self) -> list[str]:
        """The claim, its assumption and what would sharpen it, in at most five lines and those of what was asked."""
        lines = []
        if self.understood:
            facts = [self.understood]
            absent = sum(prompt.missing for prompt in self.prompts)
            if absent:
                facts.append(plural(absent, "missing score"))
            if self.log and self.log.log.warnings:
                facts.append(f"{plural(len(self.log.log.warnings), 'warning')} (--all)")
            lines.append(f"Read as: {', '.join(facts)}.")
        lines += self.stated.sentences()
        if self.refused:
            reasons = " ".join(self.refused)
            return [*lines, f"Nothing is claimed of these scores: {reasons}"]
        if self.unpointed:
            lines.append(" ".join(self.unpointed))
        prompts = f"the {plural(len(self.questions), 'prompt')}"
        if self.metric == STOPPED:
            lines.append(f"A stopping rule looked at the answers: {bounded.REASON}.")
        else:
            lines += self._of_what_was_asked(prompts)
        lines.append(self._of_worst(prompts))
        return [*lines, f"{self._sharper()} `--all` prints every prompt and bound."]

    def _of_what_was_asked(self, prompts: str) -> list[str]:
        lines = []
        for row in self.model.series("leak", "labelled"):
            lines += [end.sentence(BY_LABELS, prompts) for end in row.ends]
        return [
            *lines,
            *self._by_judge(prompts),
            *self._together(prompts),
            *self._of_passes(prompts),
        ]

    def _sharper(self) -> str:
        """What would lower the bound of the worst prompt: its missing scores, or more answers."""
        worst = self.worst()
        prompt = next(entry for entry in self.prompts if entry.prompt_id == worst.prompt_id)
        if prompt.missing and self.settings.missing == "worst":
            answers = f"the answers to {worst.prompt_id} without a score ({prompt.missing})"
            return f"Judge {answers}: each counts against the bound."
        if self.metric == STOPPED:
            return "More answers lower the bound."
        if self.metric != "m_bin":
            return "Four times the answers would about halve the bound's distance from the mean."
        leaks = int(prompt.scores.sum())
        called = "scores of 1" if self.unpointed else "leaks"
        if leaks == prompt.n:
            return f"All answers to {worst.prompt_id} are {called}: more answers would not lower the bound."
        (more,) = leak_bounds(np.array([4 * leaks]), np.array([4 * prompt.n]), self.settings.alpha)
        return (
            f"Four times the answers to {worst.prompt_id}, with the same share of {called}, would give a bound of "
            f"{more.significant()}."
        )

    @cached_property
    def _quantity(self) -> Mapping[str, str]:
        """The words for the quantity of a metric: of leaks, or of the score as recorded."""
        if self.unpointed:
            return QUANTITY | {"m_bin": "the probability of a score of 1"}
        return QUANTITY

    def _of_bounds(self) -> list[str]:
        prompts = f"the {plural(len(self.questions), 'prompt')}"
        if self.metric == STOPPED:
            return self._after_a_stop(prompts)
        return [
            *self._of_prompts(prompts),
            *self._of_the_average(prompts),
            *self._of_queries(prompts),
            *self._by_judge(prompts),
            *self._of_share(),
            *self._together(prompts),
            *self._of_passes(prompts),
        ]

    def _of_worst(self, prompts: str) -> str:
        worst = self.worst()
        name = self._quantity[self.metric]
        if self.metric != STOPPED:
            name = f"{name} ({self.metric})"
        return f"{worst.bound.sentence(name, prompts)} The bound is that of {worst.prompt_id}."

    def _after_a_stop(self, prompts: str) -> list[str]:
        bound = self.worst().bound
        guarantee = replace(bound, covers=Covers.ONE_PROMPT).guarantee(prompts)
        return [
            f"A stopping rule looked at the answers: {bounded.REASON}.",
            f"Each bound of a prompt: {guarantee} ({bound.method}).",
            self._of_worst(prompts),
        ]

    def _of_prompts(self, prompts: str) -> list[str]:
        lines = []
        for row in self.model.series("leak", "labelled"):
            lines += [end.sentence(BY_LABELS, prompts) for end in row.ends]
        first = next(iter(self.questions.values()))
        end = first.upper("score_betting")
        if end:
            lines.append(f"Each bound of a prompt: {end.guarantee(prompts)}.")
        return [*lines, self._of_worst(prompts)]

    def _of_the_average(self, prompts: str) -> list[str]:
        lines = []
        pooled = self.model.upper("leak")
        if pooled:
            lines.append(pooled.sentence(self._quantity["m_bin"], prompts))
        for row in self.model.series("score_population"):
            least, most = row.ends
            lines.append(
                f"{self._quantity['m_mu'].capitalize()} is {least.significant()} to {most.significant()} {most.on(prompts)}, "
                f"each side {most.level()}, assuming {most.assumes} ({most.method})."
            )
        return lines

    def _of_queries(self, prompts: str) -> list[str]:
        queries = f"{bounded.SHOWN_QUERIES:,}"
        lines = []
        for row in (*_asked(self.model, "leak_at_k_worst"), *_asked(self.model, "leak_at_k")):
            lower, upper = row.ends
            lower = replace(lower, value=min(lower.value, BELOW_1))
            lines.append(
                f"Leak@{queries}, the probability of a leak in {queries} answers, is "
                f"{_range(lower, upper, prompts)} ({upper.method})."
            )
        return lines

    def _of_share(self) -> list[str]:
        lines = []
        for row in self.model.series("share_above"):
            lines.append(
                f"Share of prompts whose {self.metric} exceeds {self.settings.share_above:g}: {row.estimate:.3f} "
                "(a count, no joint guarantee)."
            )
        return lines

    def _of_passes(self, prompts: str) -> list[str]:
        lines = []
        for row in self.model.series("pass_hat_k"):
            lower, upper = row.ends
            answers = plural(int(row.at or 0), "answer")
            estimate = "" if row.estimate is None else f"{row.estimate:.3f} (estimate), "
            lines.append(
                f"Pass^{row.at:.10g}, the probability that all of {answers} score 1, is "
                f"{estimate}{_range(lower, upper, prompts)}."
            )
        return lines

    def _by_judge(self, prompts: str) -> list[str]:
        judge = self.settings.calibration
        sensitivity = self.model.row("sensitivity", "judged")
        false_positive = self.model.row("false_positive", "judged")
        if judge is None or sensitivity is None or false_positive is None:
            return []
        least, most = sensitivity.ends[0], false_positive.ends[1]
        lines = [
            f"The judge called {judge.leaks_called:,} of {judge.leaks:,} leaks a leak and {judge.clean_called:,} of "
            f"{judge.clean:,} clean answers, by a person's labels: sensitivity at least {least.percent()}, false positive "
            f"rate at most {most.percent()}, each {most.level()}."
        ]
        pooled = self.model.upper("leak", "judged")
        if pooled:
            lines.append(pooled.sentence(TRUE_LEAK, prompts))
        worst = self.worst_by_judge()
        if worst is None:
            return [*lines, self._misfit(prompts)]
        largest = f"The bound is that of {worst.prompt_id}."
        lines.append(f"{worst.bound.sentence(TRUE_LEAK, prompts)} {largest}")
        for row in _asked(self.model, "leak_at_k_worst", "judged"):
            lower, upper = row.ends
            leak_at_k = f"Leak@{bounded.SHOWN_QUERIES:,} of true leaks"
            lines.append(f"{leak_at_k} is {_range(lower, upper, prompts)}.")
        return lines

    def _misfit(self, prompts: str) -> str:
        """Why the calibration of a judge gives no bound."""
        misfits = []
        for item, numbers in self.questions.items():
            if numbers.estimate("judge_fits", "judged") == 0:
                misfits.append(item)
        return (
            f"The verdicts on {len(misfits)} of {prompts} do not fit the calibration (first: {misfits[0]}): no leak "
            "probability explains them. The calibration describes other answers, so no prompt has a bound. Label "
            "random draws of this run: `lethe label`."
        )

    def _together(self, prompts: str) -> list[str]:
        """What holds for all prompts together, if it was asked."""
        row = self.model.row("together")
        if row is None:
            return []
        bounds = []
        listed = 0
        for numbers in self.questions.values():
            bound = numbers.upper("leak_together")
            if bound:
                bounds.append(bound)
            if numbers.row("certified_together") is not None:
                listed += 1
        lines = []
        if bounds:
            largest = max(bounds, key=lambda bound: bound.value)
            guarantee = f"{largest.guarantee(prompts)} ({largest.method})"
            lines.append(f"Bounds for every prompt, all true together: {guarantee}.")
        (claim,) = row.ends
        certified = self.model.values["certified_together"]
        sentence = claim.sentence(self._quantity[row.facts["metric"]], prompts)
        return [*lines, f"Certified: {certified} of {plural(listed, 'prompt')}. {sentence}"]

    @bounded.without_collector()
    def views(self) -> list[View]:
        columns = COLUMNS
        if self.refused:
            columns = PLAIN
        elif self.metric == STOPPED:
            columns = AT_THE_STOP
        columns = columns | _headlines()
        shown = list(self.questions.items())[:SHOWN]
        rows = []
        for item, numbers in shown:
            rows.append([item, *(_shown(numbers, name) for name in columns.values())])
        notes = [*self.sentences(), *self._of_missing()]
        more = len(self.questions) - len(rows)
        if more:
            notes.append(f"{plural(more, 'more prompt')}: see --json or to_frame().")
        if self.log:
            notes = [*self.log.sentences(), *notes]
        if self.understood:
            notes = [f"Read as: {self.understood}.", *notes]
        return [View(self.source, ["prompt", *columns], rows, notes)]

    def _of_missing(self) -> list[str]:
        """What was made of missing scores, if there are any."""
        absent = sum(prompt.missing for prompt in self.prompts)
        if not absent or self.metric == STOPPED or self.refused:
            return []
        rule = "left out, as if missing at random"
        if self.settings.missing == "worst":
            rule = "each counts against each bound"
        scores = plural(absent, "missing score")
        return [f"{scores}: {rule}; plain statistics are over the judged ones."]


def _headlines() -> dict[str, str]:
    """Further columns of the table: the numbers of a question that the vocabulary names as headlines."""
    columns: dict[str, str] = {}
    for kind in quantities.QUESTION:
        if kind.headlines:
            columns |= {name: name for name in kind.names if name}
    return columns


def _largest(ends: Mapping[str, Bound]) -> str:
    """The prompt with the largest end, the first of several."""
    return max(ends, key=lambda item: ends[item].value)


def _with_settings(rows: Sequence[Result], facts: Mapping[str, Json]) -> list[Result]:
    """The rows with further facts in that of the settings."""
    changed = []
    for row in rows:
        if row.quantity == "settings":
            row = replace(row, evidence={**row.facts, **facts})
        changed.append(row)
    return changed


def _shown(numbers: Numbers, name: str) -> object:
    bound = numbers.bounds.get(name)
    if bound is None:
        return numbers.columns.get(name)
    return possible(bound) if name == "tighter_sd_upper" else bound


def _range(lower: Bound, upper: Bound, prompts: str) -> str:
    return (
        f"{lower.significant()} to {upper.significant()} {upper.on(prompts)}, each side {upper.level()}, "
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
    ks = _numbers_of_answers(pass_at)
    source = _read(
        scores,
        missing,
        score,
        filter,
        by,
        leak_is,
    )
    settings = replace(settings, missing=source.read.missing)
    asked = []
    if together != "none":
        asked.append("together")
    if calibration is not None:
        asked.append("judged")
    if labels is not None:
        asked.append("labelled")
    if ks:
        asked += ["pass_hat_k", "leak_at_k"]
    rows = Rows(Path(source.name).stem)
    prompts = tuple(source.read.prompts)
    if source.stopped:
        check(together == "none", "together", together, "none for a run that stopped early")
        left_out = "left out for a run that stopped early"
        check(not calibration, "calibration", "a file", left_out)
        check(not labels, "labels", labels, left_out)
        check(not ks, "pass_at", ks, left_out)
        bounded.measure_stopped(rows, prompts, settings)
        return _licensed(settings, source, asked, rows.rows, source.known)
    bounded.measure_file(rows, prompts, settings)
    known = source.known
    if ks:
        _check_leaks(prompts, pass_at)
    if labels is not None:
        known = known.joined(label_rows(rows, labels, _drawn(prompts, settings.missing), alpha))
    if ks:
        _add_passes(rows, prompts, alpha, ks)
    return _licensed(settings, source, asked, rows.rows, known)


@dataclass(frozen=True)
class _ScoreSource:
    """The scores as they were read, the name of their file, and what is known of their draws."""

    name: str
    read: ReadScores
    stopped: bool
    known: licence.Source


def _read(
    scores: AnyScores,
    missing: Missing | None,
    score: str | None,
    filter: str | None,
    by: str | None,
    leak_is: Literal["high", "low"] | None,
) -> _ScoreSource:
    if isinstance(scores, (str, os.PathLike)):
        place = Path(scores)
        read = read_any_scores(
            place,
            missing,
            score,
            filter,
            by,
            leak_is,
        )
        if read.log is not None:
            stopped = read.log.log.stopping == EARLY
            return _ScoreSource(str(scores), read.pointed(), stopped, licence.Source())
        known = licence.of_drawing(record_of_draws(place), ())
        return _ScoreSource(str(scores), read.pointed(), could_stop(place, read), known)
    is_table = hasattr(scores, "columns")
    scores = as_frame(scores)
    if hasattr(scores, "columns"):
        column = DOCUMENTED if is_table else str(scores.columns[0])
        read = of_frame(scores, missing, score or column, by, leak_is)
        stopped = says_stopped(scores)
        return _ScoreSource("scores", read.pointed(), stopped, licence.Source())
    stated = replace(LEAKS, leak_is=leak_is)
    read = ReadScores(as_prompts(scores, missing), stated, missing)
    return _ScoreSource("scores", read.pointed(), stopped=False, known=licence.Source())


def _numbers_of_answers(pass_at: str | Sequence[str | int]) -> tuple[int, ...]:
    """The numbers k of ``pass_at``, once each; a text has them between commas."""
    if not isinstance(pass_at, str) and not pass_at:
        return ()
    text = pass_at if isinstance(pass_at, str) else ",".join(map(str, pass_at))
    numbers: list[int] = []
    for part in text.split(","):
        word = part.strip()
        if not word.isdecimal() or len(word) >= 10 or int(word) == 0:
            raise BadValue("pass_at", pass_at, "whole numbers of at least 1, such as 1,2,4")
        numbers.append(int(word))
    return tuple(dict.fromkeys(numbers))


def _check_leaks(prompts: Sequence[PromptScores], pass_at: str | Sequence[str | int]) -> None:
    leaks = bounded.counts_of([prompt.scores for prompt in prompts]).leaks
    binary = not np.isnan(leaks).any()
    check(binary, "pass_at", pass_at, "left out unless all scores are 0 or 1")


def _add_passes(
    rows: Rows, prompts: Sequence[PromptScores], alpha: float, ks: Sequence[int]
) -> None:
    """Add pass^k, and leak@k at the same k, on average over the prompts."""
    rate = bounded.counts_of([prompt.scores for prompt in prompts])
    add = partial(rows.add, "model", split="forget")
    passes = pass_hat_k(rate.leaks, rate.n, rate.missing, alpha, ks)
    bounded.band_rows(add, "pass_hat_k", "sampled", passes)
    further = [k for k in ks if k not in QUERIES]  # the others have rows already
    bounded.band_rows(add, "leak_at_k", "sampled", rate.mean(alpha, further))


@bounded.without_collector()
def _licensed(
    settings: bounded.MeasureSettings,
    source: _ScoreSource,
    asked: Sequence[str],
    rows: Sequence[Result],
    beside: licence.Source,
) -> Bounds:
    """The result with its bounds, or without them where nothing may be claimed; ``asked`` are the keys of further claims.

    ``beside`` is what is known beside what the scores state: of their draws, and of the labels.

    Where it is only unknown which end of a score is a leak, or how a judge's verdicts relate to leaks, the bounds are those
    of the score as recorded, and what is said of leaks is left out.
    """
    stated = source.read.stated
    known = stated.source().joined(beside)
    known = replace(known, below_own_mean=licence.below_own_mean(rows))
    if "judged" not in asked and "labelled" not in asked:
        known = replace(known, unlabelled_judge=licence.without_labels(stated.score))
    refused = licence.refusals(known)
    unpointed: list[str] = []
    if refused and not licence.refusals(licence.of_scores(known)):
        refused, unpointed = [], refused
        rows = [row for row in rows if row.quantity not in OF_LEAKS]
    if refused:
        rows = licence.without_claims(rows)
    if refused or unpointed:
        record = {"refused": refused, "unpointed": unpointed, "asked": list(asked)}
        rows = _with_settings(rows, record)
    return Bounds(
        settings,
        tuple(source.read.prompts),
        tuple(rows),
        source.name,
        source.read.log,
        refused=tuple(refused),
        unpointed=tuple(unpointed),
        stated=stated,
        understood=source.read.understood,
    )


def _drawn(prompts: Sequence[PromptScores], missing: Missing | None) -> dict[str, PromptAnswers]:
    """The answers that labels may be of."""
    drawn: dict[str, PromptAnswers] = {}
    for prompt in prompts:
        dropped = prompt.missing if missing == "drop" else 0
        absent = np.isnan(prompt.scores)
        verdict_of_sample: dict[str, float] | None = None
        unjudged: frozenset[str] = frozenset()
        names: frozenset[str] | None = None
        if prompt.samples is not None:
            if not dropped:
                names = frozenset(map(str, prompt.samples.tolist()))
            unjudged = frozenset(map(str, prompt.samples[absent].tolist()))
            if np.isin(prompt.scores[~absent], (0.0, 1.0)).all():
                samples = map(str, prompt.samples[~absent].tolist())
                judged = prompt.scores[~absent].tolist()
                verdict_of_sample = dict(zip(samples, judged, strict=True))
        drawn[prompt.prompt_id] = PromptAnswers(
            prompt.n + dropped,
            verdict_of_sample,
            int(absent.sum()),
            unjudged,
            dropped,
            frozenset(prompt.lost),
            names,
        )
    return drawn


def calibration_of(
    source: Place | Calibration | None, missing: Missing | None, scores: object = None
) -> Calibration | None:
    """Return the judge's error as counts; the column ``judge`` of a table of ``scores`` must name the same judge."""
    if source is None or isinstance(source, Calibration):
        return source
    if isinstance(scores, (str, os.PathLike)) and Path(scores).suffix in TABLES:
        scores = read_table(scores, text=["judge"])
    judge = judge_in("scores", scores) if hasattr(scores, "columns") else None
    answers = read_calibration(source, missing or "worst", judge)
    return Calibration.of(answers.labels, answers.verdicts, judge=answers.judge)
