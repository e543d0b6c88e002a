"""A study in steps, of which each writes an outcome of its own: the next start skips the steps that have one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from lethe.io.files import Json
from lethe.progress import tell
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
