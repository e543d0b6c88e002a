"""Finished work in files that may be lost: each carries a digest of its content, and a damaged file counts as missing.

A flipped bit in a file of finished answers would otherwise become part of a result, and half a file would stop the rerun.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from lethe.io.atomic import write_text
from lethe.io.json_files import plain


def keep(path: Path, value: object) -> None:
    """Write ``value`` as strict JSON below a line with its digest, atomically.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keep(Path(folder) / "a.json", {"texts": ["x"]})
    ...     kept(Path(folder) / "a.json")
    {'texts': ['x']}
    """
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
    write_text(path, f"{_digest(text.encode())}\n{text}\n")


def kept(path: Path) -> Any:
    """Return the value that `keep` wrote; None where the file is missing, unreadable or damaged."""
    try:
        first, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        print(f"{path} cannot be read ({error.strerror}) and counts as missing", file=sys.stderr, flush=True)
        return None
    content = content.removesuffix(b"\n")
    if first != _digest(content).encode():
        print(f"{path} is damaged and counts as missing", file=sys.stderr, flush=True)
        return None
    return json.loads(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
