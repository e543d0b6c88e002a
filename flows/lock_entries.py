"""Entries of dvc.lock replaced in its text: DVC reads and writes the whole file anew for each stage that ran.

DVC's way keeps comments, which dvc.lock has none of, and takes four processor seconds for 120 stages; the time grows with the
number of stages. The text is the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HEAD = "schema: '2.0'\nstages:\n"
KEY = re.compile(r"  (?P<name>[\w@./-]+):")  # of a stage; DVC quotes any other name, and numbers


def replaced(text: str, entries: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The text of dvc.lock with these entries; new ones come last. None: the text is not as DVC writes it.

    Assumes that ``text`` was written by DVC, which gives each stage a line of its own and indents all else further.
    """
    from dvc.utils.serialize import dumps_yaml

    if not (text.startswith(HEAD) and text.endswith("\n")):
        return None
    found: dict[str, list[str]] = {}
    own: list[str] | None = None
    for line in _lines(text):
        if (key := KEY.fullmatch(line.rstrip("\n"))) and key["name"] not in found:
            own = found[key["name"]] = [line]
        elif own is not None and (line == "\n" or line.startswith("   ")):
            own.append(line)
        else:
            return None
    for name, entry in entries.items():
        block = dumps_yaml({"schema": "2.0", "stages": {name: entry}})
        lines = _lines(block)
        key = KEY.fullmatch(lines[0].rstrip("\n"))
        # An alias would need a number of its own in the file.
        if key is None or key["name"] != name or "&id" in block:
            return None
        found[name] = lines
    return HEAD + "".join(line for lines in found.values() for line in lines)


def _lines(text: str) -> list[str]:
    """The lines below the head; unlike `str.splitlines`, without a break at characters such as U+2028."""
    return [f"{line}\n" for line in text.removeprefix(HEAD).split("\n")[:-1]]


def write_entries() -> None:
    """Have DVC write only the entries of the stages that ran, where dvc.lock is as DVC writes it."""
    from dvc.dvcfile import Lockfile
    from dvc.stage import serialize

    from lethe.io.atomic import write_text

    whole = Lockfile.dump_stages

    def dump_stages(lockfile: Lockfile, stages: list[Any], **options: Any) -> None:
        entries: dict[str, Any] = {}
        for stage in stages:
            entries |= serialize.to_lockfile(stage, **options)
        text = _read(lockfile.path)
        new = replaced(text, entries) if text else None
        if new is None:
            whole(lockfile, stages, **options)
        elif new != text:
            write_text(lockfile.path, new)
            lockfile.repo.scm_context.track_file(lockfile.relpath)

    Lockfile.dump_stages = dump_stages


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):  # DVC's own way says what is wrong
        return ""
