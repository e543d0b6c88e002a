"""One side of a comparison: a log, a table, a data folder, an evaluation, a git revision; and the questions of two."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.measuring import BY_NUMBER, JudgeEntry, columns_of, is_binary, scorer_params
from lethe.errors import BadFile, BadInput, BadValue, shortened
from lethe.identity import digest
from lethe.io.artifacts import GREEDY, Row, first_rows, read_split, record_of_draws
from lethe.io.facts import LeakIs
from lethe.io.files import Json, meant, read_artifact
from lethe.io.ids import REMEDY, alike
from lethe.io.logs import is_log
from lethe.io.logs._log import EARLY
from lethe.io.tables import read_table
from lethe.io.yaml import read_yaml
from lethe.measure.prompts import refuted_by_order
from lethe.measure.score_files import ReadScores, could_stop, read_any_scores, read_scores
from lethe.measure.scores import PromptScores
from lethe.measure.stated import LEAKS, Stated
from lethe.process import git
from lethe.registry import JUDGES, SCORERS
from lethe.results import table as results
from lethe.results.licence import Source, of_drawing, reasons_of, refusals
from lethe.results.table import Numbers, Result
from lethe.statistics.mean_difference import Draws
from lethe.statistics.random_choice import REFUTED

if TYPE_CHECKING:
    import pandas as pd
    from dvc.api import DVCFileSystem

LOOKED = "a rule could stop this side early; its bounds hold at the stop, but the rule biases its plain means"
UNKNOWN_STOP = (
    "its folder does not say how it was drawn, so it counts as one that a rule could stop"
)
SERVED = "{model} at {endpoint}, as served between {first} and {last}"
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
PARAMS = "params.yaml"
SHARED = "shared"  # the stream of answers that are numbered alike for all models
ALIASES = {"max_tokens": "max_new_tokens", "max_gen_toks": "max_new_tokens"}
EXPERIMENTS = (
    "refs/exps/[0-9a-f][0-9a-f]/*/*"  # BASELINE/NAME; DVC's own references there have other names
)
RENAME_IT = "Rename the column of the questions, such as {0!r}, to 'prompt_id'."
LONGEST_VALUE = 300  # characters of a setting in a note
PREFERRED = "keyword_leak"  # the 0/1 scorer, where the params do not name one


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


def read_side(
    source: str,
    score: str | None = None,
    filter: str | None = None,
    models: Sequence[str] = (),
    leak_is: LeakIs | None = None,
) -> Side:
    """Read one side of a comparison.

    Parameters
    ----------
    source
        A log, a table of scores, a folder of artifacts, one of its models (FOLDER:MODEL), or a git revision of this folder.
    score
        The score to compare by; None for the usual one.
    filter
        The filter of an lm-eval log.
    models
        The models of a folder or revision; empty for all.
    leak_is
        Which end of a file's score is a leak, where the user says it.

    Raises
    ------
    BadFile, BadValue
        If there is no such source, score or model.
    """
    path = Path(source)
    folder, _, model = source.rpartition(":")
    if folder and model and not path.exists() and Path(folder).is_dir():
        if models:
            raise BadValue("--model", models[0], f"left out beside {source}, which names a model")
        return read_model(Path(folder), model, source, score)
    if path.is_dir():
        return _folder(
            path,
            path.parent,
            source,
            "folder",
            score,
            models,
        )
    if path.is_file():
        if is_log(path):
            return _log(path, score, filter, leak_is)
        return _table(path, score, leak_is)
    with _revision(source) as root:
        return _folder(
            root / "data",
            root,
            source,
            "revision",
            score,
            models,
        )


def read_model(
    folder: Path,
    model: str,
    name: str,
    score: str | None = None,
    params: Mapping[str, Json] | None = None,
) -> Side:
    """Read one model of a folder of artifacts as a side called ``name``; the ``params`` are those of the params.yaml beside
    the folder, unless they are named."""
    return _folder(
        folder,
        folder.parent,
        name,
        "folder",
        score,
        [model],
        params,
    )


def models_under_test(folder: Path) -> list[str]:
    """The models with scores in a folder but the models for comparison, in the order of the params.yaml beside it."""
    scored = _scored_in(folder)
    params = _params(folder.parent / PARAMS)
    report = _section(params, "report")
    retrains = report.get("retrain")
    if not isinstance(retrains, list):
        retrains = [retrains]
    references = [report.get("base"), *retrains]
    names = dict.fromkeys([*_section(params, "models"), *scored])
    return [name for name in names if name in scored and name not in references]


def _scored_in(folder: Path) -> list[str]:
    """The models of a folder of artifacts with scores of the forget set."""
    tables = (folder / "scores").glob("*/forget.parquet")
    return sorted(table.parent.name for table in tables)


def _log(path: Path, score: str | None, filter: str | None, leak_is: LeakIs | None) -> Side:
    """The side of a log of another tool."""
    read = read_any_scores(path, None, score, filter, leak_is=leak_is).pointed()
    scored = read.log
    assert scored is not None  # the file is a log
    log = scored.log
    text_of_prompt = {}
    for name, text in zip(log.prompts["prompt_id"], log.prompts["prompt"], strict=True):
        if isinstance(text, str):
            text_of_prompt[name] = text
    questions = {}
    for prompt in read.prompts:
        text = text_of_prompt.get(prompt.prompt_id)
        questions[prompt.prompt_id] = QuestionScores(prompt.scores, text)
    settings = {ALIASES.get(key, key): value for key, value in log.sampling.items()}
    stopped = log.stopping == EARLY
    known = _known(read, stopped)
    has_single_answers = all(prompt.n == 1 for prompt in read.prompts)
    if has_single_answers:
        known = replace(known, deterministic=None)  # what is compared then are the questions
    return Side(
        name=str(path),
        kind="log",
        metric=scored.score,
        models={log.model or "": Scored(questions, settings)},
        stopped=stopped,
        refused=tuple(refusals(known)),
        stated=read.stated,
    )


def _table(path: Path, score: str | None, leak_is: LeakIs | None) -> Side:
    """The side of a table of scores."""
    read = read_scores(path, "worst", score, leak_is=leak_is, asks=RENAME_IT).pointed()
    questions = {}
    for prompt in read.prompts:
        text = read.texts.get(prompt.prompt_id)
        questions[prompt.prompt_id] = QuestionScores(prompt.scores, text)
    stopped = could_stop(path, read)
    known = _known(read, stopped).joined(of_drawing(record_of_draws(path), ()))
    return Side(
        name=str(path),
        kind="table",
        metric=read.stated.score,
        models={"": Scored(questions)},
        stopped=stopped,
        refused=tuple(refusals(known)),
        stated=read.stated,
    )


def _known(read: ReadScores, stopped: bool) -> Source:
    """What is known of a file's scores, but which end of them is a leak: a difference is one of the score as recorded."""
    below = _below_own_mean(read.prompts, stopped)
    return replace(read.stated.source(), score_means="leak", below_own_mean=below)


