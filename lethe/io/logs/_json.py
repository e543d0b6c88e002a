"""Untrusted JSON: read in bounded memory, refused in one sentence.

Tools write bare NaN, which Python reads, and raw U+2028 inside strings, at which `str.splitlines` would cut. Lines here
end only at the line feed. A duplicate key is refused, because the later value would hide the answers of the earlier one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from lethe.errors import BadFile, BadRow
from lethe.io.json_files import without_doubles

LARGEST = 512 << 20  # bytes of one JSON document: a file, a line, or an entry of an archive
_SPACE = re.compile(r"[ \t\n\r]*")


_DECODER = json.JSONDecoder(object_pairs_hook=without_doubles)


class Document:
    """A JSON text and its origin, which errors name.

    ``entry`` is the name inside an archive; ``line`` the line of the file on which the text begins.
    """

    def __init__(self, path: Path, content: bytes, entry: str = "", line: int = 1):
        self.path, self.entry, self.line = path, entry, line
        try:
            self.text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self._broken(content[: error.start].count(b"\n"), "not valid UTF-8") from None

    def _broken(self, line: int, problem: str) -> BadFile | BadRow:
        if self.entry:
            return BadFile(self.path, f"its entry {self.entry[:100]!r}, line {line + 1}: {problem}")
        return BadRow(self.path, self.line + line, problem)

    def _at(self, place: int, problem: str) -> BadFile | BadRow:
        return self._broken(self.text.count("\n", 0, place), problem)

    def skip(self, place: int) -> int:
        """Return the first place at or after ``place`` that is not white space."""
        return _SPACE.match(self.text, place).end()  # type: ignore[union-attr]

    def decode(self, place: int) -> tuple[Any, int]:
        """Return the value that begins at ``place``, and the place after the value."""
        try:
            return _DECODER.raw_decode(self.text, place)
        except json.JSONDecodeError as error:
            raise self._at(error.pos, f"not valid JSON ({error.msg})") from None
        except RecursionError:
            raise self._at(place, "nested too deeply") from None
        except ValueError as error:  # a duplicate key, or an integer of thousands of digits
            raise self._at(place, str(error).split(";")[0]) from None

    def expect(self, place: int, legal: str) -> str:
        """Return the character at ``place``; raise unless the character is in ``legal``."""
        character = self.text[place : place + 1]
        if not character or character not in legal:
            problem = "the file ends in the middle" if not character else f"got {character!r}"
            raise self._at(place, f"not valid JSON ({problem}, expected {' or '.join(legal)})")
        return character

    def end(self, place: int) -> None:
        """Raise unless only white space follows ``place``."""
        place = self.skip(place)
        if place < len(self.text):
            raise self._at(place, "not valid JSON (something follows the end of the document)")

    def value(self) -> Any:
        """Return the whole document as one value."""
        value, place = self.decode(self.skip(0))
        self.end(place)
        return value

    def members(
        self, streamed: frozenset[str] = frozenset(), inside: frozenset[str] = frozenset()
    ) -> Iterator[tuple[str, Any]]:
        """Yield the members of a document that is an object, one after the other.

        A list under a key in ``streamed`` yields its items one by one under that key, so only one item is in memory. An
        object under a key in ``inside`` yields its own members, under names such as `results.prompts`.
        """
        self.end((yield from self._members(self.skip(0), "", streamed, inside)))

    def _members(
        self, place: int, prefix: str, streamed: frozenset[str], inside: frozenset[str]
    ) -> Generator[tuple[str, Any], None, int]:
        """Yield the members of the object at ``place``; return the place after the object."""
        self.expect(place, "{")
        place = self.skip(place + 1)
        seen: set[str] = set()
        if self.text[place : place + 1] == "}":
            return place + 1
        while True:
            self.expect(place, '"')
            key, behind = self.decode(place)
            if key in seen:
                raise self._at(place, f"duplicate key {key[:60]!r}")
            seen.add(key)
            place = self.skip(behind)
            self.expect(place, ":")
            place = self.skip(place + 1)
            name, opening = prefix + key, self.text[place : place + 1]
            if name in streamed and opening == "[":
                for item, behind in self._items(place):
                    place = behind
                    if item is not _NOTHING:
                        yield name, item
            elif name in inside and opening == "{":
                place = yield from self._members(place, f"{name}.", streamed, inside)
            else:
                value, place = self.decode(place)
                yield name, value
            place = self.skip(place)
            if self.expect(place, ",}") == "}":
                return place + 1
            place = self.skip(place + 1)

    def first_members(
        self, count: int, heavy: frozenset[str], inside: frozenset[str] = frozenset()
    ) -> tuple[dict[str, object], BadFile | BadRow | None]:
        """Return at most ``count`` members and the error that ended the reading, without reading further.

        A list under a ``heavy`` key yields only its first item; ``inside`` names objects that hold such a list.
        """
        members: dict[str, Any] = {}
        try:
            for key, value in self.members(heavy, inside):
                outer, _, inner = key.partition(".") if key.split(".")[0] in inside else (key, "", "")
                place = members.setdefault(outer, {}) if inner else members
                if (inner or outer) in place or len(members) > count:
                    break
                place[inner or outer] = [value] if key in heavy else value
        except (BadFile, BadRow) as error:
            return members, error
        return members, None

    def items(self) -> Iterator[Any]:
        """Yield the items of a document that is a list, one after the other."""
        place = self.skip(0)
        self.expect(place, "[")
        for item, behind in self._items(place):
            place = behind
            if item is not _NOTHING:
                yield item
        self.end(place)

    def _items(self, place: int) -> Iterator[tuple[Any, int]]:
        """Yield each item of the list at ``place`` with the place after the item, and finally `_NOTHING` after the list."""
        place = self.skip(place + 1)
        if self.text[place : place + 1] == "]":
            yield _NOTHING, place + 1
            return
        while True:
            item, place = self.decode(place)
            yield item, place
            place = self.skip(place)
            if self.expect(place, ",]") == "]":
                yield _NOTHING, place + 1
                return
            place = self.skip(place + 1)


_NOTHING: Any = object()


def document(path: Path) -> Document:
    """Return the file as one JSON document."""
    size = path.stat().st_size
    if size > LARGEST:
        raise too_large(path, size)
    return Document(path, path.read_bytes())


def lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines with their lines from 1, one at a time in memory.

    Older tools wrote one JSON list under the same name; such a file yields its items, numbered from 1.
    """
    with path.open("rb") as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        if start.startswith(b"["):
            for number, item in enumerate(document(path).items(), start=1):
                yield number, _object(path, number, item)
            return
        file.seek(0)
        number = 0
        while line := file.readline(LARGEST + 1):
            number += 1
            if len(line) > LARGEST:
                raise BadRow(path, number, f"more than {LARGEST >> 20} MiB in one line")
            if line.strip():
                yield number, _object(path, number, Document(path, line, line=number).value())


def _object(path: Path, number: int, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRow(path, number, f"got {type(value).__name__}, expected a JSON object")
    return value


def too_large(path: Path, size: int, what: str = "") -> BadFile:
    """Return the error about a document over the size limit."""
    problem = f"{what}is {size / (1 << 20):,.0f} MiB; one JSON document must be at most {LARGEST >> 20} MiB"
    return BadFile(path, problem, "Split the log, or let the tool write the log again in compressed form.")
