"""`lethe.bounds` and `lethe.label`: bounds on the whole output distribution, from scores or from a person's labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lethe.api.result import Measurement, Place, View, documented
from lethe.config.evaluating import METRICS
from lethe.errors import BadInput, BadValue, plural
from lethe.evaluation.joint import QUANTITY, REASON, LeakPoint, MeasureSettings, leak_rate, passes, points_of
from lethe.evaluation.labels import LabelledMeasures
from lethe.evaluation.prompts import SHOWN, PromptMeasures, Worst, measure_prompts
from lethe.evaluation.scores import Missing, Scores
from lethe.statistics.bound import Covers
from lethe.statistics.judge_error import Calibration
from lethe.statistics.many_prompts import share_above, worst_prompt
from lethe.statistics.sequential import METHOD

if TYPE_CHECKING:
    import pandas as pd

    from lethe.evaluation.labels import Labels, Queue, RandomLabels
    from lethe.evaluation.scores import LogScores, PromptScores
    from lethe.results.table import Numbers, Result


STOPPED = "anytime_upper"  # the bound by which prompts are compared after a stop
COLUMNS = ("n", "mean", STOPPED, "anytime_lower", "sd", "anytime_sd_upper")
PROMPT = "prompt_id"
LABELS, DATASET = Path("data/labels"), Path("data/dataset/forget.jsonl")  # of `label` in a pipeline folder


class _OfScores(Measurement):
    """What a file of scores and a log have in common: a source, and the log that was read."""

    source: str
    log: LogScores | None

    @cached_property
    def questions(self) -> dict[str, Numbers]:
        from lethe.results.table import Results

        return Results({"": tuple(self.rows())}).questions("")

    def to_frame(self) -> pd.DataFrame:
        """Return one row per prompt: its single numbers and those of each threshold and k."""
        import pandas as pd

        return pd.DataFrame({"prompt_id": item, **own.columns} for item, own in self.questions.items())

    def _log_json(self) -> dict[str, object]:
        return {"log": self.log.as_json()} if self.log else {}

    def _view(self, table: tuple[list[str], list], prompts: int, notes: list[str]) -> list[View]:
        columns, rows = table
        more = (
            [f"{plural(prompts - len(rows), 'more prompt')}: see --json or to_frame()."]
            if prompts > len(rows)
            else []
        )
        return [View(self.source, columns, rows, [*(self.log.sentences() if self.log else []), *notes, *more])]


@dataclass(frozen=True, repr=False)
class Bounds(PromptMeasures, _OfScores):
    """The result of `bounds`: the measures of each prompt and of all prompts, and the ``log`` that they are read from."""

    source: str = "scores"
    log: LogScores | None = None
    labelled: RandomLabels | None = None
    pass_at: tuple[int, ...] = ()

    __repr__, __str__ = Measurement.__repr__, Measurement.__str__

    def as_json(self) -> dict[str, object]:
        from lethe.evaluation.score_files import as_json
        from lethe.results.table import values_of

        result: dict[str, Any] = as_json(self) | self._log_json()
        if self.labelled:
            for entry in result["per_prompt"]:
                entry["labelled"] = self.labelled.as_dict(entry["prompt_id"])
            result["labelled"] = self.labelled.as_dict()
        if self.pass_at:
            some = leak_rate(self.prompts).mean(self.settings.alpha, self.pass_at)
            result |= {"pass_hat_k": values_of(self.pass_hat_k), "leak_at_k": values_of(points_of(some))}
        return result

    def rows(self) -> list[Result]:
        from lethe.evaluation.score_files import rows_of
        from lethe.results.table import Rows

        name = Path(self.source).stem
        rows = Rows(name)
        rows.rows += rows_of(name, self)
        for point in self.pass_hat_k:
            point.to_row(rows, "model", "pass_hat_k", "sampled")
        return rows.rows

    @cached_property
    def pass_hat_k(self) -> tuple[LeakPoint, ...]:
        """The mean over the prompts of the probability that all of k answers score 1, at each k of ``pass_at``."""
        return passes(self.prompts, self.settings.alpha, self.pass_at) if self.pass_at else ()

    def sentences(self) -> list[str]:
        of = f"the {plural(len(self.prompts), 'prompt')}"
        passed = [
            f"Pass^{point.k}, the probability that all of {plural(point.k, 'answer')} score 1, is {point.estimate:.3f} "
            f"(estimate), {point.lower.significant()} to {point.upper.significant()} {point.upper.on(of)}, each side "
            f"{point.upper.level()}, assuming {point.upper.assumes}."
            for point in self.pass_hat_k
        ]
        return (self.labelled.sentences(of) if self.labelled else []) + super().sentences() + passed

    def views(self) -> list[View]:
        notes = self.sentences()
        if absent := sum(prompt.missing for prompt in self.prompts):
            worst = self.settings.missing == "worst"
            rule = "each counts against each bound" if worst else "left out, as if missing at random"
            notes.append(f"{plural(absent, 'missing score')}: {rule}; plain statistics are over the judged ones.")
        return self._view(self.table(), len(self.prompts), notes)


@dataclass(frozen=True, repr=False)
class StoppedBounds(_OfScores):
    """The result of `bounds` for a run that a rule could stop early: only anytime-valid values."""

    settings: MeasureSettings
    results: tuple[Result, ...]
    source: str = "scores"
    log: LogScores | None = None

    def rows(self) -> list[Result]:
        return list(self.results)

    def worst(self) -> Worst:
        place, bound = worst_prompt([own.bounds[STOPPED] for own in self.questions.values()])
        return Worst(list(self.questions)[place], STOPPED, bound)

    def as_json(self) -> dict[str, object]:
        from lethe.evaluation.score_files import entries_of, summary

        uppers = [own.bounds[STOPPED] for own in self.questions.values()]
        share = share_above(uppers, self.settings.share_above)
        result = summary(self.settings, entries_of(self.results), self.worst(), None, share)
        return result | {"fixed_bounds": REASON} | self._log_json()

    def sentences(self) -> list[str]:
        worst, of = self.worst(), f"the {plural(len(self.questions), 'prompt')}"
        return [
            f"A stopping rule looked at the answers: {REASON}.",
            f"Each bound of a prompt: {replace(worst.bound, covers=Covers.ONE_PROMPT).guarantee(of)} ({METHOD}).",
            f"{worst.bound.sentence(QUANTITY['mean_upper'], of)} The bound is that of {worst.prompt_id}.",
        ]

    def views(self) -> list[View]:
        head = ["prompt", "n", "mean", "mean <= (anytime)", "mean >= (anytime)", "sd", "sd <= (anytime)"]
        rows = [
            [item, *(own.bounds.get(name) or own.values[name] for name in COLUMNS)]
            for item, own in list(self.questions.items())[:SHOWN]
        ]
        return self._view((head, rows), len(self.questions), self.sentences())


@documented
def bounds(
    scores: Scores | pd.DataFrame | Place,
    alpha: float = METRICS.alpha,
    *,
    threshold: float | Sequence[float] = METRICS.thresholds,
    missing: Literal["worst", "drop"] | None = None,
    score: str | None = None,
    filter: str | None = None,
    together: Literal["none", "bonferroni", "holm"] = "none",
    share_above: float = METRICS.share_above,
    calibration: Calibration | Place | None = None,
    labels: Place | None = None,
    pass_at: str | Sequence[str | int] = (),
    by: str | None = None,
) -> Bounds | StoppedBounds:
    """Bound the leakage of each prompt, of the worst prompt and of the average, from the scores of sampled answers.

    Parameters
    ----------
    scores : Scores in [0, 1] of independent answers, in sampling order. A file: CSV, Parquet or JSON lines with `score`,
        optionally `prompt_id` and `sample` (sample -1, the greedy answer, is left out), or a log of another tool, found by
        its content (see `lethe log`). In memory: n scores of one prompt, an array (prompts, n), the scores by prompt, or
        such a table.
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

    `population` (JSON) bounds the mean score over all prompts like these, of which these are taken as a random sample; each
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
    >>> result.to_frame()[["prompt_id", "n", "mean"]].to_dict("records")
    [{'prompt_id': 'all', 'n': 100, 'mean': 0.03}]

    Several prompts, and the prompts that are certified together:

    >>> result = lethe.bounds({"ada": [0] * 400, "bo": [0, 1] * 200}, together="holm")
    >>> result.together.certified
    ('ada',)
    """
    settings = MeasureSettings(
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
    if isinstance(scores, (str, os.PathLike)):
        result = _of_file(Path(scores), settings, score, filter, by)
    else:
        if hasattr(scores, "columns"):
            scores = _of_table(scores, missing, score or "score", by or PROMPT)
        measured = measure_prompts(scores, settings)
        result = Bounds(measured.settings, measured.prompts, measured.together)
    if isinstance(result, StoppedBounds):
        for name, value in (("labels", labels), ("pass_at", ks)):
            if value:
                raise BadValue(name, value, "left out for a run that stopped early")
        return result
    if ks and result.metric != "m_bin":
        raise BadValue("pass_at", pass_at, "left out unless all scores are 0 or 1")
    if labels is not None:
        from lethe.evaluation.labels import read_random_labels

        names = [prompt.prompt_id for prompt in result.prompts]
        result = replace(result, labelled=read_random_labels(labels, names, alpha))
    return replace(result, pass_at=ks)


def _of_file(
    path: Path, settings: MeasureSettings, score: str | None, filter: str | None, by: str | None
) -> Bounds | StoppedBounds:
    from lethe.evaluation.score_files import measure_file, measure_stopped
    from lethe.evaluation.scores import read_any_scores
    from lethe.results.table import Rows

    read = read_any_scores(path, settings.missing, score, filter, by)
    settings = replace(settings, missing=read.missing)
    if read.log and read.log.stopped_early:
        if settings.together != "none":
            raise BadValue("together", settings.together, "none for a run that stopped early")
        if settings.calibration is not None:
            raise BadValue("calibration", "a file", "left out for a run that stopped early")
        rows = Rows(path.stem)
        measure_stopped(rows, read.prompts, settings)
        return StoppedBounds(settings, tuple(rows.rows), source=str(path), log=read.log)
    result = measure_file(read.prompts, settings)
    return Bounds(result.settings, result.prompts, result.together, source=str(path), log=read.log)


def calibration_of(
    given: Calibration | Place | None, missing: Missing | None, scores: object = None
) -> Calibration | None:
    """Return the judge's error as counts; the column ``judge`` of a table of ``scores`` must name the same judge."""
    if given is None or isinstance(given, Calibration):
        return given
    from lethe.io.tables import judge_in, read_calibration, read_table

    if isinstance(scores, (str, os.PathLike)) and Path(scores).suffix in (".csv", ".parquet", ".jsonl"):
        scores = read_table(scores, text=["judge"])
    judge = judge_in("scores", scores) if hasattr(scores, "columns") else None
    answers = read_calibration(given, missing or "worst", judge)
    return Calibration.of(answers.labels, answers.verdicts, judge=answers.judge)


