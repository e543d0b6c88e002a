"""A person's labels by single keys in the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from lethe.errors import BadInput, plural, visible

if TYPE_CHECKING:
    from lethe.evaluation.labels import Ahead, Labels, Queue

KEYS = {"y": 1, "1": 1, "n": 0, "0": 0}
END = ("q", "\x03", "\x04", "")  # q, Ctrl-C, Ctrl-D, and the end of the input

ReadKey = Callable[[], str]


def label_at_terminal(queue: Queue, labels: Labels) -> None:
    """Ask for labels, and say where they are."""
    place = visible(str(labels.path))
    if unused := queue.unused(labels):
        typer.echo(
            f"{place} has {plural(unused, 'label')} that this run and target do not ask for, kept and not used."
        )
    if queue.ahead(labels) is not None:
        with _keys() as read_key:
            ask(queue, labels, read_key)
    typer.echo(f"Labelled: {plural(len(labels.known), 'answer')}, in {place}.")
    if queue.ahead(labels) is not None:
        typer.echo("Labelling is not finished: run the same command again to continue.")


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
