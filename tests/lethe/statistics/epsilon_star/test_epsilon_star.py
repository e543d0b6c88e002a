"""Epsilon*: every oracle, the check values of the specification, coverage of both lower bounds, the named edges."""

import json
import math

import numpy as np
import pytest

from lethe.errors import BadValue
from lethe.statistics.epsilon_star.lower import band_lower_bound, split_lower_bound
from lethe.statistics.epsilon_star.parametric import (
    Mixture,
    Scale,
    fit_mixture,
    logit,
    parametric_epsilon_star,
    supremum,
)
from lethe.statistics.epsilon_star.ratios import empirical_epsilon_star, recommended_delta
from tests.lethe.statistics.epsilon_star.coverage import LOWER, SETTINGS, from_rates, share_above
from tests.lethe.statistics.misses import tolerated


def drawn(given):
    rng, n = np.random.Generator(np.random.PCG64(given["seed"])), given["n"]
    return rng.gamma(2, 5, n), rng.gamma(2 + given["d"], 5, n)


def gaussian_sup(case):
    given = case["input"]
    sides = Mixture.normal(given["m_tr"], given["s_tr"]), Mixture.normal(given["m_pop"], given["s_pop"])
    return supremum(*sides, case["params"]["delta"], None)[0]


def moment(case):
    side, what = ("tr" in case["kind"].rsplit("_", 1)[1]), "sd" in case["kind"]
    train, population = drawn(case["input"])
    phi = Scale.of(train, population).phi(train if side else population)
    fit = fit_mixture(phi)
    return (fit.sds if what else fit.means)[0]


def empirical(case):
    given, params = case["input"], case["params"]
    train, population = (given["train"], given["pop"]) if "train" in given else drawn(given)
    return empirical_epsilon_star(train, population, params["delta"], params["cut"]).value


ROUTES = {
    "points": lambda c: from_rates(c["input"]["fpr"], c["input"]["fnr"], c["params"]["delta"]),
    "gaussian_parametric_sup": gaussian_sup,
    "empirical": empirical,
    "transform_mean_train": moment,
    "transform_sd_train": moment,
    "transform_mean_pop": moment,
    "transform_sd_pop": moment,
    "transform_value": lambda c: float(logit(np.array(c["input"]["u"]))),
    "parametric_from_losses": lambda c: parametric_epsilon_star(*drawn(c["input"]), c["params"]["delta"]).value,
    "lower_bound_dkw_simultaneous": lambda c: (
        band_lower_bound(*drawn(c["input"]), c["params"]["delta"], c["params"]["alpha"], band="dkw").value
    ),
}


def test_every_oracle(shared):
    cases = json.loads((shared / "oracles/epsilon-star.json").read_text())["cases"]
    for case in cases:
        expected = math.inf if case["expected"] == "inf" else case["expected"]
        rel = 1e-8 if case["kind"] == "parametric_from_losses" else 1e-9
        assert ROUTES[case["kind"]](case) == pytest.approx(expected, rel=rel, abs=1e-12), case["id"]
    assert len(cases) == 34


def test_known_values():
    assert from_rates([0.1], [0.5], 0.0) == pytest.approx(math.log(5))
    assert supremum(Mixture.normal(0, 1), Mixture.normal(3, 1), 1e-5, None)[0] == pytest.approx(
        16.6754944028, rel=1e-10
    )
    assert recommended_delta(1000) == pytest.approx(1 / (1000 * math.log(1000)))


def naive_empirical(train, population, delta):
    best = 0.0
    for tau in np.concatenate([train, population]):
        tpr, fpr = np.mean(train <= tau), np.mean(population <= tau)
        for top, bottom in ((tpr, fpr), (1 - fpr, 1 - tpr), (1 - tpr, 1 - fpr), (fpr, tpr)):
            if top - delta > 0:
                best = max(best, math.inf if bottom == 0 else math.log((top - delta) / bottom))
    return best


@pytest.mark.parametrize("seed", range(8))
def test_empirical_equals_its_naive_twin(seed):
    rng = np.random.default_rng(seed)
    train, population = rng.integers(0, 9, 40) / 3, rng.integers(0, 11, 30) / 3
    for delta in (0.0, 0.05, 0.3):
        assert empirical_epsilon_star(train, population, delta).value == pytest.approx(
            naive_empirical(train, population, delta)
        )


