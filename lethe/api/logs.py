"""`lethe.read_log` reads a log of another tool, `score_log` and `tofu_log` score its texts, and `lethe.score` any texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

import numpy as np

from lethe.api.parameters import (
    JudgeArguments,
    Place,
    PlaceInPython,
    Rows,
    check_names,
    documented,
    file_of,
    judge_by,
    taking,
)
from lethe.api.result import Measurement, TableWithSentences, View, frame
from lethe.config.measuring import METRICS
from lethe.data.rows import dataset_rows
from lethe.errors import BadInput, BadValue, plural, shortened
from lethe.io import logs
from lethe.io.logs import _log
from lethe.measure import scored_log
from lethe.measure.likelihood_metrics import SPLITS
from lethe.measure.stated import check_leak_is
from lethe.registry import ROUGE
from lethe.results import table, views
from lethe.results.table import Result
from lethe.scoring import published, tofu
from lethe.scoring.scorer import scorer as load
from lethe.scoring.text.rouge import dropped
from lethe.statistics.bound import Bound, Interval
from lethe.statistics.checks import check_alpha
from lethe.statistics.two_sample import KsTest

if TYPE_CHECKING:
    import pandas as pd


TERMS = ["term", "mean", "lower", "upper", "rows", "missing"]
BESIDE = ["number", "published", "lower", "upper", "by Lethe", "noise"]
TURNED = "a low score is a leak (--leak-is low), so each number is of 1 - score"
DEFAULT_SCORERS = ("rouge_l",)
OF_A_LOG = ("format", "tool", "task", "model", "sampling", "answers", "missing")


@dataclass(frozen=True, repr=False)
class ShownLog(_log.Log, TableWithSentences):
    """The result of `read_log`: ``answers`` and ``prompts`` as tables, ``scores``, and what is ``missing``. The scores of
    ``inverted`` answers are 1 - score.
    """

    inverted: bool = False

    def to_frame(self) -> pd.DataFrame:
        return self.answers

    def as_json(self) -> dict[str, object]:
        return {**self.summary(), "score_inverted": self.inverted}

    def sentences(self) -> list[str]:
        per_prompt = self.prompts["answers"]
        least, most = per_prompt.min(), per_prompt.max()
        answers = (
            plural(most, "answer") if least == most else f"{least} to {plural(most, 'answer')}"
        )
        prompts = plural(len(self.prompts), "prompt")
        missing = [f"{count} {reason}" for reason, count in self.missing.items()]
        return self.lines(
            ("answers", f"{len(self.answers)}: {prompts}, {answers} each"),
            ("missing", ", ".join(missing) or "nothing"),
            ("refused", self.refusal),
            ("note", TURNED if self.inverted else None),
        )

    def views(self) -> list[View]:
        columns = ["score", "a 1 is", "scored", "unscored", "mean"]
        rows = []
        for name, counts in self.score_counts().items():
            rows.append([name, self.facts.meaning(name), *counts.values()])
        return [View(str(self.path), columns, rows, self.sentences())]


@dataclass(frozen=True, repr=False)
class ShownScoredLog(scored_log.ScoredLog, TableWithSentences):
    """The result of `score_log`: ``table`` has a row per planned answer: ``prompt_id, sample`` and one column per scorer,
    whose scores are 1 - score if they are ``inverted``.
    """

    inverted: bool = False

    def to_frame(self) -> pd.DataFrame:
        return self.table

    def as_json(self) -> dict[str, object]:
        summary = self.log.summary()
        scores = {}
        for name, scored, missing, mean in self.rows():
            scores[name] = {"scored": scored, "missing": missing, "mean": mean}
        return {
            "log": {key: summary[key] for key in OF_A_LOG},
            "matched_by": self.matched_by,
            "scores": scores,
            "warnings": self.warnings(),
            "score_inverted": self.inverted,
        }

    def sentences(self) -> list[str]:
        answers = plural(len(self.log.answers), "answer")
        prompts = plural(len(self.log.prompts), "prompt")
        lines = [f"{self.log.tool}: {answers} to {prompts}, matched by {self.matched_by}."]
        if self.inverted:
            lines.append(f"{TURNED[0].upper()}{TURNED[1:]}.")
        lines += [f"warning   {warning}" for warning in self.warnings()]
        return lines

    def views(self) -> list[View]:
        columns = ["scorer", "scored", "missing", "mean"]
        return [View(str(self.log.path), columns, self.rows(), self.sentences())]


@dataclass(frozen=True, repr=False)
class TofuLog(Measurement):
    """The result of `tofu_log`: TOFU's aggregates, and the rows whose stored ROUGE-L recall is not that of their texts."""

    path: str
    utility: tofu.ModelUtility
    truth: tofu.Term
    quality: KsTest | None
    mismatches: Mapping[str, Sequence[str]]
    stored: int
    intervals: Mapping[str, Interval]
    differences: Mapping[str, Mapping[str, float]]
    model: str | None = None
    beside: Sequence[published.Beside] = ()

    @property
    def count(self) -> int:
        return sum(map(len, self.mismatches.values()))

    def as_json(self) -> views.Document:
        return views.tofu_log(self.rows())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per term."""
        return frame(self._terms(), columns=TERMS)

    @property
    def terms(self) -> Mapping[str, tofu.Term]:
        """The terms of the model utility, and the truth ratio of the forget set."""
        return {**self.utility.terms, "forget_truth_ratio": self.truth}

    def _terms(self) -> list[list[object]]:
        lines: list[list[object]] = []
        for row in self.rows():
            if row.split:
                name = row.names()[0]
                lines.append([name, row.estimate, row.lower, row.upper, row.n, row.missing])
        return lines

    def rows(self) -> list[Result]:
        """Return the rows of `lethe.results.table`: every aggregate and every term with its interval."""
        rows = table.Rows(Path(self.path).stem)
        log: dict[str, object] = {
            "rougeL_recall_mismatches": self.count,
            "mismatched_rows": self.mismatches,
            "stored_differences": self.differences,
        }
        if self.model is not None:
            numbers = {number.name: number.as_json() for number in self.beside}
            log["beside"] = {"model": self.model, "numbers": numbers}
        self._add(rows, "model_utility", self.utility.value, {"log": log})
        for name, term in self.terms.items():
            self._add(rows, name, term.value, n=term.n, missing=term.missing)
        if self.quality:
            test = asdict(self.quality)
            self._add(rows, "forget_quality", self.quality.p_value, {"test": test})
        return rows.rows

    def _add(
        self,
        rows: table.Rows,
        name: str,
        value: float | None,
        evidence: Mapping[str, object] | None = None,
        n: int | None = None,
        missing: int | None = None,
    ) -> None:
        """Add the row of an aggregate, or of a term, whose name begins with its split."""
        split = None
        if name in self.terms:
            split = next((split for split in SPLITS if name.startswith(split)), None)
        facts = dict(evidence or {})
        ends: Sequence[Bound] = ()
        interval = self.intervals.get(name)
        if interval:
            ends = interval.bounds()
            facts["alpha"] = interval.alpha
        quantity = name.removeprefix(f"{split}_")
        rows.add(
            "model",
            quantity,
            "given answers",
            value,
            *ends,
            split=split,
            evidence=facts,
            n=n,
            missing=missing,
        )

    def sentences(self) -> list[str]:
        lines = [f"model utility   {self.utility.value:.6f}{self._ends('model_utility')}"]
        if self.quality:
            test = f"KS statistic {self.quality.statistic:.4g}, exact"
            ends = self._ends("forget_quality")
            lines.append(f"forget quality  {self.quality.p_value:.4g} ({test}){ends}")
        lines.append(f"truth ratio     {self.truth.value:.4f}{self._ends('forget_truth_ratio')}")
        for name, values in self.differences.items():
            stored = f"{name} is {values['stored']:.6g} in the log"
            lines.append(f"stored          {stored}, {values['recomputed']:.6g} from its rows")
        interval = next(iter(self.intervals.values()), None)
        if interval:
            level = (
                f"each by itself with probability {1 - interval.alpha:g}, for questions like these"
            )
            named = f"if {interval.assumes}; --json names each method"
            lines.append(f"intervals       {level}, {named}")
        recalls = plural(self.stored, "stored ROUGE-L recall")
        mismatches = plural(self.count, "mismatch", "mismatches")
        lines.append(f"ROUGE-L         {recalls}, {mismatches}")
        if self.model is not None:
            lines.append(f"beside          {self._beside()}")
        return lines

    def _ends(self, name: str) -> str:
        interval = self.intervals.get(name)
        if interval is None:
            return ""
        return f", interval {interval.lower:.4g} to {interval.upper:.4g}"

    def views(self) -> list[View]:
        shown = [View(self.path, TERMS, self._terms(), self.sentences())]
        if self.model is not None:
            lines = []
            for number in self.beside:
                interval = number.published
                ends = [interval.value, interval.lower, interval.upper]
                lines.append([number.name, *ends, number.measured, number.word])
            shown.append(View(f"Beside {self.model}", BESIDE, lines))
        return shown

    def _beside(self) -> str:
        """How many of Lethe's own numbers lie within the noise of the published ones, and what the noise is."""
        known = [number for number in self.beside if number.inside is not None]
        inside = sum(number.inside is True for number in known)
        sentence = (
            f"{inside} of {plural(len(known), 'number')} of {self.model} by Lethe lie inside the noise of the published "
            "number: its interval over questions"
        )
        if self.beside:
            sentence += f" (each α = {self.beside[0].published.alpha:g})"
        absent = [number.name for number in self.beside if number.inside is None]
        if absent:
            sentence += f". The run has no {', '.join(absent)}"
        return f"{sentence}. Where both asked the same questions, a number outside has another reason than the questions."


