"""The stages of dvc.yaml.

DVC starts them as `python -m stages.NAME`. Where DVC's own environment is not activated (`.venv/bin/dvc repro`), that
`python` is another one, which lacks Lethe's libraries: the stage then starts again in the environment's own.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

if importlib.util.find_spec("ruamel") is None:
    _own = os.path.join(".venv", "bin", "python")
    if not os.path.exists(_own) or os.path.samefile(sys.prefix, ".venv"):
        sys.exit(
            "This python lacks Lethe's libraries. Activate their environment (`. .venv/bin/activate`) and run again."
        )
    os.execv(_own, [_own, *sys.orig_argv[1:]])

if sys.argv[0] == "-m":  # so Python names a module that it has yet to find: this process is a stage
    from lethe.process import begin_stage

    begin_stage()


def entry(run: Callable[..., None], module: str) -> Callable[..., None]:
    """Return a stage's main function: ``run`` with params.yaml, data/ and a name; it runs at once where DVC started it."""

    def main(*name: str) -> None:
        from lethe import config

        run(config.load(), Path("data"), *name)

    if module == "__main__":
        from lethe.process import run_stage

        run_stage(main)
    return main


def named(section: str, entries: Mapping[str, T], name: str) -> T:
    from lethe.errors import BadValue

    if name not in entries:
        legal = f"a name under {section} in params.yaml: {', '.join(entries) or 'there is none'}"
        raise BadValue(section.removesuffix("s"), name, legal)
    return entries[name]