def _below_own_mean(prompts: Sequence[PromptScores], stopped: bool) -> tuple[str, ...]:
    """The prompts of which an upper bound lies below their own mean; none of a run that stopped early, at any order."""
    if stopped:
        return ()
    return refuted_by_order(prompts)


def _folder(
    folder: Path,
    project: Path,
    name: str,
    kind: str,
    score: str | None,
    models: Sequence[str],
    params: Mapping[str, Json] | None = None,
) -> Side:
    """The side of a folder of artifacts; ``params`` are those of params.yaml in ``project``, where they are not named."""
    where = name if kind == "revision" else str(folder)
    scored = _chosen(_scored_in(folder), models, name, where)
    if params is None:
        params = _params(project / PARAMS)
    evaluated = _record_in(folder / "evaluated.json")  # of `lethe eval`
    scorers = read_artifact(folder / "scores" / scored[0] / "about.json").get("scorers", [])
    metric = score or _first_metric(params, scorers, name)
    asked = {row["id"]: row for row in read_split("forget", folder / "dataset")}
    sample = _section(params, "sample")
    rule = {key: sample[key] for key in ("truncated",) if key in sample}

    by_model = {}
    could_be_stopped = False
    is_unknown = False
    reasons: dict[str, None] = {}  # in their order, each reason once
    for model in scored:
        drawn = _record_in(folder / "generations" / model / "about.json")
        could_be_stopped |= drawn.get("stop") == "sequential"
        is_unknown |= "stop" not in drawn
        reasons |= dict.fromkeys(_refused(folder, model, drawn))
        place = folder / "scores" / model / "forget.parquet"
        table = first_rows(read_table(place), place)
        if metric not in table:
            raise BadValue("--score", metric, f"one of {', '.join(map(repr, scorers))} ({name})")
        settings = {key: drawn[key] for key in SETTINGS if key in drawn}
        served = ""
        if drawn.get("served"):
            served = SERVED.format_map(drawn["served"])
        by_model[model] = Scored(_questions(table, metric, asked), rule | settings, served)
    scored_by = evaluated if "score" in evaluated else params
    return Side(
        name=name,
        kind=kind,
        metric=metric,
        models=by_model,
        template=evaluated.get("prompt", _template(params, project)),
        scorer=_scorer(scored_by, metric),
        stopped=could_be_stopped or is_unknown,
        binary=_declared(params, metric),
        unknown_stop=is_unknown and not could_be_stopped,
        refused=tuple(reasons),
    )


