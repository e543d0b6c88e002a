"""The stages of dvc.yaml.

DVC starts them as `python -m stages.NAME`. Where DVC's own environment is not activated (`.venv/bin/dvc repro`), that
`python` is another one, which lacks Lethe's libraries: the stage then starts again in the environment's own.
"""

import importlib.util
import inspect
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
    """Return a stage's main function: ``run`` with params.yaml, data/ and a name; it runs at once where DVC or a person
    started it, with `--help` or a wrong number of names only told how.
    """

    def main(*name: str) -> None:
        from lethe import config

        run(config.load(), Path("data"), *name)

    if module == "__main__":
        from lethe.process import run_stage

        _tell_usage(run)
        run_stage(main)
    return main


def _tell_usage(run: Callable[..., None]) -> None:
    """Print how the stage is started and leave, where a person asks or names too much or too little."""
    arguments = sys.argv[1:]
    names = ["NAME"] if "name" in inspect.signature(run).parameters else []
    wants_help = bool({"--help", "-h"} & set(arguments))
    if not wants_help and len(arguments) == len(names):
        return
    stage = Path(sys.argv[0]).stem
    usage = " ".join([f"usage: python stages/{stage}.py", *names])
    if wants_help:
        print(f"{usage}\n\n{sys.modules['__main__'].__doc__}")
        sys.exit(0)
    print(f"{usage}; got {' '.join(arguments) or 'no name'}.", file=sys.stderr)
    sys.exit(2)


def named(section: str, entries: Mapping[str, T], name: str) -> T:
    """Return the entry of this name; raise `BadValue` with the names that ``section`` of params.yaml has."""
    from lethe.errors import BadValue

    if name not in entries:
        legal = f"a name under {section} in params.yaml: {', '.join(entries) or 'there is none'}"
        raise BadValue(section.removesuffix("s"), name, legal)
    return entries[name]
