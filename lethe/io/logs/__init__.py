"""Logs of other tools, and plain tables (`prompt_id, sample, text`), read into one form.

A new format is a module that `READERS` names. The content decides the format, because users rename files and formats share
endings (Leak-k writes JSON lines to .json). No reader trusts its file: every reader uses bounded memory, follows no path in
the file, and refuses broken content in one sentence.
"""

import gc
import importlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lethe.errors import (
    BadFile,
    BadRow,
    BadValue,
    MissingColumn,
    check,
    check_columns,
    plural,
    shortened,
)
from lethe.io import csv_form, ids
from lethe.io.answer_ends import CUT_OFF
from lethe.io.artifacts import GREEDY
from lethe.io.cells import NoNumber, numbers_of
from lethe.io.column_names import meant
from lethe.io.facts import CACHED, cached_rows, mixed_rows, of_column, reasons_in, says_stopped
from lethe.io.files import Json, check_file, check_text
from lethe.io.logs._json import as_text
from lethe.io.logs._log import Format, Log, is_request
from lethe.io.logs._settings import RequestSettings, laws_among, setting_of, with_draws
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import JsonFile, first_line
from lethe.io.packed import opened, suffix_of
from lethe.io.row_ends import ERRORS, STATUSES, missing_kinds
from lethe.io.tables import MAGIC, TABLE_SUFFIXES, file_line, frame_of, ids_as_text, read_table

RESPONSE = "target_response"
PROMPT = ("prompt", "question")
# Columns of an answer of Lethe, none of which is a score.
ANSWER_COLUMNS = frozenset(
    "prompt_id sample text tokens finish_reason mean_confidence thinking turn".split()
)


def _is_table(path: Path) -> bool:
    """Whether the file is a CSV by its ending or a Parquet file by its content; JSON begins with a bracket."""
    with opened(path) as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(MAGIC):
        return True
    return suffix_of(path) in csv_form.SUFFIXES and start[:1] not in (b"{", b"[", b"P")


def _read_table(source: JsonFile | Path, by: str | None = None) -> Log:
    """Read the table. The greedy answer (sample -1) is no draw; without a column `sample`, the rows are numbered."""
    path = source if isinstance(source, Path) else source.path
    name = by or ids.PROMPT
    frame = _frame(source, path, name)
    _check_columns(path, frame, name, is_named=by is not None)
    names = [str(identity) for identity in frame[name]]
    samples = _samples(path, frame, names)
    score_columns = _scored(frame)
    prompts = _optional(frame, *PROMPT)
    kinds = missing_kinds(frame)
    table = Table(path, first=0)
    for place, text in enumerate(frame["text"]):
        prompt_id = names[place]
        sample = samples[place]
        if sample == GREEDY:
            continue
        table.prompt(prompt_id, as_text(prompts[place]))
        kind = kinds[place]
        if kind:
            table.problem(prompt_id, sample, kind)
        elif isinstance(text, str):
            scores = {score: values[place] for score, values in score_columns.items()}
            table.answer(prompt_id, sample, text, scores)
        elif is_missing(text):
            table.problem(prompt_id, sample, "no text")
        else:
            problem = f"column text: got {shortened(text)}, expected a text"
            raise BadRow(path, file_line(path, place), problem)
    notes = _notes(frame, samples)
    settings = RequestSettings()
    drawn = with_draws(frame[[sample != GREEDY for sample in samples]])
    settings.add_rows(drawn)
    stated = settings.of_log()
    stated["mixed"] = mixed_rows(drawn, name, settings=laws_among(drawn))
    stated["repeats"] = cached_rows(drawn)
    return table.log(
        "a table",
        **stated,
        means=of_column,
        scores=score_columns,
        notes=notes,
        stopping="early" if says_stopped(frame) else "fixed",
        reasons=reasons_in(frame),
    )


def is_missing(value: object) -> bool:
    """Whether a cell is null, or the NaN of an empty cell."""
    return value is None or value != value


