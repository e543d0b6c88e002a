"""What an experiment brought: one committed JSON file each, with the command, the commit and the
seeds that made it.

docs/papers.md is written from these files (`lethe study papers`). An outcome is kept whatever it says;
a later run replaces it.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from scipy import stats

from lethe.errors import BadInput
from lethe.io.files import Json, read_json, write_json
from lethe.process import git
from studies import tracked

FOLDER = Path(__file__).parent / "outcomes"
ELSEWHERE = Path("data/studies/outcomes")  # of a run that is not to be committed
KEYS = ("name", "command", "commit", "date", "seeds", "settings", "values")


def write(
    name: str,
    command: str,
    seeds: Sequence[int],
    settings: Mapping[str, Json],
    values: Json,
    *,
    commit: str,
    folder: Path = FOLDER,
) -> Path:
    """Write an outcome and return its file.

    Parameters
    ----------
    name
        The file's name, without its ending.
    command
        What repeats the experiment, as one types it in a clone.
    seeds
        Every seed, fixed before the first run.
    settings
        What was fixed beforehand, the scale of the experiment among it.
    values
        What came out.
    commit
        The code that ran (`commit_of_checkout`).
    """
    path = folder / f"{name}.json"
    outcome = {
        "name": name,
        "command": command,
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
        "seeds": list(seeds),
        "settings": dict(settings),
        "values": values,
    }
    write_json(path, outcome)
    return path


def commit_of_checkout() -> str:
    """Return the commit of the checkout; with -dirty where its code has changes that no commit holds."""
    root = Path(__file__).parents[1]
    described = git(
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
        root=root,
    )
    return described or "no repository"


@dataclass(frozen=True)
class Study:
    """A study that runs: what is known of it before it brings anything.

    With ``keep`` its outcome goes to `FOLDER`, which is committed, and otherwise to `ELSEWHERE`.
    """

    name: str
    command: str
    seeds: Sequence[int]
    settings: Mapping[str, Json]
    keep: bool = False
    commit: str = field(default_factory=lambda: commit_of_checkout())  # when it begins

    def finish(self, values: Json, figures: Sequence[Path] = ()) -> Path:
        """Write the outcome, log it with its ``figures`` to MLflow, and return its file."""
        folder = FOLDER if self.keep else ELSEWHERE
        command = f"{self.command} --keep" if self.keep else self.command
        (folder / self.name).parent.mkdir(parents=True, exist_ok=True)
        path = write(
            self.name,
            command,
            self.seeds,
            self.settings,
            values,
            commit=self.commit,
            folder=folder,
        )
        sentence = tracked.log(path, figures)
        if sentence:
            print(sentence, file=sys.stderr)
        return path


def read(path: Path) -> dict[str, Json]:
    """Return an outcome; `BadInput` where the file lacks what makes it repeatable."""
    outcome = read_json(path)
    missing = [key for key in KEYS if key not in outcome]
    if missing:
        raise BadInput(f"{path}: no {', '.join(missing)}. Run the experiment again.")
    return outcome


def share(count: int, n: int) -> dict[str, float]:
    """The share ``count / n`` of runs or questions, with both ends of its exact (Clopper-Pearson) interval of 95%."""
    interval = stats.binomtest(int(count), n).proportion_ci()
    return {
        "mean": count / n,
        "smallest": float(interval.low),
        "largest": float(interval.high),
    }
