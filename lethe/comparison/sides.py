"""The two sides of a comparison: how their draws depend on each other, and the questions that they have in common."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.measuring import BY_NUMBER
from lethe.errors import BadInput, shortened
from lethe.identity import digest
from lethe.io.ids import REMEDY, alike
from lethe.measure.stated import LEAKS, Stated
from lethe.statistics.mean_difference import Draws
from lethe.statistics.random_choice import REFUTED

if TYPE_CHECKING:
    pass

LOOKED = "a rule could stop this side early; its bounds hold at the stop, but the rule biases its plain means"
UNKNOWN_STOP = (
    "its folder does not say how it was drawn, so it counts as one that a rule could stop"
)
# What a record says of the draws, of which `FREE` leaves the distribution alone; other tools have other names for some.
SETTINGS = (
    "engine",
    "dtype",
    "temperature",
    "top_p",
    "top_k",
    "max_new_tokens",
    "max_thinking_tokens",
    "adaptive_threshold",
    "language",
    "seed",
    "stream",
    "stop",
)
FREE = (
    "engine",
    "seed",
    "stream",
    "stop",
    "generations",
    "num_outputs",
    "num_choices",
    "repeat",
    "cache",
)
SHARED = "shared"  # the stream of answers that are numbered alike for all models
ALIASES = {"max_tokens": "max_new_tokens", "max_gen_toks": "max_new_tokens"}
LONGEST_VALUE = 300  # characters of a setting in a note


@dataclass(frozen=True)
class QuestionScores:
    """The scores of one question in sampling order, NaN where missing, and if known its text and the rest of its row."""

    scores: np.ndarray
    text: str | None = None
    reference: tuple[object, ...] | None = None


@dataclass(frozen=True)
class Scored:
    """The answers of a model to each question by its id, and what is recorded of their draws."""

    questions: Mapping[str, QuestionScores]
    settings: Mapping[str, object] = field(default_factory=dict)
    served: str = ""  # which server drew, and when


@dataclass(frozen=True)
class Side:
    """One side of a comparison; what is None is not known.

    ``template`` is the content of the prompt template, ``scorer`` its parameters, ``binary`` its declaration that its scores
    are 0 and 1. ``stopped``: a rule could stop the answers, or this is not recorded (``unknown_stop``). ``refused`` says why
    nothing may be claimed of the scores (`lethe.results.licence`). ``stated`` is what a file states of its scores; those of
    Lethe's own folders are of leaks.
    """

    name: str
    kind: str
    metric: str
    models: Mapping[str, Scored]
    template: str | None = None
    scorer: Mapping[str, object] = field(default_factory=dict)
    stopped: bool = False
    binary: bool | None = None
    unknown_stop: bool = False
    refused: tuple[str, ...] = ()
    stated: Stated = LEAKS


def digest_of_draws(sides: Iterable[Side]) -> str:
    """A hash of the scores of every question: the same for the same draws, whatever is asked of them."""
    scores: list[object] = []
    for side in sides:
        for model in side.models.values():
            for name, answers in model.questions.items():
                scores += [name, answers.scores]
    return digest(*scores)


def relation(first: Scored, second: Scored, declared: bool = False) -> Draws:
    """How the answers of a model on two sides depend on each other, by their recorded settings.

    Different seeds or streams: not at all, and neither where this is ``declared`` and no record says otherwise. With one
    seed and stream, the engines `BY_NUMBER` give both j-th answers the same random numbers, which no other answer has, if
    both allow equally many tokens.
    """
    if declared:
        return "apart"
    a = first.settings
    b = second.settings
    for key in ("engine", "seed", "max_new_tokens", "stop"):
        if a.get(key) is None or b.get(key) is None:
            return "any"
    # With "word" these are the first answers, whose number is fixed.
    if not {a["stop"], b["stop"]} <= {"fixed", "word"}:
        return "any"
    if not may_share(first, second):
        return "apart"
    is_alike = a["engine"] == b["engine"] and a["max_new_tokens"] == b["max_new_tokens"]
    if is_alike and a["engine"] in BY_NUMBER:
        return "pairs"
    return "any"


def _log_chance_of_one_order(first: Scored, second: Scored) -> float:
    """The log of the probability that independent draws with these counts of scores come in one order on both sides; 0 where
    the scores of some common question differ."""
    log_chance = 0.0
    for name in first.questions.keys() & second.questions.keys():
        scores = first.questions[name].scores
        if not np.array_equal(scores, second.questions[name].scores, equal_nan=True):
            return 0.0
        _, counts = np.unique(scores, return_counts=True)
        log_chance += sum(math.lgamma(count + 1) for count in counts)
        log_chance -= math.lgamma(len(scores) + 1)
    return log_chance


def may_share(first: Scored, second: Scored) -> bool:
    """Whether two sides record one seed and one stream, so that their answers may share random numbers."""
    a = first.settings
    b = second.settings
    if a.get("seed") is None or b.get("seed") is None:
        return False
    is_one_stream = a.get("stream", SHARED) == b.get("stream", SHARED)
    return is_one_stream and a["seed"] == b["seed"]


@dataclass(frozen=True)
class NotCompared:
    """A question, a model (``id`` None) or the average that cannot be compared, with the reason."""

    id: str | None
    reason: str


@dataclass(frozen=True)
class Pair:
    """The scores of one question on both sides, in sampling order, and how the two depend on each other."""

    model: str
    id: str
    first: np.ndarray
    second: np.ndarray
    draws: Draws


def stops(sides: Sequence[Side], names: Iterable[str]) -> list[str]:
    """A note for each side that a rule could stop early, or of which this is not recorded."""
    notes = []
    for side, name in zip(sides, names, strict=True):
        if side.unknown_stop:
            notes.append(f"{name}: {UNKNOWN_STOP}")
        elif side.stopped:
            notes.append(f"{name}: {LOOKED}")
    return notes


def check_alike(sides: Sequence[Side]) -> None:
    """Two engines draw from one distribution only with equal settings; with others, their difference is not the models'.

    Raises `BadInput` for sides of two engines that record other settings.
    """
    for a, b in itertools.combinations(sides, 2):
        for model, first, second in _models(a, b, []):
            changed = _changed(first, second)
            if _engines(first, second) and changed:
                raise BadInput(
                    f"{a.name} (A) and {b.name} (B) are of two engines and differ in their settings{_of(model)}: {changed}. "
                    "Draw both alike, or compare them all the same with --despite-settings."
                )


def check_independent(sides: Sequence[Side]) -> None:
    """Raises `BadInput` for sides that record one seed and one stream, or that are one run: nobody can declare them
    independent."""
    for a, b in itertools.combinations(sides, 2):
        for model, first, second in _models(a, b, []):
            if may_share(first, second):
                seed = first.settings["seed"]
                raise BadInput(
                    f"--independent: {a.name} and {b.name} record one seed ({seed}){_of(model)}, so their answers may share "
                    "random numbers. Leave the option out, or draw one side with another seed."
                )
            if _log_chance_of_one_order(first, second) < math.log(REFUTED):
                raise BadInput(
                    f"--independent: {a.name} and {b.name} hold the same scores in the same order{_of(model)}, as one run "
                    "that is compared with itself. Leave the option out, or give the file of the other run."
                )


def joined(
    a: Side,
    b: Side,
    missing: list[NotCompared],
    notes: list[str],
    declared: bool = False,
) -> list[Pair]:
    """The questions of both sides.

    Parameters
    ----------
    a, b
        The two sides.
    missing
        What cannot be compared is added here, with the reason.
    notes
        What is known of the settings is added here.
    declared
        Whether somebody says that the sides share no random numbers.

    Raises
    ------
    BadInput
        If ids of the two sides are alike but not equal, or no model is on both sides.
    """
    reason = _incomparable(a, b)
    if reason:
        missing.append(NotCompared(None, reason))
        return []
    pairs: list[Pair] = []
    for model, first, second in _models(a, b, missing):
        ids_alike = alike([*first.questions, *second.questions])
        if ids_alike is not None:
            raise BadInput(f"{a.name} and {b.name}: {ids_alike.problem('the ids')}. {REMEDY}")
        changed = _changed(first, second)
        if changed:
            notes.append(f"the settings differ{_of(model)}: {changed}")
        for note in _remarks(first, second):
            notes.append(note + _of(model))
        if first.served:
            notes.append(f"A: {first.served}")
        if second.served:
            notes.append(f"B: {second.served}")
        if declared and relation(first, second) == "any":
            notes.append(f"A and B are declared independent{_of(model)}; no record says so")
        draws = relation(first, second, declared)
        pairs += _common(
            model,
            first,
            second,
            a.kind == b.kind != "table",
            draws,
            missing,
        )
    return pairs


def _of(model: str) -> str:
    """Words that name the model; empty where each side has a single model."""
    if not model:
        return ""
    return f" for {model}"


def _incomparable(a: Side, b: Side) -> str | None:
    """The reason why the two sides cannot be compared at all, or None."""
    if a.metric != b.metric:
        return f"the scorers differ: {a.metric!r} in A, {b.metric!r} in B (name one with --score)"
    changed = _differing(a.scorer, b.scorer)
    if changed:
        return f"the scorer {a.metric!r} has different parameters: {changed}"
    if a.template is None or b.template is None or a.template == b.template:
        return None
    changed = _differing({"prompt": a.template}, {"prompt": b.template})
    return f"the prompt templates differ: {changed}"


def _changed(first: Scored, second: Scored) -> str:
    """The settings that both sides record and that change the distribution of answers, with both values."""
    binding = {key: value for key, value in first.settings.items() if key not in FREE}
    return _differing(binding, second.settings)


def _differing(a: Mapping[str, object], b: Mapping[str, object]) -> str:
    """The keys of both whose values differ, with both values; empty where there are none."""
    texts = []
    for key in a:
        if key in b and a[key] != b[key]:
            in_a = shortened(a[key], LONGEST_VALUE)
            in_b = shortened(b[key], LONGEST_VALUE)
            texts.append(f"{key} {in_a} in A, {in_b} in B")
    return ", ".join(texts)


def _engines(first: Scored, second: Scored) -> str:
    """Both engines, where both sides record theirs and the engines differ."""
    in_a = first.settings.get("engine")
    in_b = second.settings.get("engine")
    if not in_a or not in_b or in_a == in_b:
        return ""
    return f"the engine is {in_a} in A and {in_b} in B"


def _remarks(first: Scored, second: Scored) -> list[str]:
    """What is left to say of the settings: the engines, where they differ, and what a side does not record."""
    notes = []
    engines = _engines(first, second)
    if engines:
        notes.append(engines)
    recorded = {"A": first.settings.keys() - FREE, "B": second.settings.keys() - FREE}
    silent = [name for name, keys in recorded.items() if not keys]
    if silent:
        notes.append(f"no record says how the answers of {' and '.join(silent)} were drawn")
        return notes
    for name, other in ("AB", "BA"):
        lacking = sorted(recorded[other] - recorded[name])
        if lacking:
            notes.append(f"{name} does not record {', '.join(lacking)}")
    return notes


def models_of(a: Side, b: Side) -> list[tuple[Scored, Scored]]:
    """The answers of each model that both sides have."""
    return [(first, second) for _, first, second in _models(a, b, [])]


def _models(a: Side, b: Side, missing: list[NotCompared]) -> Iterator[tuple[str, Scored, Scored]]:
    """The models that both sides have; if each side has a single model, the names need not match."""
    if len(a.models) == len(b.models) == 1:
        (first,) = a.models.values()
        (second,) = b.models.values()
        yield "", first, second
        return
    for name in a.models:
        if name in b.models:
            yield name, a.models[name], b.models[name]
    for name in a.models:
        if name not in b.models:
            missing.append(NotCompared(None, f"the model {name} is in A only"))
    for name in b.models:
        if name not in a.models:
            missing.append(NotCompared(None, f"the model {name} is in B only"))
    if not a.models.keys() & b.models.keys():
        of_a, of_b = ", ".join(a.models), ", ".join(b.models)
        raise BadInput(
            f"{a.name} has the models {of_a}, and {b.name} has {of_b}: no model is on both sides. "
            "Name data folders with a model in common."
        )


def _common(
    model: str,
    first: Scored,
    second: Scored,
    same_kind: bool,
    draws: Draws,
    missing: list[NotCompared],
) -> Iterator[Pair]:
    """The questions of a model that both sides have and ask alike; adds the others to ``missing``."""
    prefix = f"{model}/" if model else ""
    for name, answers in first.questions.items():
        other = second.questions.get(name)
        reason = _not_compared(answers, other, same_kind)
        if other is None or reason:
            missing.append(NotCompared(prefix + name, reason))
        else:
            yield Pair(model, prefix + name, answers.scores, other.scores, draws)
    for name in second.questions:
        if name not in first.questions:
            missing.append(NotCompared(prefix + name, "the question is in B only"))


def _not_compared(answers: QuestionScores, other: QuestionScores | None, same_kind: bool) -> str:
    """Why the answers to a question of A and those of B cannot be compared; empty where they can."""
    if other is None:
        return "the question is in A only"
    if not _same_text(answers.text, other.text, same_kind):
        return "the text or prompt of the question differs in B"
    both_known = answers.reference is not None and other.reference is not None
    if both_known and answers.reference != other.reference:
        return "its context, follow-ups, reference answer or keywords differ in B"
    return ""


def _same_text(a: str | None, b: str | None, same_kind: bool) -> bool:
    """Whether two texts ask the same question; a log holds the whole prompt, a folder of artifacts only the question."""
    if a is None or b is None or a == b:
        return True
    if same_kind:
        return False
    return a.strip() in b or b.strip() in a


def binary_of(a: Side, b: Side, scores: Sequence[np.ndarray]) -> bool:
    """Whether the scores are only 0 and 1, as the scorer declares. Without a declaration, the values decide."""
    if a.binary is False or b.binary is False:
        return False
    # A declared column that holds other values comes from a different scorer with the same name.
    for values in scores:
        present = values[~np.isnan(values)]
        if not np.isin(present, (0.0, 1.0)).all():
            return False
    return True
