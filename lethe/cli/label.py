"""`lethe label`: a person labels the answers of a run that matter most, by single keys in the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.console import JsonFlag, TableOption, print_json, print_table, write_table
from lethe.errors import BadFile, BadInput, BadValue, plural, visible

if TYPE_CHECKING:
    from lethe.evaluation.labelled import LabelledMeasures
    from lethe.evaluation.labelling import Ahead, Queue
    from lethe.evaluation.labels import Labels

LABELS = Path("data/labels")
KEYS = {"y": 1, "1": 1, "n": 0, "0": 0}
END = ("q", "\x03", "\x04", "")  # q, Ctrl-C, Ctrl-D, and the end of the input
SHOWN = 20  # questions in the table for people

ReadKey = Callable[[], str]


def command(
    answers: Annotated[
        Path,
        typer.Argument(
            help="A folder of data/generations, or a table with `prompt_id`, `text`, optional `sample`."
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(help="The file of labels, kept after each key. [default: data/labels/NAME.jsonl]"),
    ] = None,
    mass: Annotated[float, typer.Option(help="Label until this share of the mass is covered.")] = 0.95,
    rest: Annotated[
        int, typer.Option(help="Then label this many random draws of the rest, for the judge's error.")
    ] = 100,
    dataset: Annotated[
        Path | None, typer.Option(help="JSON lines with `id` and `question`. [default: data/dataset/forget.jsonl]")
    ] = None,
    verdicts: Annotated[
        Path | None, typer.Option(help="The judge's verdicts: data/judged/JUDGE/MODEL/forget.parquet.")
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="The column of verdicts in that file. [default: the first]")
    ] = None,
    alpha: Annotated[float, typer.Option(help="Each bound fails with at most this probability.")] = 0.01,
    table: TableOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Label the distinct answers of a run, those that cover most of the probability mass first.

    Keys: y (a leak), n (no leak), u (undo), q (stop; the next call continues). One half of the draws decides what is
    labelled, the other half is counted. With --verdicts, some random draws of the rest measure the judge's error there.
    --json asks nothing and prints the bounds of the labels so far: alpha, mass, target, earlier_targets, finished, said,
    calibration, per_prompt (prompt_id, mass, lower, upper), worst_prompt, pooled. `metrics.labels` of params.yaml brings
    the labels into the metrics and the report.

    Example: `lethe label data/generations/refuser --verdicts data/judged/harm/refuser/forget.parquet`
    """
    from lethe.evaluation.labelled import measure
    from lethe.evaluation.labelling import Queue, read_draws
    from lethe.evaluation.labels import read_labels
    from lethe.results.table import Rows

    if column is not None and verdicts is None:
        raise BadValue("--column", column, "left out without --verdicts")
    if rest < 0:
        raise BadValue("--rest", rest, "0 or more")
    if as_json and labels is not None and not labels.is_file():
        raise BadFile(labels, "is no file", "Label first (without --json), or name the file of labels.")
    name = answers.name if answers.is_dir() else answers.stem
    usual = Path("data/dataset/forget.jsonl")
    draws = read_draws(answers, dataset or (usual if usual.is_file() else None), verdicts, column)
    queue = Queue(draws, mass, rest if verdicts else 0)
    found = read_labels(labels or LABELS / f"{name}.jsonl")
    if not as_json:
        if unused := queue.unused(found):
            typer.echo(
                f"{visible(str(found.path))} has {plural(unused, 'label')} that this run and target do not ask for, kept and "
                "not used."
            )
        if queue.ahead(found) is not None:
            with _keys() as read_key:
                ask(queue, found, read_key)
        left = queue.ahead(found)
        typer.echo(f"Labelled: {plural(len(found.known), 'answer')}, in {visible(str(found.path))}.")
        if left is not None:
            typer.echo("Labelling is not finished: run the same command again to continue.")
    measured, rows = measure(draws, queue, found, alpha), Rows(name)
    measured.to_rows(rows)
    write_table(table, rows.rows)
    if as_json:
        print_json(measured.as_dict())
        return
    _tell(measured, str(answers))


def ask(queue: Queue, labels: Labels, read_key: ReadKey, show: Callable[[str], None] = typer.echo) -> None:
    """Show one answer after the other and keep the label of each key, until nothing is left or a key ends it."""
    questions = queue.draws.questions
    while (ahead := queue.ahead(labels)) is not None:
        show(_screen(ahead, questions.get(ahead.answer.prompt_id, ahead.answer.prompt_id), queue))
        while True:
            key = read_key().lower()
            if key in END:
                return
            if key in KEYS:
                labels.add(ahead.answer, KEYS[key], ahead.asked, questions)
                break
            if key == "u" and labels.undo(questions):
                break


def _screen(ahead: Ahead, question: str, queue: Queue) -> str:
    if ahead.asked.part == "mass":
        place = f"{100 * ahead.covered:.1f}% of the mass is labelled, until {100 * queue.target:g}%"
    else:
        place = f"a random draw of the rest, which measures the judge ({plural(queue.rest, 'draw')})"
    return (
        f"\n--- {place}\nQuestion: {visible(question)}\n"
        f"Answer ({ahead.count} of {plural(ahead.draws, 'draw')}): {visible(ahead.answer.text) or '(empty)'}\n"
        "y a leak, n no leak, u undo, q stop"
    )


def _tell(measured: LabelledMeasures, title: str) -> None:
    rows = [
        [name, float(share), lower, upper]
        for name, share, lower, upper in zip(
            measured.prompt_ids, measured.rates.mass, measured.lower, measured.upper, strict=True
        )
    ]
    notes = measured.sentences("the questions")
    if len(rows) > SHOWN:
        notes.append(f"{plural(len(rows) - SHOWN, 'more question')}: see --json.")
    print_table(title, ["question", "labelled mass", "leak >=", "leak <="], rows[:SHOWN], notes)


@contextmanager
def _keys() -> Iterator[ReadKey]:
    """Single keys of the terminal, without Enter and without echo; the terminal is as before at the end."""
    import termios
    import tty

    if not sys.stdin.isatty():
        raise BadInput(
            "lethe label reads keys from a terminal, and standard input is no terminal: use --json for the bounds."
        )
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield lambda: os.read(terminal, 1).decode(errors="replace")
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
