"""`lethe.audit`: privacy audits of the caller's own data, without a pipeline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from lethe.api.parameters import Counts as CountsInPython
from lethe.api.parameters import Place, Ranks, Table, path_of
from lethe.api.result import Measurement, View, frame
from lethe.audits.kinds.guesses import (
    TRADEOFF,
    Mechanism,
    family_of,
    read_guesses,
    read_tradeoff,
    rows_of,
)
from lethe.audits.twin_ranks import TwinRanks, check_control, read_ranks
from lethe.config.twins import TWINS
from lethe.errors import BadArguments, BadValue, check, plural
from lethe.io.records import (
    RecordLosses,
    check_equally_often,
    check_no_block_twice,
    check_same_run,
    read_losses,
)
from lethe.results import views
from lethe.results.table import Result, Rows
from lethe.results.trace import Control, Lift, Trace, Word, lift_of
from lethe.statistics import epsilon_star as losses
from lethe.statistics.bound import level
from lethe.statistics.checks import check_alpha
from lethe.statistics.epsilon_star.parametric import rejected_fit
from lethe.statistics.one_run import audit as canaries
from lethe.statistics.one_run.audit import ASSUMPTIONS, ClaimVerdict, check_levels, not_conservative
from lethe.statistics.one_run.audit import MethodBound as OneRunResult
from lethe.statistics.one_run.channel import Channel, Nulls
from lethe.statistics.one_run.counts import ReleasedGuesses, release
from lethe.statistics.streams import stream
from lethe.statistics.twins import check_ranks, twin_test
from lethe.text import listing, upper_first

if TYPE_CHECKING:
    import pandas as pd

    from lethe.statistics.unlearning_game import Quality

IN_MEMORY = Path("losses")  # the name in errors of losses without a file

__all__ = [
    "OneRunResult",
    "ShownEpsilonStarAudit",
    "ShownOneRunAudit",
    "SwapAudit",
    "TwinAudit",
    "epsilon_star",
    "one_run",
    "swap",
    "twins",
]


@dataclass(frozen=True, repr=False)
class ShownOneRunAudit(Measurement, canaries.OneRunAudit):
    """The lower bounds on epsilon from one run of a mechanism: one of ``results`` per method, which is also its key."""

    mechanism: str = field(kw_only=True)

    def __getitem__(self, method: str) -> OneRunResult:
        for result in self.results:
            if result.method == method:
                return result
        raise KeyError(method)

    def as_json(self) -> views.Document:
        return views.one_run(self.rows())

    def to_frame(self) -> pd.DataFrame:
        """One row per method."""
        columns = ["method", "epsilon_lower", "p_value", "note"]
        return frame(self.results)[columns].set_index("method")

    def views(self) -> list[View]:
        title, of_each, *others = self.sentences()
        notes = [of_each]
        rows = []
        for result in self.results:
            notes.append(f"{result.method}: {result.note}.")
            bound = self.bound(result) or "family rejected"
            rows.append([result.method, bound, result.p_value, ", ".join(result.assumes)])
        notes += others
        views = [View(title, ["method", "epsilon at least", "p-value", "assumes"], rows, notes)]
        if self.curve:
            points = [list(point.values()) for point in self.curve]
            views.append(View("p-values by epsilon", list(self.curve[0]), points))
        return views

    def rows(self) -> list[Result]:
        return rows_of(self)

    def sentences(self) -> list[str]:
        errors = "error" if self.errors == 1 else "errors"
        guesses = "guess" if self.r == 1 else "guesses"
        bits = plural(self.n, "bit")
        sides = f"Each lower bound on epsilon except {listing(not_conservative())}'s"
        lines = [
            f"{self.errors} {errors} among {self.r} {guesses} of {bits}, {self.mechanism}, delta {self.delta:g}.",
            f"{sides} holds by itself {level(self.alpha)} if its assumptions hold.",
        ]
        methods_of_flag: dict[str, list[str]] = {}
        for result in self.results:
            for flag in result.assumes:
                methods_of_flag.setdefault(flag, []).append(result.method)
        for flag, methods in methods_of_flag.items():
            lines.append(f"{flag} ({', '.join(methods)}): {ASSUMPTIONS[flag]}.")
        if self.verdict:
            lines.append(_claim(self.verdict))
        return lines


def _claim(verdict: ClaimVerdict) -> str:
    claimed = f"claimed epsilon {verdict.claimed_epsilon:g}"
    if verdict.contradicted is None:
        return f"No word on the {claimed}: {' '.join(verdict.refused)}"
    word = "contradicted" if verdict.contradicted else "not contradicted"
    return f"The {claimed} is {word} by {verdict.method}, which decides."


def one_run(
    *,
    n: int | None = None,
    r: int | Sequence[int] = (),
    errors: int | None = None,
    guesses: Table | None = None,
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
    independent: bool = False,
    seed: int = 0,
) -> ShownOneRunAudit:
    """Find the largest epsilon that one run of a mechanism with n secret bits contradicts.

    Parameters
    ----------
    n : The number of secret bits; only without ``guesses``.
    r : The number of guesses to release; choose it in advance. Several numbers share alpha.
    errors : The number of wrong guesses among the released; only without ``guesses``.
    guesses : A table with `bit`, `guess` (0 or 1) and `score`, one row per secret bit; replaces ``n`` and ``errors``.
    mechanism : The family of nulls; "tradeoff" is the single null of ``tradeoff``.
    q : The sampling rate (subsampled-gaussian, dp-sgd).
    steps : The number of steps (dp-sgd), up to 1,000,000; from 100,000 the audit takes up to a minute.
    delta0 : The delta of the null (approx-dp); by default ``delta``.
    tradeoff : A table with the points `alpha` and `beta` of a trade-off function. Between its points the worst convex curve
        counts, so give a fine grid (hundreds of points, finer towards both ends). In Python also both as arrays.
    delta : The delta of epsilon.
    alpha : The probability with which each bound may fail.
    method : The name of one method, or "all" for every method that applies.
    null : The null of the p-values: epsilon for approx-dp, sigma for dp-sgd, otherwise mu; by default the null of the
        claim.
    claimed_epsilon : The claimed epsilon at ``delta``, to be tested.
    curve : Whether the result has p-values over a range of epsilons.
    independent : Whether each bit passes a channel of its own, without a shared batch, coin or noise scale. Without it only
        methods that hold under any dependence decide on the claim.
    seed : The seed that breaks ties between scores at the cut.

    Notes
    -----
    ``exact`` is the tightest method where the channels of the bits are independent. ``steinke`` and ``mahloujifar`` hold
    under any dependence between the bits (Steinke et al. 2023; Mahloujifar et al. 2024).

    Examples
    --------
    >>> import lethe
    >>> audit = lethe.audit.one_run(n=1000, r=200, errors=26, mechanism="gaussian", delta=1e-5)
    >>> audit["exact"].epsilon_lower > audit["steinke"].epsilon_lower > 0, audit["steinke"].assumes
    (True, ('r_fixed', 'iid_bits'))
    """
    check_levels(delta, alpha)
    check(seed >= 0, "seed", seed, "a whole number of at least 0")
    released = [r] if isinstance(r, int) else list(r)
    runs = _runs(n, released, errors, guesses, seed)
    nulls: Nulls | Channel
    if mechanism == TRADEOFF:
        if tradeoff is None:
            problem = "got none; the mechanism tradeoff needs a trade-off function."
            raise BadArguments(("tradeoff",), problem)
        if curve or (null, q, steps, delta0) != (None,) * 4:
            problem = "a trade-off function is a single null; leave these arguments out."
            raise BadArguments(("null", "curve", "q", "steps", "delta0"), problem)
        points = tradeoff if isinstance(tradeoff, tuple) else Path(tradeoff)
        nulls = read_tradeoff(points)
    else:
        if tradeoff is not None:
            problem = (
                f"the mechanism {mechanism} takes no trade-off function; leave the argument out."
            )
            raise BadArguments(("tradeoff",), problem)
        nulls = family_of(mechanism, q=q, steps=steps, delta0=delta0, delta=delta)
    audit = canaries.audit_runs(
        runs,
        nulls,
        delta=delta,
        alpha=alpha,
        method=method,
        null=null,
        claimed=claimed_epsilon,
        curve=curve,
        independent=independent,
    )
    return ShownOneRunAudit(**vars(audit), mechanism=mechanism)


def _runs(
    n: int | None,
    r: Sequence[int],
    errors: int | None,
    guesses: Table | None,
    seed: int,
) -> list[ReleasedGuesses]:
    """The counts of each number of guesses to release, stated or counted in a table of guesses."""
    if not r:
        problem = "give r with guesses, or n, r and errors; choose r before looking at the guesses."
        names = ("n", "r", "errors") if guesses is None else ("r",)
        raise BadArguments(names, problem)
    if guesses is None:
        if n is None or errors is None:
            raise BadArguments(("n", "errors"), "give both, or give guesses.")
        if len(r) > 1:
            raise BadValue("r", r, "one number with errors", "Several numbers need the guesses.")
        return [ReleasedGuesses(n, r[0], errors)]
    if n is not None or errors is not None:
        problem = "the guesses already contain both; leave these arguments out."
        raise BadArguments(("n", "errors"), problem)
    table = read_guesses(path_of(guesses))
    counts = []
    for released in dict.fromkeys(r):
        counts.append(release(table.bits, table.guesses, table.scores, released, seed))
    return counts


@dataclass(frozen=True, repr=False)
class ShownEpsilonStarAudit(Measurement, losses.EpsilonStarAudit):
    """Epsilon* of one model: an estimate, NaN where it is undefined, and a lower bound; both can be infinite. Thresholds
    and ratios are where each is attained.
    """

    def as_json(self) -> views.Document:
        return views.epsilon_star(self.rows())

    def to_frame(self) -> pd.DataFrame:
        """One row per quantity."""
        values = {
            "epsilon_star": self.epsilon_star,
            "epsilon_lower": self.epsilon_lower,
            "delta": self.delta,
            "alpha": self.alpha,
            "n_train": self.n_train,
            "n_population": self.n_population,
            "threshold": self.threshold,
        }
        return frame({"value": [*values.values()]}, index=[*values])

    def _undefined(self) -> str | None:
        """Why the estimate is no number, if it is none."""
        p_values = None if self.fit is None else self.fit.ks_p_values
        return rejected_fit(self.epsilon_star, p_values)

    def sentences(self) -> list[str]:
        estimate = self._undefined() or f"{self.epsilon_star:.4g}, which is not a bound"
        bound = self.bound.sentence(f"Epsilon* at delta {self.delta:g}")
        return [bound, f"The {self.method} estimate is {estimate}.", *self._notes()]

    def _notes(self) -> list[str]:
        if not self.note:
            return []
        return [f"Note: {self.note}."]

    def views(self) -> list[View]:
        estimate: object = self._undefined()
        if estimate is None:
            estimate = "infinite" if self.infinite else self.epsilon_star
        cut = "none" if self.cut is None else self.cut
        rows: list[list[object]] = [
            [f"Epsilon* at least, {self.bound.level()}; {self.bound.method}", self.bound],
            [f"Epsilon* ({self.method}, an estimate)", estimate],
            ["delta", self.delta],
            ["cut", cut],
            ["losses: training, population", f"{self.n_train}, {self.n_population}"],
            ["threshold of the estimate", self.threshold],
            ["threshold of the lower bound", self.lower_threshold],
        ]
        if self.fit:
            shown = ", ".join(f"{p:.3g}" for p in self.fit.ks_p_values.values())
            rows.append(["p-values of the fit (KS): training, population", shown])
        notes = [f"Assumes: {self.bound.assumes}.", *self._notes()]
        return [View("Epsilon*", ["", "value"], rows, notes)]

    def rows(self) -> list[Result]:
        rows = Rows("model")
        rows.add(
            "model",
            "epsilon_star",
            "given answers",
            self.epsilon_star,
            self.bound,
            evidence=self.facts(),
        )
        return rows.rows


def epsilon_star(
    train: Place | ArrayLike,
    population: Place | ArrayLike,
    *,
    delta: float,
    method: Literal["parametric", "empirical"] = "parametric",
    cut: float | None = None,
    components: int = 1,
    alpha: float = 0.05,
    lower: Literal["split", "band"] = "split",
    train_complete: bool = False,
) -> ShownEpsilonStarAudit:
    """Estimate Epsilon* of one trained model from its losses, and bound Epsilon* from below.

    Parameters
    ----------
    train : The losses on the training set. A file has one loss per line, or a column `loss`.
    population : The losses on data that the model never saw, in the same form.
    delta : The delta of Epsilon*, well under 1/n for a training set of n records, for example 1/(n ln n).
    method : The method of the estimate.
    cut : Restrict FPR and FNR to (cut, 1 - cut), for comparison with published values. [default: no cut]
    components : The number of Gaussians that the parametric method fits to each of the two sets of losses; the paper uses
        1.
    alpha : The probability with which the lower bound may fail.
    lower : The method of the lower bound.
    train_complete : Whether ``train`` holds the losses of the whole training set.

    Notes
    -----
    A point is called a member when its loss is at most a threshold. The estimate is that of Negoescu et al. (2024):
    "parametric" fits a Gaussian to the transformed losses of either side and takes the exact supremum; "empirical" takes
    the observed shares. The lower bound assumes no distribution of the losses: "split" chooses threshold and ratio on one
    half of the losses and certifies both on the other half; "band" holds at all thresholds.

    Examples
    --------
    >>> import lethe
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> audit = lethe.audit.epsilon_star(rng.gamma(2, 1, 2000), rng.gamma(6, 1, 2000), delta=1e-5)
    >>> 0 < audit.epsilon_lower <= audit.epsilon_star
    True
    """
    of_train = _losses(train)
    of_population = _losses(population)
    check_same_run(
        _place_of(train),
        of_train.run_of_column,
        _place_of(population),
        of_population.run_of_column,
    )
    audit = losses.audit(
        of_train.values,
        of_population.values,
        delta=delta,
        method=method,
        cut=cut,
        components=components,
        alpha=alpha,
        lower=lower,
        train_complete=train_complete,
    )
    return ShownEpsilonStarAudit(**vars(audit))


def _place_of(side: Place | ArrayLike) -> Path:
    """The file of one side; losses without a file have the name `IN_MEMORY`."""
    return Path(side) if isinstance(side, (str, os.PathLike)) else IN_MEMORY


def _losses(side: Place | ArrayLike) -> RecordLosses:
    """The losses of one side, from a file or as an array (records,)."""
    path = _place_of(side)
    if isinstance(side, (str, os.PathLike)):
        read = read_losses(path)
    else:
        read = RecordLosses(np.asarray(side, dtype=np.float64), lines_before=0)
    check_equally_often(path, read.values.tolist())
    check_no_block_twice(path, read.values, read.lines_before)
    return read


@dataclass(frozen=True, repr=False)
class SwapAudit(Measurement):
    """Unlearning quality by the SWAP test: the value, its interval, and the advantage of each attack."""

    quality: Quality

    @property
    def by_attack(self) -> dict[str, dict[str, float | None]]:
        return self.as_json()["by_attack"]

    def as_json(self) -> views.Document:
        return views.swap(self.rows())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per attack: the signed advantages in both halves, the advantage, and its interval."""
        return frame(self.by_attack.values(), index=list(self.by_attack))

    def rows(self) -> list[Result]:
        rows, whole = Rows("swap"), self.quality
        facts: dict[str, object] = {
            "attack": whole.attack,
            "n_pairs": whole.n_pairs,
            "n_seeds": whole.n_seeds,
            "advantage": whole.advantage,
        }
        rows.add(
            "audit",
            "quality",
            "run",
            whole.value,
            *(whole.bounds() or ()),
            evidence=facts,
        )
        for name, attack in whole.by_attack.items():
            facts = {
                "a_original": attack.a_original,
                "a_swapped": attack.a_swapped,
                "n_seeds": attack.n_seeds,
            }
            ends = attack.bounds() or ()
            rows.add(
                "audit",
                "advantage",
                "run",
                attack.value,
                *ends,
                item=name,
                evidence=facts,
            )
        return rows.rows

    def views(self) -> list[View]:
        rows = []
        for name, attack in self.quality.by_attack.items():
            ends = attack.bounds() or (None, None)
            rows.append([name, attack.a_original, attack.a_swapped, attack.value, *ends])
        title = (
            f"Unlearning quality {self.quality.value:.4f} (strongest attack: {self.quality.attack})"
        )
        columns = ["attack", *self.to_frame().columns]
        return [View(title, columns, rows, [*self._notes(), self.sentences()[-1]])]

    def _notes(self) -> list[str]:
        """The intervals of the attacks, and the attacks without."""
        attacks = self.quality.by_attack
        covered = []
        without = []
        seeds: set[int] = set()
        for name, attack in attacks.items():
            if attack.ci_low is None:
                without.append(name)
            else:
                covered.append(attack)
                seeds.add(attack.n_seeds)
        notes = []
        if covered:
            numbers = " or ".join(map(str, sorted(seeds)))
            interval = covered[0]
            notes.append(
                f"Intervals: {interval.method} at {interval.coverage} over {numbers} seeds; "
                f"assumes {interval.assumes}."
            )
        if without:
            which = f" for {', '.join(without)}" if covered else ""
            why = "all seeds have one value"
            if any(attacks[name].n_seeds == 1 for name in without):
                why = "a half has a single one"
            notes.append(f"No intervals{which}: an interval needs several seeds, and {why}.")
        return notes

    def sentences(self) -> list[str]:
        quality = self.quality
        lines = [
            f"Unlearning quality {quality.value:.4f}; the strongest attack is {quality.attack}."
        ]
        ends = quality.bounds()
        if ends:
            lower, upper = ends
            lines.append(
                f"The quality is between {lower.significant()} and {upper.significant()} "
                f"{lower.guarantee()} ({lower.method})."
            )
        limit = "The quality is an upper limit for these attacks: a stronger attack can lower the quality."
        return [*lines, limit]


