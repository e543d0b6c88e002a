"""`lethe.audit.one_run`: what one run of a mechanism contradicts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.api.result import Measurement, Place, View
from lethe.audits.one_run import TRADEOFF, Mechanism
from lethe.errors import BadArguments, BadValue, plural
from lethe.statistics.one_run import audit as summary
from lethe.statistics.one_run.audit import MethodBound as OneRunResult

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from lethe.results.table import Result
    from lethe.statistics.bound import Bound
    from lethe.statistics.one_run.channel import Channel, Family
    from lethe.statistics.one_run.counts import Counts

NAME = "one-run"  # of the rows of the table of results


@dataclass(frozen=True, repr=False)
class OneRunAudit(Measurement, summary.OneRunAudit):
    """The lower bounds on epsilon from one run of a mechanism, by every method that applies.

    Attributes
    ----------
    results : list of OneRunResult
        One entry per method.
    n, r, errors : int
        Secret bits, released guesses, wrong released guesses; ``r`` and ``errors`` are lists where several r were declared.
    delta, alpha : float
        The delta of epsilon, and the probability with which each bound may fail.
    mechanism : str
        The family of nulls.
    verdict : ClaimVerdict or None
        The verdict on a claimed epsilon.
    curve : list of dict or None
        p-values over a range of epsilons, if requested.
    """

    mechanism: str = field(kw_only=True)

    def __getitem__(self, method: str) -> OneRunResult:
        return {result.method: result for result in self.results}[method]

    def to_frame(self) -> pd.DataFrame:
        """One row per method."""
        import pandas as pd

        rows = [
            {"method": one.method, "epsilon_lower": one.epsilon_lower, "p_value": one.p_value, "note": one.note}
            for one in self.results
        ]
        return pd.DataFrame(rows).set_index("method")

    def views(self) -> list[View]:
        """Each method with its assumptions, and the p-values over a range of epsilons."""
        title, level, *others = self.sentences()
        notes = [level, *(f"{one.method}: {one.note}." for one in self.results), *others]
        rows = [
            [one.method, self.bound(one) or "family rejected", one.p_value, ", ".join(one.assumes)]
            for one in self.results
        ]
        views = [View(title, ["method", "epsilon at least", "p-value", "assumes"], rows, notes)]
        if self.curve:
            points = [list(row.values()) for row in self.curve]
            views.append(View("p-values by epsilon", list(self.curve[0]), points))
        return views

    def rows(self) -> list[Result]:
        """Return each method's lower bound and p-values, and the counts and settings, as rows of the table of results."""
        from lethe.results.table import Rows

        found = Rows(NAME)
        for one in self.results:
            bound, evidence = self.bound(one), one.as_json()
            text = None if bound else "family rejected"
            found.add("audit", "epsilon", "run", None, bound, item=one.method, evidence=evidence, text=text)
            if one.p_value is not None:
                found.add("audit", "p_value", "run", one.p_value, item=one.method)
        for point in self.curve or ():
            for one in self.results:
                found.add("audit", "p_value", "run", point[one.method], item=one.method, at=point["epsilon"])
        settings = {key: value for key, value in self.as_json().items() if key not in ("results", "curve")}
        found.add("audit", "record", "run", evidence=settings)
        return found.rows

    def bound_at(self, row: str, column: str) -> Bound | None:
        """The lower bound of a method."""
        return self.bound(self[row]) if column == "epsilon_lower" else None

    def sentences(self) -> list[str]:
        """Return the assumptions of the bounds, and the verdict on the claim."""
        from lethe.statistics.bound import level
        from lethe.statistics.one_run.audit import ASSUMPTIONS, not_conservative
        from lethe.text import listing

        errors = "error" if self.errors == 1 else "errors"
        guesses = "guess" if self.r == 1 else "guesses"
        lines = [
            f"{self.errors} {errors} among {self.r} {guesses} of {plural(self.n, 'bit')}, "
            f"{self.mechanism}, delta {self.delta:g}.",
            f"Each lower bound on epsilon except {listing(not_conservative())}'s holds by itself {level(self.alpha)} "
            "if its assumptions hold.",
        ]
        flags = dict.fromkeys(flag for result in self.results for flag in result.assumes)
        lines += [
            f"{flag} ({', '.join(one.method for one in self.results if flag in one.assumes)}): {ASSUMPTIONS[flag]}."
            for flag in flags
        ]
        if self.verdict:
            lines.append(
                f"The claimed epsilon {self.verdict.claimed_epsilon:g} is "
                f"{'' if self.verdict.contradicted else 'not '}contradicted by {self.verdict.method}, which decides."
            )
        return lines


