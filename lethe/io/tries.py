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
from lethe.io.files import SCHEMA_VERSION, Json, make_folder, read_artifact, write_json

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


@dataclass(frozen=True)
class Declared:
    """The try ``number`` of a test that was decided at a level declared before it, ``alpha``; the first had ``first``.

    The first try keeps its level, and try j needs 2 / (j (j + 1)) of it: all tries together take at most twice the first's.
    """

    number: int
    alpha: float
    first: float
    kept: bool = True

    @property
    def level(self) -> float:
        """The largest level that this try may have.

        >>> Declared(1, 0.05, 0.05).level, Declared(4, 0.05, 0.05).level
        (0.05, 0.005)
        """
        return 2 * self.first / (self.number * (self.number + 1))

    @property
    def is_allowed(self) -> bool:
        return self.alpha <= self.level

    def sentence(self, about: str, key: str) -> str:
        """Which try this is; where its level is too large, what to declare under ``key``."""
        if not self.kept:
            return f"Tries are not counted, because {FOLDER} cannot be written, so this counts as try 1."
        all_tries = f"all tries together are wrong with probability at most {2 * self.first:g}"
        if self.is_allowed:
            return f"This is try {self.number} of {about}; {all_tries}. {ELSEWHERE}"
        return (
            f"This is try {self.number} of {about}, with other draws, at level {self.alpha:g}; so that {all_tries}, it needs "
            f"{key} of at most {self.level:.3g}."
        )


@dataclass(frozen=True)
class AtAnyTime(Try):
    """A try of a test that holds at any time: it takes all of alpha, however often it is repeated (`lethe.io.processes`)."""

    @property
    def level(self) -> float:
        return self.alpha


def begin(tested: object, draws: object, alpha: float, folder: Path | None = None) -> Try:
    """Record that a gate on ``tested`` (gate, model and data) is asked about ``draws``, and return which try this is.

    Both are values that `digest` takes. The count is kept in ``folder``, by default `FOLDER`. A damaged record is an error: a
    count that is lost would open a gate.
    """
    found = _counted(tested, draws, alpha, folder)
    if found is None:
        return Try(1, alpha, kept=False)
    return Try(found[0], alpha)


def declare(tested: object, draws: object, alpha: float, folder: Path | None = None) -> Declared:
    """As `begin`, for a test whose ``draws`` were decided at a level ``alpha`` that was declared before them."""
    found = _counted(tested, draws, alpha, folder)
    if found is None:
        return Declared(1, alpha, alpha, kept=False)
    number, first = found
    return Declared(number, alpha, first)


def _counted(
    tested: object, draws: object, alpha: float, folder: Path | None
) -> tuple[int, float] | None:
    """The number of a try, which is recorded, and the level of the first; None where the folder cannot be written."""
    path = (folder or FOLDER) / f"{digest(tested)}.json"
    try:
        make_folder(path.parent)
    except BadFile:
        return None

    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two calls at once each finds the other's try
        record: dict[str, Json] = {"draws": [], "alpha": alpha}
        if path.is_file():
            record = read_artifact(path)
        seen: list[str] = record["draws"]
        first: float = record.get("alpha", alpha)
        drawn = digest(draws)
        if drawn not in seen:
            seen.append(drawn)
            write_json(path, {"schema": SCHEMA_VERSION, "draws": seen, "alpha": first})
    return seen.index(drawn) + 1, first