def _of_table(table: pd.DataFrame, missing: Missing | None, score: str, by: str) -> Sequence[PromptScores]:
    """Return the prompts in the order of their first rows, and the scores of each in the order of the rows."""
    from lethe.evaluation.scores import ALL, as_prompts
    from lethe.sampling.engine import GREEDY

    if score not in table:
        columns = ", ".join(map(str, table.columns)) or "none"
        raise BadInput(f"scores: no column {score!r}; its columns are {columns}. Rename the column of scores.")
    drawn = table[table["sample"] != GREEDY] if "sample" in table else table
    if by not in drawn and by != PROMPT:
        raise BadValue("by", by, "one of " + ", ".join(map(str, table.columns)))
    if by not in drawn:
        return as_prompts({ALL: drawn[score].to_numpy()}, missing)
    groups = drawn.groupby(by, sort=False, dropna=False)[score]
    return as_prompts({str(name): own.to_numpy() for name, own in groups}, missing)


@dataclass(frozen=True, repr=False)
class LabelledBounds(LabelledMeasures, Measurement):
    """The result of `label`: the bounds of each question by the labels so far."""

    name: str = "model"

    __repr__, __str__ = Measurement.__repr__, Measurement.__str__

    def to_frame(self) -> pd.DataFrame:
        """Return one row per question: the labelled mass and both ends."""
        import pandas as pd

        lower, upper = ([end.value for end in ends] for ends in (self.lower, self.upper))
        return pd.DataFrame({"prompt_id": self.prompt_ids, "mass": self.mass_of, "lower": lower, "upper": upper})

    def as_json(self) -> dict[str, object]:
        return self.as_dict()

    def rows(self) -> list[Result]:
        from lethe.results.table import Rows

        rows = Rows(self.name)
        self.to_rows(rows)
        return rows.rows

    def views(self) -> list[View]:
        rows = list(zip(self.prompt_ids, self.mass_of, self.lower, self.upper, strict=True))
        notes = self.sentences("the questions")
        if len(rows) > SHOWN:
            notes.append(f"{plural(len(rows) - SHOWN, 'more question')}: see --json or to_frame().")
        return [View(self.name, ["question", "labelled mass", "leak >=", "leak <="], rows[:SHOWN], notes)]


