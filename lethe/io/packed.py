"""Files as people send them: plain, or packed by gzip or Zstandard, which the first bytes of a file say."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO

from lethe.errors import BadFile, reason_of

GZIP = b"\x1f\x8b"
ZSTANDARD = b"\x28\xb5\x2f\xfd"
ENDINGS = (".gz", ".zst")
BUFFER = 1 << 20
# A log of equal rows packs hundreds of times smaller; what expands further is refused before it fills the memory.
LARGEST_EXPANSION = 400
ALWAYS_LEGAL = 512 << 20  # bytes to which a file of any size may expand


def suffix_of(path: Path) -> str:
    """The ending that says what a file holds, in small letters and without that of its packing.

    >>> suffix_of(Path("scores.CSV")), suffix_of(Path("scores.csv.gz")), suffix_of(Path("log.gz"))
    ('.csv', '.csv', '')
    """
    name = path
    if path.suffix.lower() in ENDINGS:
        name = path.with_suffix("")
    return name.suffix.lower()


def packing_of(path: Path) -> str:
    """ "gzip" or "zstd" by the first bytes of a file, else an empty text."""
    with path.open("rb") as file:
        start = file.read(len(ZSTANDARD))
    if start.startswith(GZIP):
        return "gzip"
    return "zstd" if start == ZSTANDARD else ""


def opened(path: Path) -> BinaryIO:
    """Open a file to read its plain bytes; a packed one is unpacked while it is read, and `BadFile` where it is damaged."""
    packing = packing_of(path)
    if not packing:
        return path.open("rb")
    return io.BufferedReader(_Unpacked(path, packing), BUFFER)


class _Unpacked(io.RawIOBase):
    """The plain bytes of a packed file; of a bomb, as many as are legal."""

    def __init__(self, path: Path, packing: str):
        self._path = path
        self._file = _file_of(path, packing)
        self._left = max(ALWAYS_LEGAL, LARGEST_EXPANSION * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        try:
            part = self._file.read(len(target))
        except (OSError, EOFError, ValueError, zlib.error) as error:
            problem = f"cannot be unpacked ({reason_of(error)})"
            raise BadFile(self._path, problem, "Copy or pack the file again.") from None
        self._left -= len(part)
        if self._left < 0:
            problem = f"expands to more than {LARGEST_EXPANSION} times its bytes"
            raise BadFile(self._path, problem, "Unpack the file, and name the plain file.")
        target[: len(part)] = part
        return len(part)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _file_of(path: Path, packing: str) -> BinaryIO:
    if packing == "gzip":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    import pyarrow as pa

    return pa.input_stream(str(path), compression="zstd")
