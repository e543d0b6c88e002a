"""Stage `sample@MODEL`: many answers per forget question, fewer per utility question, and the greedy answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.config.evaluating import Endpoint
from lethe.errors import BadInput, BadValue, plural
from lethe.io.artifacts import TURNS
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.json_files import write_json
from lethe.io.parts import write_parts
from lethe.io.tables import write_parquet

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import Model, Parts, Sample
    from lethe.data.prompt_language import Language
    from lethe.io.artifacts import Row
    from lethe.models.in_memory import Origin
    from lethe.sampling.engine import Engine
    from lethe.sampling.store import AnswerStore
    from lethe.sampling.tasks import Task


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

    With ``sample.language`` every draw of the forget set is a prompt of the language and its answer: the table has a
    column ``production``, ``language.json`` describes the language, and ``prompts/forget.parquet`` has the second sample.
    Follow-up questions of the forget set have their answers in ``turns/forget.parquet``.

    A temporary folder keeps finished prompts during the work; ``scratch`` names a permanent folder instead. ``source`` is
    a model that replaces the folder ``model.path``. ``estimate`` prints time and memory beforehand, from a short pilot.
    ``parts`` are the marks of the thinking, which ``sample.max_thinking_tokens`` limits.
    """
    import pandas as pd

    from lethe.data.prompt_language import as_json, read_language
    from lethe.sampling.endpoint import EndpointEngine
    from lethe.sampling.engine import Options
    from lethe.sampling.store import SCRATCH, AnswerStore
    from lethe.sampling.tasks import (
        about,
        chosen,
        draw_turns,
        drawn_parts,
        openings,
        speaker,
        tasks,
    )

    source = source or model.source
    rows = chosen(sample, root / "dataset")
    language = read_language(sample.language) if sample.language is not None else None
    conversations = openings(rows["forget"], language)
    _check_turns(conversations, sample, language)
    # A folder for each entry: another entry with equal weights removes the same answers when it is done.
    place = scratch or SCRATCH / name
    engine = _opened(source, sample, place)
    store = AnswerStore.of(source, engine, Options.from_params(sample), place)
    if sample.n == "auto":
        sample = sample.model_copy(update={"n": _affordable(name, source, sample, model, rows["forget"], engine)})
    work = tasks(source, rows, sample, model)
    _announce(name, engine, work, store, conversations, estimate)
    forget, prompts, decisions = _drawn(name, work, rows["forget"], source, sample, language, engine, store)
    shorten = _within_budgets(parts, sample, source)
    turns = None
    if conversations:
        (task,) = (task for task in work if task.split == "forget")
        first = shorten(pd.concat(drawn_parts(store, task), ignore_index=True) if forget is None else forget)
        asking = (speaker(source, sample.prompt), task.settings, engine, store)
        turns = draw_turns(first, conversations, *asking, f"sample {name} forget", shorten)
    counts: dict[str, int] = {}
    with atomic_folder(root / "generations" / name) as out:
        for task in work:
            tables = drawn_parts(store, task) if forget is None or task.split != "forget" else [forget]
            counts[task.split] = write_parts(out / f"{task.split}.parquet", map(shorten, tables))
        if language is not None:
            write_json(out / "language.json", {"schema": SCHEMA_VERSION, **as_json(language, rows["forget"])})
        if prompts is not None:
            write_parquet(out / "prompts" / "forget.parquet", prompts)
        if turns is not None:
            write_parquet(out / TURNS, turns)
        if decisions:
            write_json(out / "sequential.json", {"decisions": decisions, "decided_by": sample.sequential.scorer})
        write_json(out / "about.json", about(work, engine, sample, model))
    if scratch is None:
        store.clear()
        if isinstance(engine, EndpointEngine):
            engine.clear()
    print(f"{name}: answers drawn:", ", ".join(f"{split} {rows}" for split, rows in counts.items()))