def swap(predictions: Table, *, alpha: float = 0.05) -> SwapAudit:
    """Measure unlearning quality by the SWAP test: 1 minus the largest advantage of any attack.

    Parameters
    ----------
    predictions : CSV, Parquet or JSON lines with one attack's answer on one point per row: `split` (original or swapped),
        `member` (forget or test: the role of the point in that split), `attack` (a name), `accept` (the probability in [0,
        1] that the attack answers "forget"), optionally `weight` (sensitivity of the point) and `seed` (one label per
        model).
    alpha : The interval of each attack covers the advantage with probability 1 - alpha.

    Notes
    -----
    The models of the two halves must be learned and unlearned afresh. Each attack must be fitted once, on points outside
    both sets. The test averages the signed advantages of the halves and then takes the absolute value, so that an
    attack's knowledge of the points themselves cancels.

    Examples
    --------
    >>> import lethe
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"split": ["original", "original", "swapped", "swapped"], "attack": "loss"})
    >>> rows = rows.assign(member=["forget", "test"] * 2, accept=[0.9, 0.4, 0.5, 0.6])
    >>> round(lethe.audit.swap(rows).quality.value, 6)
    0.8
    """
    from lethe.audits.unlearning_game.swap import audit

    return SwapAudit(audit(path_of(predictions), alpha))


