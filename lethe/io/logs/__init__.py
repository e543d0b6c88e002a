"""Logs of other tools, and plain tables (`prompt_id, sample, text`), read into one form.

A new format needs an entry in `FORMATS`. The content decides the format, because users rename files and formats share
endings (Leak-k writes JSON lines to .json). No reader trusts its file: every reader uses bounded memory, follows no path in
the file, and refuses broken content in one sentence.
"""

import gc
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lethe.errors import BadFile, BadRow, BadValue, check, check_columns, plural, shortened
from lethe.io import ids
from lethe.io.answer_ends import CUT_OFF, missing_kind
from lethe.io.artifacts import GREEDY
from lethe.io.facts import of_column
from lethe.io.files import Json, check_file
from lethe.io.logs import benchmarks, inspect_ai, lm_eval, openai_batch, red_team
from lethe.io.logs._log import Format, Log, Table, as_text
from lethe.io.logs._untrusted import Source, decode, first_line
from lethe.io.tables import MAGIC, TABLE_SUFFIXES, file_line, frame_of, ids_as_text, read_table

RESPONSE = "target_response"
NAMELESS = "Unnamed:"  # what pandas calls a column without a name, such as row numbers
PROMPT = ("prompt", "question")
OWN = frozenset(
    (
        "prompt_id",
        "sample",
        "text",
        "tokens",
        "finish_reason",
        "mean_confidence",
        "thinking",
        "turn",
    )
)


def _is_table(path: Path) -> bool:
    """Whether the file is a CSV by its ending or a Parquet file by its content; JSON begins with a bracket."""
    with path.open("rb") as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith(MAGIC) or (
        path.suffix.lower() == ".csv" and start[:1] not in (b"{", b"[", b"P")
    )


def _read_table(source: Source | Path, by: str | None = None) -> Log:
    """Read the table. The greedy answer (sample -1) is no draw; without a column `sample`, the rows are numbered."""
    path = source if isinstance(source, Path) else source.path
    name = by or ids.PROMPT
    if isinstance(source, Path) or path.suffix.lower() in (".jsonl", ".json"):
        frame = _named(read_table(path, text=["text", RESPONSE], ids=[name], optional=["sample"]))
        if (
            path.suffix.lower() == ".csv" and "text" in frame
        ):  # which writes an empty answer as an empty cell
            frame["text"] = frame["text"].fillna("")
    else:  # JSON lines under another name
        frame = frame_of(path, [row for _, row in source.lines()], [name])
        ids_as_text(path, frame, [name])
    if (
        by is None
        and "text" in frame
        and name not in frame
        and (found := ids.candidates(frame, ()))
    ):
        named = ", ".join(map(repr, found))
        problem = f"no column {name!r}, and {named} may name the questions"
        raise BadFile(path, problem, f"Name the column with --by {found[0]} (by={found[0]!r}).")
    check_columns(path, (name, "text"), frame.columns)
    if (absent := frame[name].isna()).any():
        line = file_line(path, int(absent.to_numpy().argmax()))
        raise BadRow(path, line, f"{name} is missing", "Give each answer the id of its question.")
    if frame.empty:
        raise BadFile(path, "holds no rows", "Give one row per sampled answer.")
    names = [str(own) for own in frame[name]]
    samples = _samples(path, frame, names)
    scores = {one: frame[one].astype("float64").tolist() for one in _scored(frame)}
    asked = next((frame[one] for one in PROMPT if one in frame), [None] * len(frame))
    ends = frame.get("finish_reason", pd.Series([None] * len(frame)))
    rows = Table(path, first=0)
    for place, (prompt_id, sample, text, prompt) in enumerate(
        zip(names, samples, frame["text"], asked, strict=True)
    ):
        if sample == GREEDY:
            continue
        rows.prompt(prompt_id, as_text(prompt))
        if kind := missing_kind(ends.iloc[place]):
            rows.problem(prompt_id, sample, kind)
        elif isinstance(text, str):
            own = {score: column[place] for score, column in scores.items()}
            rows.answer(prompt_id, sample, text, own)
        elif text is None or text != text:
            rows.problem(prompt_id, sample, "no text")
        else:
            raise BadRow(
                path, file_line(path, place), f"column text: got {shortened(text)}, expected a text"
            )
    return rows.log("a table", means=of_column, scores=scores, notes=_notes(frame, samples))


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the names of columns of this format; JailbreakBench's judged answers have a response per row."""
    if RESPONSE not in frame or {"prompt_id", "text"} & set(frame.columns):
        return frame
    places = [str(place) for place in range(len(frame))]
    return frame.rename(columns={RESPONSE: "text"}).assign(prompt_id=places)


