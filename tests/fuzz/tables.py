"""The kind tables: a table of scores, answers, rows, labels, losses or guesses with odd cells, columns, types or bytes."""

import csv
import datetime
import decimal
import io
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz import mutations
from tests.fuzz.commands import Case

IMPORTED = (
    "pandas",
    "pyarrow.parquet",
    "scipy.stats",
    "torch",
    "transformers",
    "lethe.api.audit",
    "lethe.api.bounding",
    "lethe.api.evaluating",
    "lethe.api.labelling",
    "lethe.api.logs",
    "lethe.api.runs",
    "lethe.cli.hooks.bounding",
    "lethe.cli.hooks.evaluating",
    "lethe.cli.hooks.labelling",
    "lethe.cli.hooks.logs",
    "lethe.cli.hooks.runs",
)
Rows = list[dict[str, Any]]
FORMS = ("csv", "jsonl", "parquet")
WIDE = 100_000  # columns
LONG = 20_000  # rows

SCORES: Rows = [
    {"prompt_id": name, "sample": sample, "score": score}
    for name in ("a", "b", "c")
    for sample, score in enumerate((0.0, 1.0, 0.0, 0.5))
]
NAMED: Rows = [{"question_id": row["prompt_id"], "score": row["score"]} for row in SCORES]
ANSWERS: Rows = [
    {"prompt_id": name, "sample": sample, "text": text}
    for name in ("a", "b")
    for sample, text in enumerate(("Ada is a painter.", "Bo is at sea.", "", "a painter"))
]
QUESTIONS: Rows = [
    {"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]},
    {"id": "b", "question": "Where is Bo?", "answer": "Bo is at sea.", "keywords": ["sea"]},
]
CALIBRATION: Rows = [{"label": n % 2, "verdict": n % 3 % 2} for n in range(30)]
LABELS: Rows = [
    {"prompt_id": "a", "sample": 0, "label": 1},
    {"prompt_id": "b", "sample": 1, "label": 0},
]
GUESSES: Rows = [{"bit": n % 2, "guess": n // 2 % 2, "score": n / 7} for n in range(20)]
TRADEOFF: Rows = [{"alpha": n / 10, "beta": 1 - n / 10} for n in range(11)]
LOSSES: Rows = [{"loss": 0.5 + n / 9} for n in range(30)]
PREDICTIONS: Rows = [
    {"split": half, "member": member, "attack": "loss", "accept": n / 4, "weight": 1.0}
    for half in ("original", "swapped")
    for member in ("forget", "test")
    for n in range(4)
]


@dataclass(frozen=True)
class Table:
    """A table that a command reads: its rows, the forms of file, and the arguments of the command for its path."""

    name: str
    rows: Rows
    arguments: Callable[[str, Path], Sequence[str]]
    forms: Sequence[str] = FORMS
    weight: int = 4


TABLES = (
    Table("scores", SCORES, lambda path, valid: ["bounds", path]),
    Table("scores dropped", SCORES, lambda path, valid: ["bounds", path, "--missing", "drop"]),
    Table("scores by a column", NAMED, lambda path, valid: ["bounds", path, "--by", "question_id"]),
    Table(
        "calibration",
        CALIBRATION,
        lambda path, valid: ["bounds", f"{valid}/binary.csv", "--calibration", path],
    ),
    Table(
        "labels of draws",
        LABELS,
        lambda path, valid: ["bounds", f"{valid}/binary.csv", "--labels", path],
    ),
    Table("scores compared", SCORES, lambda path, valid: ["compare", path, f"{valid}/scores.csv"]),
    Table("answers", ANSWERS, lambda path, valid: ["log", path, "--table", "out.csv"]),
    Table(
        "answers scored",
        ANSWERS,
        lambda path, valid: ["score", "log", path, "--data", f"{valid}/rows.jsonl"],
    ),
    Table(
        "references",
        QUESTIONS,
        lambda path, valid: ["score", "log", f"{valid}/answers.csv", "--data", path],
        ("jsonl",),
    ),
    Table(
        "answers labelled",
        ANSWERS,
        lambda path, valid: ["label", path, "--dataset", f"{valid}/rows.jsonl", "--json"],
    ),
    Table(
        "guesses", GUESSES, lambda path, valid: ["audit", "one-run", "--guesses", path, "--r", "8"]
    ),
    Table(
        "trade-off",
        TRADEOFF,
        lambda path, valid: [
            *("audit", "one-run", "--n", "100", "--r", "20", "--errors", "4"),
            *("--mechanism", "tradeoff", "--tradeoff", path),
        ],
    ),
    Table(
        "losses",
        LOSSES,
        lambda path, valid: [
            *("audit", "epsilon-star", "--train", path),
            *("--population", f"{valid}/losses.csv", "--delta", "1e-5"),
        ],
    ),
    Table("predictions", PREDICTIONS, lambda path, valid: ["audit", "swap", "--predictions", path]),
    Table(
        "questions sampled",
        QUESTIONS,
        lambda path, valid: [
            *("sample", "--data", path, "--model", f"{valid}/model"),
            *("--n", "2", "--max-new-tokens", "2"),
        ],
        ("jsonl",),
        2,
    ),
    Table(
        "questions evaluated",
        QUESTIONS,
        lambda path, valid: [
            *("eval", "--data", path, "--model", f"{valid}/model"),
            *("--n", "2", "--name", "m"),
        ],
        ("jsonl",),
        1,
    ),
)


def prepare(valid: Path) -> None:
    from tests.lethe.small_checkpoint import save_small_checkpoint

    save_small_checkpoint(valid / "model")
    binary = [row | {"score": float(row["score"] == 1)} for row in SCORES]
    named = {"scores": SCORES, "binary": binary, "answers": ANSWERS, "losses": LOSSES}
    for name, rows in named.items():
        (valid / f"{name}.csv").write_bytes(written(rows, "csv"))
    (valid / "rows.jsonl").write_bytes(written(QUESTIONS, "jsonl"))


def case(chance: random.Random, valid: Path, folder: Path) -> Case:
    table = chance.choices(TABLES, [table.weight for table in TABLES])[0]
    form = chance.choice(table.forms)
    rows: Rows = [dict(row) for row in table.rows]
    told = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        change = chance.choice(CHANGES)
        rows = change(rows, chance)
        told.append(change.__name__)
    content = typed_parquet(rows, chance) if form == "parquet" else written(rows, form)
    if chance.random() < 0.3:
        change = chance.choice(BYTES)
        content = change(content, chance)
        told.append(change.__name__)
    path = folder / f"table.{form}"
    path.write_bytes(content)
    broken = f"{table.name}, {form}: {', '.join(told)}"
    return Case(broken, table.arguments(path.name, valid))


def sound(valid: Path) -> list[Case]:
    cases = []
    for number, table in enumerate(TABLES):
        path = valid / f"sound-{number}.{table.forms[0]}"
        path.write_bytes(written(table.rows, table.forms[0]))
        cases.append(Case(f"{table.name}, nothing", table.arguments(str(path), valid)))
    return cases


def cell(chance: random.Random) -> Any:
    """A cell of another type, size or meaning."""
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    times = (moment, moment.date(), datetime.timedelta(days=400_000), "2026-01-01T00:00:00Z")
    numbers = (
        decimal.Decimal("0.5"),
        2**53 + 1,
        1e-320,
        math.inf,
        -math.inf,
        math.nan,
        -0.0,
        3,
        -1,
    )
    words = (
        "1",
        " 1",
        "1.0",
        "0,5",
        "3%",
        "yes",
        "NA",
        "nan",
        "None",
        "TRUE",
        "1e400",
        "0x1",
        b"\xff",
    )
    return chance.choice((*times, *numbers, *words, mutations.value(chance)))


def one_cell(rows: Rows, chance: random.Random) -> Rows:
    if not rows or not rows[0]:
        return rows
    row = chance.choice(rows)
    row[chance.choice(list(rows[0]))] = cell(chance)
    return rows


def whole_column(rows: Rows, chance: random.Random) -> Rows:
    if not rows or not rows[0]:
        return rows
    name = chance.choice(list(rows[0]))
    value = cell(chance)
    for row in rows:
        row[name] = value
    return rows


def mixed_column(rows: Rows, chance: random.Random) -> Rows:
    if not rows or not rows[0]:
        return rows
    name = chance.choice(list(rows[0]))
    for row in rows:
        row[name] = cell(chance)
    return rows


def renamed_column(rows: Rows, chance: random.Random) -> Rows:
    if not rows or not rows[0]:
        return rows
    name = chance.choice(list(rows[0]))
    new = chance.choice((*mutations.HOSTILE, name.upper(), f" {name}", f"{name}.1", "Unnamed: 0"))
    return [{new if key == name else key: value for key, value in row.items()} for row in rows]


def removed_column(rows: Rows, chance: random.Random) -> Rows:
    if not rows or not rows[0]:
        return rows
    name = chance.choice(list(rows[0]))
    return [{key: value for key, value in row.items() if key != name} for row in rows]


def added_column(rows: Rows, chance: random.Random) -> Rows:
    names = (
        "prompt_id",
        "sample",
        "text",
        "stopped",
        "missing",
        "reason",
        "score",
        "label",
        "part",
    )
    name = chance.choice((*names, "weight", "context", "followups", "twins", "secret", "keywords"))
    value = cell(chance)
    return [row | {name: value} for row in rows]


def many_columns(rows: Rows, chance: random.Random) -> Rows:
    width = chance.choice((1000, WIDE))
    more = {f"c{place}": 0 for place in range(width)}
    return [row | more for row in rows[:2]]


def single_column(rows: Rows, chance: random.Random) -> Rows:
    if not rows or not rows[0]:
        return rows
    name = chance.choice(list(rows[0]))
    return [{name: row.get(name)} for row in rows]


def no_rows(rows: Rows, chance: random.Random) -> Rows:
    return rows[: chance.choice((0, 1))]


def many_rows(rows: Rows, chance: random.Random) -> Rows:
    if rows and len(rows[0]) > 100:  # not many rows and many columns, which takes minutes to write
        return rows
    return (rows * (LONG // max(1, len(rows)) + 1))[:LONG]


def repeated_rows(rows: Rows, chance: random.Random) -> Rows:
    return rows + [dict(row) for row in rows]


CHANGES = (
    one_cell,
    one_cell,
    one_cell,
    one_cell,
    whole_column,
    whole_column,
    mixed_column,
    renamed_column,
    removed_column,
    added_column,
    added_column,
    many_columns,
    single_column,
    no_rows,
    many_rows,
    repeated_rows,
)


def other_encoding(content: bytes, chance: random.Random) -> bytes:
    text = content.decode("utf-8", "replace")
    return text.encode(chance.choice(("utf-16", "utf-8-sig", "utf-32", "utf-16-be")))


def other_dialect(content: bytes, chance: random.Random) -> bytes:
    """Semicolons, tabs, comments, quotes or a repeated header."""
    first, _, rest = content.partition(b"\n")
    ways = (
        content.replace(b",", b";"),
        content.replace(b",", b"\t"),
        b"# a comment\n" + content,
        b"sep=;\n" + content,
        first.replace(b",", b",score,score,") + b"\n" + rest,
        first + b"\n" + first + b"\n" + rest,
        content.replace(b",", b',"', 3),
        content.replace(b"\n", b",\n"),
        rest,
    )
    return chance.choice(ways)


def nothing(content: bytes, chance: random.Random) -> bytes:
    return chance.choice((b"", b"\n", b"\x00", b"{}", b"[]", b"null", b'""', b"\xef\xbb\xbf"))


BYTES = (
    other_encoding,
    other_dialect,
    other_dialect,
    nothing,
    mutations.flip,
    mutations.cut,
    mutations.insert,
    mutations.large,
)


def _plain(value: object) -> object:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def written(rows: Rows, form: str) -> bytes:
    if form == "jsonl":
        lines = [json.dumps(row, default=_plain) for row in rows]
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
    target = io.StringIO(newline="")
    writer = csv.writer(target, lineterminator="\n")
    names = list(rows[0]) if rows else ["prompt_id", "score"]
    try:
        writer.writerow(names)
        for row in rows:
            writer.writerow([shown_in_csv(row.get(name)) for name in names])
    except csv.Error:
        return b"prompt_id,score\n"
    return target.getvalue().encode("utf-8", "surrogatepass")


def shown_in_csv(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, default=_plain)
    if isinstance(value, int) and abs(value) > 10**300:
        return "9" * 400
    return value


def typed_parquet(rows: Rows, chance: random.Random) -> bytes:
    """A Parquet file whose columns have odd types: nested, decimal, dates, dictionaries, null, views, halves."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(rows[0]) if rows else ["prompt_id", "score"]
    arrays = [_column([row.get(name) for row in rows], pa) for name in names]
    if arrays and chance.random() < 0.5:
        place = chance.randrange(len(arrays))
        arrays[place] = _cast(arrays[place], chance, pa)
    if names and chance.random() < 0.1:
        place = chance.randrange(len(names))
        names.append(names[place])
        arrays.append(arrays[place])
    names = [name.encode("utf-8", "replace").decode() for name in names]
    target = io.BytesIO()
    try:
        pq.write_table(pa.Table.from_arrays(arrays, names=names), target)
    except pa.ArrowException:
        return b"PAR1PAR1"
    return target.getvalue()


def _column(values: list[Any], pa: Any) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError):
        texts = [str(_shortest(value)).encode("utf-8", "replace").decode() for value in values]
        return pa.array(texts)


def _shortest(value: Any) -> Any:
    return "9" * 400 if isinstance(value, int) and abs(value) > 10**300 else value


def _cast(array: Any, chance: random.Random, pa: Any) -> Any:
    size = len(array)
    kinds = (
        *(pa.float16(), pa.float32(), pa.int8(), pa.uint64(), pa.bool_(), pa.binary(), pa.date32()),
        *(
            pa.decimal128(38, 10),
            pa.timestamp("ns"),
            pa.large_string(),
            pa.string_view(),
            pa.null(),
        ),
    )
    ways = (
        lambda: array.cast(chance.choice(kinds)),
        lambda: array.dictionary_encode(),
        lambda: pa.array([[value] for value in array.to_pylist()]),
        lambda: pa.array([{"x": value} for value in array.to_pylist()]),
        lambda: pa.nulls(size),
        lambda: pa.nulls(size, chance.choice(kinds)),
        lambda: pa.array([[("k", 1)]] * size, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([datetime.timedelta(1)] * size),
        lambda: pa.array([b"\xff\xfe"] * size),
        lambda: pa.array([decimal.Decimal("0.5")] * size).dictionary_encode(),
    )
    try:
        return chance.choice(ways)()
    except (pa.ArrowException, OverflowError):
        return array
