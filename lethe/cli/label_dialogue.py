"""The labelling of answers by a person: at the terminal, a key each, or on a page of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import typer

from lethe.errors import BadInput, plural, visible

if TYPE_CHECKING:
    from lethe.labels.labels import Labels
    from lethe.labels.plan import LabelPlan
    from lethe.labels.queue import Queue


KEYS = {"y": 1, "1": 1, "n": 0, "0": 0}
END = ("q", "\x03", "\x04", "")  # q, Ctrl-C, Ctrl-D, and the end of the input
ReadKey = Callable[[], str]


def label_at_terminal(plan: LabelPlan, labels: Labels) -> None:
    """Ask a person for the labels that are left, one answer after the other, a key each."""
    place = visible(str(labels.path))
    unused = plan.unused(labels)
    if unused:
        others = "that this run and target do not ask for, kept"
        typer.echo(f"{place} has {plural(unused, 'label')} {others}.")
    if plan.ahead(labels) is not None:
        typer.echo(plan.sentence(labels))
        with _keys() as read_key:
            ask(plan, labels, read_key)
    typer.echo(f"Labelled: {plural(len(labels.by_answer), 'answer')}, in {place}.")
    if plan.ahead(labels) is not None:
        typer.echo("Labelling is not finished: run the same command again to continue.")


def label_on_page(plan: LabelPlan, labels: Labels) -> None:
    """Serve a page on this machine on which a person labels, until Ctrl-C; raises what made the server fail."""
    from lethe.report.label_page import LabelServer

    with LabelServer(plan, labels) as server:
        typer.echo(plan.sentence(labels), err=True)
        typer.echo(f"Label at {server.address} (Ctrl-C ends)", err=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
        if server.failed is not None:
            raise server.failed
    place = visible(str(labels.path))
    typer.echo(f"Labelled: {plural(len(labels.by_answer), 'answer')}, in {place}.", err=True)


def ask(
    queue: Queue, labels: Labels, read_key: ReadKey, show: Callable[[str], None] = typer.echo
) -> None:
    """Show one answer after the other and keep the label of each key, until nothing is left or a key ends it."""
    from lethe.labels.draws import Wanted

    questions = queue.draws.questions
    while True:
        ahead = queue.ahead(labels)
        if ahead is None:
            return
        draws = plural(queue.rest, "draw")
        place = f"a random draw of the rest, which bounds the average ({draws})"
        if ahead.asked.part == "mass":
            covered = f"{100 * ahead.covered:.1f}% of the mass"
            place = f"{covered} is labelled, until {100 * queue.reach:.1f}%"
        answer = ahead.answer
        wanted = queue.draws.wanted.get(answer.prompt_id, Wanted())
        compared = ""
        if wanted.reference:
            compared = f"Reference: {visible(wanted.reference)}\n"
        if wanted.keywords:
            compared += f"Keywords: {visible(', '.join(wanted.keywords))}\n"
        show(
            f"\n--- {place}; {ahead.left:,} to read\n"
            f"Question: {visible(questions.get(answer.prompt_id, answer.prompt_id))}\n{compared}"
            f"Answer ({ahead.count} of {plural(ahead.draws, 'draw')}): {visible(answer.text) or '(empty)'}\n"
            "y a leak, n no leak, u undo, q stop"
        )
        while True:
            key = read_key().lower()
            if key in END:
                return
            if key in KEYS:
                labels.add(ahead.answer, KEYS[key], ahead.asked, questions)
                break
            if key == "u" and labels.undo(questions, len(labels.by_answer)):
                break


@contextmanager
def _keys() -> Iterator[ReadKey]:
    """Single keys of the terminal, without Enter and without echo; the terminal is as before at the end."""
    import termios
    import tty

    if not sys.stdin.isatty():
        problem = "lethe label reads keys from a terminal, and standard input is no terminal"
        raise BadInput(f"{problem}: use --json for the bounds.")
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setcbreak(terminal)
        yield lambda: os.read(terminal, 1).decode(errors="replace")
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
