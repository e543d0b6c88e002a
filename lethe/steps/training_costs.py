"""What training, unlearning and attacks cost: tokens, processor time at a rate measured here, memory of reference values.

A model that a stage will make is stood in for by the model that unlearning starts from where that is there, else by its
start: the checkpoint of ``train.recipe.start_from``, or a fresh model of the recipe's size with random weights. Times are
those of one core where there is no GPU, so they do not depend on other work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.models.learning import ROWS, SHARED
from lethe.steps.costs import processor_seconds

if TYPE_CHECKING:
    from lethe.config import Params
    from lethe.config.schema import Attack, MethodParams
    from lethe.io.artifacts import Row
    from lethe.models.encoding import Example
    from lethe.models.in_memory import InMemory
    from lethe.unlearning.protocol import Method

NUMBER = 4  # bytes of a float32, the format of weights and kept values
STEPS = 3  # measured steps, of which the last counts
# The keys of a recipe that give a model another size, or its rows another length.
SHAPE = ("prompt", "vocabulary", "hidden", "layers", "heads", "kv_heads", "feed_forward", "context")


@dataclass(frozen=True)
class ReferenceMemory:
    """Bytes that the model before unlearning takes: whole (``frozen``), or as values on the answers (``cached``).

    ``needs`` is what the method reads of that model at every step; with "nothing" both are 0.
    """

    needs: Literal["nothing", "logits", "states"]
    frozen_bytes: int
    cached_bytes: int
    chosen: Literal["frozen", "cached"]


@dataclass(frozen=True)
class StageCost:
    """One entry of ``train.models``, ``unlearn.methods`` or ``attacks``; tokens trained on, and answers of an attack."""

    stage: Literal["train", "unlearn", "attack"]
    name: str
    tokens: int
    answers: int
    seconds: float | None
    reference: ReferenceMemory | None = None


@dataclass
class Bench:
    """The start of the models of a run, with its encoded rows, on which steps are timed; rates are measured once."""

    params: Params
    splits: dict[str, list[Row]]
    start: InMemory
    rates: dict[str, float] = field(default_factory=dict)  # seconds per trained token, by a method's settings
    own: dict[str, Bench] = field(default_factory=dict)  # the starts of models with a recipe of their own

    def __post_init__(self) -> None:
        from lethe.models.encoding import Encoder

        self.encoder = Encoder(self.start.tokenizer, self.params.train.recipe.prompt)
        self.examples = {name: [self.encoder.example(row) for row in rows] for name, rows in self.splits.items()}

    def of(self, name: str) -> Bench:
        """The bench of one entry of ``train.models``: a start of its own where its recipe has another size or prompt."""
        recipe = self.params.train.recipe_of(name)
        if recipe.start_from or set(self.params.train.models[name].recipe).isdisjoint(SHAPE):
            return self
        if name not in self.own:
            train = self.params.train.model_copy(update={"recipe": recipe})
            rows = ROWS[self.params.train.models[name].rows]
            learned = SHARED if set(rows) <= set(SHARED) else rows
            self.own[name] = _untrained(self.params.model_copy(update={"train": train}), self.splits, learned)
        return self.own[name]

    def tokens(self, splits: Sequence[str]) -> int:
        """Tokens of the rows of some splits."""
        return sum(_tokens(self.examples.get(split, [])) for split in splits)

    def seconds_per_token(self, method: MethodParams) -> float:
        """Measured on one batch of forget and retain rows."""
        key = repr(method.model_copy(update={"seed": None, "lr": 1.0, "epochs": 1}))
        if key not in self.rates:
            self.rates[key] = self._timed(method)
        return self.rates[key]

    def _timed(self, method: MethodParams) -> float:
        import copy

        from lethe.models.adapters import adapted
        from lethe.models.team import Team
        from lethe.unlearning.loop import unlearn
        from lethe.unlearning.protocol import Before
        from lethe.unlearning.second_answers import second_answers

        assert Team().size == 1
        recipe = self.params.unlearn.recipe
        size = recipe.forget_batch
        model = adapted(copy.deepcopy(self.start.model), recipe.compute.lora, 0)
        few = method.model_copy(update={"epochs": STEPS})
        alone = recipe.model_copy(update={"compute": recipe.compute.model_copy(update={"checkpoint_every": None})})
        rows = self.splits["forget"][:size]
        second = second_answers(few, rows, Before(model, self.encoder, 0))
        clock = _Clock()
        forget, retain = self.examples["forget"][:size], self.examples["retain"]
        padding = self.start.tokenizer.pad_token_id or 0
        unlearn(model, forget, retain, alone, few, padding, f"time {method.loss}", second, clock)  # type: ignore[arg-type]
        each = _tokens(retain) / max(1, len(retain)) * recipe.retain_batch
        return (clock.seen[-1] - clock.seen[-2]) / (_tokens(forget) + each)


class _Clock:
    """Called after each epoch, in place of observations of confidence."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.records: list[dict[str, float]] = []

    def __call__(self, model: object, epoch: int) -> None:
        self.seen.append(processor_seconds())


