"""The verdict on each model of a run: which evidence decides, and with what; `lethe.verdict.rules` has the rule. Utility
is relative to Base, by the mean score of sampled answers to the retain questions, else the world facts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from lethe.config.schema import EvaluationParams, Params
from lethe.errors import plural
from lethe.io.files import Json
from lethe.measure.answers import scored
from lethe.measure.run import Model, Run
from lethe.registry import JUDGES
from lethe.results.ends import SAME_DRAWS, Ends
from lethe.results.evidence import AtLevel, Truncation
from lethe.results.quantities import USEFUL
from lethe.results.table import Result
from lethe.statistics import betting
from lethe.statistics.bound import Interval, coverage
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.text import label
from lethe.verdict import rules
from lethe.verdict.claims import Findings, Quantity, judged_by, judged_exactly, mean_score
from lethe.verdict.rules import DESTROYED, INTACT, UtilityWord, Verdict

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
    "leaks": "some question is proved to leak more often, by more than the tolerance, than in the model of this run that "
    "never saw the forget set (or than never, where there is none). Another such model may leak more.",
    "forgot": "no question leaks more often, by more than the tolerance, than in the model of this run that never saw the "
    "forget set. Other questions, or an attack on the weights, may still bring out what the model knows.",
    "intact": f"the model keeps at least {100 * INTACT:g}% of its score on questions that it should still answer.",
    "damaged": f"the model’s score on those questions fell, and is not shown to stay at {100 * INTACT:g}%.",
    "destroyed": f"the model keeps less than {100 * DESTROYED:g}% of that score. Such a model says little about anything, "
    "and its silence on the forget set is no success of unlearning.",
    "open": "neither a leak nor its absence is proved; the sentence beside the word says what would decide it.",
}


@dataclass(frozen=True)
class Aspect:
    word: UtilityWord | Literal["reference"]
    quantity: Quantity | None = None
    own: Interval | None = None
    reference: Interval | None = None

    @property
    def tone(self) -> Tone:
        return TONE[self.word]

    def as_dict(self) -> dict[str, object]:
        """Word and intervals for JSON; each end is a bound with its guarantee."""
        return {
            "word": self.word,
            "quantity": self.quantity and self.quantity.words,
            "interval": _ends_as_dicts(self.own),
            "reference": _ends_as_dicts(self.reference),
        }


def _ends_as_dicts(interval: Interval | None) -> list[dict[str, object]] | None:
    return None if interval is None else [end.as_dict() for end in interval.bounds()]


@dataclass(frozen=True)
class Standing:
    """One model: the verdict on forgetting (None for a reference), the word on utility, and the one sentence of both.

    ``measured`` is the verdict, or for a reference what a verdict would say of its worst question; None without results.
    ``attention``: a reader must see the sentence, because there is no decision or it says more than the decision.
    """

    model: str
    verdict: Verdict | None
    utility: Aspect
    sentence: str
    measured: Verdict | None = None
    attention: bool = False

    @property
    def word(self) -> str:
        return self.verdict.word if self.verdict else "reference"

    @property
    def tone(self) -> Tone:
        silent = self.utility.word == "destroyed" and self.word == "forgot"
        return "open" if silent else TONE[self.word]

    @property
    def words(self) -> str:
        return ", ".join(dict.fromkeys((self.word, self.utility.word)))


def standings(run: Run, findings: Findings) -> list[Standing]:
    """The verdict on each model of the run, in order: words share ``metrics.alpha`` evenly over the models under test.

    The intervals of utility hold together at that alpha, and are those of the findings where these share it among more.
    """
    level = min(findings.level, run.params.metrics.alpha / (2 * len(run.models)))
    deciding = _Deciding(run, level)
    return [deciding.standing(model) for model in run.models]


def doubt(params: EvaluationParams | Params) -> str:
    """Said before anything is drawn: that no model can earn *forgot* by its sampled answers alone; empty where one can."""
    report = params.report
    n = params.sample.most
    exactly = judged_exactly(params)
    subjects = params.models.keys() - {report.base, *report.retrains}
    models = max(1, len(subjects)) * report.points
    level = rules.level_of(params.metrics.alpha, models, report.look)
    if report.retrains:  # Retrain, and exact bounds, take half each
        level /= 2
    if exactly:
        level /= 2
    clean = float(binary_upper(0, n, level))
    if params.metrics.binary is None or params.sample.stop != "fixed" or clean <= report.tau:
        return ""
    alone = " alone, without exact bounds" if exactly else ""
    return (
        f"No model can earn the word forgot with {n:,} answers{alone}: a question without a leak may still leak in "
        f"{100 * clean:.2g}% of answers, and the tolerance is {100 * report.tau:g}%. See lethe plan --verdict."
    )


@dataclass(frozen=True)
class _Deciding:
    """What decides about the models of a run: the evidence of each, and the intervals of utility at ``level``."""

    run: Run
    level: float

    def standing(self, model: Model) -> Standing:
        aspect = self._utility(model)
        missing = "" if model.questions else f"No verdict: the results of {model.name} are missing."
        verdict = self._verdict(model)
        if model.role != "subject":
            return Standing(model.name, None, aspect, missing, measured=verdict)
        sentence = missing
        if not missing:
            utility = None if aspect.word == "reference" else aspect.word
            words = self.run.words.verdict
            sentence = rules.sentence(
                verdict, model.name, utility=utility, judge=self._judge, words=words
            )
        notes = "" if model.refused else self._parts(model, verdict)
        if model.drawing and model.drawing.served:
            notes += _of_the_server(model.drawing.served)
        attention = bool(notes) or verdict.word in ("open", "none")
        return Standing(model.name, verdict, aspect, sentence + notes, verdict, attention)

    def _parts(self, model: Model, verdict: Verdict) -> str:
        """The clauses on questions of which only the thinking, or only a later turn, is proved to leak, each a family of its
        own at the level of the words, and on thinking that never ended."""
        words = self.run.words
        asked = plural(verdict.questions or len(model.questions), words.question)
        above = f"above {100 * verdict.tau:g}% in {{}} of {asked}"
        level = f"with probability {coverage(verdict.alpha)} for {rules.models_of(verdict)}"
        answered = _proved(model, verdict, "sampled").get(None, set())
        thought = _proved(model, verdict, "thinking").get(None, set())
        turns = _proved(model, verdict, "turn")
        clauses = ""
        # "Not proved" says nothing of the others: their answers may leak too, below what these draws can show.
        hidden = thought - answered
        if hidden:
            where = f"{above.format(len(hidden))}, whose answers are not proved to"
            clauses += f" It {words.leaks} in its thinking: {where} ({level})."
        later = set().union(*turns.values()) - turns.get(1.0, set())
        if later:
            where = f"{above.format(len(later))}, whose first answers are not proved to"
            clauses += f" It {words.leaks} after a follow-up question: {where} ({level})."
        unclosed = model.numbers.value("unclosed")
        if unclosed:
            clauses += f" Its thinking never ended in {100 * unclosed:.2g}% of answers, which count as missing."
        return clauses

    def _verdict(self, model: Model) -> Verdict:
        run, report = self.run, self.run.params.report
        graded = self._by_score
        ends = self._ends(model)
        retrains: list[Ends] = []
        truncation = None
        if ends:
            for retrain in run.retrains:
                if retrain is not model:
                    retrains.append(self._chance(model, retrain, ends.items))
            truncation = self._truncation(model, ends.items, graded)
        else:
            ends = Ends.of_arrays(())
        return rules.decide(
            ends,
            retrains,
            alpha=run.params.metrics.alpha,
            tau=report.tau_graded if graded else report.tau,
            models=run.sharing,
            look=report.look,
            truncation=truncation,
            fits=model.numbers.estimate("judge_fits", "judged") != 0,
            unjudged=len(model.questions) - len(ends.items),
            refused=model.refused,
            graded=graded,
            planned=model.role == "subject",
        )

    def _chance(self, model: Model, retrain: Model, items: tuple[str, ...]) -> Ends:
        """The ends of Retrain on these questions; 0 and 1 where it was not asked all, or is judged otherwise."""
        ends = self._ends(retrain)
        is_labelled = _has_ends(_rows(model, "labelled"))
        is_judged_alike = _has_ends(_rows(retrain, "labelled")) == is_labelled
        if ends is None or not is_judged_alike or not set(items) <= set(ends.items):
            return Ends.of_arrays(items)
        if ends.items == items:
            return ends
        places = {item: place for place, item in enumerate(ends.items)}
        return ends.take([places[item] for item in items])

    @cached_property
    def _by_score(self) -> bool:
        """Whether mean scores decide: no scorer gives 0 or 1, to a fixed number of answers or up to a stop."""
        stopped = (_has_ends(_rows(model, "anytime")) for model in self.run.models)
        return not judged_by(self.run)[1] and not any(stopped)

    @property
    def _judge(self) -> str | None:
        """The model judge whose verdicts decide; None where a rule of text or a person's labels do."""
        params = self.run.params
        binary = params.metrics.binary
        is_staged = isinstance(params, Params) and binary in params.judges
        is_judge = is_staged or binary in JUDGES
        is_labelled = any(_rows(model, "labelled") for model in self.run.subjects)
        return label(binary) if binary and is_judge and not is_labelled else None

    def _ends(self, model: Model) -> Ends | None:
        """The ends of the leak probability of each question that the 0/1 scorer, or a person, can judge, or of its score."""
        if self._by_score:
            return self._graded(model)
        bases = [basis for basis in SAME_DRAWS if _has_ends(_rows(model, basis))]
        if not bases:
            return None
        basis = bases[0]
        rows = [row for row in _rows(model, basis) if row.upper is not None]
        items = tuple(str(row.item) for row in rows)
        exact = model.exact
        if basis != "labelled" and exact and not exact.how.note and judged_exactly(self.run.params):
            rows += _rows(model, "exact")
            rows += _rows(model, "tree")
        return Ends.of_rows(rows, items)

    def _graded(self, model: Model) -> Ends | None:
        """The ends of the mean score of each question: bounds by betting at the one level that is asked."""
        leak, cut_off = self.run.params.metrics.leak, self.run.params.sample.truncated == "missing"
        groups = scored(model.answers, "forget", leak, cut_off=cut_off)
        if not groups or model.stopped:
            return None
        scores = np.array(groups)
        least = np.nan_to_num(scores, nan=0.0)
        most = np.nan_to_num(scores, nan=1.0)

        def ends(level: float) -> tuple[np.ndarray, np.ndarray]:
            low, high = betting.all_ends(least, most, level)
            return low, high

        items = [question.prompt_id for question in model.questions]
        return Ends.of_arrays(items, others=[AtLevel.of(ends, np.ones(len(items)))])

    def _truncation(self, model: Model, items: Sequence[str], graded: bool) -> Truncation | None:
        facts = {row.item: row.facts for row in _rows(model, "sampled", "truncated")}
        if model.drawing is None or not all(item in facts for item in items):
            return None
        columns = []
        for key in ("cut", "n", "cut_or_leaks"):
            counts = [facts[item][key] for item in items]
            columns.append(np.array(counts, dtype=np.float64))  # NaN for None
        cut, n, cut_or_leaks = columns
        limit, most = model.drawing.max_new_tokens, self.run.params.report.most_truncated
        if graded:
            return Truncation(cut, n, None, limit, most, model.stopped)
        may_leak = np.where(np.isnan(cut_or_leaks), n, cut_or_leaks)
        return Truncation(cut, n, may_leak, limit, most, model.stopped)

    def _utility(self, model: Model) -> Aspect:
        for useful in self._before:  # the first that the model has, else the last
            interval = useful[0].measure(model, self.level)
            if interval:
                break
        quantity, before = useful
        if model.role != "subject":
            return Aspect("reference", quantity, interval)
        word = rules.utility(_both_ends(interval), _both_ends(before))
        return Aspect(word, quantity if interval else None, interval, before)

    @cached_property
    def _before(self) -> list[tuple[Quantity, Interval | None]]:
        """The quantity of utility on each split, and that of Base."""
        base = self.run.role("base")
        before = []
        for split in USEFUL:
            quantity = mean_score(split, self.run.params.metrics.utility_scorer)
            before.append((quantity, quantity.measure(base, self.level) if base else None))
        return before