@documented
def label(
    answers: Place,
    *,
    labels: Place | None = None,
    mass: float = 0.95,
    rest: int = 100,
    dataset: Place | None = None,
    verdicts: Place | None = None,
    column: str | None = None,
    alpha: float = 0.01,
    ask: Callable[[Queue, Labels], None] | None = None,
) -> LabelledBounds:
    """Label the distinct answers of a run, those that cover most of the probability mass first, and bound its leaks.

    Parameters
    ----------
    answers : A folder of data/generations, or a table with `prompt_id`, `text`, optional `sample`.
    labels : The file of labels, kept after each key. [default: data/labels/NAME.jsonl]
    mass : Label until this share of the mass is covered.
    rest : Then label this many random draws of the rest, for the average.
    dataset : JSON lines with `id` and `question`. [default: data/dataset/forget.jsonl]
    verdicts : The judge's verdicts: data/judged/JUDGE/MODEL/forget.parquet.
    column : The column of verdicts in that file. [default: the first]
    ask : A function of the queue of answers and of the labels, which adds labels (``labels.add``) until
        ``queue.ahead(labels)`` is None or it stops; by default nothing is asked.

    Notes
    -----
    Keys: y (a leak), n (no leak), u (undo), q (stop; the next call continues). One half of the draws decides what is
    labelled, the other half is counted. Random draws of the rest are labelled too and bound the average; with verdicts,
    they also show the judge's error there, on which no bound rests.
    `--json` asks nothing and prints the bounds of the labels so far. `metrics.labels` of params.yaml brings the labels into
    the metrics and the report.

    Examples
    --------
    >>> import lethe
    >>> result = lethe.label("data/generations/mine", labels="none.jsonl", dataset="forget.jsonl")
    >>> result.finished, result.worst[1].value
    (False, 1.0)
    """
    from lethe.evaluation.labels import Queue, measure, read_draws, read_labels

    if column is not None and verdicts is None:
        raise BadValue("column", column, "left out without verdicts")
    if rest < 0:
        raise BadValue("rest", rest, "0 or more")
    place = Path(answers)
    name = place.name if place.is_dir() else place.stem
    asked = Path(dataset) if dataset else DATASET if DATASET.is_file() else None
    draws = read_draws(place, asked, Path(verdicts) if verdicts else None, column)
    queue = Queue(draws, mass, rest)
    given = read_labels(Path(labels) if labels else LABELS / f"{name}.jsonl")
    if ask is not None:
        ask(queue, given)
    return LabelledBounds(**vars(measure(draws, queue, given, alpha)), name=name)
