"""The inputs of a one-run audit: a file of guesses, a mechanism's family of nulls, a file of a trade-off curve.

DP-SGD's nulls are privacy loss distributions of the Poisson-subsampled Gaussian mechanism over steps.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from lethe.errors import BadArguments, BadFile, BadRow, BadValue, LibraryChanged, MissingColumn
from lethe.io.tables import file_line, numeric_column, read_table

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from lethe.statistics.one_run.channel import Channel, Family
    from lethe.statistics.one_run.counts import Guesses
    from lethe.statistics.one_run.tradeoff import Atoms


Mechanism = Literal["gaussian", "laplace", "approx-dp", "subsampled-gaussian", "dp-sgd"]
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
TRADEOFF = "tradeoff"  # one null, from a file, in place of a mechanism's family
NEEDS: dict[str, tuple[str, ...]] = {"subsampled-gaussian": ("q",), "dp-sgd": ("q", "steps")}
MAY_HAVE: dict[str, tuple[str, ...]] = {"approx-dp": ("delta0",)}


def misfit(mechanism: str, **given: float | None) -> tuple[str, str] | None:
    """Return the first parameter that ``mechanism`` lacks or does not take, and the problem; None where all fit."""
    needed = NEEDS.get(mechanism, ())
    taken = (*needed, *MAY_HAVE.get(mechanism, ()))
    for name, value in given.items():
        if value is None and name in needed:
            return name, f"the mechanism {mechanism} needs it"
        if value is not None and name not in taken:
            return name, f"the mechanism {mechanism} takes none"
    return None


COLUMNS = ("bit", "guess", "score")
IN_MEMORY = Path("guesses")  # the name in errors of a table without a file


def read_guesses(source: Path | pd.DataFrame) -> Guesses:
    """Read a file or a table with the columns ``bit``, ``guess`` (0 or 1) and ``score``, and check every row."""
    from lethe.statistics.one_run.counts import Guesses

    path = source if isinstance(source, Path) else IN_MEMORY
    table = read_table(source, required=COLUMNS) if isinstance(source, Path) else source
    for column in COLUMNS:
        if column not in table.columns:
            raise MissingColumn(path, column, table.columns)
    if not len(table):
        raise BadFile(path, "has no rows", "Give one row per secret bit.")
    columns = {name: numeric_column(table, name, path) for name in COLUMNS}
    for name, values in columns.items():
        broken = np.isnan(values) if name == "score" else ~np.isin(values, (0, 1))
        if broken.any():
            row = int(np.argmax(broken))
            legal = "a number (-inf: never released)" if name == "score" else "0 or 1"
            raise BadRow(path, file_line(path, row), f"{name}: got {values[row]:g}; must be {legal}")
    return Guesses(columns["bit"].astype(np.int8), columns["guess"].astype(np.int8), columns["score"])


def read_tradeoff(source: Path | tuple[ArrayLike, ArrayLike]) -> Channel:
    """Read one null from a file with the columns ``alpha`` and ``beta``, or from two arrays; see `tradeoff.from_tradeoff`."""
    from lethe.statistics.one_run.tradeoff import from_tradeoff

    if not isinstance(source, Path):
        return from_tradeoff(*(np.asarray(values, dtype=np.float64) for values in source))
    table = read_table(source, required=["alpha", "beta"])
    try:
        return from_tradeoff(numeric_column(table, "alpha", source), numeric_column(table, "beta", source))
    except BadValue as error:
        name, _, row = error.name.rstrip("]").partition("[")  # alpha[3] is the alpha of the fourth point
        problem = f"{name}: got {error.got}; must be {error.legal}"
        raise (BadRow(source, file_line(source, int(row)), problem) if row else BadFile(source, problem)) from None


def family_of(
    mechanism: str,
    *,
    delta: float,
    q: float | None = None,
    steps: int | None = None,
    delta0: float | None = None,
) -> Family:
    """Return the family of nulls that a mechanism names."""
    from lethe.statistics.one_run import channel

    if mechanism not in MECHANISMS:
        raise BadValue("mechanism", mechanism, f"one of {', '.join(MECHANISMS)}")
    if wrong := misfit(mechanism, q=q, steps=steps, delta0=delta0):
        raise BadArguments((wrong[0],), f"{wrong[1]}.")
    if mechanism == "dp-sgd" and q is not None and steps is not None:
        return dp_sgd(q, steps, delta)
    if mechanism == "subsampled-gaussian" and q is not None:
        return channel.subsampled_gaussian(q)
    if mechanism == "approx-dp":
        if delta0 is not None and delta0 > delta:
            raise BadValue("delta0", delta0, f"at most delta ({delta:g})", "Beyond it every epsilon is infinite.")
        return channel.approx_dp(delta if delta0 is None else delta0)
    return {"gaussian": channel.gaussian, "laplace": channel.laplace}[mechanism]()


INTERVAL = 1e-3  # of the privacy loss; rounding goes towards less privacy, so a rounded null remains a valid null
LEAST_DELTA = 1e-12  # masses of about 1e-15 are truncated and count as outputs that reveal the canary
STRONGEST = 20.0  # 1 / sigma
MOST_STEPS = 1_000_000  # about a minute
TOLERANCE = 1e-5  # each member needs a convolution of up to several seconds


def dp_sgd(q: float, steps: int, delta: float) -> Family:
    """Return nulls ordered by 1 / sigma (sigma: noise multiplier)."""
    from lethe.statistics.one_run.channel import Family

    if 0 < delta < LEAST_DELTA:
        raise BadValue(
            "delta", delta, f"0, or from {LEAST_DELTA:g}, for dp-sgd", "Its distributions are rounded there."
        )
    if not 0 < q <= 1:
        raise BadValue("q", q, "a sampling rate above 0 and up to 1")
    if not 1 <= steps <= MOST_STEPS:
        raise BadValue("steps", steps, f"a whole number from 1 to {MOST_STEPS:,}", "More would take hours.")
    return Family(
        "dp-sgd",
        "sigma",
        lambda strength: _pair(strength, q, steps),
        STRONGEST,
        strength=_reciprocal,
        tolerance=TOLERANCE,
    )


def _reciprocal(sigma: float) -> float:
    if sigma <= 0:
        raise BadValue("null", sigma, "a sigma above 0", "Without noise nothing is private.")
    return 1 / sigma


@lru_cache(maxsize=256)
def _pair(strength: float, q: float, steps: int) -> Atoms:
    from dp_accounting.pld import privacy_loss_distribution as pld

    from lethe.statistics.one_run.tradeoff import Atoms, from_losses

    if strength == 0:
        return Atoms(np.ones(1), np.ones(1))
    loss = pld.from_gaussian_mechanism(
        1 / strength, sampling_prob=q, value_discretization_interval=INTERVAL, use_connect_dots=True
    ).self_compose(steps)
    removed, added = _sides(loss)
    return from_losses(*removed, *added)


def _sides(loss: Any) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Return losses, probabilities and infinite mass of a `PrivacyLossDistribution`, without and with the canary.

    Only this function reads private names of dp-accounting, which offers no public access to the masses.
    """

    sides = []
    try:
        for pmf in (loss._pmf_remove, loss._pmf_add):
            dense = pmf.to_dense_pmf()
            losses = (dense._lower_loss + np.arange(len(dense._probs))) * dense._discretization
            # A convolution by FFT leaves probabilities such as -1e-18.
            sides.append((losses, np.maximum(dense._probs, 0.0), dense._infinity_mass))
    except AttributeError as error:
        raise LibraryChanged("dp-accounting", "the masses of a privacy loss distribution", error) from error
    return sides
