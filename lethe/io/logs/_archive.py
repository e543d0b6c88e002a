"""Untrusted zip archives: entries are read into memory within a bound and never extracted to a path.

Inspect compresses with Zstandard (method 93), which `zipfile` reads only from Python 3.14 on; pyarrow decodes it here.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from lethe.errors import BadFile
from lethe.io.logs._json import LARGEST, Document, too_large

ZSTANDARD = 93
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, ZSTANDARD)
LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, length of the name, length of the extra field
CHUNK = 1 << 20
LARGEST_EXPANSION = 1000  # logs of real runs stay below 100; a bomb is far above
ALWAYS_LEGAL = 1 << 30  # total bytes to which an archive of any size may expand
ENTRY_ALWAYS_LEGAL = 1 << 26  # bytes to which an entry of any size may expand
ENCRYPTED = 1


class Archive:
    """The entries of a zip archive; use as a context manager."""

    def __init__(self, path: Path):
        self.path = path
        self._file: BinaryIO = path.open("rb")
        try:
            self._zip = zipfile.ZipFile(self._file)
            self.entries = self._zip.infolist()
            self._check()
        except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, OSError, EOFError) as error:
            self._file.close()
            raise BadFile(
                path,
                f"is not a complete zip archive ({_reason(error)})",
                "Copy or write the file again: its end is missing.",
            ) from None
        except BadFile:
            self._file.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def _check(self) -> None:
        """Refuse archives that no tool writes: overlapping entries, or an expansion beyond that of any real log."""
        total = sum(entry.file_size for entry in self.entries)
        size = self.path.stat().st_size
        if total > max(ALWAYS_LEGAL, LARGEST_EXPANSION * size):
            raise BadFile(self.path, f"its {size:,} bytes expand to {total:,}; a log expands far less")
        placed = sorted(self.entries, key=lambda entry: entry.header_offset)
        ends = 0
        for entry in placed:
            if entry.header_offset < ends:
                raise BadFile(self.path, f"its entry {entry.filename[:100]!r} overlaps another entry")
            ends = entry.header_offset + LOCAL_HEADER.size + entry.compress_size
        if ends > size:
            raise BadFile(self.path, "its entries reach beyond the end of the file", "The file is cut off.")

    def document(self, entry: zipfile.ZipInfo) -> Document:
        """Return the entry as a JSON document."""
        return Document(self.path, self.read(entry), entry.filename)

    def read(self, entry: zipfile.ZipInfo) -> bytes:
        """Return the content of an entry; raise `BadFile` for a damaged entry."""
        what = f"its entry {entry.filename[:100]!r} "
        if entry.compress_type not in METHODS:
            raise BadFile(
                self.path, f"{what}is packed by method {entry.compress_type}; the method must be 0, 8 or 93"
            )
        if entry.flag_bits & ENCRYPTED:
            raise BadFile(self.path, f"{what}is encrypted")
        if max(entry.file_size, entry.compress_size) > LARGEST:
            raise too_large(self.path, max(entry.file_size, entry.compress_size), what)
        if entry.file_size > max(ENTRY_ALWAYS_LEGAL, LARGEST_EXPANSION * entry.compress_size):
            packed = f"{entry.compress_size:,} bytes expand to {entry.file_size:,}"
            raise BadFile(self.path, f"{what}is a zip bomb: {packed}; a log expands far less")
        try:
            content = self._zstandard(entry) if entry.compress_type == ZSTANDARD else self._native(entry)
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError) as error:
            raise BadFile(self.path, f"{what}is damaged ({_reason(error)})") from None
        if len(content) != entry.file_size or zlib.crc32(content) != entry.CRC:
            raise BadFile(self.path, f"{what}is damaged (its length or checksum differs from the stated value)")
        return content

    def _native(self, entry: zipfile.ZipInfo) -> bytes:
        with self._zip.open(entry) as stream:
            return stream.read(entry.file_size + 1)

    def _zstandard(self, entry: zipfile.ZipInfo) -> bytes:
        """Return the stated number of bytes and at most one chunk more, whatever the frames contain."""
        import pyarrow as pa

        self._file.seek(entry.header_offset)
        signature, name, extra = LOCAL_HEADER.unpack(self._file.read(LOCAL_HEADER.size))
        if signature != b"PK\x03\x04":
            raise ValueError("no entry begins at the place in the list of entries")
        self._file.seek(name + extra, 1)
        packed = self._file.read(entry.compress_size)
        parts, left = [], entry.file_size
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            while left >= 0 and (part := stream.read(min(CHUNK, left + 1))):
                parts.append(part)
                left -= len(part)
        return b"".join(parts)


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
