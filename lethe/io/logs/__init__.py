"""Logs of other tools, read into one form.

A format is a `Format`: its name, a description of its files, whether it recognises the first JSON object of a file, and
what reads the file. A new format needs an entry in `FORMATS`. The content decides the format, because users rename files
and formats share endings (Leak-k writes JSON lines to .json).

No reader trusts its file: every reader uses bounded memory, follows no path in the file, and refuses broken content in
one sentence.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe.errors import BadFile, BadRow, BadValue
from lethe.io.logs import benchmarks, garak, helm, inspect_ai, lm_eval, promptfoo, table
from lethe.io.logs._log import Log
from lethe.io.logs._untrusted import Source, decode, first_line
from lethe.io.tables import TABLE_SUFFIXES

FORMATS = (
    *(inspect_ai.FORMAT, lm_eval.FORMAT, garak.FORMAT, promptfoo.FORMAT, benchmarks.LEAK_K),
    *(benchmarks.JAILBREAKBENCH, benchmarks.OPEN_UNLEARNING, benchmarks.HARMBENCH, helm.FORMAT, table.FORMAT),
)


def read_log(path: str | os.PathLike[str], filter: str | None = None) -> Log:
    """Read the log in ``path``, whichever tool wrote the log."""
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
    """
    path = Path(path)
    if not path.is_file():
        return False
    own_suffix = path.suffix.lower() not in TABLE_SUFFIXES
    try:
        line, number, _ = first_line(path)
        if line[:1] not in (b"{", b"["):
            return line.startswith(b"PK")
        if not line.endswith((b"}", b"]")):
            return path.suffix.lower() != ".csv"  # a header may begin with a bracket
        first = decode(path, line, number)
    except OSError as error:
        raise BadFile(path, f"cannot be read ({error.strerror or error})") from None
    except (BadFile, BadRow):
        return own_suffix
    if isinstance(first, list):
        first = next(iter(first), None)
    if not isinstance(first, dict):
        return own_suffix
    nested = any(isinstance(value, (dict, list)) for value in first.values())
    return own_suffix or nested or any(one.recognises(first) for one in FORMATS if one is not table.FORMAT)


def _read(path: Path, filter: str | None) -> Log:
    if table.holds(path):
        return table.read(path)
    with path.open("rb") as file:
        archive = file.read(2) == b"PK"
    source: Any = path if archive else Source(path)
    form = inspect_ai.FORMAT if archive else next((one for one in FORMATS if one.recognises(source.first)), None)
    if form is None:
        raise BadFile(path, _unknown(source.first), "Known are " + "; ".join(one.holds for one in FORMATS) + ".")
    if form is lm_eval.FORMAT:
        return lm_eval.read(source, filter)
    if filter is not None:
        raise BadValue("--filter", filter, f"left out: a log of format {form.name} has no filters")
    return form.read(source)


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
