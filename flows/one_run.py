"""`lethe audit one-run`: from options or a file of guesses to counts, a family of nulls and every method's verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.artifacts import file_line, numeric_column, read_table
from stages.errors import BadInput, BadRow, BadValue

if TYPE_CHECKING:
    from stages.statistics.one_run.channel import Family
    from stages.statistics.one_run.counts import Counts

TRADEOFF = "tradeoff"


def read_guesses(path: Path, r: int) -> Counts:
    """The counts of a file with the columns ``bit``, ``guess`` (0 or 1) and ``score``: the r highest are released."""
    from stages.statistics.one_run.release import release

    table, first = read_table(path, required=["bit", "guess", "score"]), file_line(path)
    columns = {name: numeric_column(table, name, path) for name in ("bit", "guess", "score")}
    for name, values in columns.items():
        broken = np.isnan(values) if name == "score" else ~np.isin(values, (0, 1))
        if broken.any():
            row = int(np.argmax(broken))
            legal = "a number" if name == "score" else "0 or 1"
            raise BadRow(path, row + first, f"{name}: got {values[row]:g}, legal is {legal}")
    return release(columns["bit"].astype(int), columns["guess"].astype(int), columns["score"], r)


def family_of(mechanism: str, *, q: float | None, steps: int | None, delta0: float | None, delta: float) -> Family:
    """The family of nulls that ``mechanism`` names, with the options it needs."""
    from stages.statistics.one_run.families import approx_dp, gaussian, laplace, subsampled_gaussian

    needed = {"subsampled-gaussian": {"--q": q}, "dp-sgd": {"--q": q, "--steps": steps}}.get(mechanism, {})
    for option, value in needed.items():
        if value is None:
            raise BadInput(f"{option}: the mechanism {mechanism} needs it.")
    if mechanism == "dp-sgd":
        from stages.learning.privacy_loss import dp_sgd

        return dp_sgd(q, steps)
    if mechanism == "subsampled-gaussian":
        return subsampled_gaussian.family(q)
    if mechanism == "approx-dp":
        if delta0 is not None and delta0 > delta:
            raise BadValue(
                "--delta0", delta0, f"at most --delta ({delta:g})", "Beyond it every epsilon is infinite."
            )
        return approx_dp.family(delta if delta0 is None else delta0)
    return {"gaussian": gaussian, "laplace": laplace}[mechanism].family()


def audit_family(
    counts: Counts, family: Family, *, delta: float, alpha: float, method: str, null: float | None
) -> list[dict[str, Any]]:
    """The entries of ``results``: every method asked for, side by side."""
    from stages.statistics.one_run.audit import audit

    methods = None if method == "all" else [method]
    return [
        {
            "method": result.method,
            "epsilon_lower": result.value,
            "p_value": result.p_value,
            "assumes": list(result.assumes),
            "note": result.note,
        }
        for result in audit(counts, family, delta=delta, alpha=alpha, methods=methods, null=null)
    ]


def audit_tradeoff(counts: Counts, path: Path, *, delta: float, alpha: float, method: str) -> list[dict[str, Any]]:
    """One null given as a trade-off function: its p-value, whether it is rejected, and its epsilon at delta if so."""
    from stages.statistics.one_run.audit import check_levels, load_method
    from stages.statistics.one_run.families.numeric import from_tradeoff
    from stages.statistics.one_run.methods import METHODS

    check_levels(delta, alpha)
    table = read_table(path, required=["alpha", "beta"])
    null = from_tradeoff(numeric_column(table, "alpha", path), numeric_column(table, "beta", path))
    applies = [name for name in METHODS if not load_method(name).FAMILY_FREE and name != "clopper-pearson"]
    if method != "all" and method not in applies:
        raise BadValue("--method", method, f"{', '.join(applies)} or all for a single trade-off function")
    if method == "independent" and counts.r != counts.n:
        raise load_method(method).refusal(counts)
    entries = []
    for name in applies if method == "all" else [method]:
        module = load_method(name)
        if (check := getattr(module, "refusal", None)) and check(counts):
            continue
        p_value = float(np.exp(module.log_p_value(counts, null)))
        rejected = p_value <= alpha
        entries.append(
            {
                "method": name,
                "epsilon_lower": null.epsilon(delta) if rejected else 0.0,
                "p_value": p_value,
                "rejected": rejected,
                "assumes": list(module.ASSUMES),
                "note": module.NOTE,
            }
        )
    return entries


def verdict(results: list[dict[str, Any]], claimed: float) -> dict[str, Any]:
    """Whether any method's lower bound exceeds the claimed epsilon; a family rejected whole contradicts every claim in it."""
    above = [row["method"] for row in results if row["epsilon_lower"] is None or row["epsilon_lower"] > claimed]
    return {"claimed_epsilon": claimed, "contradicted_by": above, "contradicted": bool(above)}
