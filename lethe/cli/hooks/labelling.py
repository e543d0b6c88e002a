"""What `lethe label` adds: where a person is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lethe.cli.label_dialogue import label_at_terminal, label_on_page
from lethe.cli.outcome import Arguments, Outcome
from lethe.errors import BadFile, BadValue, check

if TYPE_CHECKING:
    from lethe.api import labelling
    from lethe.labels.labels import Labels
    from lethe.labels.queue import Queue


def label(
    call: Callable[..., labelling.LabelledBounds],
    arguments: Arguments,
    page: bool = False,
    to_mlflow: bool = False,
    from_mlflow: bool = False,
    worst: int = 0,
    as_json: bool = False,
) -> Outcome:
    """Ask a person at the terminal, unless JSON is wanted; or on a page of this machine; or by traces in MLflow.

    Parameters
    ----------
    page : Ask on a page of this machine (127.0.0.1, an address with a random key) until Ctrl-C or "Pause".
    to_mlflow : Log the labelled answers and the next ones as traces in MLflow, at most 50 over all calls, and ask nothing.
    from_mlflow : Take people's feedback "leaks" (true or false) on these traces as labels, and ask nothing.
    worst : With MLflow, also show (or take) this many answers that the verdicts call leaks, of the worst questions first.
    """
    check(worst >= 0, "worst", worst, "a whole number of at least 0")
    in_mlflow = to_mlflow or from_mlflow
    check(worst == 0 or in_mlflow, "worst", worst, "given with --to-mlflow or --from-mlflow")
    labels = arguments.get("labels")
    if page and in_mlflow:
        raise BadValue("--page", "together with MLflow", "a page, or MLflow", "Leave one out.")
    if page:
        return Outcome(call(**arguments, ask=label_on_page))
    if in_mlflow:
        return _label_in_mlflow(call, arguments, to_mlflow, from_mlflow, worst)
    if as_json and labels is not None and not labels.is_file():
        raise BadFile(
            labels, "is no file", "Label first (without --json), or name the file of labels."
        )
    return Outcome(call(**arguments) if as_json else call(**arguments, ask=label_at_terminal))


def _label_in_mlflow(
    call: Callable[..., labelling.LabelledBounds],
    arguments: Arguments,
    show: bool,
    take: bool,
    worst: int,
) -> Outcome:
    """Labels from MLflow first, so that what is shown then is what is still asked."""
    from lethe.tracking import feedback

    said: list[str] = []

    def ask(queue: Queue, labels: Labels) -> None:
        if worst and not queue.draws.verdicts:
            raise BadValue("worst", worst, "left out where no verdicts of the answers are at hand")
        if take:
            said.append(feedback.take(queue, labels, worst))
        if show:
            said.append(feedback.show(queue, labels, worst))

    return Outcome(call(**arguments, ask=ask), {"mlflow": " ".join(said)}, said)
