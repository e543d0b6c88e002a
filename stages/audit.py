"""Stage `audit@NAME`: one entry of `audits`, by the module of its kind."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import audit as step
from stages import entry, named


def run(settings: Params, root: Path, name: str) -> None:
    """Run one entry of ``audits``; write ``root/audits/name.json`` and ``root/audits/name``."""
    for sentence in step.run(name, named("audits", settings.audits, name), root).sentences:
        print(f"{name}: {sentence}")


main = entry(run, __name__)
