"""Answers as MLflow traces, which people judge on its pages, and their feedback as labels."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.entities import AssessmentSource, Feedback, Trace

from lethe.errors import BadInput, BadValue, LetheError, plural, shortened
from lethe.io.files import Json
from lethe.labels.labels import AnswerText, LabelReason, Labels, digest_of
from lethe.labels.queue import Queue
from lethe.tracking import answers, store, without_password
from lethe.tracking.runs import client_of, experiment_of
from lethe.tracking.tables import plain

EXPERIMENT = "lethe labels"
MOST = 50  # traces of a model: a page that a person reads in a sitting
ANSWER = "lethe.answer"  # tag of a trace: the digest of id, question and text
FEEDBACK = "leaks"  # name of the feedback that is a label
HUMAN = "HUMAN"
PAGE = 100
# Traces are written one after another: the threads of MLflow's default lock a database of SQLite against each other.
NO_THREADS = ("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
VALUES: dict[Json, int] = {True: 1, False: 0, "true": 1, "false": 0, "yes": 1, "no": 0}


def show(queue: Queue, labels: Labels, worst: int = 0) -> str:
    """Log the labelled answers with their labels, then the ``worst`` ones (`Queue.worst`), and the next ones that the queue
    asks for; return a sentence.

    A model has at most `MOST` traces, those of earlier calls among them. An answer that has a trace gets no second one.
    """
    with _opened() as opened:
        return _show(queue, labels, worst, *opened)


def _show(
    queue: Queue,
    labels: Labels,
    worst: int,
    client: MlflowClient,
    experiment: str,
    address: str,
) -> str:
    known = {trace.info.tags.get(ANSWER) for trace in _traces(client, experiment)}
    of_model = set()
    for answers_to_question in queue.draws.answers.values():
        for drawn in answers_to_question:
            if drawn is not None:
                of_model.add(digest_of(drawn, queue.draws.questions))
    room = MOST - len(known & of_model)
    made = 0
    for answer, label in _to_show(queue, labels, worst):
        digest = digest_of(answer, queue.draws.questions)
        if digest in known or made >= room:
            continue
        question = queue.draws.questions.get(answer.prompt_id, answer.prompt_id)
        span = mlflow.start_span_no_context(
            "answer",
            inputs={"question": plain(question), "prompt_id": plain(answer.prompt_id)},
            tags={ANSWER: digest},
            experiment_id=experiment,
        )
        span.end(outputs={"answer": plain(answer.text)})
        known.add(digest)
        made += 1
        if label is not None:
            source = AssessmentSource(HUMAN, labels.path.name)
            mlflow.log_feedback(
                trace_id=span.trace_id, name=FEEDBACK, value=bool(label), source=source
            )
    kept = {trace.info.tags.get(ANSWER) for trace in _traces(client, experiment)}
    lost = len(known - kept)
    if lost:
        problem = f"{plural(lost, 'trace')} of {made} did not arrive at {address}"
        raise LetheError(f"MLflow: {problem}. Call again: an answer gets one trace.")
    full = ""
    if made >= room:
        full = f"A model has at most {MOST}: label further answers with lethe label alone. "
    return (
        f"MLflow: {plural(made, 'new trace')} in experiment {EXPERIMENT!r} at {address}. {full}Give each the feedback "
        f"{FEEDBACK!r}, true or false, and call again with --from-mlflow."
    )


def _to_show(
    queue: Queue, labels: Labels, worst: int = 0
) -> Iterator[tuple[AnswerText, int | None]]:
    """The labelled answers with their labels, then the worst ones, then the others in the order of the queue."""
    for answer, label in labels.by_answer.items():
        yield answer, label
    for answer in [*queue.worst(worst), *queue.chosen, *(answer for answer, _ in queue.sampled)]:
        if answer not in labels.by_answer:
            yield answer, None


def take(queue: Queue, labels: Labels, worst: int = 0) -> str:
    """Add people's feedback as labels, in the order of the queue, up to the first answer without feedback, and before these
    that on the ``worst`` answers.

    A person may judge answers in any order. The random draws of the rest bound the average only if no label decides which of
    them count, so a feedback after the first gap waits.
    """
    with _opened() as (client, experiment, address):
        label_of_digest = _labels(_traces(client, experiment))
    questions = queue.draws.questions
    _refuse_other_labels(labels, label_of_digest, questions)
    taken = 0
    for answer in queue.worst(worst):
        label = label_of_digest.get(digest_of(answer, questions))
        if answer not in labels.by_answer and label is not None:
            asked = queue.requested().get(answer, LabelReason("mass", queue.target, queue.rest))
            labels.add(answer, label, asked, questions)
            taken += 1
    while True:
        ahead = queue.ahead(labels)
        if ahead is None or digest_of(ahead.answer, questions) not in label_of_digest:
            break
        label = label_of_digest[digest_of(ahead.answer, questions)]
        labels.add(ahead.answer, label, ahead.asked, questions)
        taken += 1
    waiting = _waiting(queue, labels, label_of_digest)
    sentence = f"MLflow: {plural(taken, 'new label')} from {address}."
    if waiting and queue.ahead(labels) is None:
        sentence += (
            f" {plural(waiting, 'feedback')} is not taken: no further label changes a bound."
        )
    elif waiting:
        sentence += f" {plural(waiting, 'feedback')} waits for an earlier answer that has none."
    return sentence


def _refuse_other_labels(
    labels: Labels, label_of_digest: Mapping[str, int], questions: Mapping[str, str]
) -> None:
    """Raise `BadInput` where a feedback contradicts a label of the file, as after a person changed their mind."""
    for answer, label in labels.by_answer.items():
        if label_of_digest.get(digest_of(answer, questions), label) != label:
            problem = (
                f"an answer to {shortened(answer.prompt_id)} has the label {label} in {labels.path}"
            )
            remedy = "Correct the line of the file, or the feedback on the page."
            raise BadInput(f"MLflow: {problem}, and the other as feedback. {remedy}")


def _waiting(queue: Queue, labels: Labels, label_of_digest: Mapping[str, int]) -> int:
    waiting = set()
    for answer, _ in _to_show(queue, labels):
        digest = digest_of(answer, queue.draws.questions)
        if answer not in labels.by_answer and digest in label_of_digest:
            waiting.add(answer)
    return len(waiting)


def _labels(traces: Iterator[Trace]) -> dict[str, int]:
    """The label of each answer by its digest. Raises `BadInput` where two people disagree on an answer."""
    label_of_digest: dict[str, int] = {}
    for trace in traces:
        digest = trace.info.tags.get(ANSWER)
        for assessment in trace.info.assessments:
            if digest is None or not isinstance(assessment, Feedback):
                continue
            is_by_person = assessment.source.source_type == HUMAN
            if assessment.name != FEEDBACK or not is_by_person:
                continue
            if assessment.valid is False:  # a later feedback took its place
                continue
            label = _label(assessment.value, trace.info.trace_id)
            if label_of_digest.setdefault(digest, label) != label:
                problem = (
                    f"trace {trace.info.trace_id} has the feedback {FEEDBACK!r} true and false"
                )
                raise BadInput(f"MLflow: {problem}. Delete one of them on its page.")
    return label_of_digest


def _label(value: Json, trace_id: str) -> int:
    key = value.strip().lower() if isinstance(value, str) else value
    if not isinstance(key, (bool, str)) or key not in VALUES:
        raise BadValue(
            f"feedback {FEEDBACK} of trace {trace_id}", shortened(value), "true or false"
        )
    return VALUES[key]


def _traces(client: MlflowClient, experiment: str) -> Iterator[Trace]:
    token = None
    while True:
        page = client.search_traces(
            locations=[experiment], max_results=PAGE, page_token=token, include_spans=False
        )
        yield from page
        token = page.token
        if not token:
            return


@contextmanager
def _opened() -> Iterator[tuple[MlflowClient, str, str]]:
    """The client, the experiment of labels, and the address without a password.

    A trace goes to the address of the whole process, which is as before at the end.
    """
    before = os.environ.get("MLFLOW_TRACKING_URI")
    os.environ.setdefault(*NO_THREADS)
    home = Path.cwd()
    uri = before or store(home)
    address = without_password(uri)
    if not answers(uri):
        raise LetheError(
            f"MLflow: {address} does not answer. Start the server, or unset MLFLOW_TRACKING_URI."
        )
    mlflow.set_tracking_uri(uri)
    try:
        client = client_of(uri)
        place = (home / ".lethe/mlruns").as_uri() if uri.startswith("sqlite:") else None
        yield client, experiment_of(client, place, EXPERIMENT), address
    finally:
        # None unsets the address, which MLflow's annotation leaves out.
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]
