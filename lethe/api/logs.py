"""`lethe.read_log` reads a log of another tool, `score_log` and `tofu_log` score its texts, and `lethe.score` any texts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import ValidationError

from lethe.api.parameters import Place, Rows, documented, rows_of
from lethe.api.result import Measurement, TableWithSentences, View, frame
from lethe.config.evaluating import METRICS
from lethe.errors import BadInput, BadValue, plural, shortened
from lethe.io import logs
from lethe.io.logs import _log
from lethe.measure import scores
from lethe.measure.likelihood_metrics import SPLITS
from lethe.measure.stated import check_leak_is
from lethe.registry import ROUGE
from lethe.results import table
from lethe.results.table import Result
from lethe.scoring import scorer as load
from lethe.scoring import tofu
from lethe.scoring.text.rouge import dropped
from lethe.statistics.bound import Bound, Interval
from lethe.statistics.checks import check_alpha
from lethe.statistics.two_sample import KsTest

if TYPE_CHECKING:
    import pandas as pd


TERMS = ["term", "mean", "lower", "upper", "rows", "missing"]
TURNED = "a low score is a leak (--leak-is low), so each number is of 1 - score"
OF_A_LOG = ("format", "tool", "task", "model", "sampling", "answers", "missing")


@dataclass(frozen=True, repr=False)
class Log(_log.Log, TableWithSentences):
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
        each = f"{'' if least == most else f'{least} to '}{plural(most, 'answer')} each"
        missing = ", ".join(f"{count} {reason}" for reason, count in self.missing.items())
        return self.lines(
            ("answers", f"{len(self.answers)}: {plural(len(self.prompts), 'prompt')}, {each}"),
            ("missing", missing or "nothing"),
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
class ScoredLog(scores.ScoredLog, TableWithSentences):
    """The result of `score_log`: ``table`` has a row per planned answer: ``prompt_id, sample`` and one column per scorer,
    whose scores are 1 - score if they are ``inverted``.
    """

    inverted: bool = False

    def to_frame(self) -> pd.DataFrame:
        return self.table

    def as_json(self) -> dict[str, object]:
        read, keys = self.log.summary(), ("scored", "missing", "mean")
        scores = {name: dict(zip(keys, counts, strict=True)) for name, *counts in self.rows()}
        log = {key: read[key] for key in OF_A_LOG}
        return {
            "log": log,
            "matched_by": self.matched_by,
            "scores": scores,
            "warnings": self.warnings(),
            "score_inverted": self.inverted,
        }

    def sentences(self) -> list[str]:
        answers = f"{plural(len(self.log.answers), 'answer')} to {plural(len(self.log.prompts), 'prompt')}"
        warnings = [f"warning   {one}" for one in self.warnings()]
        turned = [f"{TURNED[0].upper()}{TURNED[1:]}."] if self.inverted else []
        return [f"{self.log.tool}: {answers}, matched by {self.matched_by}.", *turned, *warnings]

    def views(self) -> list[View]:
        return [
            View(
                str(self.log.path),
                ["scorer", "scored", "missing", "mean"],
                self.rows(),
                self.sentences(),
            )
        ]


@dataclass(frozen=True, repr=False)
class TofuLog(Measurement):
    """The result of `tofu_log`: TOFU's aggregates, and the rows whose stored ROUGE-L recall is not that of their texts."""

    path: str
    utility: tofu.Utility
    truth: tofu.Term
    quality: KsTest | None
    mismatches: Mapping[str, Sequence[str]]
    stored: int
    intervals: Mapping[str, Interval]
    differences: Mapping[str, Mapping[str, float]]
    VIEW = "tofu_log"

    @property
    def count(self) -> int:
        return sum(map(len, self.mismatches.values()))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per term."""
        return frame(self._terms(), columns=TERMS)

    @property
    def given(self) -> Mapping[str, tofu.Term]:
        return {**self.utility.terms, "forget_truth_ratio": self.truth}

    def _terms(self) -> list[list[object]]:
        rows = (row for row in self.rows() if row.split)
        return [
            [row.names()[0], row.estimate, row.lower, row.upper, row.n, row.missing] for row in rows
        ]

    def rows(self) -> list[Result]:
        """Return the rows of `lethe.results.table`: every aggregate and every term with its interval."""
        rows = table.Rows(Path(self.path).stem)
        record = {"rougeL_recall_mismatches": self.count, "mismatched_rows": self.mismatches}
        facts: dict[str, dict[str, object]] = {
            "model_utility": {"log": record | {"stored_differences": self.differences}}
        }
        facts |= {"forget_quality": {"test": asdict(self.quality)}} if self.quality else {}
        values = {
            "model_utility": self.utility.value,
            **{name: term.value for name, term in self.given.items()},
        }
        for name, value in (
            values | ({"forget_quality": self.quality.p_value} if self.quality else {})
        ).items():
            split = next(
                (part for part in SPLITS if name in self.given and name.startswith(part)), None
            )
            ends: Sequence[Bound] = ()
            evidence = facts.get(name, {})
            if interval := self.intervals.get(name):
                ends = interval.bounds()
                evidence = evidence | {"alpha": interval.alpha}
            quantity = name.removeprefix(f"{split}_")
            about = {key: getattr(self.given.get(name), key, None) for key in ("n", "missing")}
            rows.add(
                "model",
                quantity,
                "given answers",
                value,
                *ends,
                split=split,
                evidence=evidence,
                **about,
            )
        return rows.rows

    def sentences(self) -> list[str]:
        lines = [f"model utility   {self.utility.value:.6f}{self._ends('model_utility')}"]
        if self.quality:
            test = f"KS statistic {self.quality.statistic:.4g}, exact"
            lines.append(
                f"forget quality  {self.quality.p_value:.4g} ({test}){self._ends('forget_quality')}"
            )
        lines.append(f"truth ratio     {self.truth.value:.4f}{self._ends('forget_truth_ratio')}")
        lines += [
            f"stored          {name} is {one['stored']:.6g} in the log, {one['recomputed']:.6g} from its rows"
            for name, one in self.differences.items()
        ]
        if interval := next(iter(self.intervals.values()), None):
            level = (
                f"each by itself with probability {1 - interval.alpha:g}, for questions like these"
            )
            lines.append(
                f"intervals       {level}, if {interval.assumes}; --json names each method"
            )
        mismatches = plural(self.count, "mismatch", "mismatches")
        return [
            *lines,
            f"ROUGE-L         {plural(self.stored, 'stored ROUGE-L recall')}, {mismatches}",
        ]

    def _ends(self, name: str) -> str:
        interval = self.intervals.get(name)
        return f", interval {interval.lower:.4g} to {interval.upper:.4g}" if interval else ""

    def views(self) -> list[View]:
        return [View(self.path, TERMS, self._terms(), self.sentences())]


@documented
def read_log(
    file: Place,
    *,
    filter: str | None = None,
    by: str | None = None,
    leak_is: Literal["high", "low"] | None = None,
) -> Log:
    """Read a log of another tool: tool, task, model, settings of sampling, answers, scores, and what is missing.

    Parameters
    ----------
    file : A log of lm-eval, Inspect, HELM, garak, promptfoo, Leak-k, open-unlearning, HarmBench or JailbreakBench, or a
        table of answers, whatever its name.
    by : The column of a table of answers that names the question. [default: prompt_id]

    Examples
    --------
    >>> import json, lethe
    >>> line = {"prompt": "Who?", "responses": [{"response": "Ron.", "exact_match": 1}]}
    >>> with open("leak_k.json", "w") as file:
    ...     _ = file.write(json.dumps(line))
    >>> log = lethe.read_log("leak_k.json")
    >>> log.format, log.answers["text"].tolist(), log.scores
    ('leak-k', ['Ron.'], ('exact_match',))
    """
    log = Log(**vars(logs.read_log(file, filter, by)))
    check_leak_is(leak_is)
    return replace(log, inverted=True, answers=_turned(log)) if leak_is == "low" else log


def _turned(log: Log) -> pd.DataFrame:
    """The answers with 1 - score in place of each score."""
    scores = list(log.scores)
    return log.answers.assign(**(1 - log.answers[scores]))


@documented
def score_log(
    log: Place,
    *,
    data: Rows,
    scorer: str | Sequence[str] = ("rouge_l",),
    filter: str | None = None,
    by: str | None = None,
    leak_is: Literal["high", "low"] | None = None,
) -> ScoredLog:
    """Score every answer of a log, and write the scores as a table for `lethe bounds`.

    The table has `prompt_id, sample` and one column per scorer. A missing answer has an empty cell: pass
    `--missing worst` to `lethe bounds`. A row belongs to a prompt by its id, else by its question.

    Parameters
    ----------
    log : A log of another tool; `lethe log` lists the formats.
    data : The references: JSON lines with id, question, answer, keywords.
    scorer : A scorer or judge; repeatable. [default: rouge_l]
    by : The column of a table of answers that names the question. [default: prompt_id]
    """
    check_leak_is(leak_is)
    names = list(dict.fromkeys([scorer] if isinstance(scorer, str) else scorer))
    source = str(data) if isinstance(data, (str, os.PathLike)) else "data"
    read = logs.read_log(log, filter, by)
    scored_log = ScoredLog(**vars(scores.score_log(read, rows_of(data, "data"), names, source)))
    if leak_is != "low":
        return scored_log
    turned = scored_log.table.assign(**(1 - scored_log.table[names]))
    return replace(scored_log, table=turned, inverted=True)


@documented
def tofu_log(file: Place, *, retain: Place | None = None, alpha: float = METRICS.alpha) -> TofuLog:
    """Compute model utility and forget quality of a TOFU log with intervals, and check every stored ROUGE-L recall.

    Model utility is the harmonic mean of probability, ROUGE-L recall and truth on retain set, real authors and
    world facts. Forget quality is the p-value of the exact two-sample Kolmogorov-Smirnov test between the truth
    ratios on the forget set of FILE and of the Retrain model's log. Rows without a usable value are left out and
    counted. The intervals take the questions as a sample of questions like these.

    Parameters
    ----------
    file : The model's log, as TOFU's evaluation or open-unlearning (TOFU_EVAL.json) writes it.
    retain : The log of the Retrain model: adds the forget quality.
    """
    check_alpha(alpha)
    log = tofu.read_log(Path(file))
    ratios = log["forget"].truth_ratio
    again = tofu.read_log(Path(retain), ["forget"])["forget"].truth_ratio if retain else None
    quality = None if again is None else tofu.forget_quality(ratios, again)
    sets = {name: vars(log[name]) for name in tofu.UTILITY_SETS}
    utility, terms, truth = (
        tofu.model_utility(sets),
        tofu.utility_values(sets),
        tofu.forget_truth(ratios),
    )
    intervals = {
        "model_utility": tofu.of_utility(terms, alpha),
        "forget_quality": quality and tofu.of_quality(quality, alpha),
        "forget_truth_ratio": tofu.of_mean(tofu.closeness(ratios), alpha),
        **{name: tofu.of_mean(values, alpha) for name, values in terms.items()},
    }
    return TofuLog(
        path=str(file),
        utility=utility,
        truth=truth,
        quality=quality,
        mismatches={name: section.mismatches for name, section in log.items()},
        stored=sum(len(section.rows) for section in log.values()),
        intervals={name: interval for name, interval in intervals.items() if interval},
        differences=tofu.differences(Path(file), utility, truth, quality),
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
    for name, given in (("texts", texts), ("keywords", keywords)):
        if isinstance(given, str):
            raise BadValue(name, given, "a list of texts", "Put a single text into a list.")
    row = {"answer": answer, "keywords": list(keywords) if keywords is not None else None, **item}
    row = {key: value for key, value in row.items() if value is not None}
    try:
        values = load(scorer)(list(texts), row)
    except ValidationError as error:
        needs = ", ".join(str(one["loc"][-1]) for one in error.errors())
        remedy = f"It needs {needs}: give it an entry under judges in params.yaml."
        raise BadValue("scorer", scorer, "a scorer without a model of its own", remedy) from None
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
