"""Logs of other tools: `lethe.read_log` reads one, `score_log` scores its texts anew, `tofu_log` takes TOFU's own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lethe.api.result import TableWithSentences, View
from lethe.api.sources import Rows
from lethe.config.evaluating import METRICS
from lethe.errors import plural
from lethe.evaluation import score_files
from lethe.io.logs import _log
from lethe.statistics.checks import check_alpha

if TYPE_CHECKING:
    import pandas as pd


TERMS = ["term", "mean", "lower", "upper", "rows", "missing"]
OF_A_LOG = ("format", "tool", "task", "model", "sampling", "answers", "missing")


@dataclass(frozen=True, repr=False)
class Log(_log.Log, TableWithSentences):
    """The result of `read_log`: ``answers`` and ``prompts`` as tables, ``scores``, and what is ``missing``."""

    def to_frame(self) -> pd.DataFrame:
        """Return one row per answer: ``prompt_id, sample, text`` and one column per score."""
        return self.answers

    def as_json(self) -> dict[str, object]:
        """The keys of `lethe log --json`."""
        return self.summary()

    def sentences(self) -> list[str]:
        """Return one line per fact."""
        per_prompt = self.prompts["answers"]
        least, most = per_prompt.min(), per_prompt.max()
        each = f"{'' if least == most else f'{least} to '}{plural(most, 'answer')} each"
        lines = [
            ("tool", f"{self.tool} (format {self.format})"),
            ("task", self.task or "not stated"),
            ("model", self.model or "not stated"),
            ("sampling", ", ".join(f"{name} {value}" for name, value in self.sampling.items()) or "not stated"),
            ("answers", f"{len(self.answers)}: {plural(len(self.prompts), 'prompt')}, {each}"),
            ("missing", ", ".join(f"{count} {reason}" for reason, count in self.missing.items()) or "nothing"),
            ("refused", self.refusal),
            *(("warning", warning) for warning in self.warnings),
            *(("note", note) for note in self.notes),
        ]
        return [f"{name:<9} {text}" for name, text in lines if text]

    def views(self) -> list[View]:
        """The scores, and the facts."""
        rows = [[name, *score.values()] for name, score in self.score_counts().items()]
        return [View(str(self.path), ["score", "scored", "unscored", "mean"], rows, self.sentences())]


@dataclass(frozen=True, repr=False)
class ScoredLog(score_files.ScoredLog, TableWithSentences):
    """The result of `score_log`: ``table`` has ``prompt_id, sample`` and one column per scorer."""

    def to_frame(self) -> pd.DataFrame:
        """Return one row per planned answer; a missing answer has no score."""
        return self.table

    def as_json(self) -> dict[str, object]:
        """The keys of `lethe score log --json`."""
        read = self.log.summary()
        return {
            "log": {key: read[key] for key in OF_A_LOG},
            "matched_by": self.matched_by,
            "scores": {
                name: {"scored": scored, "missing": missing, "mean": mean}
                for name, scored, missing, mean in self.rows()
            },
            "warnings": self.warnings(),
        }

    def sentences(self) -> list[str]:
        """Return the numbers of answers, and the warnings."""
        answers = f"{plural(len(self.log.answers), 'answer')} to {plural(len(self.log.prompts), 'prompt')}"
        warnings = [f"warning   {one}" for one in self.warnings()]
        return [f"{self.log.tool}: {answers}, matched by {self.matched_by}.", *warnings]

    def views(self) -> list[View]:
        """The scorers, and the warnings."""
        return [View(str(self.log.path), ["scorer", "scored", "missing", "mean"], self.rows(), self.sentences())]


@dataclass(frozen=True, repr=False)
class TofuLog(TableWithSentences):
    """The result of `tofu_log`: TOFU's aggregates, and the rows whose stored ROUGE-L recall is not that of their texts."""

    path: str
    utility: Any
    truth: Any
    quality: Any
    mismatches: Mapping[str, Sequence[str]]
    stored: int
    intervals: Mapping[str, Any]
    differences: Mapping[str, Mapping[str, float]]

    @property
    def count(self) -> int:
        """The number of mismatches."""
        return sum(map(len, self.mismatches.values()))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per term."""
        import pandas as pd

        return pd.DataFrame(self._terms(), columns=TERMS)

    def _terms(self) -> list[list[object]]:
        rows: list[list[object]] = []
        for name, term in {**self.utility.terms, "forget_truth_ratio": self.truth}.items():
            interval = self.intervals.get(name)
            ends = [interval.lower, interval.upper] if interval else [None, None]
            rows.append([name, term.value, *ends, term.n, term.missing])
        return rows

    def as_json(self) -> dict[str, object]:
        """The keys of `lethe score tofu-log --json`."""
        return {
            "model_utility": self.utility.value,
            "utility_terms": self.utility.terms,
            "forget_truth_ratio": self.truth,
            "forget_quality": self.quality and self.quality.p_value,
            "forget_quality_test": self.quality,
            "rougeL_recall_mismatches": self.count,
            "mismatched_rows": self.mismatches,
            "intervals": self.intervals,
            "stored_differences": self.differences,
        }

    def sentences(self) -> list[str]:
        """Return the aggregates."""
        lines = [f"model utility   {self.utility.value:.6f}{self._ends('model_utility')}"]
        if self.quality:
            test = f"KS statistic {self.quality.statistic:.4g}, exact"
            lines.append(f"forget quality  {self.quality.p_value:.4g} ({test}){self._ends('forget_quality')}")
        lines.append(f"truth ratio     {self.truth.value:.4f}{self._ends('forget_truth_ratio')}")
        lines += [
            f"stored          {name} is {one['stored']:.6g} in the log, {one['recomputed']:.6g} from its rows"
            for name, one in self.differences.items()
        ]
        if interval := next(iter(self.intervals.values()), None):
            level = f"each by itself with probability {1 - interval.alpha:g}, for {interval.covers}"
            lines.append(f"intervals       {level}, if {interval.assumes}; --json names each method")
        compared = (
            f"{plural(self.stored, 'stored ROUGE-L recall')}, {plural(self.count, 'mismatch', 'mismatches')}"
        )
        return [*lines, f"ROUGE-L         {compared}"]

    def _ends(self, name: str) -> str:
        interval = self.intervals.get(name)
        return f", interval {interval.lower:.4g} to {interval.upper:.4g}" if interval else ""

    def views(self) -> list[View]:
        """The terms, and the aggregates."""
        return [View(self.path, TERMS, self._terms(), self.sentences())]


def read_log(file: str | os.PathLike[str], *, filter: str | None = None) -> Log:
    """Read a log of another tool: tool, task, model, settings of sampling, answers, scores, and what is missing.

    Parameters
    ----------
    file : path
        A log of lm-eval, Inspect, Leak-k, open-unlearning, HarmBench or JailbreakBench, whatever its name.
    filter : str, optional
        One filter of an lm-eval log.

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
    from lethe.io import logs

    return Log(**vars(logs.read_log(file, filter)))


