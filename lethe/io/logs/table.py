"""A plain table of answers: `prompt_id, sample, text` as CSV, Parquet or JSON lines, such as Lethe's own generations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import BadFile, BadRow, MissingColumn, plural, shortened
from lethe.io.artifacts import GREEDY
from lethe.io.logs._log import SAME_TEXTS, Format, Log, Table, as_text
from lethe.io.logs._untrusted import Source
from lethe.io.tables import MAGIC, file_line, read_table

if TYPE_CHECKING:
    import pandas as pd

NAME = "table"
RESPONSE = "target_response"
NAMELESS = "Unnamed:"  # what pandas calls a column without a name, such as row numbers
PROMPT = ("prompt", "question")
OWN = frozenset(("prompt_id", "sample", "text", "tokens", "finish_reason", "mean_confidence", "thinking", "turn"))


def holds(path: Path) -> bool:
    """Whether the file is a CSV by its ending or a Parquet file by its content; JSON begins with a bracket."""
    with path.open("rb") as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith(MAGIC) or (path.suffix.lower() == ".csv" and start[:1] not in (b"{", b"[", b"P"))


def read(source: Source | Path) -> Log:
    """Read the table. The greedy answer (sample -1) is no draw; without a column `sample`, the rows are numbered."""
    import pandas as pd

    path = source if isinstance(source, Path) else source.path
    if isinstance(source, Path) or path.suffix.lower() in (".jsonl", ".json"):
        frame = _named(read_table(path, text=["prompt_id", "text", RESPONSE], optional=["sample"]))
        if path.suffix.lower() == ".csv" and "text" in frame:  # which writes an empty answer as an empty cell
            frame["text"] = frame["text"].fillna("")
    else:  # JSON lines under another name
        frame = pd.DataFrame([row for _, row in source.lines()])
    for column in ("prompt_id", "text"):
        if column not in frame:
            raise MissingColumn(path, column, frame.columns)
    if frame.empty:
        raise BadFile(path, "holds no rows", "Give one row per sampled answer.")
    names = [str(name) for name in frame["prompt_id"]]
    samples = _samples(path, frame, names)
    scores = {name: frame[name].astype("float64").tolist() for name in _scored(frame)}
    asked = next((frame[name] for name in PROMPT if name in frame), [None] * len(frame))
    rows = Table(path, first=0)
    for place, (name, sample, text, prompt) in enumerate(zip(names, samples, frame["text"], asked, strict=True)):
        if sample == GREEDY:
            continue
        rows.prompt(name, as_text(prompt))
        if isinstance(text, str):
            rows.answer(name, sample, text, {score: column[place] for score, column in scores.items()})
        elif text is None or text != text:
            rows.problem(name, sample, "no text")
        else:
            raise BadRow(path, file_line(path, place), f"column text: got {shortened(text)}, expected a text")
    return Log(
        path=path,
        format=NAME,
        tool="a table",
        warnings=(SAME_TEXTS,) if rows.equal_texts() else (),
        notes=tuple(_notes(frame, samples)),
        **rows.finish(scores),
    )


FORMAT = Format(
    NAME,
    "tables with prompt_id, text and optionally sample (.csv, .parquet, .jsonl), such as Lethe's generations",
    lambda first: "prompt_id" in first and "text" in first,
    read,
)


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the names of columns of this format; JailbreakBench's judged answers have a response per row."""
    if RESPONSE not in frame or {"prompt_id", "text"} & set(frame.columns):
        return frame
    places = [str(place) for place in range(len(frame))]
    return frame.rename(columns={RESPONSE: "text"}).assign(prompt_id=places)


def _samples(path: Path, frame: pd.DataFrame, names: list[str]) -> list[int]:
    import pandas as pd

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
    """Return the columns of numbers that are not Lethe's own."""
    import pandas as pd

    others = [
        name for name in frame.columns if str(name) not in (*OWN, *PROMPT) and not str(name).startswith(NAMELESS)
    ]
    return [name for name in others if pd.api.types.is_numeric_dtype(frame[name])]  # also true and false


def _notes(frame: pd.DataFrame, samples: list[int]) -> list[str]:
    notes = []
    if greedy := samples.count(GREEDY):
        notes.append(f"{plural(greedy, 'greedy answer')} (sample {GREEDY}) left out: it is no draw")
    if "finish_reason" in frame and (cut := int((frame["finish_reason"] == "length").sum())):
        notes.append(f"{plural(cut, 'answer')} cut at the maximum number of tokens")
    return notes
