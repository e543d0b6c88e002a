"""Stage `sample@MODEL`: many answers per forget question, fewer per utility question, and the greedy answers."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lethe.config.measuring import Endpoint, ModelEntry, Parts, SampleSettings
from lethe.errors import BadFile, BadInput, BadValue, plural
from lethe.io.artifacts import BESIDE, SECOND, TURNS, Row, version_of_questions, write_parts
from lethe.io.cache import recall
from lethe.io.files import SCHEMA_VERSION, atomic_folder, write_json
from lethe.io.tables import write_parquet
from lethe.models.agreement import Diverged
from lethe.models.checkpoints import (
    Origin,
    check,
    check_unchanged,
    content,
    prepare_torch,
    tokenizer_of,
)
from lethe.models.encoding import CHAT
from lethe.models.model import resolve_device
from lethe.sampling import tasks as drawing
from lethe.sampling.endpoint import EndpointEngine
from lethe.sampling.engine import SCRATCH, AnswerStore, Engine, Options, open_engine
from lethe.sampling.forecast import affordable, forecast, quickest
from lethe.sampling.prompt_language import Language, as_json, read_language
from lethe.sampling.tasks import RETRAIN, Opening, SplitTask
from lethe.sampling.word_draws import Drawer, Grid, Judging, ToWord, draw_to_word
from lethe.sampling.word_rule import Rule

CHOICE = "engine.json"  # which engine a pilot chose for the answers in a folder


def run(
    name: str,
    sample: SampleSettings,
    model: ModelEntry,
    root: Path = Path("data"),
    scratch: Path | None = None,
    source: Origin | None = None,
    estimate: bool = False,
    parts: Parts | None = None,
    rule: Rule | None = None,
) -> None:
    """Draw the answers of every split; write ``root/generations/name``.

    With `sample.stop: word` the forget set's table has more than the first answers where ``rule`` needs them, and
    ``beside/RETRAIN.parquet`` has the answers of each Retrain that were drawn for this model; of Base and of a Retrain it has
    the first answers alone.

    With ``sample.language`` the forget set's table has a column ``production``, ``language.json`` describes the language, and
    ``prompts/forget.parquet`` has the second sample. Follow-up questions have their answers in ``turns/forget.parquet``.

    Parameters
    ----------
    name
        The model, as the entry of ``models`` calls it.
    sample
        The drawing law, the numbers of answers, and the engine.
    model
        The entry: a folder, or a server.
    root
        The folder of all artifacts, with ``dataset``.
    scratch
        A permanent folder for finished prompts; None keeps them until the stage ends.
    source
        A model that replaces ``model.path``.
    estimate
        Whether to print time and memory beforehand and to let a pilot choose the engine; a stage must not, since its
        answers would follow from the time.
    parts
        The marks of the thinking, which ``sample.max_thinking_tokens`` limits.
    rule
        When the word is certain, for ``sample.stop: word``.

    Raises
    ------
    BadInput
        If questions with follow-ups are asked in a way that has none.
    Diverged
        If the engine disagrees with whole passes of the model.
    """
    source = source or model.source
    rows = drawing.chosen(sample, root / "dataset")
    language, conversations = _asked_how(sample, rows["forget"])
    # A folder for each entry: another entry with equal weights removes the same answers when it is done.
    place = scratch or SCRATCH / name
    choice = _choice(place, sample, estimate)
    work = _known_beforehand(source, rows, sample, model, grows=bool(language or conversations))
    options = _options(sample, model, work, _models_at_once(name, rule))
    before = _content(source)
    engine = _opened(source, sample, place, choice, options)
    store = AnswerStore.of(source, engine, options, place)
    if sample.n == "auto":
        n = _affordable(
            name,
            source,
            sample,
            model,
            rows["forget"],
            engine,
        )
        sample = sample.model_copy(update={"n": n})
    work = drawing.tasks(source, rows, sample, model)
    seconds = _announce(
        name,
        engine,
        work,
        store,
        conversations,
        estimate,
    )
    if choice and isinstance(source, Path) and _may_choose(engine, work, store, choice):
        engine = quickest(
            engine,
            seconds,
            source,
            options,
            work,
            choice,
        )
        store = AnswerStore.of(source, engine, options, place)
    task = _forget_task(work)
    speaker = drawing.speaker(source, sample.prompt)
    asking = drawing.Asking(speaker, task.settings, engine, store)
    forget, prompts = _drawn(name, work, rows["forget"], language, asking)
    shorten = _within_budgets(parts, sample, source)
    word = None
    if sample.stop == "word" and rule is not None:
        judging = Judging(rule, {row["id"]: row for row in rows["forget"]}, parts)
        opened = (engine, store)
        subject = Drawer(task, Grid.of(sample), lambda: opened, judging, shorten)
        word = _to_word(name, subject, sample, judging)
    turns = None
    if conversations:
        turns = _turns(
            name,
            forget,
            task,
            conversations,
            asking,
            shorten,
        )

    tables = _tables_of(work, store, shorten, forget, word)
    about = drawing.about(work, engine, sample, model)
    about |= _versions(source, before, store, root)
    with atomic_folder(root / "generations" / name) as out:
        counts = _write_parts(out, tables)
        if language is not None:
            described = as_json(language, rows["forget"])
            write_json(out / "language.json", {"schema": SCHEMA_VERSION, **described})
        _write_more(out, {SECOND: prompts, TURNS: turns})
        if word is not None:
            about["word"] = {"cap": sample.most, **word.record()}
            _write_parts(out / BESIDE, word.tables_beside())
        write_json(out / "about.json", about)
    if scratch is None:
        _tidy(store, engine, goes_on=word is not None)
    drawn = ", ".join(f"{split} {rows}" for split, rows in counts.items())
    print(f"{name}: answers drawn: {drawn}")


def _content(source: Origin) -> str:
    """The digest of the model that is opened next."""
    if isinstance(source, Path):
        check(source)
    return content(source)


def _versions(source: Origin, before: str, store: AnswerStore, root: Path) -> dict[str, str | None]:
    """Which model, and which questions, the answers are of: whoever states a bound, or joins a tree, compares both.

    Only a folder has a version. Where it changed since it was opened, its answers are refused and not kept either.
    """
    if not isinstance(source, Path):
        return {}
    try:
        check_unchanged(source, before)
    except BadFile:
        store.clear()
        raise
    return {"model": before, "questions": version_of_questions(root / "dataset")}


def _tables_of(
    work: Sequence[SplitTask],
    store: AnswerStore,
    shorten: Callable[[pd.DataFrame], pd.DataFrame],
    forget: pd.DataFrame | None,
    word: ToWord | None,
) -> dict[str, Iterable[pd.DataFrame]]:
    """The parts of every split's table; a language, or the draws until a word, made the forget set's."""
    tables: dict[str, Iterable[pd.DataFrame]] = {}
    for task in work:
        tables[task.split] = map(shorten, drawing.drawn_parts(store, task))
    if word is not None:
        tables["forget"] = word.subject.parts()
    elif forget is not None:
        tables["forget"] = [shorten(forget)]
    return tables


def _asked_how(
    sample: SampleSettings, forget: list[Row]
) -> tuple[Language | None, Mapping[tuple[str, str], Opening]]:
    """The language of the prompts, if any, and the conversations that go on after the first answer."""
    language = None
    if sample.language is not None:
        language = read_language(sample.language)
    conversations = drawing.openings(forget, language)
    _check_turns(conversations, sample, language)
    return language, conversations


def _choice(place: Path, sample: SampleSettings, estimate: bool) -> Path | None:
    """The file of the engine that a pilot chooses; None where no pilot does."""
    if estimate and sample.engine == "auto" and sample.n != "auto":
        return place / CHOICE
    return None


def _known_beforehand(
    source: Origin,
    rows: Mapping[str, list[Row]],
    sample: SampleSettings,
    model: ModelEntry,
    grows: bool,
) -> list[SplitTask]:
    """All prompts, where vLLM may draw, which opens a model for the longest; empty where prompts grow by what is drawn."""
    if isinstance(source, Endpoint) or grows:
        return []
    if sample.engine == "auto" and resolve_device("auto").type == "cpu":
        return []
    if sample.engine not in ("auto", "vllm"):
        return []
    return drawing.tasks(source, rows, sample, model)


def _options(
    sample: SampleSettings, model: ModelEntry, work: Sequence[SplitTask], at_once: int
) -> Options:
    """How an engine runs that draws ``work``, which is all prompts, or empty where prompts grow by what is drawn."""
    room = None
    if work:
        room = max(drawing.room_of(task.prompts, sample) for task in work)
    return Options.from_params(
        sample, at_once=at_once, room=room, adaptive=model.adaptive_threshold is not None
    )


def _models_at_once(name: str, rule: Rule | None) -> int:
    """How many models are open together: the model, and the Retrains beside it."""
    if rule is None or not rule.decides(name):
        return 1
    return 1 + len(rule.retrains)


def _tidy(store: AnswerStore, engine: Engine, goes_on: bool) -> None:
    """Remove the finished answers, or those of earlier weights alone where a larger cap or another tolerance ``goes_on``."""
    if goes_on:
        store.forget_others()
        return
    store.clear()
    if isinstance(engine, EndpointEngine):
        engine.clear()


def _may_choose(
    engine: Engine, work: Sequence[SplitTask], store: AnswerStore, choice: Path
) -> bool:
    """Whether no answer is drawn yet and no pilot has chosen an engine."""
    for task in work:
        if any((prompt, task.settings) in store for prompt in task.prompts):
            return False
    return engine.name == "prefix" and not recall(choice)


def _turns(
    name: str,
    forget: pd.DataFrame | None,
    task: SplitTask,
    conversations: Mapping,
    asking: drawing.Asking,
    shorten: Callable[[pd.DataFrame], pd.DataFrame],
) -> pd.DataFrame:
    """The answers to the follow-up questions after the first answers, which the store has where ``forget`` is None."""
    if forget is None:
        forget = pd.concat(drawing.drawn_parts(asking.store, task), ignore_index=True)
    label = f"sample {name} forget"
    return drawing.draw_turns(shorten(forget), conversations, asking, label, shorten)


def _write_more(folder: Path, tables: Mapping[str, pd.DataFrame | None]) -> None:
    """Write the tables that there are."""
    for file, table in tables.items():
        if table is not None:
            write_parquet(folder / file, table)


def _write_parts(folder: Path, tables: Mapping[str, Iterable[pd.DataFrame]]) -> dict[str, int]:
    """Write tables a part at a time, and return their numbers of rows."""
    counts = {}
    for name, parts in tables.items():
        counts[name] = write_parts(folder / f"{name}.parquet", parts)
    return counts


def _forget_task(work: Sequence[SplitTask]) -> SplitTask:
    """The task of the forget set, of which there is one."""
    (task,) = [task for task in work if task.split == "forget"]
    return task


def _to_word(name: str, subject: Drawer, sample: SampleSettings, judging: Judging) -> ToWord | None:
    """Draw until the word on the model is certain, beside the Retrains; None where there is none, as on Base and Retrain."""
    rule = judging.rule
    if not rule.decides(name):
        return None
    beside = {}
    for number, (retrain, model) in enumerate(rule.retrains.items()):
        beside[retrain] = _beside(retrain, model, number, sample, judging)
    label = f"sample {name} forget"
    try:
        word = draw_to_word(subject, beside, rule.policy(sample), judging, label)
    except Diverged:
        raise Diverged(name) from None
    print(f"{name}: {word.sentence()}.")
    return word


def _beside(
    retrain: str,
    model: ModelEntry,
    number: int,
    sample: SampleSettings,
    judging: Judging,
) -> Drawer:
    """The draws of a Retrain beside a model. All models share them: they depend on the Retrain and its place alone."""
    source = model.source
    rows = {"forget": [*judging.items.values()]}
    (task,) = drawing.tasks(source, rows, sample, model, f"{RETRAIN} {number}")
    settings = task.settings.model_copy(update={"greedy": False})
    task = replace(task, settings=settings)
    kept = SCRATCH / BESIDE / retrain

    def opened() -> tuple[Engine, AnswerStore]:
        place = kept / (task.settings.stream_of or "shared")
        for other in kept.glob("*"):  # of other weights, or of another law
            if other != place:
                shutil.rmtree(other, ignore_errors=True)
        options = _options(sample, model, [task], 1 + len(judging.rule.retrains))
        engine = _opened(source, sample, place, None, options)
        return engine, AnswerStore.of(source, engine, options, place)

    shorten = _within_budgets(judging.parts, sample, source)
    return Drawer(task, Grid.of(sample), opened, judging, shorten)


def _within_budgets(
    parts: Parts | None, sample: SampleSettings, source: Origin
) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """What shortens the answers of a table to the limits of thinking and of the answer, each by itself."""
    if parts is None or not sample.max_thinking_tokens or isinstance(source, Endpoint):
        return lambda table: table
    tokenizer = tokenizer_of(source)
    return lambda table: drawing.within_budgets(table, parts, tokenizer, sample)


def _announce(
    name: str,
    engine: Engine,
    work: Sequence[SplitTask],
    store: AnswerStore,
    conversations: Mapping,
    estimate: bool,
) -> float:
    """Say what the draws will take, and return the seconds; 0 where nothing tells them."""
    if isinstance(engine, EndpointEngine):
        plan = engine.plan([(task.prompts, task.settings) for task in work])
        n_followups = [len(opening.followups) for opening in conversations.values()]
        if n_followups:
            again = plural(max(n_followups), "follow-up question")
            plan += f"; up to {again} as often again"
        print(plan)
        return 0.0
    if not estimate:
        return 0.0
    expected = forecast(engine, work, store)
    if expected is None:
        return 0.0
    print(f"{name}: {expected.sentence}.")
    return expected.seconds


def _check_turns(conversations: Mapping, sample: SampleSettings, language: Language | None) -> None:
    """Raises `BadInput` where follow-up questions cannot be asked as the sample is drawn."""
    if not conversations:
        return
    first, _ = next(iter(conversations))
    problem = f"Question {first!r} has follow-up questions"
    if sample.stop != "fixed":
        raise BadInput(f"{problem}; then sample.stop must be 'fixed' (got {sample.stop!r}).")
    if language is not None and language.share is not None:
        share = f"{language.path} has the key share, whose prompts have one question each"
        raise BadInput(f"{problem}, and {share}: remove one of them.")


def _drawn(
    name: str,
    work: Sequence[SplitTask],
    forget: list[Row],
    language: Language | None,
    asking: drawing.Asking,
) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Draw every task into the store; return a language's table of the forget set, and the second sample.

    ``asking`` draws the forget set's answers in the language.
    """
    table = None
    prompts = None
    try:
        for task in work:
            label = f"sample {name} {task.split}"
            if language is None or task.split != "forget":
                asking.store.fill(asking.engine, task.prompts, task.settings, label)
                continue
            table = drawing.draw_in_language(language, forget, asking, label)
            if language.share is not None:  # its prompts are drawn over all questions
                random_prompts = f"{label}, random prompts"
                prompts = drawing.draw_prompts(language, forget, asking, random_prompts)
    except Diverged:
        raise Diverged(name) from None
    return table, prompts


def _opened(
    source: Origin,
    sample: SampleSettings,
    scratch: Path,
    choice: Path | None,
    options: Options,
) -> Engine:
    """The engine of a model: a server's, the one that a pilot chose, or that of the settings."""
    if not isinstance(source, Endpoint):
        prepare_torch()
        chosen = {"engine": sample.engine}
        if choice is not None:
            chosen = recall(choice) or chosen
        engine = open_engine(chosen["engine"], source, options)
        engine.reason = chosen.get("reason", engine.reason)
        return engine
    if sample.engine != "auto":
        raise BadValue("engine", sample.engine, "auto for a served model: the server draws")
    return EndpointEngine(source, scratch, sample.prompt == CHAT)


def _affordable(
    name: str,
    source: Origin,
    sample: SampleSettings,
    model: ModelEntry,
    rows: list[Row],
    engine: Engine,
) -> int:
    """The number of answers per forget question for ``sample.n: auto``, fixed before any is drawn."""
    (task,) = drawing.tasks(source, {"forget": rows}, sample, model)
    n = affordable(engine, task.prompts, task.settings, sample.row_budget)
    print(f"{name}: {n:,} answers to each forget question, for about {sample.row_budget:,} rows")
    return n
