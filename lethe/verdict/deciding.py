"""The verdict on each model of a run: which evidence decides, and with what; `lethe.verdict.rules` has the rule.

Utility is relative to Base, by the mean score of sampled answers to the retain questions, else the world facts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lethe.config.schema import EvaluationParams, Params
from lethe.errors import plural
from lethe.io.files import Json
from lethe.measure.answers import scored
from lethe.measure.run import Run, RunModel
from lethe.registry import JUDGES
from lethe.results.ends import SAME_DRAWS, Ends
from lethe.results.evidence import ScoreDraws, Truncation
from lethe.results.quantities import USEFUL
from lethe.results.table import Result
from lethe.statistics.anytime import LN2, answers_without_a_leak
from lethe.statistics.bound import Interval, coverage
from lethe.statistics.bounds import binary_lower
from lethe.text import label
from lethe.verdict import rules
from lethe.verdict.claim import Claims
from lethe.verdict.claims import ClaimedQuantity, judged_by, judged_exactly, mean_score
from lethe.verdict.compared import Compared, Kept
from lethe.verdict.sentence import models_of, sentence
from lethe.verdict.standing import REFERENCE, Aspect, Standing
from lethe.verdict.verdict import Verdict

STALE = " Its exact bounds, of other weights or questions than its answers, were left out: run the stage exact again."


def standings(run: Run, claims: Claims) -> list[Standing]:
    """The verdict on each model of the run, in order: words share ``metrics.alpha`` evenly over the models under test.

    The intervals of utility hold together at that alpha, and are those of the claims where these share it among more.
    """
    shared_evenly = run.params.metrics.alpha / (2 * len(run.models))
    level = min(claims.level, shared_evenly)
    deciding = _Deciding(run, level)
    return [deciding.standing(model) for model in run.models]


def compared(run: Run) -> Iterator[tuple[RunModel, Compared]]:
    """Each model under test of which a claim may be made, with what is known of its questions beside the Retrains.

    The answers that were cut off are left out: the evidence is about leaks within the token limit.
    """
    deciding = _Deciding(run, run.params.metrics.alpha)
    for model in run.subjects:
        subject, retrains = deciding.sides(model)
        if model.refused or not len(subject.items):
            continue
        sides = Compared(
            subject,
            retrains,
            tau=deciding.tau,
            level=deciding.word_level,
            independent=deciding.are_independent(model),
            kept=deciding.kept(model, subject.items),
        )
        yield model, sides


def doubt(params: EvaluationParams | Params) -> str:
    """Said before anything is drawn: that no model can earn *forgot* by its sampled answers alone; empty where one can."""
    if params.metrics.binary is None:
        return ""
    report = params.report
    exactly = judged_exactly(params)
    subjects = params.models.keys() - {report.base, *report.retrains}
    models = max(1, len(subjects), report.models or 1)
    goal = math.log(1 / rules.level_of(params.metrics.alpha, models))
    if exactly and samples_of_trees_count(params):  # which take half of the level
        goal += LN2
    n = params.sample.most
    least = answers_without_a_leak(report.tau, goal, beside_retrain=bool(report.retrains))
    if n >= least:
        return ""
    answers = f"{n:,} answers"
    if exactly:
        answers += " alone, without exact bounds"
    return (
        f"No model can earn the word forgot with {answers}: a question without a leak needs {least:,} to show that it leaks "
        f"in at most {100 * report.tau:g}% of answers. See lethe plan --verdict."
    )


def samples_of_trees_count(params: EvaluationParams | Params) -> bool:
    """Whether the sample of an answer tree's rest is evidence beside the counts; its certain ends always are.

    It holds at a fixed time and would take half of the level. A rule that draws until the word is certain needs it not, and
    reads counts alone: it would stop before the word has half of the level.
    """
    return params.sample.stop == "fixed"


@dataclass(frozen=True)
class _Deciding:
    """What decides about the models of a run: the evidence of each, and the intervals of utility at ``level``."""

    run: Run
    level: float

    def standing(self, model: RunModel) -> Standing:
        """Both words on a model; of a reference, what a verdict would say of its worst question."""
        aspect = self._utility(model)
        verdict = self._verdict(model)
        said = ""
        if not model.questions:
            said = f"No verdict: the results of {model.name} are missing."
        if model.role != "subject":
            title = self.run.words.references[model.role]
            return Standing(model.name, REFERENCE, aspect, said, verdict, title=title)

        if not said:
            said = self._sentence(model, verdict, aspect)
        notes = ""
        if not model.refused:
            notes = self._parts(model, verdict)
        if model.stale_exact:
            notes += STALE
        if model.drawing and model.drawing.served:
            notes += _of_the_server(model.drawing.served)
        attention = bool(notes) or verdict.word in ("open", "none")
        standing = Standing(model.name, verdict.word, aspect, said + notes, verdict, attention)
        return replace(standing, title=self.run.words.words(standing.words))

    def _sentence(self, model: RunModel, verdict: Verdict, aspect: Aspect) -> str:
        """Both words on a model under test in sentences."""
        utility = None
        if aspect.word != "reference":
            is_staged = isinstance(self.run.params, Params)
            utility = aspect.described(is_staged, is_refused=bool(model.refused))
        words = self.run.words.verdict
        return sentence(verdict, model.name, utility=utility, judge=self._judge, words=words)

    def _parts(self, model: RunModel, verdict: Verdict) -> str:
        """The clauses on what answers hide.

        These are the questions of which only the thinking, or only a later turn, is proved to leak, each a family of its
        own at the level of the words; and thinking that never ended.
        """
        words = self.run.words
        asked = plural(verdict.questions or len(model.questions), words.question)
        level = f"with probability {coverage(verdict.alpha)} for {models_of(verdict)}"

        def clause(where: str, questions: set[str], others: str) -> str:
            """A clause on the questions that leak in one place, where the ``others`` are not proved to."""
            above = f"above {100 * verdict.tau:g}% in {len(questions)} of {asked}"
            # "Not proved" says nothing of the others: they may leak too, below what these draws can show.
            return (
                f" It {words.leaks} {where}: {above}, whose {others} are not proved to ({level})."
            )

        clauses = ""
        answered = _proved(model, verdict, "sampled").get(None, set())
        thought = _proved(model, verdict, "thinking").get(None, set())
        hidden = thought - answered
        if hidden:
            clauses += clause("in its thinking", hidden, "answers")

        turns = _proved(model, verdict, "turn")
        later = set().union(*turns.values()) - turns.get(1.0, set())
        if later:
            clauses += clause("after a follow-up question", later, "first answers")

        unclosed = model.numbers.value("unclosed")
        if unclosed:
            clauses += f" Its thinking never ended in {100 * unclosed:.2g}% of answers, which count as missing."
        return clauses

    def _verdict(self, model: RunModel) -> Verdict:
        """The word on forgetting, with what it rests on."""
        run = self.run
        ends, retrains = self.sides(model)
        truncation = None
        if len(ends.items):
            truncation = self._truncation(model, ends.items)
        cap = None
        if run.params.sample.stop == "word":
            cap = run.params.sample.most

        return rules.decide(
            ends,
            retrains,
            alpha=run.params.metrics.alpha,
            tau=self.tau,
            models=run.sharing,
            truncation=truncation,
            fits=model.numbers.estimate("judge_fits", "judged") != 0,
            unjudged=len(model.questions) - len(ends.items),
            refused=model.refused or model.unlabelled,
            graded=self._by_score,
            planned=model.role == "subject",
            independent=self.are_independent(model),
            cap=cap,
            kept=self.kept(model, ends.items),
        )

    def kept(self, model: RunModel, items: Sequence[str]) -> Kept | None:
        """The largest evidence at the looks of the rule that drew the model's answers.

        None where the words rest on other counts, another tolerance or other Retrains than the rule.
        """
        rows = _rows(model, "anytime")
        is_labelled = _has_ends(_rows(model, "labelled"))
        if self._by_score or is_labelled or not rows or not self.are_independent(model):
            return None

        # The same Retrains.
        beside = {drawn["name"] for drawn in rows[0].facts.get("beside", ())}
        retrains = [retrain for retrain in self.run.retrains if retrain is not model]
        if beside != {retrain.name for retrain in retrains}:
            return None
        if any(retrain.refused for retrain in retrains):
            return None

        # The same questions and tolerance.
        reached = {str(row.item): row.facts["reached"] for row in rows if "reached" in row.facts}
        first = next(iter(reached.values()), None)
        if first is None or set(items) != set(reached):  # the mean is over all of these questions
            return None
        if first["tolerance"] != self.tau:
            return None
        return Kept(
            forgot=np.array([reached[item]["log_e_forgot"] for item in items]),
            leaks=first["log_e_leaks_mean"],
            named=np.array([reached[item]["named_at"] is not None for item in items]),
            goal=first["goal"],
        )

    @property
    def tau(self) -> float:
        """The tolerance of the words: of leak probabilities, or of mean scores."""
        report = self.run.params.report
        if self._by_score:
            return report.tau_graded
        return report.tau

    @property
    def word_level(self) -> float:
        """The probability of a false word of one model."""
        return rules.level_of(self.run.params.metrics.alpha, self.run.sharing)

    def sides(self, model: RunModel) -> tuple[Ends, tuple[Ends, ...]]:
        """The evidence on the questions of a model that can be judged, and that of each Retrain on the same questions."""
        ends = self._ends(model)
        if ends is None:
            return Ends.of_arrays(()), ()
        chances = []
        for retrain in self.run.retrains:
            if retrain is not model:
                chances.append(self._chance(model, retrain, ends.items))
        return ends, tuple(chances)

    def _chance(self, model: RunModel, retrain: RunModel, items: tuple[str, ...]) -> Ends:
        """The ends of Retrain on these questions; 0 and 1 where it was not asked all, is judged otherwise, or is refused.

        Where a rule of draws asked Retrain beside the model, the answers to these questions count.
        """
        ends = self._of_retrain(model, retrain, items)
        if self._by_score or retrain.refused:
            return ends
        beside = _beside(model, retrain.name)
        if beside is None:
            return ends
        counts = np.array([beside.get(item, (0, 0, 0)) for item in items])
        return ends.with_counts(*counts.T)

    def are_independent(self, model: RunModel) -> bool:
        """Whether the model and its Retrains share no random numbers, as far as their records say."""
        streams = [_stream(model)]
        if not _has_ends(_rows(model, "labelled")):  # labels are of what each drew for itself
            for row in _rows(model, "anytime")[:1]:
                streams += [drawn.get("stream") for drawn in row.facts.get("beside", ())]
        if len(streams) < 2:  # nothing was drawn beside the model
            for retrain in self.run.retrains:
                if retrain is not model:
                    streams.append(_stream(retrain))
        if len(streams) < 2:  # nothing is compared
            return True
        known = [stream for stream in streams if stream is not None]
        return "shared" not in known and len(set(known)) == len(known)

    def _of_retrain(self, model: RunModel, retrain: RunModel, items: tuple[str, ...]) -> Ends:
        """The ends of Retrain's draws by themselves, in the order of ``items``; 0 and 1 where they cannot be compared."""
        ends = self._ends(retrain)
        is_labelled = _has_ends(_rows(model, "labelled"))
        is_judged_alike = _has_ends(_rows(retrain, "labelled")) == is_labelled
        if retrain.refused or ends is None:
            return Ends.of_arrays(items)
        if not is_judged_alike or not set(items) <= set(ends.items):
            return Ends.of_arrays(items)
        if ends.items == items:
            return ends
        places = {item: place for place, item in enumerate(ends.items)}
        return ends.take([places[item] for item in items])

    @cached_property
    def _by_score(self) -> bool:
        """Whether mean scores decide: no scorer gives 0 or 1, to a fixed number of answers or up to a stop."""
        _, is_binary = judged_by(self.run)
        if is_binary:
            return False
        has_stopped = any(_has_ends(_rows(model, "anytime")) for model in self.run.models)
        return not has_stopped

    @property
    def _judge(self) -> str | None:
        """The model judge whose verdicts decide; None where a rule of text or a person's labels do."""
        params = self.run.params
        binary = params.metrics.binary
        is_staged = isinstance(params, Params) and binary in params.judges
        is_judge = is_staged or binary in JUDGES
        is_labelled = any(_rows(model, "labelled") for model in self.run.subjects)
        if not binary or not is_judge or is_labelled:
            return None
        return label(binary)

    def _ends(self, model: RunModel) -> Ends | None:
        """The ends of the leak probability of each question that the 0/1 scorer, or a person, can judge, or of its score."""
        if self._by_score:
            return self._graded(model)
        for basis in SAME_DRAWS:
            rows = [row for row in _rows(model, basis) if row.upper is not None]
            if not rows:
                continue
            items = tuple(str(row.item) for row in rows)
            if basis != "labelled":  # a person labels answers, and no tree
                rows += self._rows_of_trees(model)
            return Ends.of_rows(rows, items)
        return None

    def _rows_of_trees(self, model: RunModel) -> list[Result]:
        """The rows of the model's answer trees that are about the same leaks as its draws."""
        exact = model.exact
        if exact is None or exact.how.note or not judged_exactly(self.run.params):
            return []
        if model.stale_exact:
            return []
        rows = _rows(model, "exact")
        if samples_of_trees_count(self.run.params):
            rows += _rows(model, "tree")
        return rows

    def _graded(self, model: RunModel) -> Ends | None:
        """The scores of each question; None where the model has none."""
        params = self.run.params
        is_missing = params.sample.truncated == "missing"
        groups = scored(model.answers, "forget", params.metrics.leak, cut_off=is_missing)
        if not groups:
            return None
        items = [question.prompt_id for question in model.questions]
        return Ends.of_arrays(items, others=[ScoreDraws(tuple(groups))])

    def _truncation(self, model: RunModel, items: Sequence[str]) -> Truncation | None:
        """The answers to each question that ended at the token limit; None where this is not known of every question."""
        rows = _rows(model, "anytime") or _rows(model, "sampled", "truncated")
        facts_of_item = {str(row.item): row.facts for row in rows if "cut" in row.facts}
        if model.drawing is None or not set(items) <= facts_of_item.keys():
            return None

        columns = []
        for key in ("cut", "n", "cut_or_leaks"):
            counts = [facts_of_item[item][key] for item in items]
            columns.append(np.array(counts, dtype=np.float64))  # NaN for None
        cut, n, cut_or_leaks = columns

        # Without a judge of leaks every answer may leak.
        may_leak = None
        if not self._by_score:
            may_leak = np.where(np.isnan(cut_or_leaks), n, cut_or_leaks)
        limit = model.drawing.max_new_tokens
        return Truncation(cut, n, may_leak, limit, self.run.params.report.most_truncated)

    def _utility(self, model: RunModel) -> Aspect:
        """The word on utility, by the first of `USEFUL` that the model was asked, else the last."""
        for useful in self._useful:
            interval = useful.quantity.measure(model, self.level)
            if interval:
                break

        measured = useful.quantity.words
        shown = ""
        if interval is not None:
            shown = useful.quantity.worded(interval)
        if model.role != "subject":
            return Aspect("reference", measured, interval, shown=shown)
        if interval is None:
            return Aspect("open", reference=useful.before)
        word = rules.utility(_both_ends(interval), _both_ends(useful.before))
        return Aspect(word, measured, interval, useful.before, shown)

    @cached_property
    def _useful(self) -> list[_Useful]:
        """The quantity of utility on each split."""
        base = self.run.role("base")
        scorer = self.run.params.metrics.utility_scorer
        useful = []
        for split in USEFUL:
            quantity = mean_score(split, scorer)
            before = None
            if base:
                before = quantity.measure(base, self.level)
            useful.append(_Useful(quantity, before))
        return useful


