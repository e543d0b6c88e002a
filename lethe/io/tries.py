"""How often a gate was tried: the sets of draws that it was asked about, for each thing that it tests, kept in the folder.

A gate that may be tried until it opens is worth nothing: a model just above the threshold opens it after some tries. So try j
takes alpha / (j (j + 1)) of the level, and all tries together take at most alpha (a union bound: the sum of 1 / (j (j + 1))
is 1). Every set of fresh draws is a try, whatever its seed, its number of answers or the threshold; the same draws read again
are the try that they were. A try is written before anything is decided with it, so that a killed call loses no count.
"""

import fcntl
from dataclasses import dataclass
from pathlib import Path

from lethe.errors import BadFile
from lethe.identity import digest
from lethe.io.files import SCHEMA_VERSION, make_folder, read_artifact, write_json

FOLDER = Path(".lethe/tries")
ELSEWHERE = "Tries on other machines and in other folders are not counted."


@dataclass(frozen=True)
class Try:
    """The ``number`` of a try, from 1, the ``alpha`` that all tries share, and whether the folder ``kept`` it."""

    number: int
    alpha: float
    kept: bool = True

    @property
    def level(self) -> float:
        """The probability that this try is wrong.

        >>> Try(number=1, alpha=0.01).level, Try(number=3, alpha=0.06).level
        (0.005, 0.005)
        """
        return self.alpha / (self.number * (self.number + 1))

    def sentence(self, about: str = "this model and data") -> str:
        """Which try this is, and what corrects for it."""
        count = f"This is try {self.number} of this gate on {about}"
        if not self.kept:
            count = f"Tries are not counted, because {FOLDER} cannot be written, so this counts as try 1"
        level = f"{self.alpha:g} / ({self.number} x {self.number + 1})"
        return (
            f"{count}; its level is {level}, so that all tries together are wrong with probability at most {self.alpha:g}. "
            f"{ELSEWHERE}"
        )

    def as_json(self) -> dict[str, object]:
        return {"count": self.number, "alpha": self.level, "kept": self.kept}


def begin(tested: object, draws: object, alpha: float, folder: Path | None = None) -> Try:
    """Record that a gate on ``tested`` (gate, model and data) is asked about ``draws``, and return which try this is.

    Both are values that `digest` takes. The count is kept in ``folder``, by default `FOLDER`. A damaged record is an error: a
    count that is lost would open a gate.
    """
    path = (folder or FOLDER) / f"{digest(tested)}.json"
    try:
        make_folder(path.parent)
    except BadFile:
        return Try(1, alpha, kept=False)

    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two calls at once each finds the other's try
        seen: list[str] = read_artifact(path)["draws"] if path.is_file() else []
        drawn = digest(draws)
        if drawn not in seen:
            seen.append(drawn)
            write_json(path, {"schema": SCHEMA_VERSION, "draws": seen})
    return Try(seen.index(drawn) + 1, alpha)