def _chosen(scored: list[str], models: Sequence[str], name: str, where: str) -> list[str]:
    """The models with scores that were named, or all; raises a sentence where there is none, or a name is unknown."""
    if not scored:
        remedy = "Name a pipeline's data folder or a folder of `lethe eval`."
        raise BadFile(name, "holds no scores/MODEL/forget.parquet", remedy)
    for model in models:
        if model not in scored:
            raise BadValue("--model", model, f"one of {', '.join(scored)} in {where}")
    if not models:
        return scored
    return [model for model in scored if model in models]


def _record_in(path: Path) -> dict[str, Json]:
    """The content of a record; empty where there is no such file."""
    if not path.is_file():
        return {}
    return read_artifact(path)


def _refused(folder: Path, model: str, drawn: Mapping[str, Json]) -> list[str]:
    """Why nothing may be claimed of a model's answers, by the record of its draws and by its results where there are any."""
    place = results.place(folder, "metrics", model)
    rows: list[Result] = []
    if place.is_file():
        rows = results.read_rows(place)
    numbers = Numbers([row for row in rows if row.scope == "model"])
    return list(reasons_of(numbers)) or refusals(of_drawing(drawn, rows))


def _questions(
    table: pd.DataFrame, metric: str, asked: Mapping[str, Row]
) -> dict[str, QuestionScores]:
    """The scores of each question: first those of the dataset in its order, then the others in the order of the table."""
    drawn = table[table["sample"] != GREEDY].sort_values("sample", kind="stable")
    scores = {}
    for name, values in drawn.groupby("prompt_id", sort=False)[metric]:
        scores[str(name)] = values.to_numpy(dtype=np.float64)
    questions = {}
    for name, row in asked.items():
        if name in scores:
            questions[name] = _answers(scores[name], row)
    for name, values in scores.items():
        if name not in asked:
            questions[name] = QuestionScores(values)
    return questions


def _answers(scores: np.ndarray, row: Row) -> QuestionScores:
    """The scores of a question of the dataset, with what must be alike on both sides."""
    parts = map(row.get, ("keywords", "context", "followups"))
    return QuestionScores(scores, row["question"], (row["answer"], *parts))


def _params(path: Path) -> dict[str, Json]:
    """The content of params.yaml; empty for a folder of `lethe eval`, which has none."""
    if not path.is_file():
        return {}
    return read_yaml(path)


def _section(params: Mapping[str, Json], name: str) -> dict[str, Json]:
    """A section of params.yaml; empty where there is none."""
    section = params.get(name)
    if not isinstance(section, dict):
        return {}
    return section


def _first_metric(params: Mapping[str, Json], scorers: Sequence[str], name: str) -> str:
    """The score to compare by where none is named: that of leaks, else the first of the folder."""
    wanted = _section(params, "metrics").get("binary", PREFERRED)
    if wanted in scorers:
        return str(wanted)
    if not scorers:
        raise BadFile(name, "its about.json lists no scorers", "Name the score with --score.")
    return scorers[0]


