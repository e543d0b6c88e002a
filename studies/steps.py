"""A study in steps, of which each writes an outcome of its own: the next start skips the steps that have one."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from lethe.instruction_set import in_use
from lethe.io.files import Json
from lethe.progress import tell
from lethe.results.table import Result
from studies import outcome

if TYPE_CHECKING:
    from dataclasses import Field

Outcomes = Mapping[str, Mapping[str, Json]]  # the values of the steps that are done, by their names


class NamedStep(Protocol):
    """A step: a dataclass, whose fields are settings of its outcome."""

    __dataclass_fields__: ClassVar[dict[str, "Field"]]

    @property
    def name(self) -> str: ...


OneStep = TypeVar("OneStep", bound=NamedStep)


@dataclass(frozen=True)
class Steps(Generic[OneStep]):
    """A study and its steps.

    ``listed`` returns the steps in their order, which may follow from what is done; ``seeds`` those of a step, fixed before
    the first run; ``work`` does a step and returns its values.
    """

    study: str
    listed: Callable[[Outcomes], Iterable[OneStep]]
    seeds: Callable[[OneStep], Sequence[int]]
    work: Callable[[OneStep, Outcomes], Json]

    def run(
        self, keep: bool, limit: int | None = None, said: Callable[[str], None] = tell
    ) -> list[str]:
        """Do the steps that have no outcome yet, at most ``limit`` of them, and return their names."""
        done: list[str] = []
        while limit is None or len(done) < limit:
            outcomes = read_outcomes(self.study, keep)
            step = next_step(self.listed(outcomes), outcomes)
            if step is None:
                break
            said(f"{self.study}: {step.name}")
            begun = outcome.Study(
                f"{self.study}/{step.name}",
                f"lethe study {self.study}",
                self.seeds(step),
                {"preset": self.study, **asdict(step)},
                keep,
            )
            begun.finish(self.work(step, outcomes))
            done.append(step.name)
        return done


def next_step(steps: Iterable[OneStep], outcomes: Outcomes) -> OneStep | None:
    """The first step without an outcome; None when all are done."""
    for step in steps:
        if step.name not in outcomes:
            return step
    return None


def read_outcomes(study: str, keep: bool) -> dict[str, Mapping[str, Json]]:
    """The values of the steps of a study that are done, by their names."""
    folder: Path = (outcome.FOLDER if keep else outcome.ELSEWHERE.absolute()) / study
    return {path.stem: outcome.read(path)["values"] for path in sorted(folder.glob("*.json"))}


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Work in a folder, which is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(folder):
        yield


class Clock:
    """Starts when it is made; `cost` is what an outcome states of the work since then.

    A step that was killed took longer: these are the seconds of the process that ended it.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.processor = time.process_time()

    def cost(self) -> dict[str, Json]:
        """The seconds by the clock and of the processor, and the instruction set."""
        seconds = {
            "wall": round(time.monotonic() - self.began),
            "processor": round(time.process_time() - self.processor),
        }
        return {"seconds": seconds, "machine": in_use()}


def kept_rows(rows: Iterable[Result], kept: Collection[tuple[str, str]]) -> list[dict[str, Json]]:
    """The rows of questions of these pairs (quantity, basis) as JSON, without the fields that are empty.

    `Result(**values)` restores a row.
    """
    documents = []
    for row in rows:
        if row.scope == "question" and (row.quantity, row.basis) in kept:
            values = asdict(row).items()
            documents.append({name: value for name, value in values if value not in (None, "")})
    return documents
