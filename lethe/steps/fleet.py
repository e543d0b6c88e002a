"""What a whole fleet of checkpoints costs: GPU hours, processor hours, storage, and DVC's own time.

Every rate is a number that a command of the repository printed, or the user's own. No rate of a GPU is known here: without
the user's, the GPU hours are unknown and the tokens are given alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lethe.errors import BadValue
from lethe.statistics.planning import expected_sequential

PER_MODEL = 6  # stages: sample, likelihood, score, exact, metrics, epsilon_star
SOLE = 3  # prepare, compare, report


@dataclass(frozen=True)
class Rate:
    """A number with its unit, and the command that printed it."""

    value: float
    unit: str
    measured_by: str


MEASURED: Mapping[str, Rate] = {
    "sharing": Rate(
        18.5, "times the speed of answers drawn one by one, on a processor, small model", "make bench-sampling"
    ),
    "bytes_per_answer": Rate(79.0, "bytes of generations and scores", "make bench-load"),
    "score": Rate(62_100.0, "answers per processor second", "make bench-load"),
    "metrics": Rate(0.0042, "processor seconds per question", "make bench-load"),
    "record": Rate(8.9, "seconds per model in MLflow", "make bench-load"),
    "dvc_read": Rate(0.016, "processor seconds per stage, once per run", "make bench-dvc-graph"),
    "dvc_start": Rate(0.6, "processor seconds per stage that runs", "make bench-dvc-graph"),
    "dvc_lock": Rate(
        0.008, "processor seconds per stage that runs and stage of the project", "make bench-dvc-graph"
    ),
}


@dataclass(frozen=True)
class Fleet:
    """The size of the work, and how its questions are decided.

    ``leak`` is the leak probability that every question is taken to have, for the expected length of sequential stopping at
    ``tau``, ``tau_leak`` and ``alpha``. ``rows`` are the tokens of exact enumeration per question. ``folder_models`` is the
    number of models in one project folder.
    """

    checkpoints: int = 1000
    prompts: int = 4000
    answers: int = 1024
    new_tokens: int = 40
    parameters: float = 7e9
    rows: int = 5000
    leak: float = 0.0
    tau: float = 0.05
    tau_leak: float = 0.1
    alpha: float = 0.01
    folder_models: int = 50

    def __post_init__(self) -> None:
        for name in ("checkpoints", "prompts", "answers", "new_tokens", "parameters", "rows", "folder_models"):
            if not getattr(self, name) >= 1:
                raise BadValue(name, getattr(self, name), "at least 1")


@dataclass(frozen=True)
class Way:
    """One way to draw: its answers, their tokens, and what both take; None without a GPU's rate.

    ``tokens`` are those of the answers; exact enumeration has none, and ``tokens`` are those that it puts through the model.
    """

    name: str
    answers: float
    tokens: float
    gpu_hours: float | None
    answer_bytes: float
    score_hours: float


@dataclass(frozen=True)
class DvcTime:
    """DVC's own processor hours for a first run of all stages, and seconds of one with nothing to do."""

    folders: int
    stages: int
    hours: float
    idle_seconds: float


@dataclass(frozen=True)
class FleetCost:
    """The cost of a fleet; ``samples`` is the expected number of answers per question under sequential stopping."""

    fleet: Fleet
    rates: Mapping[str, Rate]
    tokens_per_second: float | None
    samples: float
    ways: tuple[Way, ...]
    weight_bytes: float
    metrics_hours: float
    record_hours: float
    dvc: tuple[DvcTime, DvcTime]


def with_rates(given: Mapping[str, float]) -> dict[str, Rate]:
    """The measured rates, with the user's own in place of those that ``given`` names; raises `BadValue`."""
    rates = dict(MEASURED)
    for name, value in given.items():
        if name not in rates:
            raise BadValue("--measured", name, f"one of {', '.join(rates)}")
        if not 0 < value < float("inf"):
            raise BadValue(f"--measured {name}", value, "a number above 0")
        rates[name] = replace(rates[name], value=value, measured_by="given")
    return rates


def fleet_cost(fleet: Fleet, tokens_per_second: float | None, rates: Mapping[str, Rate] = MEASURED) -> FleetCost:
    """The cost of a fleet.

    Notes
    -----
    Every answer is taken as long as ``new_tokens``. Shared prefixes are taken to speed a GPU up as they do a processor, which
    no command measured; sequential stopping shares less, so no product of the two is given.

    The expected number of answers under sequential stopping is exact for
    scores of 0 and 1 with probability ``leak`` (`lethe.statistics.planning.expected_sequential`).

    Examples
    --------
    >>> cost = fleet_cost(Fleet(checkpoints=1, prompts=1, answers=1024, new_tokens=10), tokens_per_second=10250.0)
    >>> plain, *others = cost.ways
    >>> plain.name, plain.answers, plain.tokens, round(plain.gpu_hours * 3600, 3)
    ('plain', 1025, 10250, 1.0)
    """
    if tokens_per_second is not None and not 0 < tokens_per_second < float("inf"):
        raise BadValue("--rate", tokens_per_second, "a number above 0")
    questions = fleet.checkpoints * fleet.prompts
    samples = expected_sequential(fleet.leak, fleet.tau, fleet.tau_leak, fleet.alpha, fleet.answers).samples
    whole, early = questions * (fleet.answers + 1), questions * (samples + 1)
    drawn = {
        "plain": (whole, whole * fleet.new_tokens, 1.0),
        "shared prefixes": (whole, whole * fleet.new_tokens, rates["sharing"].value),
        "sequential stopping": (early, early * fleet.new_tokens, 1.0),
        "exact enumeration alone": (0, questions * fleet.rows, 1.0),
    }
    ways = tuple(
        Way(
            name,
            answers,
            tokens,
            None if tokens_per_second is None else tokens / (tokens_per_second * speed) / 3600,
            answers * rates["bytes_per_answer"].value,
            answers / rates["score"].value / 3600,
        )
        for name, (answers, tokens, speed) in drawn.items()
    )
    folders = -(-fleet.checkpoints // fleet.folder_models)
    return FleetCost(
        fleet=fleet,
        rates=rates,
        tokens_per_second=tokens_per_second,
        samples=samples,
        ways=ways,
        weight_bytes=2 * fleet.parameters * fleet.checkpoints,
        metrics_hours=questions * rates["metrics"].value / 3600,
        record_hours=fleet.checkpoints * rates["record"].value / 3600,
        dvc=(_dvc(1, fleet.checkpoints, rates), _dvc(folders, min(fleet.folder_models, fleet.checkpoints), rates)),
    )


def _dvc(folders: int, models: int, rates: Mapping[str, Rate]) -> DvcTime:
    """DVC's time in this many project folders of this many models each."""
    stages = PER_MODEL * models + SOLE
    read = rates["dvc_read"].value * stages
    each = rates["dvc_start"].value + rates["dvc_lock"].value * stages
    return DvcTime(folders, stages, folders * (read + stages * each) / 3600, folders * read)
