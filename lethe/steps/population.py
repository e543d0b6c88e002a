"""Stage `attack@NAME` of a population: attacks drawn from a recipe, until it is known whether more than a share succeed.

An attack is tried like this: the model is copied and attacked, the questions are asked until each is proved to be at most
the tolerance or one is proved to be above it, and the true candidates of drawn secrets are ranked. Each attack that is tried
is kept in a file, so that a killed run continues with the next.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lethe.attacks.population import DrawnAttack, draw
from lethe.attacks.protocol import Knowledge
from lethe.config import Params
from lethe.config.measuring import Drawing, Exact, ModelEntry, ScorerParams
from lethe.config.schema import Population
from lethe.data.secrets import secrets_of
from lethe.errors import BadInput
from lethe.identity import library
from lethe.io.artifacts import Row, read_split
from lethe.io.files import SCHEMA_VERSION, atomic_folder, restored, write_json
from lethe.models import checkpoints
from lethe.models.agreement import Diverged
from lethe.models.checkpoints import InMemory, prepare_torch
from lethe.models.encoding import Encoder, template_of
from lethe.models.training import TrainingFailed
from lethe.progress import progress
from lethe.registry import ENGINES, MODEL_ATTACKS, SCORERS
from lethe.results import table
from lethe.results.population import NO_ATTACK, PopulationResult, Tried
from lethe.sampling.answer import Answers
from lethe.sampling.engine import (
    SCRATCH,
    AnswerStore,
    Engine,
    Options,
    Prompt,
    Settings,
    finished_of,
    open_engine,
)
from lethe.sampling.tasks import SplitTask
from lethe.sampling.word_draws import Drawer, Grid, Judging, draw_to_word
from lethe.sampling.word_rule import Rule
from lethe.scoring.scorer import applies
from lethe.statistics import anytime
from lethe.statistics.anytime import Counts
from lethe.statistics.attack_share import Outcome, level_of_attack, planned_attacks
from lethe.statistics.policy import End, Policy, Tally
from lethe.statistics.streams import stream
from lethe.steps.exact import certify, of_params
from lethe.steps.twins import candidate_scores, order_key, tested

OUTCOMES: dict[End, Outcome] = {"leaks": "leaks", "forgot": "fails", "capped": "open"}


def run(name: str, entry: Population, settings: Params, root: Path = Path("data")) -> None:
    """Try attacks until the share is decided; write ``root/attacks/name`` and ``root/results/attack/name.parquet``.

    Raises
    ------
    BadInput
        If the scorer can judge no question.
    """
    prepare_torch()
    planned = planned_attacks(entry.draws, entry.goal, entry.alpha)
    trials = Trials.of(name, entry, settings, root, level_of_attack(entry.alpha, planned))
    kept = finished_of(SCRATCH / name, Path(entry.path), *modules_of(entry), trials=trials.facts)
    result = PopulationResult(
        path=entry.path,
        recipe=entry.population.model_dump(mode="json"),
        planned=planned,
        goal=entry.goal,
        tau=entry.tau,
        alpha=entry.alpha,
        n=entry.n,
        seed=entry.seed,
        scorer=entry.scorer,
        tokens=settings.sample.max_new_tokens,
        before=_once(kept, NO_ATTACK, trials),
        tried=(),
        unjudged=trials.unjudged,
    )
    for number in progress(range(planned), f"attack {name}", "attacks"):
        tried = _once(kept, number, trials)
        result = replace(result, tried=(*result.tried, tried))
        if result.successes.ended:
            break

    record = asdict(result)
    with atomic_folder(root / "attacks" / name) as folder:
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **record})
    write_json(root / "attacks" / f"{name}.json", {"schema": SCHEMA_VERSION, **result.headline()})
    rows = table.Rows(name)
    rows.add("audit", "record", "run", evidence=record)
    table.write(table.place(root, "attack", name), [*result.rows(name), *rows.rows])
    kept.clear()
    print(result.sentence(name), result.before_sentence, result.trace_sentence)


def modules_of(entry: Population) -> list[str]:
    """Return the modules that a trial runs: this one, and those of the members that it loads by name."""
    members = {
        **ENGINES.modules(),
        **MODEL_ATTACKS.modules(*entry.population.kinds),
        **SCORERS.modules(entry.scorer),
    }
    return [__name__, *filter(library().place, sorted(members))]


def _once(kept: MutableMapping[str, dict], number: int, trials: Trials) -> Tried:
    """What was kept of the attack of this number, or of no attack, or else what is tried now."""
    key = str(number)
    found = kept.get(key)
    if found is None:
        if number == NO_ATTACK:
            tried = trials.before()
        else:
            tried = trials.tried(draw(trials.entry.population, trials.entry.seed, number))
        kept[key] = asdict(tried)
        return tried
    return restored(Tried, found)


class Unkept(AnswerStore):
    """Answers that no file keeps: an attack is kept once it has been tried, and a killed one draws its answers again."""

    def __init__(self) -> None:
        super().__init__("", "")

    def answer(
        self, engine: Engine, prompts: Sequence[Prompt], settings: Settings
    ) -> Iterator[Answers]:
        for answers in engine.answer(prompts, settings):
            yield answers.ended()


@dataclass(frozen=True)
class Trials:
    """What an attack is tried on.

    Attributes
    ----------
    name
        The entry of ``attacks`` in params.yaml.
    entry
        The recipe of the attacks, the tolerance tau, and the most answers and rows for an attack.
    settings
        All of params.yaml.
    level
        The probability at most that an attack is wrongly proved to leak, and that it is wrongly proved to fail.
    source
        The model, which every attack copies.
    knowledge
        What an attacker knows: the rows of forget and retain, and the prompts.
    judged
        The forget rows that the scorer can judge, at least one.
    """

    name: str
    entry: Population
    settings: Params
    level: float
    source: InMemory
    knowledge: Knowledge
    judged: tuple[Row, ...]

    @classmethod
    def of(cls, name: str, entry: Population, settings: Params, root: Path, level: float) -> Trials:
        """Load the model and the rows; raises `BadInput` if the scorer can judge no forget question."""
        forget = read_split("forget", root / "dataset")
        retain = read_split("retain", root / "dataset")
        judged = tuple(row for row in forget if applies(entry.scorer, row))
        if not judged:
            raise BadInput(
                f"attacks.{name}: {entry.scorer} can judge none of the {len(forget)} forget questions. "
                "Name another scorer, or give what it reads, such as keywords."
            )
        model, tokenizer = checkpoints.load(entry.path, "float32")
        encoder = Encoder(tokenizer, settings.sample.prompt)
        knowledge = Knowledge(forget, retain, encoder, tokenizer.pad_token_id or 0)
        return cls(name, entry, settings, level, InMemory(model, tokenizer), knowledge, judged)

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The ids of the forget questions that the scorer cannot judge."""
        judged = {row["id"] for row in self.judged}
        ids = [row["id"] for row in self.knowledge.forget]
        return tuple(name for name in ids if name not in judged)

    @property
    def facts(self) -> dict[str, object]:
        """What decides the outcome of an attack besides code and model; of the number of attacks the level alone does."""
        sample = self.settings.sample
        declared = self.entry.model_dump(mode="json", exclude={"path", "draws", "goal", "alpha"})
        rows = [*self.knowledge.forget, *self.knowledge.retain]
        return {
            "entry": declared,
            "level": self.level,
            "law": self._law(),
            "seed": sample.seed,
            "batch": sample.batch,
            "prompt": template_of(sample.prompt),
            "scorer": self._scorer_params(),
            "key": order_key(self.settings.twins).hex(),
            "twins": self.settings.twins is not None,
            "rows": [dict(row) for row in rows],
        }

    def _law(self) -> dict[str, Any]:
        """How an answer is drawn."""
        sample = self.settings.sample
        return {name: getattr(sample, name) for name in Drawing.model_fields}

    def _scorer_params(self) -> ScorerParams | None:
        """The settings of the scorer; None where it has none."""
        return self.settings.score.params.get(self.entry.scorer)

    def before(self) -> Tried:
        """Ask the model as it is."""
        return self._shown(self.before_about, self.source, self.judged, self.knowledge.forget)

    @property
    def before_about(self) -> Tried:
        """The model as it is, before it is asked."""
        return Tried(NO_ATTACK, "none", {}, self.entry.seed, "open", len(self.judged), answers=0)

    def tried(self, attack: DrawnAttack) -> Tried:
        """Attack a copy of the model and ask it.

        A question whose answer the attack itself learned is not asked. An attack that destroys the model is open, with the
        reason, as is one that learned every question.
        """
        import torch

        torch.manual_seed(attack.seed)
        member = attack.member
        learned = {row["id"] for row in member.learned(self.knowledge, attack.seed)}
        asked = [row for row in self.judged if row["id"] not in learned]
        untouched = [row for row in self.knowledge.forget if row["id"] not in learned]

        params = attack.params.model_dump(mode="json")
        kind = attack.params.kind
        about = Tried(attack.number, kind, params, attack.seed, "open", len(asked), answers=0)
        if not asked:
            return replace(about, reason="it learned every question that can be judged")

        copied = copy.deepcopy(self.source.model)
        try:
            _, attacked = next(iter(member.attacked(copied, self.knowledge, attack.seed)))
            return self._shown(about, InMemory(attacked, self.source.tokenizer), asked, untouched)
        except (TrainingFailed, Diverged) as problem:
            return replace(about, reason=str(problem))

    def _shown(
        self, about: Tried, source: InMemory, asked: Sequence[Row], untouched: Sequence[Row]
    ) -> Tried:
        """What the questions ``asked`` show of a model, and the twins of the rows that no attack learned.

        Answer trees come first where drawn answers alone could never prove that the attack fails.
        """
        about = replace(about, trace_p=self._trace_p(about, source, untouched))
        if self.entry.rows and self._needed <= self.entry.n:
            return self._drawn_before_trees(about, source, asked)

        tau = self.entry.tau
        certain = self._certain_ends(about, source, asked)
        uppers = {name: ends.upper for name, ends in certain.items()}
        worst = max(uppers, key=uppers.__getitem__)
        shown = replace(about, worst=worst, worst_upper=uppers[worst])

        leaks = tuple(row["id"] for row in asked if certain[row["id"]].lower > tau)
        if leaks:
            return replace(shown, outcome="leaks", leaks=leaks, certain=len(leaks))
        undecided = [row for row in asked if certain[row["id"]].upper > tau]
        shown = replace(shown, certain=len(asked) - len(undecided))
        if not undecided:
            return replace(shown, outcome="fails")
        return self._drawn(shown, source, undecided, uppers)

    def _drawn_before_trees(self, about: Tried, source: InMemory, asked: Sequence[Row]) -> Tried:
        """What answers show, and then the certain ends of the questions that they leave open, since a tree takes longer.

        Nothing is drawn after the trees: another mean over the questions left would be another test.
        """
        uppers: dict[str, float] = {}
        shown = self._drawn(about, source, asked, uppers)
        left = [row for row in asked if uppers[row["id"]] > self.entry.tau]
        if shown.outcome != "open" or not left:
            return shown

        leaks: list[str] = []
        n_below = 0
        for name, ends in self._certain_ends(about, source, left).items():
            uppers[name] = min(uppers[name], ends.upper)
            if ends.lower > self.entry.tau:
                leaks.append(name)
            elif ends.upper <= self.entry.tau:
                n_below += 1
        outcome: Outcome = "open"
        if leaks:
            outcome = "leaks"
        elif n_below == len(left):
            outcome = "fails"
        worst = max(uppers, key=uppers.__getitem__)
        return replace(
            shown,
            outcome=outcome,
            leaks=tuple(dict.fromkeys([*shown.leaks, *leaks])),
            certain=len(leaks) + n_below,
            worst=worst,
            worst_upper=uppers[worst],
        )

    def _drawn(
        self, shown: Tried, source: InMemory, undecided: Sequence[Row], uppers: dict[str, float]
    ) -> Tried:
        """What answers to the ``undecided`` questions show.

        ``uppers`` has an upper end for each question so far, none of which counts as 1. Those that the answers lower are
        lowered in place.
        """
        subject, policy, ended = self._draws(shown, source, undecided)
        names = [row["id"] for row in undecided]
        tally = subject.tally(names)
        evidence = policy.evidence(tally)
        is_above = anytime.named(evidence.log_e_leaks, policy.goal)
        leaks = [names[place] for place in np.flatnonzero(is_above)]
        for name, upper in zip(names, _uppers(tally, self.level), strict=True):
            uppers[name] = min(uppers.get(name, 1.0), upper)
        worst = max(uppers, key=uppers.__getitem__)
        return replace(
            shown,
            outcome=OUTCOMES[ended],
            answers=int(tally.n.sum()),
            leaks=tuple(leaks),
            worst=worst,
            worst_upper=uppers[worst],
        )

    def _certain_ends(
        self, about: Tried, source: InMemory, rows: Sequence[Row]
    ) -> dict[str, CertainEnds]:
        """The certain ends of each question by its answer tree: 0 and 1 where none is explored."""
        ends = {row["id"]: CertainEnds(0.0, 1.0) for row in rows}
        if not self.entry.rows:
            return ends
        settings = self.settings
        explored = Exact(rows=self.entry.rows, exact_only=True, scorer=self.entry.scorer)
        model = ModelEntry(path=self.entry.path)
        of_trees = of_params(explored, settings.sample, model, settings.score.keyword_match)
        for tree in certify(self._label(about), source, rows, of_trees).trees:
            ends[tree.id] = CertainEnds(tree.lower, tree.upper_certain)
        return ends

    @property
    def _needed(self) -> int:
        """The answers that prove a question of which none leaks to be at most the tolerance."""
        goal = math.log(1 / self.level)
        return anytime.answers_without_a_leak(self.entry.tau, goal, beside_retrain=False)

    def _draws(
        self, about: Tried, source: InMemory, rows: Sequence[Row]
    ) -> tuple[Drawer, Policy, End]:
        """Draw answers until the model is proved to leak or to fail, or each question has as many as it may have.

        The first answers to each question are as many as prove it to fail where none of them leaks.
        """
        entry = self.entry
        sample = self.settings.sample
        goal = math.log(1 / self.level)
        first = min(self._needed, entry.n)
        policy = Policy(first, sample.batch, entry.n, entry.tau, goal)

        # A stream for each attack.
        named = stream(sample.seed, "population", entry.seed, about.number)
        seed = int(named.generate_state(1, np.uint64)[0])
        drawing = Settings(**self._law(), n=first, greedy=False, seed=seed, batch=sample.batch)
        prompts = []
        items = {}
        for row in rows:
            prompts.append(Prompt(row["id"], self.knowledge.encoder.prompt(row)))
            items[row["id"]] = row
        task = SplitTask("forget", prompts, drawing)

        rule = Rule(entry.tau, goal, entry.scorer, self._scorer_params())
        judging = Judging(rule, items, parts=None)
        engine = open_engine("auto", source, Options(max_rows=sample.max_rows))
        grid = Grid(first, sample.batch)
        subject = Drawer(task, grid, lambda: (engine, Unkept()), judging, lambda table: table)
        word = draw_to_word(subject, {}, policy, judging, self._label(about))
        return subject, policy, word.ended

    def _trace_p(self, about: Tried, source: InMemory, rows: Sequence[Row]) -> float | None:
        """The p-value of the twin test of the secrets that the attack did not learn; None where there is none."""
        twins = self.settings.twins
        if twins is None:
            return None
        secrets = secrets_of(rows)
        if not secrets:
            return None
        label = f"{self._label(about)} twins"
        scored = candidate_scores(source, secrets, self.settings.sample.prompt, label)
        if not scored:
            return None
        return tested(scored, order_key(twins)).p

    def _label(self, about: Tried) -> str:
        """The name of an attack in the display of progress."""
        return f"attack {self.name} {about.number}"


@dataclass(frozen=True)
class CertainEnds:
    """Ends of the probability of a leak that cannot fail."""

    lower: float
    upper: float


def _uppers(tally: Tally, level: float) -> list[float]:
    """The upper end of each question at any time; questions with the same counts share one computation."""
    upper_of_counts: dict[Counts, float] = {}
    uppers = []
    for leaks, n, missing in zip(tally.leaks, tally.n, tally.missing, strict=True):
        counts = Counts(int(leaks), int(n), int(missing))
        if counts not in upper_of_counts:
            upper_of_counts[counts] = anytime.ends(counts, (), level).upper
        uppers.append(upper_of_counts[counts])
    return uppers