def _template(params: Mapping[str, Json], root: Path) -> str | None:
    """Return the content of the prompt template, or its name if it is not a file (the tokenizer's chat template)."""
    named = _section(params, "sample").get("prompt")
    if not isinstance(named, str):
        return None
    path = root / named
    if not path.is_file():
        return named
    return path.read_text(encoding="utf-8")


def _scorer(params: Mapping[str, Json], metric: str) -> dict[str, object]:
    """The parameters of the scorer, and the parts of an answer that it reads."""
    section = _section(params, "score")
    if not section:
        return {}
    entries = []
    for entry in section.get("scorers", []):
        if entry == metric or (isinstance(entry, dict) and metric in entry):
            entries.append(entry)
    marks = section.get("thinking") or (section.get("parts") or {}).get("thinking")
    keyword_match = section.get("keyword_match", "word")
    return {"scorer": entries, "keyword_match": keyword_match, "thinking": marks}


def _declared(params: Mapping[str, Json], metric: str) -> bool | None:
    """Whether the scorer or judge of a column gives only 0 and 1; None for a column that this release does not know."""
    try:
        columns = set(SCORERS)
        judges = {}
        for name, entry in _section(params, "judges").items():
            judges[name] = JudgeEntry.model_validate(entry)
            columns.update(name + ending for ending in judges[name].endings)
        for name in JUDGES:
            columns.update(columns_of(name))
        if metric not in columns:
            return None
        parameters = {}
        for entry in _section(params, "score").get("scorers", []):
            has_parameters = isinstance(entry, dict) and metric in entry
            if has_parameters:
                parameters[metric] = scorer_params(metric, entry[metric])
                break
        return is_binary(metric, parameters, judges)
    except ValueError:  # params of another release
        return None


@contextmanager
def _revision(revision: str) -> Iterator[Path]:
    """Yield a temporary folder with the artifacts of a git revision, from DVC's cache and from git."""
    commit = _commit(revision)
    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        try:
            files = DVCFileSystem(rev=commit, subrepos=False)
            wanted: list[str] = []
            for folder in ("/data/scores", "/data/dataset", "/data/generations", "/params.yaml"):
                if files.exists(folder):
                    wanted += filter(_is_compared, files.find(folder))
            _fetch(files, wanted, root)
            named = _section(_params(root / PARAMS), "sample").get("prompt")
            is_inside = isinstance(named, str) and ".." not in Path(named).parts
            if is_inside and files.isfile(f"/{named}"):
                _fetch(files, [f"/{named}"], root)
        except (DvcException, OSError) as error:
            problem = f"its artifacts cannot be fetched ({str(error).splitlines()[0]})"
            remedy = "Run `dvc pull`, or check out the revision and run the pipeline."
            raise BadFile(revision, problem, remedy) from None
        yield root


def _is_compared(path: str) -> bool:
    """Whether a comparison reads the file: scores and questions of the forget set, settings, params."""
    if "/likelihood/" in path:
        return False
    if path.endswith(("/about.json", "/params.yaml")):
        return True
    return "/forget." in path and "/generations/" not in path


def _commit(revision: str) -> str:
    """The commit of a git revision or of a DVC experiment, which DVC keeps under refs/exps/."""
    if not revision.startswith("-"):
        direct = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if direct:
            return direct
    listed = git("for-each-ref", "--format=%(objectname) %(refname)", EXPERIMENTS) or ""
    commits = []
    for line in listed.splitlines():
        if line.rpartition("/")[2] == revision:
            commits.append(line.split()[0])
    if len(commits) == 1:
        return commits[0]
    if commits:
        remedy = f"Name one by its commit: {', '.join(commits)}."
        raise BadFile(revision, f"names {len(commits)} DVC experiments", remedy)
    problem = (
        "is neither a file nor a folder nor a git revision nor a DVC experiment of this repository"
    )
    remedy = "Name a log, a table of scores, a data folder, or a revision or DVC experiment of this repository."
    raise BadFile(revision, problem, remedy + meant(Path(revision)))


def _fetch(files: DVCFileSystem, paths: Sequence[str], root: Path) -> None:
    """Copy files of a revision below ``root``."""
    for path in paths:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        files.get_file(path, str(target))
