"""One-run audits: a file of guesses, a mechanism's family of nulls, a file of a trade-off curve,
and the kind ``guesses``.

DP-SGD's nulls are privacy loss distributions of the Poisson-subsampled Gaussian mechanism over
steps.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from lethe.audits import AuditResult
from lethe.config.fields import Alpha, Count, Delta, NameIn, Positive, Real, Seed
from lethe.config.schema import AuditParams
from lethe.errors import BadArguments, BadFile, BadRow, BadValue, LibraryChanged, check_columns
from lethe.io.records import check_equally_often, check_no_block_twice, check_records
from lethe.io.tables import file_line, numeric_column, read_table
from lethe.registry import ONE_RUN_METHODS
from lethe.results.table import Result, Rows
from lethe.results.views import one_run
from lethe.statistics.bound import significant
from lethe.statistics.one_run import channel
from lethe.statistics.one_run.audit import ClaimVerdict, OneRunAudit, audit_runs
from lethe.statistics.one_run.channel import Channel, Nulls
from lethe.statistics.one_run.counts import Guesses, release
from lethe.statistics.one_run.tradeoff import Atoms, from_losses, from_tradeoff
from lethe.statistics.random_choice import REFUTED
from lethe.text import epsilon_statement

if TYPE_CHECKING:
    import pandas as pd
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


Mechanism = Literal["gaussian", "laplace", "approx-dp", "subsampled-gaussian", "dp-sgd"]
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
TRADEOFF = "tradeoff"  # one null, from a file, in place of a mechanism's family
NEEDS: dict[str, tuple[str, ...]] = {"subsampled-gaussian": ("q",), "dp-sgd": ("q", "steps")}
MAY_HAVE: dict[str, tuple[str, ...]] = {"approx-dp": ("delta0",)}


def rows_of(audit: OneRunAudit) -> list[Result]:
    """The rows of an audit: a bound and a p-value of each method, the p-values of the curve, and
    the settings.
    """
    rows = Rows("one-run")
    for result in audit.results:
        method = result.method
        evidence: dict[str, object] = {"assumes": list(result.assumes), "note": result.note}
        if result.infinite:
            evidence["infinite"] = True
        if result.rejected is not None:
            evidence["rejected"] = result.rejected
        bound = audit.bound(result)
        text = None if bound else "family rejected"
        rows.add("audit", "epsilon", "run", None, bound, item=method, evidence=evidence, text=text)
        if result.p_value is not None:
            rows.add("audit", "p_value", "run", result.p_value, item=method)
    for point in audit.curve or ():
        epsilon = point["epsilon"]
        parameter = dict(list(point.items())[:2])  # epsilon and the family's parameter
        for result in audit.results:
            p = point[result.method]
            method = result.method
            rows.add("audit", "p_value", "run", p, item=method, at=epsilon, evidence=parameter)
    settings = dict(vars(audit))  # and the fields of a class derived from it
    for name in ("results", "verdict", "curve"):
        del settings[name]
    if audit.verdict:
        settings["verdict"] = asdict(audit.verdict)
    if audit.curve is not None:
        settings["curve"] = True
    rows.add("audit", "record", "run", evidence=settings)
    return rows.rows


def misfit(mechanism: str, **parameters: float | None) -> tuple[str, str] | None:
    """Return the first parameter that ``mechanism`` lacks or does not take, and the problem; None
    where all fit.
    """
    needed = NEEDS.get(mechanism, ())
    taken = (*needed, *MAY_HAVE.get(mechanism, ()))
    for name, value in parameters.items():
        if value is None and name in needed:
            return name, f"the mechanism {mechanism} needs it"
        if value is not None and name not in taken:
            return name, f"the mechanism {mechanism} takes none"
    return None


COLUMNS = ("bit", "guess", "score")
SMALLEST_SHOWN = 1e-12  # a smaller p-value tells a reader no more
IN_MEMORY = Path("guesses")  # the name in errors of a table without a file


def read_guesses(source: Path | pd.DataFrame) -> Guesses:
    """Read a file or a table with the columns ``bit``, ``guess`` (0 or 1) and ``score``, and check
    every row.
    """
    from pandas.api.types import is_bool_dtype

    path = source if isinstance(source, Path) else IN_MEMORY
    table = read_table(source, required=COLUMNS) if isinstance(source, Path) else source
    check_columns(path, COLUMNS, table.columns)
    if not len(table):
        raise BadFile(path, "has no rows", "Give one row per secret bit.")
    columns = {}
    for name in COLUMNS:
        # Python's True is a bit; "yes" and a score of True are none.
        is_bits = name != "score" and is_bool_dtype(table[name])
        columns[name] = numeric_column(table, name, path, words=is_bits)
    for name, values in columns.items():
        broken = np.isnan(values) if name == "score" else ~np.isin(values, (0, 1))
        if broken.any():
            row = int(np.argmax(broken))
            legal = "a number (-inf: never released)" if name == "score" else "0 or 1"
            problem = f"{name}: got {values[row]:g}; must be {legal}"
            raise BadRow(path, file_line(path, row), problem)
    bits = columns["bit"].astype(np.int8)
    check_records(path, table)
    check_equally_often(path, zip(*(values.tolist() for values in columns.values()), strict=True))
    check_no_block_twice(path, columns["score"])
    _check_coins(path, bits)
    return Guesses(bits, columns["guess"].astype(np.int8), columns["score"])


def _check_coins(path: Path, bits: np.ndarray) -> None:
    """Refuse bits that are no fair coins: a guesser that has seen nothing is right about them."""
    from scipy.stats import binomtest

    ones = int(bits.sum())
    p_value = float(binomtest(ones, len(bits)).pvalue)
    if p_value < REFUTED:
        chance = significant(max(p_value, SMALLEST_SHOWN), 2, "upper")
        problem = f"{ones:,} of its {len(bits):,} bits are 1, which fair coins bring with probability at most {chance}"
        raise BadFile(path, problem, "Draw each bit with a fair coin, and audit that run.")


def read_tradeoff(source: Path | tuple[ArrayLike, ArrayLike]) -> Channel:
    """Read one null from a file with the columns ``alpha`` and ``beta``, or from two arrays; see
    `tradeoff.from_tradeoff`.
    """
    if not isinstance(source, Path):
        alpha, beta = (np.asarray(values, dtype=np.float64) for values in source)
        return from_tradeoff(alpha, beta)
    table = read_table(source, required=["alpha", "beta"])
    alpha = numeric_column(table, "alpha", source)
    beta = numeric_column(table, "beta", source)
    try:
        return from_tradeoff(alpha, beta)
    except BadValue as error:
        # alpha[3] is the alpha of the fourth point.
        name, _, row = error.name.rstrip("]").partition("[")
        problem = f"{name}: got {error.got}; must be {error.legal}"
        if row:
            raise BadRow(source, file_line(source, int(row)), problem) from None
        raise BadFile(source, problem) from None


def family_of(
    mechanism: str,
    *,
    delta: float,
    q: float | None = None,
    steps: int | None = None,
    delta0: float | None = None,
) -> Nulls:
    """Return the family of nulls that a mechanism names."""
    if mechanism not in MECHANISMS:
        raise BadValue("mechanism", mechanism, f"one of {', '.join(MECHANISMS)}")
    wrong = misfit(mechanism, q=q, steps=steps, delta0=delta0)
    if wrong:
        name, problem = wrong
        raise BadArguments((name,), f"{problem}.")
    if mechanism == "dp-sgd" and q is not None and steps is not None:
        return dp_sgd(q, steps, delta)
    if mechanism == "subsampled-gaussian" and q is not None:
        return channel.subsampled_gaussian(q)
    if mechanism == "approx-dp":
        if delta0 is None:
            return channel.approx_dp(delta)
        if delta0 > delta:
            legal = f"at most delta ({delta:g})"
            raise BadValue("delta0", delta0, legal, "Beyond it every epsilon is infinite.")
        return channel.approx_dp(delta0)
    return {"gaussian": channel.gaussian, "laplace": channel.laplace}[mechanism]()


# Of the privacy loss; rounding goes towards less privacy, so a rounded null remains a valid null.
INTERVAL = 1e-3
# Masses of about 1e-15 are truncated and count as outputs that reveal the canary.
LEAST_DELTA = 1e-12
STRONGEST = 20.0  # 1 / sigma
MOST_STEPS = 1_000_000  # about a minute
TOLERANCE = 1e-5  # each member needs a convolution of up to several seconds


def dp_sgd(q: float, steps: int, delta: float) -> Nulls:
    """Return nulls ordered by 1 / sigma (sigma: noise multiplier)."""
    if 0 < delta < LEAST_DELTA:
        legal = f"0, or from {LEAST_DELTA:g}, for dp-sgd"
        raise BadValue("delta", delta, legal, "Its distributions are rounded.")
    if not 0 < q <= 1:
        raise BadValue("q", q, "a sampling rate above 0 and up to 1")
    if not 1 <= steps <= MOST_STEPS:
        legal = f"a whole number from 1 to {MOST_STEPS:,}"
        raise BadValue("steps", steps, legal, "More would take hours.")
    channel_at = partial(_pair, q=q, steps=steps)
    return Nulls(
        "dp-sgd",
        "sigma",
        channel_at,
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

    if strength == 0:
        return Atoms(np.ones(1), np.ones(1))
    loss = pld.from_gaussian_mechanism(
        1 / strength, sampling_prob=q, value_discretization_interval=INTERVAL, use_connect_dots=True
    ).self_compose(steps)
    removed, added = _sides(loss)
    return from_losses(*removed, *added)


def _sides(loss: PrivacyLossDistribution) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Return losses, probabilities and infinite mass of a `PrivacyLossDistribution`, without and
    with the canary: private names of dp-accounting, which offers no public access to the masses.
    """
    sides = []
    try:
        for pmf in (loss._pmf_remove, loss._pmf_add):
            dense = pmf.to_dense_pmf()
            losses = (dense._lower_loss + np.arange(len(dense._probs))) * dense._discretization
            # A convolution by FFT leaves probabilities such as -1e-18.
            sides.append((losses, np.maximum(dense._probs, 0.0), dense._infinity_mass))
    except AttributeError as error:
        raise LibraryChanged(
            "dp-accounting", "the masses of a privacy loss distribution", error
        ) from error
    return sides