def _within_budgets(parts: Parts | None, sample: Sample, source: Origin) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """What cuts the answers of a table to the budgets of thinking and answer; a server cuts its own."""
    from lethe.models.in_memory import tokenizer_of
    from lethe.sampling.tasks import within_budgets

    if parts is None or not sample.max_thinking_tokens or isinstance(source, Endpoint):
        return lambda table: table
    tokenizer = tokenizer_of(source)
    return lambda table: within_budgets(table, parts, tokenizer, sample)


def _announce(
    name: str, engine: Engine, work: Sequence[Task], store: AnswerStore, conversations: Mapping, estimate: bool
) -> None:
    """Say what the draws will take: the requests of a served model, time and memory of another by a pilot."""
    from lethe.sampling.endpoint import EndpointEngine
    from lethe.sampling.forecast import forecast

    if isinstance(engine, EndpointEngine):
        longest = max((len(own.followups) for own in conversations.values()), default=0)
        print(engine.plan([(task.prompts, task.settings) for task in work]), end="")
        print(f"; up to {plural(longest, 'follow-up question')} as often again" if longest else "")
    elif estimate and (words := forecast(engine, work, store)):
        print(f"{name}: {words}.")


def _check_turns(conversations: Mapping, sample: Sample, language: Language | None) -> None:
    if conversations and sample.stop != "fixed":
        raise BadInput(
            f"Question {next(iter(conversations))[0]!r} has follow-up questions; then sample.stop must be 'fixed' (got "
            f"{sample.stop!r})."
        )
    if conversations and language is not None and language.share is not None:
        raise BadInput(
            f"Question {next(iter(conversations))[0]!r} has follow-up questions, and {language.path} has the key share, "
            "whose prompts have one question each: remove one of them."
        )


def _drawn(
    name: str,
    work: Sequence[Task],
    forget: list[Row],
    source: Origin,
    sample: Sample,
    language: Language | None,
    engine: Engine,
    store: AnswerStore,
) -> tuple[pd.DataFrame | None, pd.DataFrame | None, list[dict]]:
    """Draw every task into the store, but for a forget set in a language or with a stopping rule.

    Returns the answers of such a forget set, the second sample of a language, and the decisions of a stopping rule.
    """
    from lethe.sampling.draws import Diverged
    from lethe.sampling.tasks import draw_in_language, draw_into, draw_prompts, draw_sequentially, speaker

    decisions: list[dict] = []
    table, prompts = None, None
    try:
        for task in work:
            label = f"sample {name} {task.split}"
            if sample.stop == "sequential" and task.split == "forget":
                items = {row["id"]: row for row in forget}
                table, decisions = draw_sequentially(task, items, engine, store, sample.sequential, label)
            elif language is not None and task.split == "forget":
                asking = (language, forget, speaker(source, sample.prompt), task.settings, engine, store)
                table = draw_in_language(*asking, label)
                if language.share is not None:  # its prompts are drawn over all questions
                    prompts = draw_prompts(*asking, f"{label}, random prompts")
            else:
                draw_into(store, task, engine, label)
    except Diverged:
        raise Diverged(name) from None
    return table, prompts, decisions


def _opened(source: Origin, sample: Sample, scratch: Path) -> Engine:
    from lethe.models.checkpoints import prepare_torch
    from lethe.models.encoding import CHAT
    from lethe.sampling.endpoint import EndpointEngine
    from lethe.sampling.engine import Options, open_engine

    if not isinstance(source, Endpoint):
        prepare_torch()
        return open_engine(sample.engine, source, Options.from_params(sample))
    if sample.engine != "auto":
        raise BadValue("engine", sample.engine, "auto for a served model: the server draws")
    return EndpointEngine(source, scratch, sample.prompt == CHAT)


def _affordable(name: str, source: Origin, sample: Sample, model: Model, rows: list[Row], engine: Engine) -> int:
    """The number of answers per forget question for ``sample.n: auto``, fixed before any is drawn."""
    from lethe.sampling.forecast import affordable
    from lethe.sampling.tasks import tasks

    (task,) = tasks(source, {"forget": rows}, sample, model)
    n = affordable(engine, task.prompts, task.settings, sample.row_budget)
    print(f"{name}: {n:,} answers to each forget question, for about {sample.row_budget:,} rows")
    return n
