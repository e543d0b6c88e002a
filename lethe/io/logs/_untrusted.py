"""Untrusted files: JSON and zip archives, read in bounded memory, refused in one sentence, and never extracted to a path.

Tools write bare NaN, which Python reads, and raw U+2028 inside strings, at which `str.splitlines` would cut. Lines here
end only at the line feed. A duplicate key is refused, because the later value would hide the answers of the earlier one.
Inspect compresses with Zstandard (method 93), which `zipfile` reads only from Python 3.14 on; pyarrow decodes it here.
"""

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Self

from lethe.errors import BadFile, BadRow, reason_of, shortened
from lethe.io.files import Json, without_doubles
from lethe.io.packed import opened

LARGEST = 512 << 20  # bytes of one JSON document: a file, a line, or an entry of an archive
BOM = b"\xef\xbb\xbf"
UNREAD = ("messages", "message_refs")  # of a sample of Inspect
# Of an event of Inspect that is a request to a model.
OF_REQUEST = ("event", "cache", "config", "output")
REPLY = ("output", "error", "cached", "finishReason", "tokenUsage")  # of a response of promptfoo
ZSTANDARD = 93
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, ZSTANDARD)
LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, length of the name, length of the extra field
CHUNK = 1 << 20
LARGEST_EXPANSION = 400  # logs of real runs stay below 100; a bomb is far above
ALWAYS_LEGAL = 1 << 26  # total bytes to which an archive of any size may expand
ENTRY_ALWAYS_LEGAL = 1 << 23  # bytes to which an entry of any size may expand
# JSON values that an archive may hold, by its bytes and at any size: three bytes of text (`[],`) become 64 in memory.
VALUES_PER_BYTE = 16
VALUES_ALWAYS_LEGAL = 1_000_000
ENCRYPTED = 1


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = without_doubles(pairs)
    if members.keys() >= {"id", "epoch", "input", "output"}:  # a sample of Inspect
        for name in UNREAD:
            members.pop(name, None)
        members["events"] = requests_among(members.get("events"))
    elif "promptIdx" in members:
        members.pop("gradingResult", None)
        response = members.get("response")
        if isinstance(response, dict):
            members["response"] = {name: response[name] for name in REPLY if name in response}
    return members


def requests_among(events: Json) -> list[Json]:
    """The requests among the events of a sample, with what is read of each."""
    requests: list[Json] = []
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and event.get("event") == "model":
            requests.append({name: event[name] for name in OF_REQUEST if name in event})
    return requests


_DECODER = json.JSONDecoder(object_pairs_hook=_members)


