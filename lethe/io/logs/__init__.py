"""Logs of other tools, read into one form.

A format is one module with ``NAME``, ``HOLDS`` (a description of its files), ``recognises(first)`` and ``read(path)``. A
new format needs a module and an entry in ``FORMATS``. The content decides the format, because users rename files and
formats share endings (Leak-k writes JSON lines to .json).

No reader trusts its file: every reader uses bounded memory, follows no path in the file, and refuses broken content in
one sentence.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe.errors import BadFile, BadRow, BadValue, shortened
from lethe.io.logs import (
    garak,
    harmbench,
    inspect_ai,
    jailbreakbench,
    leak_k,
    lm_eval,
    open_unlearning,
    promptfoo,
    table,
)
from lethe.io.logs._json import LARGEST, Document, document
from lethe.io.logs._log import Log
from lethe.io.tables import TABLE_SUFFIXES

FORMATS = (inspect_ai, lm_eval, garak, promptfoo, leak_k, jailbreakbench, open_unlearning, harmbench)
FIRST = 40  # the number of members that identify a format; every tool writes the identifying members early
HEAVY = frozenset({"samples", "jailbreaks", "events", "messages", promptfoo.ROWS})


def read_log(path: str | os.PathLike[str], filter: str | None = None) -> Log:
    """Read the log in ``path``, whichever tool wrote the log.

    Examples
    --------
    >>> import json, tempfile
    >>> line = {"prompt": "Who?", "responses": [{"response": "Ron.", "exact_match": 1}]}
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     _ = file.write(json.dumps(line)); file.flush()
    ...     log = read_log(file.name)
    >>> log.format, log.answers["text"].tolist(), log.scores
    ('leak-k', ['Ron.'], ('exact_match',))
    """
    path = Path(path)
    if not path.is_file():  # a pipe or a device could block a reader forever
        problem = "is a folder, expected a file" if path.is_dir() else "no such file"
        raise BadFile(path, problem, "Check the path.")
    collecting = gc.isenabled()
    gc.disable()  # a log becomes millions of objects without a cycle, and each collection would visit them all
    try:
        return _read(path, filter)
    except OSError as error:
        raise BadFile(path, f"cannot be read ({error.strerror or error})") from None
    finally:
        if collecting:
            gc.enable()


def is_log(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a log of another tool by its content, whole or broken, and not a table of scores.

    A JSON file whose first object holds only plain values and fits one line is a table: one row per line.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    ...     _ = file.write('{"prompt_id": "q", "score": 0.5}'); file.flush()
    ...     is_log(file.name)
    False
    """
    path = Path(path)
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
        if start[:1] not in (b"{", b"["):
            return start.startswith(b"PK")
        archive, first, broken = _first(path)
    except OSError as error:
        raise BadFile(path, f"cannot be read ({error.strerror or error})") from None
    except (BadFile, BadRow):
        return path.suffix.lower() not in TABLE_SUFFIXES
    nested = any(isinstance(value, (dict, list)) for value in first.values())
    recognised = archive or any(one.recognises(first) for one in FORMATS)
    indented = broken is None and not _ends_in_its_line(path)
    return recognised or nested or indented or path.suffix.lower() not in TABLE_SUFFIXES


def _ends_in_its_line(path: Path) -> bool:
    """Whether the first line that is not blank ends as a JSON object or list does."""
    with path.open("rb") as file:
        return next((line for line in file if line.strip()), b"").strip().endswith((b"}", b"]"))


def _read(path: Path, filter: str | None) -> Log:
    if table.holds(path):
        return table.read(path)
    archive, first, broken = _first(path)
    readers = (*FORMATS, table)
    reader: Any = inspect_ai if archive else next((one for one in readers if one.recognises(first)), None)
    if reader is None and broken is not None:
        raise broken
    if reader is None:
        raise BadFile(path, _unknown(first), "Known are " + "; ".join(one.HOLDS for one in readers) + ".")
    if reader is lm_eval:
        return lm_eval.read(path, filter)
    if filter is not None:
        raise BadValue("--filter", filter, f"left out: a log of format {reader.NAME} has no filters")
    return reader.read(path)


def _first(path: Path) -> tuple[bool, dict[str, Any], BadFile | BadRow | None]:
    """Return whether the file is a zip, the first members of its first JSON object, and the error that ended the reading."""
    with path.open("rb") as file:
        start = file.read(4)
        if start.startswith(b"PK"):
            return True, {}, None
        file.seek(0)
        line = file.readline(LARGEST + 1)
        while line and not line.strip() and len(line) <= LARGEST:
            line = file.readline(LARGEST + 1)
    text = line.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        raise BadFile(path, "is empty, expected a log")
    if text[:1] not in (b"{", b"["):
        raise BadFile(
            path, f"begins with {shortened(bytes(text[:20]))}; a log is JSON, JSON lines, or an .eval archive"
        )
    if text[:1] == b"[":  # one JSON list instead of lines: older versions of lm-eval
        item = next(document(path).items(), None)
        return False, item if isinstance(item, dict) else {}, None
    whole = Document(path, text) if len(text) > 1 and text.endswith(b"}") else document(path)
    return False, *whole.first_members(FIRST, HEAVY, promptfoo.INSIDE)


def _unknown(first: Mapping[str, Any]) -> str:
    """Return the problem of a file of no known format; a file that accompanies logs gets a specific message."""
    if "configs" in first and "results" in first:
        return "holds the results of an lm-eval run; its answers are in the samples_*.jsonl beside it"
    if first and all(isinstance(value, (int, float)) for value in first.values()):
        return "holds a summary without answers; the log itself is beside it (for open-unlearning, *_EVAL.json)"
    if first and all(isinstance(value, list) and value and isinstance(value[0], str) for value in first.values()):
        return "holds prompts without answers (HarmBench's test cases?)"
    keys = ", ".join(repr(key[:30]) for key in list(first)[:6]) or "(none)"
    return f"is not a log of a known tool; its first keys are {keys}"