class OneRunParams(AuditParams):
    """The keys of a one-run audit: the r fixed in advance share alpha. ``independent``: each bit
    passes a channel of its own, so that ``exact`` may judge the claim; else a method does that
    holds under any dependence.
    """

    r: Annotated[list[Count], Field(min_length=1)]
    delta: Delta
    alpha: Alpha
    method: Annotated[str, NameIn((ONE_RUN_METHODS,), also=("all",), quoted=True)]
    seed: Seed
    independent: bool = False


def audited(
    guesses: Guesses, family: Nulls, claimed: float | None, settings: OneRunParams
) -> AuditResult:
    """Release the guesses at each declared r, and test them against the family and the claim."""
    import pandas as pd

    runs = []
    for r in settings.r:
        runs.append(release(guesses.bits, guesses.guesses, guesses.scores, r, settings.seed))
    whole = audit_runs(
        runs,
        family,
        delta=settings.delta,
        alpha=settings.alpha,
        method=settings.method,
        claimed=claimed,
        curve=True,
        independent=settings.independent,
    )
    decides = whole.results[0]  # exact, if it ran
    headline = {
        "kind": settings.kind,
        "mechanism": family.name,
        "claimed_epsilon": claimed,
        "method": decides.method,
        "epsilon_lower": decides.epsilon_lower,
        "p_value": decides.p_value,
        "contradicted": whole.verdict.contradicted if whole.verdict else None,
    }
    table = pd.DataFrame({"bit": guesses.bits, "guess": guesses.guesses, "score": guesses.scores})
    statement = epsilon_statement(whole, decides)
    sentence = f"{statement} by {decides.method}; {_claim(whole.verdict)}"
    bound = whole.bound(decides)
    bounds = {"epsilon_lower": bound} if bound else {}
    return AuditResult(headline, one_run(rows_of(whole)), {"guesses": table}, (sentence,), bounds)


