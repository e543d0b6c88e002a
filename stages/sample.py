"""Stage `sample@MODEL`: many answers per forget question, fewer per utility question, and the greedy answers."""

from pathlib import Path

from lethe.config import Params
from lethe.sampling.word_rule import read_rule
from lethe.steps import sample as step
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Draw the answers of one model; write ``root/generations/name``."""
    rule = None
    if settings.sample.stop == "word":
        rule = read_rule(root / "references")
    model = settings.models[name]
    step.run(
        name,
        settings.asked(name),
        model,
        root,
        parts=settings.score.parts,
        rule=rule,
    )


main = entry(run, __name__)
