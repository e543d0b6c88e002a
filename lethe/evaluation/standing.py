"""The verdict on each model of a run: which evidence decides, and with what. `lethe.results.verdict` has the rule.

Utility, relative to the model before unlearning (Base), is by the mean score of sampled answers to the retain questions (to
the world facts if there are no retain questions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from lethe.config.schema import Params
from lethe.errors import plural
from lethe.evaluation.answers import scored
from lethe.evaluation.findings import Findings, Quantity, judged_by, judged_exactly, mean_score
from lethe.evaluation.run import Model, Run
from lethe.results import verdict as rule
from lethe.results.ends import SAME_DRAWS, Ends
from lethe.results.evidence import AtLevel, Truncation
from lethe.results.quantities import USEFUL
from lethe.results.table import Result
from lethe.results.verdict import KEPT, LOST, UtilityWord, Verdict
from lethe.statistics import betting
from lethe.statistics.bounds import binary_lower
from lethe.statistics.many_prompts import Interval
from lethe.text import label

Tone = Literal["bad", "good", "open", "reference"]
TONE: dict[str, Tone] = {
    "leaks": "bad",
    "forgot": "good",
    "intact": "good",
    "damaged": "bad",
    "destroyed": "bad",
    "open": "open",
    "none": "open",
    "reference": "reference",
}
MEANING = {
    "leaks": "some question is proved to leak more often, by more than the tolerance, than in a model that never saw the "
    "forget set.",
    "forgot": "no question leaks more often, by more than the tolerance, than in a model that never saw the forget set. "
    "Other questions, or an attack on the weights, may still bring out what the model knows.",
    "intact": f"the model keeps at least {100 * KEPT:g}% of its score on questions that it should still answer.",
    "damaged": f"the model’s score on those questions fell, and is not shown to stay at {100 * KEPT:g}%.",
    "destroyed": f"the model keeps less than {100 * LOST:g}% of that score. Such a model says little about anything, and its "
    "silence on the forget set is no success of unlearning.",
    "open": "neither a leak nor its absence is proved; the sentence beside the word says what would decide it.",
}


@dataclass(frozen=True)
class Aspect:
    """The word on utility with the intervals behind it."""

    word: UtilityWord | Literal["reference"]
    quantity: Quantity | None = None
    own: Interval | None = None
    reference: Interval | None = None

    @property
    def tone(self) -> Tone:
        """The tone in which the page shows the word."""
        return TONE[self.word]

    def as_dict(self) -> dict[str, object]:
        """Word and intervals for JSON; each end is a bound with its guarantee."""
        return {
            "word": self.word,
            "quantity": self.quantity and self.quantity.words,
            "interval": self.own and [bound.as_dict() for bound in self.own.bounds()],
            "reference": self.reference and [bound.as_dict() for bound in self.reference.bounds()],
        }


@dataclass(frozen=True)
class Standing:
    """One model: the verdict on forgetting (None for a reference), the word on utility, and the one sentence of both."""

    model: str
    verdict: Verdict | None
    utility: Aspect
    sentence: str

    @property
    def word(self) -> str:
        """The word on forgetting."""
        return self.verdict.word if self.verdict else "reference"

    @property
    def tone(self) -> Tone:
        """The tone of the word on forgetting; a model that no longer answers anything did not succeed."""
        silent = self.utility.word == "destroyed" and self.word == "forgot"
        return "open" if silent else TONE[self.word]

    @property
    def words(self) -> str:
        """Both words as text."""
        return ", ".join(dict.fromkeys((self.word, self.utility.word)))


def standings(run: Run, findings: Findings) -> list[Standing]:
    """The verdict on each model of the run, in the order of the run.

    The words on forgetting share ``metrics.alpha`` evenly over the models under test. The intervals of utility hold together
    with probability 1 - ``metrics.alpha``, and are those of the findings where more comparisons share it there.
    """
    level = min(findings.level, run.params.metrics.alpha / (2 * len(run.models)))
    deciding = _Deciding(run, level)
    return [deciding.standing(model) for model in run.models]


@dataclass(frozen=True)
class _Deciding:
    """What decides about the models of a run: the evidence of each, and the intervals of utility at ``level``."""

    run: Run
    level: float

    def standing(self, model: Model) -> Standing:
        aspect = self._utility(model)
        missing = "" if model.questions else f"No verdict: the results of {model.name} are missing."
        if model.role != "subject":
            return Standing(model.name, None, aspect, missing)
        verdict = self._verdict(model)
        said = missing or rule.sentence(
            verdict,
            model.name,
            utility=None if aspect.word == "reference" else aspect.word,
            judge=self._judge,
            words=self.run.words.verdict,
        )
        served = model.drawing.served if model.drawing else None
        said += self._thinking(model, verdict) + (_of_the_server(served) if served else "")
        return Standing(model.name, verdict, aspect, said)

    def _thinking(self, model: Model, verdict: Verdict) -> str:
        """The clause on questions that leak in the thinking, where no answer is proved to leak; Bonferroni over them."""
        rows = [row for row in _rows(model, "thinking") if row.evidence]
        if not rows or verdict.word == "leaks":
            return ""
        level = rule.level_of(verdict.alpha, verdict.models, verdict.look) / len(rows)
        leaks, n = (np.array([(row.evidence or {})[key] for row in rows]) for key in ("leaks", "n"))
        proved, tau = int((binary_lower(leaks, n, level) > verdict.tau).sum()), f"{100 * verdict.tau:g}%"
        words = self.run.words
        each = plural(len(rows), words.question)
        return f" It {words.leaks} in its thinking only: above {tau} in {proved} of {each}." if proved else ""

    def _verdict(self, model: Model) -> Verdict:
        run, report, graded = self.run, self.run.params.report, self._by_score
        ends = self._graded(model) if graded else self._ends(model)
        empty = Ends.of_arrays(())
        return rule.decide(
            empty if ends is None else ends,
            [] if ends is None else [self._chance(model, other, ends.items) for other in run.retrains],
            alpha=run.params.metrics.alpha,
            tau=report.tau_graded if graded else report.tau,
            models=len(run.subjects),
            look=report.look,
            truncation=None if ends is None else self._truncation(model, ends.items, graded),
            fits=model.numbers.values.get("judge_fits") is not False,
            unjudged=len(model.questions) - (0 if ends is None else len(ends.items)),
            graded=graded,
        )

    def _chance(self, model: Model, retrain: Model, items: Sequence[str]) -> Ends:
        """The ends of Retrain on the questions ``items``: 0 and 1 where it was not asked all of them, or otherwise judged.

        Labels say what is true and a scorer what it calls a leak, so neither is chance for the other.
        """
        ends = self._graded(retrain) if self._by_score else self._ends(retrain)
        labelled = [_has_ends(_rows(one, "labelled")) for one in (model, retrain)]
        if ends is None or labelled[0] != labelled[1]:
            return Ends.of_arrays(tuple(items))
        return _on(items, ends)

    @cached_property
    def _by_score(self) -> bool:
        """Whether mean scores decide: no scorer gives 0 or 1, to a fixed number of answers or up to a stop."""
        stopped = (_has_ends(_rows(model, "anytime")) for model in self.run.models)
        return not judged_by(self.run)[1] and not any(stopped)

    @property
    def _judge(self) -> str | None:
        """The model judge whose verdicts decide; None where a rule of text or a person's labels do."""
        params, binary = self.run.params, self.run.params.metrics.binary
        judged = isinstance(params, Params) and binary in params.judges
        labelled = any(_rows(model, "labelled") for model in self.run.subjects)
        return label(binary) if judged and binary and not labelled else None

    def _ends(self, model: Model) -> Ends | None:
        """The ends of the leak probability of each question that the 0/1 scorer, or a person, can judge."""
        basis = next((basis for basis in SAME_DRAWS if _has_ends(_rows(model, basis))), None)
        if basis is None:
            return None
        rows = [row for row in _rows(model, basis) if row.upper is not None]
        items = tuple(str(row.item) for row in rows)
        exact = model.exact
        if basis != "labelled" and exact and not exact.how.note and judged_exactly(self.run.params):
            rows += [*_rows(model, "exact"), *_rows(model, "tree")]
        return Ends.of_rows(rows, items)

    def _graded(self, model: Model) -> Ends | None:
        """The ends of the mean score of each question: bounds by betting at the one level that is asked."""
        leak = self.run.params.metrics.leak
        groups = scored(model, "forget", leak, cut_off=self.run.params.sample.truncated == "missing")
        if not groups or model.stopped:
            return None
        scores = np.array(groups)

        def ends(level: float) -> tuple[np.ndarray, np.ndarray]:
            low = betting.mean_lower(np.nan_to_num(scores, nan=0.0), level)
            return low, betting.mean_upper(np.nan_to_num(scores, nan=1.0), level)

        items = [question.prompt_id for question in model.questions]
        return Ends.of_arrays(items, others=[AtLevel.of(ends, np.ones(len(items)))])

    def _truncation(self, model: Model, items: Sequence[str], graded: bool) -> Truncation | None:
        cut = {row.item: row.evidence or {} for row in _rows(model, "sampled", "truncated")}
        if model.drawing is None or not all(item in cut for item in items):
            return None
        columns = [[cut[item][key] for item in items] for key in ("cut", "n", "cut_or_leaks")]
        ended, n, either = (np.array([np.nan if one is None else one for one in own]) for own in columns)
        return Truncation(
            ended,
            n,
            None if graded else np.where(np.isnan(either), n, either),
            model.drawing.max_new_tokens,
            self.run.params.report.most_truncated,
            model.stopped,
        )

    def _utility(self, model: Model) -> Aspect:
        for split in USEFUL:
            quantity, before = self._useful(split), self._before[split]
            own = quantity.measure(model, self.level)
            if own:
                break
        if model.role != "subject":
            return Aspect("reference", quantity, own)
        ends = [None if interval is None else (interval.lower, interval.upper) for interval in (own, before)]
        return Aspect(rule.utility(ends[0], ends[1]), quantity if own else None, own, before)

    @cached_property
    def _before(self) -> dict[str, Interval | None]:
        """The utility of Base on each split."""
        base = self.run.role("base")
        return {split: self._useful(split).measure(base, self.level) if base else None for split in USEFUL}

    def _useful(self, split: str) -> Quantity:
        return mean_score(split, self.run.params.metrics.kept)


def _of_the_server(served: Mapping[str, Any]) -> str:
    """What a verdict on the answers of a server must say: nothing where all is well."""
    failed = [one for one in served["probes"] if one["needed"] and one["passed"] is False]
    doubts = "; ".join(f"{one['name']} ({one['sentence']})" for one in failed)
    told = (
        f" The server failed these probes, so its answers may be no independent draws: {doubts}." if failed else ""
    )
    missing = ", ".join(f"{number:,} {kind}" for kind, number in served["missing"].items())
    return told + (f" Missing answers: {missing}." if missing else "")


def _rows(model: Model, basis: str, quantity: str = "leak") -> list[Result]:
    found = [question.numbers.row(quantity, basis) for question in model.questions]
    return [row for row in found if row is not None]


def _has_ends(rows: Sequence[Result]) -> bool:
    return any(row.upper is not None for row in rows)


def _on(items: Sequence[str], ends: Ends) -> Ends:
    """The ends of the questions ``items``; 0 and 1 for all where one of them was not asked."""
    if ends.items == tuple(items):
        return ends
    places = {item: place for place, item in enumerate(ends.items)}
    if all(item in places for item in items):
        return ends.take([places[item] for item in items])
    return Ends.of_arrays(tuple(items))