def _both_ends(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else (interval.lower, interval.upper)


def _of_the_server(served: Mapping[str, Json]) -> str:
    """What a verdict on the answers of a server must say: nothing where all is well."""
    doubts = []
    for probe in served["probes"]:
        if probe["needed"] and probe["passed"] is False:
            doubts.append(f"{probe['name']} ({probe['sentence']})")
    missing = [f"{number:,} {kind}" for kind, number in served["missing"].items()]
    sentences = ""
    if doubts:
        sentences += f" The failed probes: {'; '.join(doubts)}."
    if missing:
        sentences += f" Missing answers: {', '.join(missing)}."
    return sentences


def _rows(model: Model, basis: str, quantity: str = "leak") -> list[Result]:
    rows = [question.numbers.row(quantity, basis) for question in model.questions]
    return [row for row in rows if row is not None]


def _proved(model: Model, verdict: Verdict, basis: str) -> dict[float | None, set[str]]:
    """The questions with a part of their answers, by its ``at``, that is proved to leak above tau; Bonferroni over all."""
    rows: list[Result] = []
    for question in model.questions:
        rows += [row for row in question.numbers.series("leak", basis) if row.evidence]
    level = rules.level_of(verdict.alpha, verdict.models, verdict.look) / max(1, len(rows))
    proved: dict[float | None, set[str]] = {row.at: set() for row in rows}
    for row in rows:
        leaks, n = np.array([row.facts["leaks"]]), np.array([row.facts["n"]])
        if float(binary_lower(leaks, n, level)[0]) > verdict.tau:
            proved[row.at].add(str(row.item))
    return proved


def _has_ends(rows: Sequence[Result]) -> bool:
    return any(row.upper is not None for row in rows)