def one_run(
    *,
    n: int | None = None,
    r: int | Sequence[int] = (),
    errors: int | None = None,
    guesses: Place | pd.DataFrame | None = None,
    mechanism: Literal[Mechanism, "tradeoff"] = "gaussian",
    q: float | None = None,
    steps: int | None = None,
    delta0: float | None = None,
    tradeoff: Place | tuple[ArrayLike, ArrayLike] | None = None,
    delta: float = 1e-5,
    alpha: float = 0.05,
    method: str = "all",
    null: float | None = None,
    claimed_epsilon: float | None = None,
    curve: bool = False,
    seed: int = 0,
) -> OneRunAudit:
    """Find the largest epsilon that one run of a mechanism with n secret bits contradicts.

    Parameters
    ----------
    n : int, optional
        The number of secret bits; only without ``guesses``.
    r : int or list of int
        Guesses to release; choose it in advance. If repeated, alpha is divided among them.
    errors : int, optional
        The number of wrong guesses among the released; only without ``guesses``.
    guesses : path or pandas.DataFrame, optional
        A table with `bit`, `guess` (0 or 1) and `score`, one row per secret bit; replaces ``n`` and ``errors``.
    mechanism : {"gaussian", "laplace", "approx-dp", "subsampled-gaussian", "dp-sgd", "tradeoff"}
        The family of nulls.
    q : float, optional
        The sampling rate (subsampled-gaussian, dp-sgd).
    steps : int, optional
        The number of steps (dp-sgd), up to 1,000,000.
    delta0 : float, optional
        The delta of the null (approx-dp); by default ``delta``.
    tradeoff : path or pair of arrays, optional
        A single null for the mechanism "tradeoff": a table with the points `alpha` and `beta` of a trade-off function.
        Between its points the worst convex curve counts, so give a fine grid (hundreds of points, finer towards both ends).
    delta : float
        The delta of epsilon.
    alpha : float
        The probability with which each bound may fail.
    method : str
        The name of one method, or "all" for every method that applies.
    null : float, optional
        The null of the p-values: epsilon for approx-dp, sigma for dp-sgd, otherwise mu; by default the null of the claim.
    claimed_epsilon : float, optional
        The claimed epsilon at ``delta``, to be tested.
    curve : bool
        Whether the result has p-values over a range of epsilons.
    seed : int
        The seed that breaks ties between scores at the cut.

    Returns
    -------
    OneRunAudit
        The lower bound of every method, with its assumptions.

    Notes
    -----
    ``exact`` is the tightest method where the channels of the bits are independent. ``steinke`` and ``mahloujifar`` hold
    under any dependence between the bits (Steinke et al. 2023; Mahloujifar et al. 2024).

    Examples
    --------
    >>> import lethe
    >>> found = lethe.audit.one_run(n=1000, r=200, errors=26, mechanism="gaussian", delta=1e-5)
    >>> found["exact"].epsilon_lower > found["steinke"].epsilon_lower > 0
    True
    >>> found["steinke"].assumes
    ('r_fixed', 'iid_bits')
    """
    from lethe.audits.one_run import family_of, read_tradeoff
    from lethe.statistics.one_run.audit import check_levels

    check_levels(delta, alpha)
    if seed < 0:
        raise BadValue("seed", seed, "a whole number of at least 0")
    runs = _runs(n, [r] if isinstance(r, int) else list(r), errors, guesses, seed)
    nulls: Family | Channel
    if tradeoff is None:
        if mechanism == TRADEOFF:
            raise BadArguments(("tradeoff",), "got none; the mechanism tradeoff needs a trade-off function.")
        nulls = family_of(mechanism, q=q, steps=steps, delta0=delta0, delta=delta)
    else:
        if mechanism != TRADEOFF:
            raise BadArguments(
                ("tradeoff",), f"the mechanism {mechanism} takes no trade-off function; leave the argument out."
            )
        if null is not None or curve or any(value is not None for value in (q, steps, delta0)):
            raise BadArguments(
                ("null", "curve", "q", "steps", "delta0"),
                "a trade-off function is a single null; leave these arguments out.",
            )
        nulls = read_tradeoff(tradeoff if isinstance(tradeoff, tuple) else Path(tradeoff))
    found = summary.audit_runs(
        runs, nulls, delta=delta, alpha=alpha, method=method, null=null, claimed=claimed_epsilon, curve=curve
    )
    return OneRunAudit(**vars(found), mechanism=mechanism)


def _runs(
    n: int | None, r: Sequence[int], errors: int | None, guesses: Place | pd.DataFrame | None, seed: int
) -> list[Counts]:
    """Return the counts of the run, one per r."""
    from lethe.audits.one_run import read_guesses
    from lethe.statistics.one_run.counts import Counts, release

    if not r:
        needed = ("r",) if guesses is not None else ("n", "r", "errors")
        raise BadArguments(
            needed, "give r with guesses, or n, r and errors; choose r before looking at the guesses."
        )
    if guesses is None:
        if n is None or errors is None:
            raise BadArguments(("n", "errors"), "give both, or give guesses.")
        if len(r) > 1:
            raise BadValue("r", r, "one number with errors", "Several numbers need the guesses.")
        return [Counts(n, r[0], errors)]
    if n is not None or errors is not None:
        raise BadArguments(("n", "errors"), "the guesses already contain both; leave these arguments out.")
    read = read_guesses(Path(guesses) if isinstance(guesses, (str, os.PathLike)) else guesses)
    return [release(read.bits, read.guesses, read.scores, one, seed) for one in dict.fromkeys(r)]