def bench_of(params: Params) -> Bench | None:
    """The bench of a run's params; None where data or checkpoint are missing."""
    from lethe.data import load_splits
    from lethe.errors import BadInput
    from lethe.models import checkpoints
    from lethe.models.in_memory import InMemory

    recipe = params.train.recipe
    checkpoints.prepare_torch()
    try:
        splits = load_splits(params.data, Path())
        if not splits.get("retain"):
            return None
        unlearned = Path(params.unlearn.recipe.start_from)
        if params.unlearn.methods and (unlearned / "config.json").is_file():
            return Bench(params, splits, InMemory(*checkpoints.load(unlearned, "float32")))
        if recipe.start_from:
            return Bench(params, splits, InMemory(*checkpoints.load(recipe.start_from, "float32")))
    except BadInput:
        return None
    return _untrained(params, splits, SHARED)


def _untrained(params: Params, splits: dict[str, list[Row]], learned: Sequence[str]) -> Bench:
    """The bench on a fresh model of the recipe's size, with the tokenizer of the rows that the model will learn."""
    import torch

    from lethe.models import checkpoints
    from lethe.models.in_memory import InMemory
    from lethe.models.learning import texts_of

    recipe = params.train.recipe
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        model, tokenizer = checkpoints.fresh(
            recipe, texts_of([row for name in learned for row in splits[name]], recipe)
        )
    if torch.cuda.is_available():
        model.cuda()  # type: ignore[call-arg]  # transformers wraps it without its signature
    return Bench(params, splits, InMemory(model.eval(), tokenizer))


def own_starts(params: Params, bench: Bench) -> dict[str, InMemory]:
    """The starts of the evaluated models whose recipe gives them another size, by their names in ``models``."""
    made = {name: Path(model.path) for name, model in params.models.items()}
    trained = {name: path.name for name, path in made.items() if path == Path("data/models", path.name)}
    own = {name: bench.of(entry) for name, entry in trained.items() if entry in params.train.models}
    return {name: one.start for name, one in own.items() if one is not bench}


def stage_costs(
    params: Params, bench: Bench, rate: float | None, rates: Mapping[str, float], *, timed: bool = True
) -> list[StageCost]:
    """The cost of every training, every method and every attack."""
    return [
        *(_of_training(name, params, bench, timed) for name in params.train.models),
        *(_of_method(name, params, bench, timed) for name in params.unlearn.methods),
        *(
            _of_attack(name, attack, params, bench, rates.get(attack.path, rate))
            for name, attack in params.attacks.items()
        ),
    ]


def _of_training(name: str, params: Params, bench: Bench, timed: bool) -> StageCost:
    recipe, bench = params.train.recipe_of(name), bench.of(name)
    own = ROWS[params.train.models[name].rows]
    tokens = recipe.epochs * bench.tokens([*own, *recipe.knowledge])
    return StageCost("train", name, tokens, 0, tokens * bench.seconds_per_token(_plain()) if timed else None)


def _of_method(name: str, params: Params, bench: Bench, timed: bool) -> StageCost:
    method = params.unlearn.methods[name]
    tokens = tokens_of_method(method, params, bench)
    seconds = tokens * bench.seconds_per_token(method) if timed else None
    return StageCost("unlearn", name, tokens, 0, seconds, reference_memory(params, method, bench))


def tokens_of_method(method: MethodParams, params: Params, bench: Bench) -> int:
    """The tokens that unlearning by one method trains on: the forget set once per epoch, and the retain rows beside."""
    recipe = params.unlearn.recipe
    forget, retain = bench.examples["forget"], bench.examples["retain"]
    steps = method.epochs * -(-len(forget) // recipe.forget_batch)
    return method.epochs * _tokens(forget) + round(steps * recipe.retain_batch * _tokens(retain) / len(retain))


def _of_attack(name: str, attack: Attack, params: Params, bench: Bench, rate: float | None) -> StageCost:
    """Every budget and seed is asked anew, the model before the attack too; only relearning also trains."""
    lists = [value for value in attack.after.model_dump().values() if isinstance(value, (list, tuple))]
    budgets = len(lists[0]) if lists else 1
    asked = len(attack.seeds) * (budgets + 1) * len(bench.splits["forget"])
    answers = asked * (attack.n + 1)
    seconds = answers * params.sample.max_new_tokens / rate if rate else None
    return StageCost("attack", name, 0, answers, seconds)


def reference_memory(params: Params, method: MethodParams, bench: Bench) -> ReferenceMemory:
    """The memory of the model before unlearning, whole and as kept values, for one method."""
    from lethe.registry import METHODS
    from lethe.unlearning.protocol import Method as Protocol

    chosen = params.unlearn.recipe.reference
    member: Method = METHODS[method.loss](method)
    if not (member.needs.reference_model or (member.uses_retain and method.retain_loss == "kl")):
        return ReferenceMemory("nothing", 0, 0, chosen)
    settings = bench.start.model.config.get_text_config()
    states = type(member).reference_block is not Protocol.reference_block
    width = int(settings.hidden_size if states else settings.vocab_size)
    kept = {one.prompt + one.answer: one for split in ("forget", "retain") for one in bench.examples[split]}
    answered = sum(len(one.answer) if states else one.counted for one in kept.values())
    frozen = NUMBER * sum(one.numel() for one in bench.start.model.parameters())
    return ReferenceMemory("states" if states else "logits", frozen, NUMBER * width * answered, chosen)


def _plain() -> MethodParams:
    """A method whose step has the passes of training: a pass and a gradient over all rows."""
    from lethe.registry import METHODS

    entry = {"loss": "grad_diff", "lr": 1e-6, "epochs": 1, "retain_weight": 1.0}
    return METHODS["grad_diff"].Params.model_validate(entry)


def _tokens(examples: Sequence[Example]) -> int:
    return sum(len(one.prompt) + len(one.answer) for one in examples)
