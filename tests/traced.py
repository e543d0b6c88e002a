"""``python -m tests.traced STAGE ...``: run stages in this folder and print what each used beyond its identity, as JSON.

From the moment that a stage has loaded params.yaml, a profile function sees every call. A file of `lethe` whose functions ran
must be hashed, and a property of the settings that ran must be among the hashed values.
"""

import json
import sys
import threading
from pathlib import Path
from types import FrameType

from tests.small import ROOT, work

# Modules whose functions change no output (`lethe.identity.LEFT_OUT`), and settings, whose values are hashed.
EXEMPT = ("config/", "errors.py", "progress.py", "registry.py", "tracking/", "__init__.py")


def main(stages: list[str]) -> None:
    from lethe.process import same_numbers

    same_numbers()
    from lethe import config

    settings = config.load()
    ran: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            ran.add((frame.f_code.co_filename, frame.f_code.co_name))

    def load() -> config.Params:
        sys.setprofile(watch)
        threading.setprofile(watch)
        return settings

    config.load = load
    unhashed = {}
    for stage in stages:
        ran.clear()
        work(stage)
        sys.setprofile(None)
        threading.setprofile(None)
        unhashed[stage] = unhashed_of(stage, ran, settings)
    print(json.dumps(unhashed))


def unhashed_of(entry: str, ran: set[tuple[str, str]], settings: object) -> list[str]:
    """The files and settings' properties that ran in the entry of a stage, and that its identity lacks."""
    from lethe.config import fields, measuring, schema
    from lethe.identity import library, resolved
    from stages import sources

    stage, _, name = entry.partition("@")
    keys = sources.keys_of(ROOT)[stage]
    hashed = {
        str(library().place(module))
        for module in library().closure(*sources.modules_of(settings, stage, name))
    }
    package = f"{ROOT / 'lethe'}/"
    files = {file.removeprefix(package) for file, _ in ran if file.startswith(package)}
    found = [
        file
        for file in sorted(files)
        if file.endswith(".py") and package + file not in hashed and not file.startswith(EXEMPT)
    ]
    if stage not in sources.WITH_NAMES:
        found = [file for file in found if not file.startswith("results/quantities/")]
    models = [
        value
        for module in (measuring, fields, schema)
        for value in vars(module).values()
        if isinstance(value, type)
    ]
    properties = {
        name
        for model in models
        for name, value in vars(model).items()
        if isinstance(value, property)
    }
    settings_ran = {name for file, name in ran if Path(file).parent == ROOT / "lethe/config"}
    values = _names(resolved(sources.values_of(settings, name, keys)))
    return found + sorted(settings_ran & properties - values)


def _names(values: object) -> set[str]:
    """The last part of every key in the hashed settings."""
    names: set[str] = set()
    if isinstance(values, dict):
        for key, value in values.items():
            names |= {key.rpartition(".")[2]} | _names(value)
    return names


if __name__ == "__main__":
    main(sys.argv[1:])