def decode(path: Path, content: bytes, line: int = 1, entry: str = "") -> Json:
    """Return the JSON value of a text that begins on ``line`` of the file, or that is an ``entry`` of an archive."""

    def broken(lines_before: int | None, problem: str) -> BadFile | BadRow:
        before = lines_before or 0
        if entry:
            return BadFile(path, f"its entry {entry[:100]!r}, line {before + 1}: {problem}")
        if lines_before is None and b"\n" in content.strip():  # the line is not known
            return BadFile(path, problem)
        return BadRow(path, line + before, problem)

    try:
        text = content.decode("utf-8-sig")
        return _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise broken(content[: error.start].count(b"\n"), "not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise broken(error.lineno - 1, f"not valid JSON ({error.msg})") from None
    except RecursionError:
        raise broken(None, "nested too deeply") from None
    except ValueError as error:  # a duplicate key, or an integer of thousands of digits
        raise broken(None, str(error).split(";")[0]) from None


def first_line(path: Path) -> tuple[bytes, int, bool]:
    """Return the first line that is not blank, without blanks around it, its number, and whether another one follows."""
    number = 0
    with opened(path) as file:
        start = file.read(64).removeprefix(BOM).lstrip()
    if start and start[:1] not in (b"{", b"["):
        return start, 1, False
    with opened(path) as file:
        while line := file.readline(LARGEST + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(BOM)
            text = line.strip()
            if text:
                return text, number, _has_text(file)
    return b"", number, False


def _has_text(file: BinaryIO) -> bool:
    """Whether the rest of a file is more than blanks."""
    while chunk := file.read(CHUNK):
        if chunk.strip():
            return True
    return False


def _is_larger(path: Path) -> bool:
    """Whether a file, unpacked, is larger than a document may be."""
    with opened(path) as file:
        left = LARGEST
        while left >= 0:
            part = file.read(min(CHUNK, left + 1))
            if not part:
                return False
            left -= len(part)
    return True


class JsonFile:
    """A file of JSON: one document, or an object per line. ``first`` is the document, or its first item or line."""

    def __init__(self, path: Path):
        self.path = path
        text, self._number, more = first_line(path)
        if not text:
            raise BadFile(path, "is empty, expected a log")
        if text[:1] not in (b"{", b"["):
            begins = shortened(bytes(text[:20]))
            problem = f"begins with {begins}; a log is JSON, JSON lines, or an .eval archive"
            raise BadFile(path, problem)
        try:
            if text.endswith((b"}", b"]")):
                value = decode(path, text, self._number)
            else:
                value = self.document
        except (BadFile, BadRow) as error:
            if "not valid JSON" not in str(error) or _is_larger(path):
                raise  # no further line mends it
            value = self.document
        if not more:
            self.document = value
        if isinstance(value, list):
            value = next(iter(value), None)
        self.first: dict[str, Json] = {}
        if isinstance(value, dict):
            self.first = value

    @cached_property
    def document(self) -> Json:
        with opened(self.path) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise too_large(self.path, self.path.stat().st_size)
        return decode(self.path, content)

    @property
    def object(self) -> dict[str, Json]:
        """The document, which must be an object."""
        if not isinstance(self.document, dict):
            raise BadFile(self.path, f"holds {type(self.document).__name__}, expected an object")
        return self.document

    def lines(self) -> Iterator[tuple[int, dict[str, Json]]]:
        """Yield the objects with their lines from 1, one at a time in memory; the items of a document that is a list."""
        if "document" in vars(self):
            whole = self.document
            if not isinstance(whole, list):
                yield self._number, _object(self.path, self._number, whole)
                return
            for number, item in enumerate(whole, start=1):
                yield number, _object(self.path, number, item)
            return
        with opened(self.path) as file:
            number = 0
            while line := file.readline(LARGEST + 1):
                number += 1
                if len(line) > LARGEST:
                    raise BadRow(self.path, number, f"more than {LARGEST >> 20} MiB in one line")
                if line.strip():
                    yield number, _object(self.path, number, decode(self.path, line, number))


def checked(path: Path, where: str, value: Json, kind: type = dict) -> Json:
    """Return a value that is a dict, list or str; `BadFile` names ``where`` another one stands."""
    if not isinstance(value, kind):
        expected = {"dict": "an object", "list": "a list", "str": "a text"}[kind.__name__]
        raise BadFile(path, f"{where} is {type(value).__name__}, expected {expected}")
    return value


def _object(path: Path, number: int, value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise BadRow(path, number, f"got {type(value).__name__}, expected a JSON object")
    return value


def too_large(path: Path, size: int, what: str = "") -> BadFile:
    """The error of a document of ``size`` bytes; ``what`` names it where it is not the file itself."""
    problem = f"{what}is {size / (1 << 20):,.0f} MiB; one JSON document must be at most {LARGEST >> 20} MiB"
    return BadFile(
        path, problem, "Split the log, or let the tool write the log again in compressed form."
    )


class Archive:
    def __init__(self, path: Path):
        self.path = path
        self._values = 0
        self._file: BinaryIO = path.open("rb")
        try:
            self._zip = zipfile.ZipFile(self._file)
            self.entries = self._zip.infolist()
            self._check()
        except (
            zipfile.BadZipFile,
            struct.error,
            ValueError,
            NotImplementedError,
            OSError,
            EOFError,
        ) as error:
            self._file.close()
            raise BadFile(
                path,
                f"is not a complete zip archive ({reason_of(error)})",
                "Copy or write the file again: its end is missing.",
            ) from None
        except BadFile:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def _check(self) -> None:
        """Refuse archives that no tool writes: overlapping entries, or an expansion beyond that of any real log."""
        total = sum(entry.file_size for entry in self.entries)
        size = self.path.stat().st_size
        if total > max(ALWAYS_LEGAL, LARGEST_EXPANSION * size):
            expansion = f"its {size:,} bytes expand to {total:,}; a log expands far less"
            raise BadFile(self.path, f"is a zip bomb: {expansion}")
        placed = sorted(self.entries, key=lambda entry: entry.header_offset)
        ends = 0
        for entry in placed:
            if entry.header_offset < ends:
                raise BadFile(
                    self.path, f"its entry {entry.filename[:100]!r} overlaps another entry"
                )
            ends = entry.header_offset + LOCAL_HEADER.size + entry.compress_size
        if ends > size:
            raise BadFile(
                self.path, "its entries reach beyond the end of the file", "The file is cut off."
            )

    def value(self, entry: zipfile.ZipInfo) -> Json:
        """The JSON value of an entry; the values of all entries that are read have a limit, before they are made."""
        content = self.read(entry)
        self._values += sum(map(content.count, (b",", b"[", b"{")))
        size = self.path.stat().st_size
        if self._values > max(VALUES_ALWAYS_LEGAL, VALUES_PER_BYTE * size):
            raise BadFile(
                self.path,
                f"its {size:,} bytes expand to more than {self._values:,} JSON values; a log expands far less",
            )
        return decode(self.path, content, entry=entry.filename)

    def read(self, entry: zipfile.ZipInfo) -> bytes:
        what = f"its entry {entry.filename[:100]!r} "
        if entry.compress_type not in METHODS:
            raise BadFile(
                self.path,
                f"{what}is packed by method {entry.compress_type}; the method must be 0, 8 or 93",
            )
        if entry.flag_bits & ENCRYPTED:
            raise BadFile(self.path, f"{what}is encrypted")
        if max(entry.file_size, entry.compress_size) > LARGEST:
            raise too_large(self.path, max(entry.file_size, entry.compress_size), what)
        if entry.file_size > max(ENTRY_ALWAYS_LEGAL, LARGEST_EXPANSION * entry.compress_size):
            packed = f"{entry.compress_size:,} bytes expand to {entry.file_size:,}"
            raise BadFile(self.path, f"{what}is a zip bomb: {packed}; a log expands far less")
        try:
            if entry.compress_type == ZSTANDARD:
                content = self._zstandard(entry)
            else:
                with self._zip.open(entry) as stream:
                    content = stream.read(entry.file_size + 1)
        except (
            zipfile.BadZipFile,
            zlib.error,
            OSError,
            EOFError,
            RuntimeError,
            ValueError,
        ) as error:
            raise BadFile(self.path, f"{what}is damaged ({reason_of(error)})") from None
        if len(content) != entry.file_size or zlib.crc32(content) != entry.CRC:
            raise BadFile(
                self.path,
                f"{what}is damaged (its length or checksum differs from the stated value)",
            )
        return content

    def _zstandard(self, entry: zipfile.ZipInfo) -> bytes:
        """Return the stated number of bytes and at most one chunk more, whatever the frames contain."""
        import pyarrow as pa

        self._file.seek(entry.header_offset)
        signature, name, extra = LOCAL_HEADER.unpack(self._file.read(LOCAL_HEADER.size))
        if signature != b"PK\x03\x04":
            raise ValueError("no entry begins at the place in the list of entries")
        self._file.seek(name + extra, 1)
        packed = self._file.read(entry.compress_size)
        parts = []
        left = entry.file_size
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            while left >= 0 and (part := stream.read(min(CHUNK, left + 1))):
                parts.append(part)
                left -= len(part)
        return b"".join(parts)
