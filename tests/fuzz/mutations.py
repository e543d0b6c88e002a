"""What a stranger's file may hold: seeded changes of a valid file, from single bits to its whole structure."""

import io
import json
import random
import re
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

from tests.lethe.io.logs.small_logs import pack

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
LONG = 60_000  # letters of a long line
DEEP = 20_000  # opening brackets
HUGE = [
    "9" * 5000,
    str(2**63),
    str(-(2**64)),
    *"1e999 -1e999 NaN Infinity -0 1_0 0x1F 1e-400 00".split(),
]
INVISIBLE = (
    "\x00",
    "\u200b",
    "\ufeff",
    "\x85",
    "\u2028",
    "\ud800",
    "\U000e0041",
    "\r",
    "\n",
    "\t=1",
    "",
)
ESCAPES = (
    "\x1b[31m",
    "\x1b]0;owned\x07",
    "\u202egnol\u202c",
    "\u2066x\u2069",
    "<script>alert(1)</script>",
)
SYNTAX = "\" ' , ; { } [ ] : \\ %s {0} {question} ../../etc/passwd /dev/zero nan =HYPERLINK(1) +1 -1+1 @SUM(A1)".split()
YAML = (
    "&a [*a]",
    "!!python/object/apply:os.system [x]",
    "<<: *a",
    "- - -",
    *"2001-99-99 1:30 on null ~ 1e".split(),
)
HOSTILE = [*INVISIBLE, *ESCAPES, *SYNTAX, *YAML]
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


def value(chance: random.Random) -> Any:
    """A value of another type, size or meaning."""
    text = chance.choice(HOSTILE)
    numbers = (0, -1, 2, 0.5, 1e308, -1e308, 10**400, -(10**400), 2**63, float("nan"), float("inf"))
    plain = (None, True, False, "", "0.5", "2026-01-01", "a" * 5000, text, text * 50)
    nested = ([], {}, [[]], {"": {}}, [None], [1, "a", None], {"a": [1]}, [text], {text: text})
    long = (list(range(300)), {str(number): number for number in range(300)})
    return chance.choice([*numbers, *plain, *nested, *long])


def flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content) + 1)
    return chance.choice(
        (
            content[:place],
            content[place:],
            content[:place] + content[place + chance.randrange(1, 99) :],
        )
    )


def lines(content: bytes, chance: random.Random) -> bytes:
    found = content.split(b"\n")
    place, other = chance.randrange(len(found)), chance.randrange(len(found))
    how = chance.randrange(5)
    if how == 0:
        found[place:place] = [found[other]] * chance.choice((1, 1, 3, 200))
    elif how == 1:
        del found[place]
    elif how == 2:
        found[place], found[other] = found[other], found[place]
    elif how == 3:
        found[place] = b""
    return (
        (b"\r\n", b"\r", b"\n\n")[chance.randrange(3)].join(found)
        if how == 4
        else b"\n".join(found)
    )


def insert(content: bytes, chance: random.Random) -> bytes:
    """Hostile text, at a random place or in place of a cell."""
    text = chance.choice((*HOSTILE, *HUGE)).encode("utf-8", "surrogatepass")
    if chance.random() < 0.5:
        place = chance.randrange(len(content) + 1)
        return content[:place] + text + content[place:]
    cells = list(re.finditer(rb'[^,\n":{}\[\]]+', content))
    if not cells:
        return text
    cell = chance.choice(cells)
    return content[: cell.start()] + text + content[cell.end() :]


def number(content: bytes, chance: random.Random) -> bytes:
    found = list(NUMBER.finditer(content))
    if not found:
        return insert(content, chance)
    place = chance.choice(found)
    return content[: place.start()] + chance.choice(HUGE).encode() + content[place.end() :]


def large(content: bytes, chance: random.Random) -> bytes:
    """Long lines, deep nesting, many columns; or nothing of the file at all."""
    place = chance.randrange(len(content) + 1)
    lines = (
        b"a" * LONG,
        b"," * 3000,
        b"\n" * 5000,
        b'"' * 3001,
        b"- " * 3000,
        b'"\n' * 2000,
        b"\x00" * 5000,
    )
    nests = (b"[" * DEEP, b'{"a":' * DEEP, b"{" * 3000, b"&a [" * 200, b"? " * 300)
    many = chance.choice((*lines, *nests, b"\xff\xfe", b"PK\x03\x04", b"PAR1", b"\xef\xbb\xbf"))
    return chance.choice(
        (content[:place] + many + content[place:], many, many + content, b"", b"\n", BOMB.encode())
    )