def _samples(path: Path, frame: pd.DataFrame, names: list[str]) -> list[int]:
    if "sample" not in frame:
        return [int(place) + 1 for place in frame.groupby(pd.Index(names), sort=False).cumcount()]
    samples = []
    for place, value in enumerate(frame["sample"]):
        try:
            samples.append(int(value))
            if samples[-1] != float(value):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            problem = f"column sample: got {shortened(value)}, expected a whole number"
            raise BadRow(path, file_line(path, place), problem) from None
    return samples


def _scored(frame: pd.DataFrame) -> list[str]:
    others = [
        name
        for name in frame.columns
        if str(name) not in (*OWN, *PROMPT) and not str(name).startswith(NAMELESS)
    ]
    return [
        name for name in others if pd.api.types.is_numeric_dtype(frame[name])
    ]  # also true and false


def _notes(frame: pd.DataFrame, samples: list[int]) -> list[str]:
    notes = []
    if greedy := samples.count(GREEDY):
        notes.append(f"{plural(greedy, 'greedy answer')} (sample {GREEDY}) left out: it is no draw")
    if "finish_reason" in frame and (cut := int((frame["finish_reason"] == CUT_OFF).sum())):
        notes.append(f"{plural(cut, 'answer')} cut at the maximum number of tokens")
    return notes


TABLE = Format(
    "table",
    "tables with prompt_id, text and optionally sample (.csv, .parquet, .jsonl), such as Lethe's generations",
    lambda first: "prompt_id" in first and "text" in first,
    _read_table,
)
FORMATS = (
    *(inspect_ai.FORMAT, lm_eval.FORMAT, red_team.GARAK, red_team.PROMPTFOO, benchmarks.LEAK_K),
    *(
        benchmarks.JAILBREAKBENCH,
        benchmarks.OPEN_UNLEARNING,
        benchmarks.HARMBENCH,
        benchmarks.HELM,
        openai_batch.FORMAT,
        TABLE,
    ),
)


def read_log(path: str | os.PathLike[str], filter: str | None = None, by: str | None = None) -> Log:
    """Read a log; ``by`` is the column of a plain table that names the questions, in place of `prompt_id`."""
    path = Path(path)
    check_file(path)
    collecting = gc.isenabled()
    gc.disable()  # a log becomes millions of objects without a cycle, and each collection would visit them all
    try:
        return _read(path, filter, by)
    except OSError as error:
        raise BadFile(path, f"cannot be read ({error.strerror or error})") from None
    finally:
        if collecting:
            gc.enable()


def is_log(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a log of another tool by its content, whole or broken, and not a table: flat objects, one a line."""
    path = Path(path)
    if not path.is_file():
        return False
    own_suffix = path.suffix.lower() not in TABLE_SUFFIXES
    try:
        line, number, _ = first_line(path)
        if line[:1] not in (b"{", b"["):
            return line.startswith(b"PK") or path.suffix.lower() == ".eval"
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
    recognised = any(one.recognises(first) for one in FORMATS if one is not TABLE)
    return own_suffix or _nested(first) or recognised


def _nested(first: Mapping[str, Json]) -> bool:
    return any(isinstance(value, (dict, list)) for value in first.values())


def _read(path: Path, filter: str | None, by: str | None) -> Log:
    if _is_table(path):
        return replace(_read_table(path, by), format=TABLE.name)
    with path.open("rb") as file:
        archive = file.read(2) == b"PK"
    source = None if archive else Source(path)
    first = source.first if source else {}
    if archive:
        form: Format | None = inspect_ai.FORMAT
    else:
        form = next((one for one in FORMATS if one.recognises(first)), None)
        if form is None and "text" in first and not _nested(first):
            form = (
                TABLE  # whose questions a column of another name names, which the reader asks for
            )
    if form is None:
        raise BadFile(
            path, _unknown(first), "Known are " + "; ".join(one.holds for one in FORMATS) + "."
        )
    if filter is not None and form is not lm_eval.FORMAT:
        raise BadValue("--filter", filter, f"left out: a log of format {form.name} has no filters")
    if form is TABLE:
        log = _read_table(source or path, by)
    else:
        legal = f"left out: a log of format {form.name} names its prompts"
        check(by is None, "by", by, legal)
        log = form.read(source or path, *([] if filter is None else [filter]))
    return replace(log, format=form.name)


def _unknown(first: Mapping[str, Json]) -> str:
    if "configs" in first and "results" in first:
        return (
            "holds the results of an lm-eval run; its answers are in the samples_*.jsonl beside it"
        )
    if first and all(isinstance(value, (int, float)) for value in first.values()):
        return "holds a summary without answers; the log itself is beside it (for open-unlearning, *_EVAL.json)"
    if first and all(
        isinstance(value, list) and value and isinstance(value[0], str) for value in first.values()
    ):
        return "holds prompts without answers (HarmBench's test cases?)"
    keys = ", ".join(repr(key[:30]) for key in list(first)[:6]) or "(none)"
    return f"is not a log of a known tool; its first keys are {keys}"