def score_log(
    log: str | os.PathLike[str],
    *,
    data: Rows,
    scorer: str | Sequence[str] = ("rouge_l",),
    filter: str | None = None,
) -> ScoredLog:
    """Score every answer of a log, and write the scores as a table for `lethe bounds`.

    The table has `prompt_id, sample` and one column per scorer. A missing answer has an empty cell: pass
    `--missing worst` to `lethe bounds`. A row belongs to a prompt by its id, else by its question.

    Parameters
    ----------
    log : path
        A log of another tool; `lethe log` lists the formats.
    data : str, path, list of dict or pandas.DataFrame
        The references: JSON lines with id, question, answer, keywords.
    scorer : str or list of str
        A scorer or judge; repeatable. [default: rouge_l]
    filter : str, optional
        One filter of an lm-eval log.
    """
    from lethe.api.sources import rows_of
    from lethe.io import logs

    names = list(dict.fromkeys([scorer] if isinstance(scorer, str) else scorer))
    source = str(data) if isinstance(data, (str, os.PathLike)) else "data"
    found = score_files.score_log(logs.read_log(log, filter), rows_of(data, "data"), names, source)
    return ScoredLog(**vars(found))


def tofu_log(
    file: str | os.PathLike[str], *, retain: str | os.PathLike[str] | None = None, alpha: float = METRICS.alpha
) -> TofuLog:
    """Compute model utility and forget quality of a TOFU log with intervals, and check every stored ROUGE-L recall.

    Model utility is the harmonic mean of probability, ROUGE-L recall and truth on retain set, real authors and
    world facts. Forget quality is the p-value of the exact two-sample Kolmogorov-Smirnov test between the truth
    ratios on the forget set of FILE and of the Retrain model's log. Rows without a usable value are left out and
    counted. The intervals take the questions as a sample of questions like these.

    Parameters
    ----------
    file : path
        The model's log, as TOFU's evaluation or open-unlearning (TOFU_EVAL.json) writes it.
    retain : path, optional
        The log of the Retrain model: adds the forget quality.
    alpha : float
        The probability with which each interval may fail, above 0 and at most 0.5.
    """
    from pathlib import Path

    from lethe.scoring import tofu

    check_alpha(alpha)
    log = tofu.read_log(Path(file))
    ratios = log["forget"].truth_ratio
    again = tofu.read_log(Path(retain), ["forget"])["forget"].truth_ratio if retain else None
    quality = None if again is None else tofu.forget_quality(ratios, again)
    sets = {name: vars(log[name]) for name in tofu.UTILITY_SETS}
    utility, terms, truth = tofu.model_utility(sets), tofu.utility_values(sets), tofu.forget_truth(ratios)
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