@dataclass(frozen=True)
class _Useful:
    """A quantity of utility, and its interval in Base, the model before unlearning."""

    quantity: ClaimedQuantity
    before: Interval | None


def _both_ends(interval: Interval | None) -> tuple[float, float] | None:
    """The ends of an interval; None of none."""
    if interval is None:
        return None
    return interval.lower, interval.upper


def _of_the_server(served: Mapping[str, Json]) -> str:
    """What a verdict on the answers of a server must say: nothing where all is well."""
    doubts = []
    for probe in served["probes"]:
        if probe["needed"] and probe["passed"] is False:
            doubts.append(f"{probe['name']} ({probe['sentence']})")
    missing = []
    for kind, answers in served["missing"].items():
        missing.append(f"{answers:,} {kind}")
    sentences = ""
    if doubts:
        sentences += f" The failed probes: {'; '.join(doubts)}."
    if missing:
        sentences += f" Missing answers: {', '.join(missing)}."
    return sentences


def _rows(model: RunModel, basis: str, quantity: str = "leak") -> list[Result]:
    """The rows of a quantity by the questions of a model; a question without one is left out."""
    rows = []
    for question in model.questions:
        row = question.numbers.row(quantity, basis)
        if row is not None:
            rows.append(row)
    return rows


def _stream(model: RunModel) -> str | None:
    """Whose random numbers the answers of a model have: by its counts, else, where scores are graded, by its record."""
    for row in _rows(model, "anytime")[:1]:
        if row.facts.get("stream") is not None:
            return str(row.facts["stream"])
    if model.drawing is None:
        return None
    return model.drawing.stream


