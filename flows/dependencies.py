"""The source dependencies of every stage in dvc.yaml, written from what the stage imports.

``python -m flows.dependencies`` rewrites the lines between the two markers of each stage; with ``--check`` the command only
reports whether these lines are up to date. All other lines (data, prompts, models, templates) are written by hand and stay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import yaml

from lethe.io.cache import Sources

BEGIN, END = "# sources: make deps", "# end of sources"
FILE = "dvc.yaml"
SHARD = "_shard"  # a group of shards runs the code of the whole stage
# Packages of which one member is loaded, by the stage's own entry in params.yaml, and what DVC calls that member.
# An edited member runs the stages again that load it, and no other.
BY_ENTRY = {"unlearn": {"lethe.unlearning.methods": "${item.loss}"}}


class OutsideOfCommon(Exception):
    """A member that its stages load by name imports a module on which they do not depend."""


def dependencies(sources: Sources, stage: str) -> list[str]:
    """The files and folders of code behind a stage, as dvc.yaml lists them."""
    stage = stage.removesuffix(SHARD)
    members = BY_ENTRY.get(stage, {})
    common = sources.closure(f"stages.{stage}", by_name=True, without=members)
    for package in members:
        for member in sources.members(package):
            more = set(sources.closure(member, by_name=True, without=members)) - {*common, member}
            if more and not member.rpartition(".")[2].startswith("_"):
                raise OutsideOfCommon(
                    f"{member} imports {', '.join(sorted(more))}, which the stage {stage} does not depend on. Move what "
                    f"methods share into a module that lethe.unlearning.loop imports."
                )
    named = [f"{package.replace('.', '/')}/{member}.py" for package, member in members.items()]
    return [f"stages/{stage}.py", *sorted([*fold(sources, common), *named])]


def fold(sources: Sources, modules: Iterable[str]) -> list[str]:
    """Modules of the library as paths: a folder where every module below it is among them, else its files.

    Files without content are no dependencies.
    """
    places = (sources.place(module) for module in modules if module.startswith("lethe."))
    wanted = {place for place in places if place is not None}
    found: list[str] = []

    def visit(folder: Path) -> None:
        files = set(folder.rglob("*.py"))
        if files <= wanted | {path for path in files if not path.stat().st_size} and wanted & files:
            if any(path.stat().st_size for path in files):
                found.append(str(folder.relative_to(sources.root)))
            return
        found.extend(
            str(path.relative_to(sources.root))
            for path in wanted & set(folder.glob("*.py"))
            if path.stat().st_size
        )
        for below in folder.iterdir():
            if below.is_dir() and wanted & set(below.rglob("*.py")):
                visit(below)

    for top in (sources.root / "lethe").iterdir():
        if top.is_dir():
            visit(top)
        elif top in wanted and top.stat().st_size:
            found.append(str(top.relative_to(sources.root)))
    return found


def rewritten(text: str, sources: Sources) -> str:
    """The text of dvc.yaml with the lines between the markers as they should be."""
    lines: list[str] = []
    stage, skipping = "", False
    stages = yaml.safe_load(text)["stages"]
    for line in text.splitlines():
        if line.startswith("  ") and line.strip().rstrip(":") in stages and line[2] != " ":
            stage = line.strip().rstrip(":")
        if line.strip() == END:
            skipping = False
        if not skipping:
            lines.append(line)
        if line.strip() == BEGIN:
            skipping = True
            indent = line[: len(line) - len(line.lstrip())]
            lines += [f"{indent}- {path}" for path in dependencies(sources, stage)]
    return "\n".join(lines) + "\n"


def main(root: Path, check: bool) -> int:
    """Rewrite or check ``root/dvc.yaml``; the exit status."""
    place = root / FILE
    before = place.read_text(encoding="utf-8")
    after = rewritten(before, Sources(root))
    if check:
        if after != before:
            print(f"{FILE} is out of date with what the stages import: run `make deps`.", file=sys.stderr)
        return int(after != before)
    if after != before:
        place.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd(), "--check" in sys.argv[1:]))
