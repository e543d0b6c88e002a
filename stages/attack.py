"""Stage `attack@NAME`: one model under one attack, asked the forget questions after every budget."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import attack as step
from stages import entry, named


def run(settings: Params, root: Path, name: str) -> None:
    """Run one entry of ``attacks``; write ``root/attacks/name.json`` and ``root/attacks/name``."""
    attack = named("attacks", settings.attacks, name)
    step.run(name, attack, settings.sample, settings.score.params.get(attack.scorer), root)


main = entry(run, __name__)
