"""Stage `sample@MODEL`: many answers per forget question, fewer per utility question, and the greedy answers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from lethe.config.measuring import Endpoint, Model, Parts, Sample
from lethe.data.prompt_language import Language, as_json, read_language
from lethe.errors import BadInput, BadValue, plural
from lethe.io.artifacts import TURNS, Row, write_parts
from lethe.io.cache import recall
from lethe.io.files import SCHEMA_VERSION, atomic_folder, write_json
from lethe.io.tables import write_parquet
from lethe.models.agreement import Diverged
from lethe.models.checkpoints import Origin, prepare_torch, tokenizer_of
from lethe.models.encoding import CHAT
from lethe.sampling import tasks as drawing
from lethe.sampling.endpoint import EndpointEngine
from lethe.sampling.engine import SCRATCH, AnswerStore, Engine, Options, open_engine
from lethe.sampling.forecast import affordable, forecast, quickest
from lethe.sampling.tasks import SplitTask

CHOICE = "engine.json"  # which engine a pilot chose for the answers in a folder


def run(
    name: str,
    sample: Sample,
    model: Model,
    root: Path = Path("data"),
    scratch: Path | None = None,
    source: Origin | None = None,
    estimate: bool = False,
    parts: Parts | None = None,
) -> None:
    """Draw the answers of every split; write ``root/generations/name``.

    With ``sample.language`` the forget set's table has a column ``production``, ``language.json`` describes the language, and
    ``prompts/forget.parquet`` has the second sample. Follow-up questions have their answers in ``turns/forget.parquet``.

    ``scratch`` names a permanent folder for finished prompts, and ``source`` a model that replaces ``model.path``.
    ``estimate`` prints time and memory beforehand and lets a pilot choose the engine; a stage must not, since its answers
    would follow from the time. ``parts`` are the marks of the thinking, which ``sample.max_thinking_tokens`` limits.
    """
    source = source or model.source
    rows = drawing.chosen(sample, root / "dataset")
    language = read_language(sample.language) if sample.language is not None else None
    conversations = drawing.openings(rows["forget"], language)
    _check_turns(conversations, sample, language)
    # A folder for each entry: another entry with equal weights removes the same answers when it is done.
    place = scratch or SCRATCH / name
    free = estimate and sample.engine == "auto" and sample.n != "auto"
    choice = place / CHOICE if free else None
    engine, options = _opened(source, sample, place, choice), Options.from_params(sample)
    store = AnswerStore.of(source, engine, options, place)
    if sample.n == "auto":
        sample = sample.model_copy(
            update={"n": _affordable(name, source, sample, model, rows["forget"], engine)}
        )
    work = drawing.tasks(source, rows, sample, model)
    seconds = _announce(name, engine, work, store, conversations, estimate)
    fresh = not any((one, task.settings) in store for task in work for one in task.prompts)
    if (
        choice
        and fresh
        and not recall(choice)
        and isinstance(source, Path)
        and engine.name == "prefix"
    ):
        engine = quickest(engine, seconds, source, options, work, choice)
        store = AnswerStore.of(source, engine, options, place)
    forget, prompts, decisions = _drawn(
        name, work, rows["forget"], source, sample, language, engine, store
    )
    shorten = _within_budgets(parts, sample, source)
    turns = None
    if conversations:
        (task,) = (task for task in work if task.split == "forget")
        first = (
            pd.concat(drawing.drawn_parts(store, task), ignore_index=True)
            if forget is None
            else forget
        )
        asking = drawing.Asking(
            drawing.speaker(source, sample.prompt), task.settings, engine, store
        )
        turns = drawing.draw_turns(
            shorten(first), conversations, asking, f"sample {name} forget", shorten
        )
    counts: dict[str, int] = {}
    with atomic_folder(root / "generations" / name) as out:
        for task in work:
            tables = (
                drawing.drawn_parts(store, task)
                if forget is None or task.split != "forget"
                else [forget]
            )
            counts[task.split] = write_parts(out / f"{task.split}.parquet", map(shorten, tables))
        if language is not None:
            write_json(
                out / "language.json",
                {"schema": SCHEMA_VERSION, **as_json(language, rows["forget"])},
            )
        if prompts is not None:
            write_parquet(out / "prompts" / "forget.parquet", prompts)
        if turns is not None:
            write_parquet(out / TURNS, turns)
        if decisions:
            write_json(
                out / "sequential.json",
                {"decisions": decisions, "decided_by": sample.sequential.scorer},
            )
        write_json(out / "about.json", drawing.about(work, engine, sample, model))
    if scratch is None:
        store.clear()
        if isinstance(engine, EndpointEngine):
            engine.clear()
    print(f"{name}: answers drawn:", ", ".join(f"{split} {rows}" for split, rows in counts.items()))


def _within_budgets(
    parts: Parts | None, sample: Sample, source: Origin
) -> Callable[[pd.DataFrame], pd.DataFrame]:
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
        longest = max((len(own.followups) for own in conversations.values()), default=0)
        print(engine.plan([(task.prompts, task.settings) for task in work]), end="")
        print(f"; up to {plural(longest, 'follow-up question')} as often again" if longest else "")
        return 0.0
    expected = forecast(engine, work, store) if estimate else None
    if expected is None:
        return 0.0
    print(f"{name}: {expected.sentence}.")
    return expected.seconds


def _check_turns(conversations: Mapping, sample: Sample, language: Language | None) -> None:
    if not conversations:
        return
    problem = f"Question {next(iter(conversations))[0]!r} has follow-up questions"
    if sample.stop != "fixed":
        raise BadInput(f"{problem}; then sample.stop must be 'fixed' (got {sample.stop!r}).")
    if language is not None and language.share is not None:
        share = f"{language.path} has the key share, whose prompts have one question each"
        raise BadInput(f"{problem}, and {share}: remove one of them.")


def _drawn(
    name: str,
    work: Sequence[SplitTask],
    forget: list[Row],
    source: Origin,
    sample: Sample,
    language: Language | None,
    engine: Engine,
    store: AnswerStore,
) -> tuple[pd.DataFrame | None, pd.DataFrame | None, list[dict]]:
    """Draw every task into the store; return a forget set's own table, the second sample, and a stopping rule's decisions."""
    decisions: list[dict] = []
    table, prompts = None, None
    try:
        for task in work:
            label = f"sample {name} {task.split}"
            if sample.stop == "sequential" and task.split == "forget":
                items = {row["id"]: row for row in forget}
                table, decisions = drawing.draw_sequentially(
                    task, items, engine, store, sample.sequential, label
                )
            elif language is not None and task.split == "forget":
                asking = drawing.Asking(
                    drawing.speaker(source, sample.prompt), task.settings, engine, store
                )
                table = drawing.draw_in_language(language, forget, asking, label)
                if language.share is not None:  # its prompts are drawn over all questions
                    prompts = drawing.draw_prompts(
                        language, forget, asking, f"{label}, random prompts"
                    )
            else:
                drawing.draw_into(store, task, engine, label)
    except Diverged:
        raise Diverged(name) from None
    return table, prompts, decisions


def _opened(source: Origin, sample: Sample, scratch: Path, choice: Path | None) -> Engine:
    if not isinstance(source, Endpoint):
        prepare_torch()
        chosen = (choice and recall(choice)) or {"engine": sample.engine}
        engine = open_engine(chosen["engine"], source, Options.from_params(sample))
        engine.reason = chosen.get("reason", engine.reason)
        return engine
    if sample.engine != "auto":
        raise BadValue("engine", sample.engine, "auto for a served model: the server draws")
    return EndpointEngine(source, scratch, sample.prompt == CHAT)


def _affordable(
    name: str, source: Origin, sample: Sample, model: Model, rows: list[Row], engine: Engine
) -> int:
    """The number of answers per forget question for ``sample.n: auto``, fixed before any is drawn."""
    (task,) = drawing.tasks(source, {"forget": rows}, sample, model)
    n = affordable(engine, task.prompts, task.settings, sample.row_budget)
    print(f"{name}: {n:,} answers to each forget question, for about {sample.row_budget:,} rows")
    return n
