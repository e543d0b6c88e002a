"""`lethe plan --cost`: what a fleet of checkpoints costs, from measured rates and the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from lethe.cli.console import print_json, print_table

if TYPE_CHECKING:
    from lethe.steps.fleet import FleetCost


def run(sizes: Mapping[str, float | None], rate: float | None, measured: Sequence[str], as_json: bool) -> None:
    """Print the cost of a fleet."""
    from lethe.errors import BadValue
    from lethe.steps.fleet import Fleet, fleet_cost, with_rates

    given = {}
    for text in measured:
        name, _, value = text.partition("=")
        try:
            given[name] = float(value)
        except ValueError:
            raise BadValue("--measured", text, "NAME=NUMBER, such as score=8000") from None
    fleet = Fleet(**{name: value for name, value in sizes.items() if value is not None})  # type: ignore[arg-type]
    cost = fleet_cost(fleet, rate, with_rates(given))
    if as_json:
        print_json(asdict(cost))
        return
    _print(cost)


def _print(cost: FleetCost) -> None:
    fleet = cost.fleet
    rows: list[list[object]] = [
        [
            way.name,
            f"{way.answers:,.0f}",
            f"{way.tokens:.3g}",
            "unknown: give --rate" if way.gpu_hours is None else f"{way.gpu_hours:,.0f}",
            _bytes(way.answer_bytes),
            f"{way.score_hours:,.1f}",
        ]
        for way in cost.ways
    ]
    asked = f"{fleet.checkpoints:,} checkpoints x {fleet.prompts:,} prompts x {fleet.answers:,} answers"
    one, many = cost.dvc
    notes = [
        f"Sequential stopping: {cost.samples:,.1f} answers expected per prompt if each leaks with probability {fleet.leak:g} "
        f"(tau {fleet.tau:g}, tau_leak {fleet.tau_leak:g}, alpha {fleet.alpha:g}).",
        f"Every answer is taken as long as {fleet.new_tokens} tokens; exact enumeration puts {fleet.rows:,} tokens per "
        "prompt through the model.",
        f"Weights: {_bytes(cost.weight_bytes)} at two bytes per parameter. A DVC remote holds weights and answers once more.",
        f"Metrics: {cost.metrics_hours:,.1f} processor hours. MLflow: {cost.record_hours:,.1f} hours.",
        f"DVC's own processor time, one folder of {one.stages:,} stages: {one.hours:,.1f} h for a first run, "
        f"{one.idle_seconds:,.0f} s with nothing to do. {many.folders:,} folders of {many.stages:,} stages: "
        f"{many.hours:,.1f} h and {many.idle_seconds:,.0f} s.",
        "Shared prefixes are taken to be as much faster on a GPU as a processor measured them (--measured sharing=NUMBER).",
        "No GPU was measured: the rate of a GPU is yours (--rate, tokens per second of one GPU without shared prefixes).",
    ]
    columns = [
        "way",
        "answers",
        "tokens",
        "GPU hours",
        "answers stored",
        "scoring, processor hours",
    ]
    print_table(asked, columns, rows, notes)
    table: list[list[object]] = [
        [name, f"{rate.value:g}", rate.unit, rate.measured_by] for name, rate in cost.rates.items()
    ]
    print_table("Rates (--measured NAME=NUMBER)", ["name", "value", "unit", "measured by"], table, [])


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