@pytest.mark.parametrize("method", LOWER)
@pytest.mark.parametrize("setting", SETTINGS)
def test_coverage_of_the_lower_bounds(method, setting):
    """Null data among them: the bound exceeds the truth at most alpha of the time. The target makes 1,000 runs each."""
    runs, alpha = 150, 0.05
    assert share_above(method, *setting, alpha, runs) <= tolerated(alpha, runs)


def test_coverage_where_the_training_shares_are_known():
    """The training set is fixed and the population is redrawn: the truth is that set's own Epsilon*, which is finite."""
    rng, runs, alpha, delta = np.random.default_rng(3), 300, 0.05, 1e-3
    train = np.array([0.0, 0.2, 0.2, 0.3, 0.45, 0.6, 0.7, 1.0])
    edges = np.unique(train)
    tpr = np.searchsorted(train, edges, side="right") / len(train)
    # The population is uniform on [0, 1]; between two training losses the FPR moves and the TPR does not.
    fpr = np.concatenate([edges, edges[1:], [1.0]])
    exact = from_rates(fpr, 1 - np.concatenate([tpr, tpr]), delta)
    for method, bound in LOWER.items():
        values = [bound(train, rng.random(150), delta, alpha, train_complete=True).value for _ in range(runs)]
        assert np.mean(np.array(values) > exact + 1e-6) <= tolerated(alpha, runs), method
        assert max(values) > 0


def test_the_lower_bounds_find_something_and_the_plug_in_is_biased_upward():
    rng = np.random.default_rng(0)
    train, population = rng.gamma(2, 5, 2000), rng.gamma(5, 5, 2000)
    found = {name: bound(train, population, 1e-5).value for name, bound in LOWER.items()}
    assert 1.0 < found["dkw"] < found["split"]
    assert 1.0 < found["dkw"] < found["berk-jones"]
    same = [empirical_epsilon_star(rng.random(1000), rng.random(1000), 1e-4).value for _ in range(20)]
    assert min(same) > 0


def test_delta_zero():
    rng = np.random.default_rng(0)
    value = parametric_epsilon_star(rng.normal(0, 1, 50), rng.normal(1, 1, 50), 0.0)
    assert math.isinf(value.value)
    assert value.note


def test_identical_samples_are_zero():
    losses = np.random.default_rng(0).random(50)
    assert empirical_epsilon_star(losses, losses, 1e-3).value == 0
    assert parametric_epsilon_star(losses, losses, 1e-3).value == pytest.approx(0, abs=1e-9)
    assert all(bound(losses, losses, 1e-3).value == 0 for bound in LOWER.values())


def test_constant_losses():
    same, other = np.full(20, 1.0), np.full(20, 2.0)
    assert empirical_epsilon_star(same, same, 1e-3).value == 0
    assert parametric_epsilon_star(same, same, 1e-3).value == 0
    assert math.isinf(empirical_epsilon_star(same, other, 1e-3).value)
    assert math.isfinite(split_lower_bound(same, other, 1e-3).value)


def test_one_huge_outlier():
    rng = np.random.default_rng(0)
    train, population = rng.random(100), np.append(rng.random(99), 1e300)
    assert not math.isnan(empirical_epsilon_star(train, population, 1e-3).value)
    assert not math.isnan(parametric_epsilon_star(train, population, 1e-3).value)
    assert split_lower_bound(train, population, 1e-3).value == pytest.approx(0, abs=0.5)


def test_two_losses_a_side_and_fewer():
    two = np.array([0.1, 0.2])
    assert all(math.isfinite(bound(two, two + 1, 0.01).value) for bound in LOWER.values())
    with pytest.raises(BadValue, match="at least 2"):
        empirical_epsilon_star(two[:1], two, 0.01)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_refused(bad):
    good = np.array([0.1, 0.2, 0.3])
    with pytest.raises(BadValue, match="finite"):
        empirical_epsilon_star(np.append(good, bad), good, 0.01)
    for delta in (-0.1, 1.0):
        with pytest.raises(BadValue, match="delta"):
            empirical_epsilon_star(good, good, delta)
    with pytest.raises(BadValue, match="cut"):
        empirical_epsilon_star(good, good, 0.01, cut=0.6)
    for bound in LOWER.values():
        with pytest.raises(BadValue, match="alpha"):
            bound(good, good, 0.01, alpha=0)