def _frame(source: JsonFile | Path, path: Path, name: str) -> pd.DataFrame:
    suffix = suffix_of(path)
    if isinstance(source, JsonFile) and suffix not in (".jsonl", ".json"):
        # JSON lines under another name
        rows = []
        for number, row in source.lines():
            check_text(path, number, row)
            rows.append(row)
        frame = frame_of(path, rows, [name])
        ids_as_text(path, frame, [name])
        return frame
    frame = read_table(path, text=["text", RESPONSE], ids=[name], optional=["sample"])
    frame = _with_our_names(frame)
    if (
        suffix in csv_form.SUFFIXES and "text" in frame
    ):  # a CSV has an empty answer as an empty cell
        frame["text"] = frame["text"].fillna("")
    return frame


def _check_columns(path: Path, frame: pd.DataFrame, name: str, *, is_named: bool) -> None:
    """Refuse a table without rows, without texts, or whose answers have no questions."""
    if "text" in frame and name not in frame and not is_named:
        found = ids.candidates(frame, ())
        if found:
            named = ", ".join(map(repr, found))
            problem = f"no column {name!r}, and {named} may name the questions"
            remedy = f"Name the column with --by {found[0]} (by={found[0]!r})."
            raise BadFile(path, problem, remedy)
    if is_named and name not in frame:
        raise MissingColumn(path, name, frame.columns, ids.NAME_THEM)
    check_columns(path, (name, "text"), frame.columns)
    absent = frame[name].isna().to_numpy()
    if absent.any():
        line = file_line(path, int(absent.argmax()))
        raise BadRow(path, line, f"{name} is missing", "Give each answer the id of its question.")
    if frame.empty:
        raise BadFile(path, "holds no rows", "Give one row per sampled answer.")


def _optional(frame: pd.DataFrame, *names: str) -> Sequence[Json]:
    """Return the values of the first of these columns that the table has, or a None for each row."""
    for name in names:
        if name in frame:
            return list(frame[name])
    return [None] * len(frame)


def _with_our_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the names of columns of this format; JailbreakBench's judged answers have a response per row."""
    if RESPONSE not in frame or {"prompt_id", "text"} & set(frame.columns):
        return frame
    places = [str(place) for place in range(len(frame))]
    return frame.rename(columns={RESPONSE: "text"}).assign(prompt_id=places)


def _samples(path: Path, frame: pd.DataFrame, names: list[str]) -> list[int]:
    """Return the number of each answer, that of its column or its place among the answers to its question, from 1."""
    samples = []
    if "sample" not in frame:
        counts: Counter[str] = Counter()
        for name in names:
            counts[name] += 1
            samples.append(counts[name])
        return samples
    for place, value in enumerate(frame["sample"]):
        try:
            sample = int(value)
            if sample != float(value):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            problem = f"column sample: got {shortened(value)}, expected a whole number"
            raise BadRow(path, file_line(path, place), problem) from None
        samples.append(sample)
    return samples


def _scored(frame: pd.DataFrame) -> dict[str, list[float]]:
    """Return the scores by column: further columns of numbers, also of yes and no, or in percent."""
    scores = {}
    for name in frame.columns:
        states_draws = meant(str(name), CACHED) or meant(str(name), (*ERRORS, *STATUSES))
        if setting_of(str(name)) is not None or states_draws:
            continue
        if str(name) in (*ANSWER_COLUMNS, *PROMPT) or str(name).startswith(ids.NAMELESS):
            continue
        try:
            numbers = numbers_of(frame[name])
        except NoNumber:
            continue
        if numbers.form == "plain" and not pd.api.types.is_numeric_dtype(frame[name]):
            continue  # texts that look like numbers, such as ids, or nothing at all
        scores[name] = numbers.values.tolist()
    return scores


def _notes(frame: pd.DataFrame, samples: list[int]) -> list[str]:
    notes = []
    greedy = samples.count(GREEDY)
    if greedy:
        notes.append(f"{plural(greedy, 'greedy answer')} (sample {GREEDY}) left out: it is no draw")
    if "finish_reason" in frame:
        cut = int((frame["finish_reason"] == CUT_OFF).sum())
        if cut:
            notes.append(f"{plural(cut, 'answer')} cut at the maximum number of tokens")
    return notes