@documented
def read_log(
    file: Place,
    *,
    filter: str | None = None,
    by: str | None = None,
    leak_is: Literal["high", "low"] | None = None,
) -> ShownLog:
    """Read a log of another tool: tool, task, model, settings of sampling, answers, scores, and what is missing.

    Parameters
    ----------
    file : A log of lm-eval, Inspect, HELM, garak, promptfoo, deepeval, Leak-k, open-unlearning, HarmBench, JailbreakBench or
        Every Eval Ever, an OpenAI batch or other responses of a server with OpenAI's interface, a list of answers per
        question, or a table of answers, whatever its name.
    by : The column of a table of answers that names the question. [default: prompt_id]

    Examples
    --------
    >>> import json, lethe
    >>> line = {"prompt": "Who?", "responses": [{"response": "Ron.", "rougeL_recall": 1}]}
    >>> with open("leak_k.json", "w") as file:
    ...     _ = file.write(json.dumps(line))
    >>> log = lethe.read_log("leak_k.json")
    >>> log.format, log.answers["text"].tolist(), log.scores
    ('leak-k', ['Ron.'], ('rougeL_recall',))
    """
    log = ShownLog(**vars(logs.read_log(file, filter, by)))
    check_leak_is(leak_is)
    if leak_is != "low":
        return log
    return _turned(log)