@dataclass(frozen=True, repr=False)
class TwinAudit(Measurement):
    """The twin test of one model: its word, exact p-value, and what the test would have found."""

    trace: Trace

    @property
    def word(self) -> Word:
        return self.trace.word

    @property
    def p(self) -> float:
        return self.trace.test.p

    def as_json(self) -> views.Document:
        return views.trace(self.rows())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per secret: its rank among its candidates."""
        test = self.trace.test
        columns = {"rank": test.ranks, "candidates": test.candidates}
        return frame(columns, index=list(self.trace.secrets))

    def rows(self) -> list[Result]:
        return self.trace.rows("model")

    def views(self) -> list[View]:
        trace = self.trace
        of_model = {row.quantity: row for row in self.rows() if row.scope == "model"}
        first, last = of_model["ranked_first"], of_model["ranked_last"]
        rows: list[list[object]] = [
            ["p", trace.test.p],
            ["e", of_model["trace_e"].estimate],
            ["secrets", len(trace.secrets)],
            ["mean rank", float(np.mean(trace.test.ranks))],
            ["ranked first", f"{trace.first} (by chance {trace.by_chance:.3g})"],
            ["ranked last", f"{trace.last} (by chance {trace.by_chance:.3g})"],
            ["share first, at least", first.lower_bound],
            ["share first, at most", first.upper_bound],
            ["share last, at least", last.lower_bound],
            ["share last, at most", last.upper_bound],
            ["epsilon, at least", of_model["trace_epsilon"].lower_bound],
            ["known secrets that would be found", trace.smallest_known],
        ]
        if trace.lift:
            rows += [["lift found, nats", trace.lift.up], ["fall found, nats", trace.lift.down]]
        return [View("Twin test", ["", "value"], rows, self.sentences())]

    def sentences(self) -> list[str]:
        trace = self.trace
        lines = [upper_first(trace.sentence("this model")), f"Assumes: {trace.design.assumes}."]
        if not trace.controls:
            lines.append("No control: give the same table of a model that cannot know the draws.")
        return lines


def twins(
    ranks: Ranks,
    candidates: CountsInPython = None,
    *,
    alpha: float = 0.01,
    control: Table | None = None,
) -> TwinAudit:
    """Test whether a model has any trace of secrets that were drawn among twins, exactly and without a Retrain.

    Parameters
    ----------
    ranks : CSV, Parquet or JSON lines with the score of each candidate (`secret, candidate, score, true`; 1 is the true
        candidate), or with the rank of each true candidate (`secret, rank, candidates`; rank 1 is the model's
        favourite). In Python also such a table, or the ranks themselves.
    candidates : The number of candidates of each secret, with ranks that are no table.
    alpha : The probability of a false trace.
    control : The same table of a model that cannot know the draws. Where it is rejected at 0.001, there is no word.

    Notes
    -----
    The test holds where each true candidate was drawn uniformly among its candidates, and the draw reached nothing but
    the model. A score must be fixed before any score is seen. Equal scores are ordered by a digest of the texts.

    Examples
    --------
    >>> import lethe
    >>> audit = lethe.audit.twins([1, 1, 2, 1, 1, 3], [20] * 6)
    >>> audit.word, f"{audit.p:.0e}"
    ('trace', '4e-06')
    """
    check_alpha(alpha)
    read = _twin_ranks(ranks, candidates)
    test = twin_test(read.ranks, read.candidates)
    controls: tuple[Control, ...] = ()
    if control is not None:
        of_control = read_ranks(path_of(control))
        if not isinstance(ranks, (list, tuple, np.ndarray)):  # ranks alone name no secrets
            check_control(read, of_control, _place_of(control))
        null = twin_test(of_control.ranks, of_control.candidates)
        controls = (Control("the control", null.p, TWINS.control_alpha, null.direction),)
    lift: Lift | None = None
    if read.scores is not None:
        lift = lift_of(read.scores, alpha, np.random.default_rng(stream(0, "twins", "lift")))
    return TwinAudit(Trace(test, read.secrets, alpha, controls=controls, lift=lift))


def _twin_ranks(ranks: Ranks, candidates: CountsInPython) -> TwinRanks:
    """The ranks of a file, of a table, or as numbers with their numbers of candidates."""
    if isinstance(ranks, (list, tuple, np.ndarray)):
        if candidates is None:
            raise BadArguments(("candidates",), "give the number of candidates of each secret.")
        places, sizes = check_ranks(list(ranks), list(candidates))
        names = tuple(str(number) for number in range(1, len(places) + 1))
        return TwinRanks(names, places, sizes)
    if candidates is not None:
        raise BadArguments(("candidates",), "a table holds them; leave the argument out.")
    return read_ranks(path_of(ranks))
