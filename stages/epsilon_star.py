"""Stage `epsilon_star@MODEL`: the losses on the forget set against the losses on authors that no model trained on.

The members are the forget set. An Epsilon* near 0 says that the losses no longer distinguish the set from unseen authors.
"""

from pathlib import Path

from lethe.config import Params
from lethe.steps import epsilon_star as step
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Write the losses of one entry of ``models`` to ``root/epsilon_star/name``, and Epsilon* to the table of results."""
    step.run(name, settings.models[name], settings.epsilon_star, settings.sample.prompt, root)


main = entry(run, __name__)