def _turned(log: ShownLog) -> ShownLog:
    """The log with 1 - score in place of each score; a score outside [0, 1] stays as recorded, and a note says so."""
    scores = log.answers[list(log.scores)]
    is_outside = ((scores < 0) | (scores > 1)).any()
    outside = list(scores.columns[is_outside])
    notes = log.notes
    if outside:
        notes += (f"{', '.join(outside)}: not turned, because scores lie outside [0, 1]",)
    turned = log.answers.assign(**(1 - scores.drop(columns=outside)))
    return replace(log, inverted=True, answers=turned, notes=notes)


@documented
@taking(JudgeArguments)
def score_log(
    log: Place,
    *,
    data: Rows,
    scorer: str | Sequence[str] = DEFAULT_SCORERS,
    filter: str | None = None,
    by: str | None = None,
    leak_is: Literal["high", "low"] | None = None,
    scratch: PlaceInPython = None,
    **judged_by: Unpack[JudgeArguments],
) -> ShownScoredLog:
    """Score every answer of a log, and write the scores as a table for `lethe bounds`.

    The table has `prompt_id, sample` and one column per scorer. A missing answer has an empty cell: pass
    `--missing worst` to `lethe bounds`. A row belongs to a prompt by its id, else by its question.

    Parameters
    ----------
    log : A log of another tool; `lethe log` lists the formats.
    data : The references: JSON lines with id, question, answer, keywords.
    scorer : A scorer that needs no parameters; repeatable. A model that judges is given by judge. [default: rouge_l, or the
        judge alone]
    by : The column of a table of answers that names the question. [default: prompt_id]
    """
    check_names(judged_by, JudgeArguments)
    check_leak_is(leak_is)
    names = list(dict.fromkeys([scorer] if isinstance(scorer, str) else scorer))
    params = {}
    judging = judge_by(judged_by)
    if judging is not None:
        name, params[judging[0]] = judging
        names = [name] if tuple(names) == DEFAULT_SCORERS else [*names, name]
    read = logs.read_log(log, filter, by)
    source = str(file_of(data, "data"))
    rows = dataset_rows(data, "data")
    found = scored_log.score_log(read, rows, names, source, params, scratch)
    scored = ShownScoredLog(**vars(found))
    if leak_is != "low":
        return scored
    turned = scored.table.assign(**(1 - scored.table[names]))
    return replace(scored, table=turned, inverted=True)