def members(content: bytes, chance: random.Random) -> bytes:
    """A JSON document, or a line of JSON lines, in which a value is replaced, doubled, removed or renamed."""
    try:
        text = content.decode()
        whole = text if text.startswith("{\n") or "\n" not in text.strip() else None
        parts = [text] if whole else text.splitlines()
        place = chance.randrange(len(parts))
        parsed = json.loads(parts[place])
    except (ValueError, IndexError, RecursionError):
        return insert(content, chance)
    nodes = [node for node in _nodes(parsed) if node]
    if not nodes:
        return insert(content, chance)
    node = chance.choice(nodes)
    new = value(chance)
    key: Any = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
    how = chance.randrange(4)
    if how == 0:
        del node[key]
    elif how == 1 and isinstance(node, dict):
        node[chance.choice(HOSTILE)] = node.pop(key)
    elif how == 1:
        node.insert(key, node[key])
    else:
        node[key] = new
    parts[place] = json.dumps(parsed, ensure_ascii=chance.random() < 0.5)
    return "\n".join(parts).encode("utf-8", "surrogatepass")


def _nodes(whole: Any) -> list[Any]:
    """Every list and object in a value."""
    found = []
    open_ = [whole]
    while open_:
        node = open_.pop()
        if isinstance(node, dict | list):
            found.append(node)
            open_ += node.values() if isinstance(node, dict) else node
    return found


def archive(content: bytes, chance: random.Random) -> bytes:
    """A zip archive with tricks: names that leave the folder, entries that lie, repeat, overlap or expand without end."""
    from lethe.io.logs._untrusted import Archive  # reads Zstandard, which `zipfile` does not

    entries = _entries(content, Archive)
    place = chance.randrange(len(entries))
    name, inner = entries[place]
    how = chance.randrange(8)
    stated = None
    if how == 0:
        outside = ("../../etc/passwd", "/etc/passwd", "C:\\x", "samples/../../x.json")
        tricks = (*outside, "a\x00b", "\x1b[31m", "", "samples/" * 900)
        entries[place] = (chance.choice(tricks), inner)
    elif how == 1:
        entries.insert(place, entries[place])
    elif how == 2:
        del entries[place]
    elif how == 3:
        stated = {name: chance.choice((0, 1, 2**20, 2**31, 2**32 - 1))}
    elif how == 4:
        entries[place] = (
            name,
            _bomb(chance.choice((1 << 20, 1 << 24, *([1 << 20] * 200), 600 << 20))),
        )
    elif how == 5:
        entries[place] = (name, large(inner, chance))
    elif how == 6:
        entries[place] = (name, chance.choice((flip, cut, insert, number))(inner, chance))
    else:
        entries[place] = (name, members(inner, chance))
    return pack(entries, chance.choice((8, 93)), stated)


def _bomb(size: int) -> bytes:
    return b'{"a": "' + b"a" * size + b'"}'


def _entries(content: bytes, reader: Callable[..., Any]) -> list[tuple[str, bytes]]:
    import tempfile
    from pathlib import Path

    if content not in _KNOWN:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "log.eval")
            place.write_bytes(content)
            with reader(place) as opened:
                _KNOWN[content] = [(entry.filename, opened.read(entry)) for entry in opened.entries]
    return list(_KNOWN[content])


_KNOWN: dict[bytes, list[tuple[str, bytes]]] = {}


def table(content: bytes, chance: random.Random) -> bytes:
    """A Parquet file with a column of another type, name or length, or with other metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = pq.read_table(io.BytesIO(content))
    place = chance.randrange(arrow.num_columns)
    rows = arrow.num_rows
    name = arrow.column_names[place]
    new = value(chance)
    how = chance.randrange(5)
    try:
        if how == 0:
            arrow = arrow.set_column(place, name, pa.array([new] * rows))
        elif how == 1:
            arrow = arrow.rename_columns(
                [
                    chance.choice(HOSTILE) if column == name else column
                    for column in arrow.column_names
                ]
            )
        elif how == 2:
            arrow = arrow.append_column(name, arrow.column(place))
        elif how == 3:
            arrow = chance.choice(
                (arrow.slice(0, 0), arrow.drop_columns([name]), arrow.slice(0, 1))
            )
        else:
            told = chance.choice(
                (b"\xff", b"{", b'{"index_columns": ["x"]}', b"{}", b"[]", b"2", b"1" * 5000)
            )
            arrow = arrow.replace_schema_metadata(
                {chance.choice((b"pandas", b"lethe_schema", b"a")): told}
            )
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return flip(content, chance)
    target = io.BytesIO()
    try:
        pq.write_table(arrow, target)
    except pa.ArrowException:
        return flip(content, chance)
    return target.getvalue()


TEXT = (flip, cut, lines, insert, insert, number, large, members, members)
BINARY = (flip, cut, flip, large)


OF_KIND = {
    "text": TEXT,
    "bytes": BINARY,
    "zip": (*BINARY, archive, archive, archive),
    "parquet": (*BINARY, table, table, table),
}


def mutated(content: bytes, kind: str, chance: random.Random) -> bytes:
    """``content`` after one to three changes; ``kind`` is text, bytes, zip or parquet."""
    changes = OF_KIND[kind]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        change = chance.choice(changes)
        try:
            content = change(content, chance)
        except (zipfile.BadZipFile, zlib.error, OSError, ValueError, IndexError):
            content = flip(content, chance)
        except Exception:
            if change not in (
                archive,
                table,
            ):  # the second change of a file that the first one broke
                raise
            content = flip(content, chance)
    return content