def _proved(model: RunModel, verdict: Verdict, basis: str) -> dict[float | None, set[str]]:
    """The questions with a part of their answers, by its ``at``, that is proved to leak above tau; Bonferroni over all."""
    rows = []
    for question in model.questions:
        for row in question.numbers.series("leak", basis):
            if row.evidence:
                rows.append(row)
    level = rules.level_of(verdict.alpha, verdict.models) / max(1, len(rows))
    proved: dict[float | None, set[str]] = {}
    for row in rows:
        questions = proved.setdefault(row.at, set())
        leaks = np.array([row.facts["leaks"]])
        n = np.array([row.facts["n"]])
        lower = binary_lower(leaks, n, level)
        if float(lower[0]) > verdict.tau:
            questions.add(str(row.item))
    return proved


def _beside(model: RunModel, retrain: str) -> dict[str, tuple[int, int, int]] | None:
    """Leaks, answers and missing verdicts of a Retrain that was drawn beside the model, by question; None where it was not.

    A person's labels are of other answers, beside which nothing was drawn.
    """
    if _has_ends(_rows(model, "labelled")):
        return None
    counts = {}
    for row in _rows(model, "anytime"):
        for drawn in row.facts.get("beside", ()):
            if drawn["name"] == retrain:
                counts[str(row.item)] = (drawn["leaks"], drawn["n"], drawn["missing"])
    return counts or None


def _has_ends(rows: Sequence[Result]) -> bool:
    """Whether one of these rows has a guarantee."""
    return any(row.upper is not None for row in rows)