@documented
def tofu_log(
    file: Place,
    *,
    retain: Place | None = None,
    beside: str | None = None,
    alpha: float = METRICS.alpha,
) -> TofuLog:
    """Compute model utility and forget quality of a TOFU log with intervals, and check every stored ROUGE-L recall.

    Model utility is the harmonic mean of probability, ROUGE-L recall and truth on retain set, real authors and
    world facts. Forget quality is the p-value of the exact two-sample Kolmogorov-Smirnov test between the truth
    ratios on the forget set of FILE and of the Retrain model's log. Rows without a usable value are left out and
    counted. The intervals take the questions as a sample of questions like these.

    Parameters
    ----------
    file : The model's log, as TOFU's evaluation or open-unlearning (TOFU_EVAL.json) writes it.
    retain : The log of the Retrain model: adds the forget quality.
    beside : The same model in a finished run, such as data:npo: shows Lethe's own numbers, and whether each lies inside or
        outside the noise of the published number, which is its interval over questions.
    """
    check_alpha(alpha)
    log = tofu.read_log(Path(file))
    ratios = log["forget"].truth_ratio
    quality = None
    if retain:
        of_retrain = tofu.read_log(Path(retain), ["forget"])["forget"]
        tofu.check_same_set(retain, log["forget"], of_retrain)
        quality = tofu.forget_quality(ratios, of_retrain.truth_ratio)
    sets = {name: vars(log[name]) for name in tofu.UTILITY_SETS}
    utility = tofu.model_utility(sets)
    values_of_term = tofu.utility_values(sets)
    truth = tofu.forget_truth(ratios)
    intervals = {
        "model_utility": tofu.of_utility(values_of_term, alpha),
        "forget_quality": quality and tofu.of_quality(quality, alpha),
        "forget_truth_ratio": tofu.of_mean(tofu.closeness(ratios), alpha),
    }
    for name, values in values_of_term.items():
        intervals[name] = tofu.of_mean(values, alpha)
    shown = {name: interval for name, interval in intervals.items() if interval}
    compared: Sequence[published.Beside] = ()
    if beside is not None:
        compared = published.beside(shown, beside, len(utility.terms))
    return TofuLog(
        path=str(file),
        utility=utility,
        truth=truth,
        quality=quality,
        mismatches={name: section.mismatches for name, section in log.items()},
        stored=sum(len(section.rows) for section in log.values()),
        intervals=shown,
        differences=tofu.differences(Path(file), utility, truth, quality),
        model=beside,
        beside=compared,
    )


def score(
    texts: Sequence[str],
    scorer: str = "rouge_l",
    *,
    answer: str | None = None,
    keywords: Sequence[str] | None = None,
    **item: object,
) -> np.ndarray:
    """Score texts by how much of a reference they reveal, from 0 (nothing) to 1 (everything).

    A text that cannot be judged has NaN: its score is missing, not 0.

    Parameters
    ----------
    texts : The answers of a model to one question.
    scorer : The name of a scorer: rouge_l, rouge_l_precision, rouge_l_f, rouge_1, rouge_1_precision, rouge_1_f,
        keyword_leak, exact_match, or one that a package registered.
    answer : The reference answer, which every scorer but keyword_leak needs.
    keywords : The keywords of keyword_leak: each keyword by itself is a leak.
    **item : Further keys of the question's row, for scorers that read them.

    Examples
    --------
    >>> import lethe
    >>> lethe.score(["Ada paints.", "Ada is a painter."], "rouge_l", answer="Ada is a painter.").round(2).tolist()
    [0.25, 1.0]
    >>> lethe.score(["She paints.", "A PAINTER, they say."], "keyword_leak", keywords=["painter"]).tolist()
    [0.0, 1.0]
    """
    for name, words in (("texts", texts), ("keywords", keywords)):
        if isinstance(words, str):
            raise BadValue(name, words, "a list of texts", "Put a single text into a list.")
    row: dict[str, object] = {}
    if answer is not None:
        row["answer"] = answer
    if keywords is not None:
        row["keywords"] = list(keywords)
    for key, value in item.items():
        if value is not None:
            row[key] = value
    values = load(scorer)(list(texts), row)
    if np.isnan(values).all() and any(isinstance(text, str) and text.strip() for text in texts):
        keys = ", ".join(row) or "nothing"
        if scorer in ROUGE and isinstance(answer, str) and dropped(answer):
            raise BadInput(
                f"scorer {scorer}: cannot judge any text; ROUGE reads a-z and 0-9 only, a part of the "
                f"answer {shortened(answer)}. Use keyword_leak or exact_match."
            )
        raise BadInput(
            f"scorer {scorer}: cannot judge any text; the call gave {keys}. Give answer or keywords."
        )
    return values
