"""lm-evaluation-harness: samples_*.jsonl, one line per document and filter, with the results file of the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from lethe.errors import BadFile, BadRow, BadValue, plural
from lethe.io.logs import _lm_eval_results as results
from lethe.io.logs._json import lines
from lethe.io.logs._lm_eval_line import Line, line_of
from lethe.io.logs._log import NOT_WRITTEN, Log, Table, number
from lethe.io.logs._sampling import SAME_TEXTS, chosen, copies

NAME = "lm-eval"
HOLDS = "lm-eval samples (samples_*.jsonl, with the results_*.json beside it)"
CHOICES = (
    "the texts are given choices, and the model drew no answer; the log-likelihoods of the choices are exact, so there is "
    "nothing to bound"
)
NOTHING = "None"  # lm-eval converts every answer to text, also a missing answer


def recognises(first: Mapping[str, object]) -> bool:
    """Whether the first members of a file identify this format."""
    return "doc_id" in first and ("resps" in first or "arguments" in first)


def read(path: Path, filter: str | None = None) -> Log:
    """Read all repeats of every document. A document has one line per filter, and all its lines hold the same `resps`.

    A line holds one value per metric. The value is the score of answer 1 where the filter took the first answer, one score
    per answer where the value is a list as long as the kept answers, and otherwise a score of the whole document.
    """
    run = results.find(path)
    table = Table(path)
    first: dict[str, Line] = {}
    filters: dict[str, None] = {}
    seen: dict[tuple[str, str], int] = {}
    for place, row in lines(path):
        line = line_of(path, place, row)
        filters[line.filter] = None
        key = (line.document, line.filter)
        if key in seen:
            raise BadRow(
                path,
                place,
                f"document {line.document!r} also appears under filter {line.filter!r} in line {seen[key]}",
            )
        seen[key] = place
        known = first.setdefault(line.document, line)
        if known.texts != line.texts:
            raise BadRow(path, place, f"document {line.document!r} has different answers in line {known.place}")
        if filter is None or line.filter == filter:
            _add(table, run, line, filter is not None)
    if filter is not None and filter not in filters:
        raise BadValue("--filter", filter, "one of " + ", ".join(map(repr, filters)) if filters else "left out")
    return _log(path, run, table, list(first.values()), filters)


def _add(table: Table, run: results.Run, line: Line, filtered: bool) -> None:
    """Add the scores of a line, and the answers that the table lacks."""
    document = line.document
    of_answers, of_document = _scores(run, line)
    if line.choices:
        for sample, (text, scores) in enumerate(zip(line.texts, line.choices, strict=True), start=1):
            if (document, sample) not in table:
                table.answer(document, sample, text, scores)
    else:
        texts = line.kept if filtered and line.kept and len(line.kept) == len(line.texts) else line.texts
        for sample, text in enumerate(texts, start=1):
            if (document, sample) not in table:
                table.answer(document, sample, text, {})
            table.score(document, sample, {name: values[sample - 1] for name, values in of_answers.items()})
    table.prompt(document, line.prompt, None if line.choices else run.repeats, of_document)


def _scores(run: results.Run, line: Line) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return values per answer (NaN where the metric scores no answer), and values of the document."""
    of_answers: dict[str, list[float]] = {}
    of_document: dict[str, float] = {}
    n = len(line.texts)
    for metric, value in line.metrics.items():
        name = f"{metric},{line.filter}"
        if isinstance(value, list):
            if n == len(value) and (n == 1 or (line.kept is not None and len(line.kept) == n)):
                of_answers[name] = [number(one) for one in value]
            continue
        of_document[name] = number(value)
        if not line.choices and n and (n == 1 or run.takes_first(line.filter)):
            of_answers[name] = [number(value)] + [math.nan] * (n - 1)
    return of_answers, of_document


def _log(path: Path, run: results.Run, table: Table, documents: list[Line], filters: Mapping[str, None]) -> Log:
    if not documents:
        raise BadFile(path, "holds no answers")
    choices = any(line.choices for line in documents)
    sampling = {} if choices else documents[0].settings or run.sampling
    repeats = table.most()
    reason = None if choices else run.greedy(sampling) if repeats > 1 else None
    warnings = [] if choices or repeats == 1 else chosen(sampling) + run.warnings(sampling)
    if not choices and table.equal_texts() and not reason:
        warnings.append(SAME_TEXTS)
    if nothing := sum(text == NOTHING for line in documents for text in line.texts if not choices):
        warnings.append(
            f"{plural(nothing, 'answer')} with the text {NOTHING}, which lm-eval also writes for a missing answer"
        )
    if run.documents is not None and run.documents > len(documents):
        table.absent(NOT_WRITTEN, (run.documents - len(documents)) * (run.repeats or repeats))
    found = table.finish()
    return Log(
        path=path,
        format=NAME,
        tool=run.tool,
        task=run.task,
        model=run.model,
        sampling=sampling,
        draws="choices" if choices else "copies" if reason else "sampled",
        refusal=CHOICES if choices else copies(reason, repeats) if reason else None,
        warnings=tuple(warnings),
        notes=tuple(_notes(run, documents, filters, found["scores"], repeats, choices)),
        stated=run.stated,
        **found,
    )


def _notes(
    run: results.Run,
    documents: list[Line],
    filters: Mapping[str, None],
    scores: tuple[str, ...],
    repeats: int,
    choices: bool,
) -> list[str]:
    notes = list(run.notes)
    if run.documents is not None and run.documents != len(documents):
        notes.append(f"the run had {run.documents} documents, the samples hold {len(documents)}")
    if len(filters) > 1:
        notes.append(f"filters {', '.join(filters)}: all filters hold the same answers, which count once")
    if repeats > 1 and not choices:
        once = sorted({name for name in scores if run.takes_first(name.rpartition(",")[2])})
        if once:
            notes.append(
                f"{', '.join(once)}: lm-eval scores only the first of {repeats} answers; score all answers with `lethe score`"
            )
        elif not scores:
            notes.append("lm-eval scores each document as a whole; score its answers with `lethe score`")
    if any(line.settings != documents[0].settings for line in documents):
        notes.append(
            "the sampling settings differ between documents; the settings of the first document are shown"
        )
    return notes