def _claim(verdict: ClaimVerdict | None) -> str:
    """The words on the claimed epsilon."""
    if verdict is None:
        return "nothing was claimed"
    claimed = f"claimed {verdict.claimed_epsilon:.4g}"
    if verdict.contradicted is None:
        return f"{claimed}, no word: {' '.join(verdict.refused)}"
    if verdict.contradicted:
        return f"{claimed}, contradicted by {verdict.method}"
    return f"{claimed}, not contradicted by {verdict.method}"


class Params(OneRunParams):
    """The entry of a one-run audit of a file: the mechanism, its parameters, and a claimed epsilon."""

    kind: Literal["guesses"]
    mechanism: Mechanism
    q: Annotated[Real, Field(gt=0, le=1)] | None = None
    steps: Count | None = None
    delta0: Delta | None = None
    claimed_epsilon: Positive | None

    @model_validator(mode="after")
    def _has_what_its_mechanism_needs(self) -> Params:
        wrong = misfit(self.mechanism, q=self.q, steps=self.steps, delta0=self.delta0)
        if wrong:
            name, problem = wrong
            raise ValueError(f"{name}: {problem}")
        return self


def audit(settings: Params) -> AuditResult:
    """Test the guesses of the file against the family of nulls, and against the claim if the entry
    has one.
    """
    family = family_of(
        settings.mechanism,
        delta=settings.delta,
        q=settings.q,
        steps=settings.steps,
        delta0=settings.delta0,
    )
    return audited(read_guesses(Path(settings.source)), family, settings.claimed_epsilon, settings)
