"""The unlearning game on language models, whole authors at a time."""

from pathlib import Path

from lethe.audits import SCRATCH, AuditResult, Runner, in_processes
from lethe.audits.unlearning_game import TextParams as Params
from lethe.audits.unlearning_game.result import played


def play(settings: Params, scratch: Path | None = None, run: Runner | None = None) -> AuditResult:
    """Play a game of language models; ``run`` starts its trainings, by default each in a process of its own."""
    from lethe.audits.unlearning_game.text_play import play

    return played(*play(settings, scratch or SCRATCH, run or in_processes))