TABLE = Format(
    "table",
    "tables with prompt_id, text and optionally sample (.csv, .parquet, .jsonl), such as Lethe's generations",
    lambda first: "prompt_id" in first and "text" in first,
    _read_table,
)
INSPECT, LM_EVAL = "inspect_ai", "lm_eval"
# The modules of the formats, in the order in which they are asked. They are imported by their names, so no identity of a
# stage has them: no stage reads a log (`lethe.identity`).
READERS = (
    *(INSPECT, LM_EVAL, "garak", "promptfoo", "leak_k", "jailbreakbench", "open_unlearning"),
    *("harmbench", "helm", "openai_batch", "every_eval_ever", "deepeval", "completions"),
    "responses",
)
FORMAT_OF = {name: importlib.import_module(f"{__name__}.{name}").FORMAT for name in READERS}
FORMATS: tuple[Format, ...] = (*FORMAT_OF.values(), TABLE)


def read_log(path: str | os.PathLike[str], filter: str | None = None, by: str | None = None) -> Log:
    """Return the log in a file of any of `FORMATS`, by its content.

    Parameters
    ----------
    filter
        The filter of lm-eval whose answers are read; a log of another tool has none.
    by
        The column of a plain table that names the questions, in place of `prompt_id`.

    Raises
    ------
    BadFile, BadRow
        If the file is of no known format, or broken; the sentence names the line or the member.
    BadValue
        If ``filter`` or ``by`` does not belong to the format, or no line has the filter.
    """
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
    suffix = suffix_of(path)
    no_table = suffix not in TABLE_SUFFIXES
    try:
        line, _, _ = first_line(path)
        if line[:1] not in (b"{", b"["):
            return line.startswith(b"PK") or suffix == ".eval"
        if not line.endswith((b"}", b"]")):
            if suffix in csv_form.SUFFIXES:  # a header may begin with a bracket
                return False
            if line[:1] == b"{":
                return True
        first = JsonFile(path).first
    except OSError as error:
        raise BadFile(path, f"cannot be read ({error.strerror or error})") from None
    except (BadFile, BadRow):
        return no_table
    if not first:
        return no_table
    return no_table or _is_nested(first) or _format_of(first) not in (TABLE, None)


def _is_nested(first: Mapping[str, Json]) -> bool:
    return any(isinstance(value, (dict, list)) for value in first.values())


def _format_of(first: Mapping[str, Json]) -> Format | None:
    for form in FORMATS:
        if form.recognises(first):
            return form
    return None


def _read(path: Path, filter: str | None, by: str | None) -> Log:
    if _is_table(path):
        return replace(_read_table(path, by), format=TABLE.name)
    with opened(path) as file:
        is_archive = file.read(2) == b"PK"
    source: JsonFile | Path = path
    form = FORMAT_OF[INSPECT]
    if not is_archive:
        source = JsonFile(path)
        form = _known_format_of(path, source.first)
    if filter is not None and form is not FORMAT_OF[LM_EVAL]:
        raise BadValue("--filter", filter, f"left out: a log of format {form.name} has no filters")
    if form is TABLE:
        log = _read_table(source, by)
    else:
        check(by is None, "by", by, f"left out: a log of format {form.name} names its prompts")
        log = form.read(source) if filter is None else form.read(source, filter)
    return replace(log, format=form.name)


def _known_format_of(path: Path, first: Mapping[str, Json]) -> Format:
    form = _format_of(first)
    if form is not None:
        return form
    if "text" in first and not _is_nested(first):
        return TABLE  # a column of another name names its questions, and the reader asks for it
    known = "; ".join(known.holds for known in FORMATS)
    raise BadFile(path, _unknown(first), f"Known are {known}.")


def _unknown(first: Mapping[str, Json]) -> str:
    """Say what a file holds that is no log."""
    if "configs" in first and "results" in first:
        return (
            "holds the results of an lm-eval run; its answers are in the samples_*.jsonl beside it"
        )
    if is_request(first):
        return "holds the requests of a batch; its answers are in the output file of the batch"
    values = first.values()
    if first and all(isinstance(value, (int, float)) for value in values):
        return "holds a summary without answers; the log itself is beside it (for open-unlearning, *_EVAL.json)"
    if first and all(map(_is_list_of_texts, values)):
        return "holds prompts without answers (HarmBench's test cases?)"
    keys = ", ".join(repr(key[:30]) for key in list(first)[:6]) or "(none)"
    return f"is not a log of a known tool; its first keys are {keys}"


def _is_list_of_texts(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)
