"""Epsilon*: every oracle, fits and supremum against twins, coverage of the lower bounds, mechanisms, the named edges."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from sklearn.mixture import GaussianMixture

from lethe.statistics.epsilon_star import audit
from lethe.statistics.epsilon_star.parametric import (
    NORMAL,
    Mixture,
    Scale,
    fit_mixture,
    parametric_epsilon_star,
    supremum,
)
from lethe.statistics.epsilon_star.ratios import (
    band_lower_bound,
    empirical_epsilon_star,
    log_ratios,
    mechanism_epsilon,
    recommended_delta,
)
from tests.lethe.statistics.draws import tolerated
from tests.lethe.statistics.epsilon_star.coverage import LOWER, SETTINGS, from_rates, share_above


def drawn(recipe):
    """Losses of the training set and of the population, from two Gamma laws."""
    rng = np.random.Generator(np.random.PCG64(recipe["seed"]))
    train = rng.gamma(2, 5, recipe["n"])
    return train, rng.gamma(2 + recipe["d"], 5, recipe["n"])


def from_points(case):
    values = case["input"]
    return from_rates(values["fpr"], values["fnr"], case["params"]["delta"])


def gaussian_sup(case):
    values = case["input"]
    train = Mixture.normal(values["m_tr"], values["s_tr"])
    population = Mixture.normal(values["m_pop"], values["s_pop"])
    value, _, _ = supremum(train, population, case["params"]["delta"], None)
    return value


def moment(case):
    """The mean or the deviation of the transformed losses of a side, as the kind of the case names both."""
    _, what, side = case["kind"].split("_")
    train, population = drawn(case["input"])
    losses = train if side == "train" else population
    fit = fit_mixture(Scale.of(train, population).phi(losses))
    if what == "sd":
        return fit.sds[0]
    return fit.means[0]


def transformed(case):
    return float(Scale(0.0, 1.0).phi(np.array(case["input"]["u"])))


def empirical(case):
    values = case["input"]
    params = case["params"]
    if "train" in values:
        train, population = values["train"], values["pop"]
    else:
        train, population = drawn(values)
    return empirical_epsilon_star(train, population, params["delta"], params["cut"]).value


def parametric(case):
    train, population = drawn(case["input"])
    return parametric_epsilon_star(train, population, case["params"]["delta"]).value


def lower_bound(case):
    train, population = drawn(case["input"])
    params = case["params"]
    bound = band_lower_bound(train, population, params["delta"], params["alpha"], band="dkw")
    return bound.value


ROUTES = {
    "points": from_points,
    "gaussian_parametric_sup": gaussian_sup,
    "empirical": empirical,
    "transform_mean_train": moment,
    "transform_sd_train": moment,
    "transform_mean_pop": moment,
    "transform_sd_pop": moment,
    "transform_value": transformed,
    "parametric_from_losses": parametric,
    "lower_bound_dkw_simultaneous": lower_bound,
}


def test_every_oracle(shared):
    cases = json.loads((shared / "oracles/epsilon-star.json").read_text())["cases"]

    assert len(cases) == 34
    for case in cases:
        found = ROUTES[case["kind"]](case)
        expected = math.inf if case["expected"] == "inf" else case["expected"]
        rel = 1e-8 if case["kind"] == "parametric_from_losses" else 1e-9
        assert found == pytest.approx(expected, rel=rel, abs=1e-12), case["id"]


def naive_empirical(train, population, delta):
    """The largest log-ratio over all thresholds, one after the other."""
    best = 0.0
    for tau in np.concatenate([train, population]):
        tpr = np.mean(train <= tau)
        fpr = np.mean(population <= tau)
        ratios = [(tpr, fpr), (1 - fpr, 1 - tpr), (1 - tpr, 1 - fpr), (fpr, tpr)]
        for top, bottom in ratios:
            if top <= delta:
                continue
            ratio = math.inf if bottom == 0 else math.log((top - delta) / bottom)
            best = max(best, ratio)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_empirical_equals_its_naive_twin(seed):
    rng = np.random.default_rng(seed)
    train = rng.integers(0, 9, 40) / 3
    population = rng.integers(0, 11, 30) / 3

    for delta in (0.0, 0.05, 0.3):
        found = empirical_epsilon_star(train, population, delta)
        naive = naive_empirical(train, population, delta)
        assert found.value == pytest.approx(naive)


@pytest.mark.parametrize("method", LOWER)
@pytest.mark.parametrize("setting", SETTINGS)
def test_coverage_of_the_lower_bounds(method, setting):
    """Null data among them: the bound exceeds the truth at most alpha of the time. The target makes 1,000 runs each."""
    runs = 150
    alpha = 0.05
    assert share_above(method, *setting, alpha, runs) <= tolerated(alpha, runs)


def test_coverage_where_the_training_shares_are_known():
    """The training set is fixed and the population is redrawn: the truth is that set's own Epsilon*, which is finite."""
    rng = np.random.default_rng(3)
    runs = 300
    alpha = 0.05
    delta = 1e-3
    train = np.array([0.0, 0.2, 0.2, 0.3, 0.45, 0.6, 0.7, 1.0])
    edges = np.unique(train)
    tpr = np.searchsorted(train, edges, side="right") / len(train)
    # The population is uniform on [0, 1]; between two training losses the FPR moves and the TPR does not.
    fpr = np.concatenate([edges, edges[1:], [1.0]])
    exact = from_rates(fpr, 1 - np.concatenate([tpr, tpr]), delta)
    for method, bound in LOWER.items():
        values = []
        for _ in range(runs):
            population = rng.random(150)
            values.append(bound(train, population, delta, alpha, train_complete=True).value)
        assert np.mean(np.array(values) > exact + 1e-6) <= tolerated(alpha, runs), method
        assert max(values) > 0


def instances(count, shift, n=400, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.random(n), rng.random(n) + shift) for _ in range(count)]


def naive(models, delta):
    """FNR averaged at equal FPR = j / k, thresholds read off the sorted population of each model."""
    k = min(len(population) for _, population in models)
    points = []
    for j in range(1, k + 1):
        fpr, fnr = [], []
        for train, population in models:
            tau = np.sort(population)[math.ceil(j / k * len(population) - 1e-9) - 1]
            fpr.append(np.mean(population <= tau))
            fnr.append(np.mean(train > tau))
        points.append((np.mean(fpr), np.mean(fnr)))
    return from_rates(*zip(*points, strict=True), delta)


def test_a_share_up_to_delta_has_no_ratio():
    half = (np.array([0.5]), np.array([0.5]))
    assert (log_ratios(half, half, 0.5) == -np.inf).all()


def test_the_mean_equals_its_naive_twin():
    models = [*instances(2, 0.3, n=40), *instances(2, 0.2, n=60, seed=1)]
    assert mechanism_epsilon(models, 0.01).value == pytest.approx(naive(models, 0.01))
    assert mechanism_epsilon([(models[0][0], models[0][0])], 0.01).fpr is None


@pytest.mark.parametrize("seed", range(5))
def test_theorem_two(seed):
    """eps-bar is at most ln E[e^eps*]; with equal sizes both use thresholds from the population."""
    models = instances(5, 0.1, n=50, seed=seed)
    result = mechanism_epsilon(models, 0.05)
    assert result.value <= result.jensen_upper + 1e-12
    singles = [math.exp(empirical_epsilon_star(*model, 0.05).value) for model in models]
    assert result.jensen_upper == pytest.approx(math.log(np.mean(singles)))


TWO = Mixture(np.array([0.3, 0.7]), np.array([-2.0, 1.0]), np.array([0.5, 1.5]))


def test_the_transform_and_its_way_back():
    rng = np.random.default_rng(0)
    train, population = rng.gamma(2, 5, 50), rng.gamma(3, 5, 40)
    scale = Scale.of(train, population)
    p = np.exp(-(1 + (train - scale.low) / (scale.high - scale.low)))
    assert scale.phi(train) == pytest.approx(np.log(p) - np.log1p(-p), rel=1e-12)
    assert [scale.loss(phi) for phi in scale.phi(train)] == pytest.approx(train, rel=1e-9)


def test_distribution_function_density_and_quantile_agree_with_scipy():
    x = np.linspace(-40, 20, 200)
    parts = [stats.norm(mean, sd) for mean, sd in zip(TWO.means, TWO.sds, strict=True)]
    cdf = sum(w * part.cdf(x) for w, part in zip(TWO.weights, parts, strict=True))
    pdf = sum(w * part.pdf(x) for w, part in zip(TWO.weights, parts, strict=True))
    assert np.exp(TWO.log_cdf(x)) == pytest.approx(cdf, rel=1e-10)
    assert np.exp(TWO.log_pdf(x)) == pytest.approx(pdf, rel=1e-10)
    for p in (1e-300, 1e-5, 0.3, 0.9999):
        assert TWO.log_cdf(np.float64(TWO.quantile(p))) == pytest.approx(math.log(p), rel=1e-9)
    assert np.exp(TWO.mirrored().log_cdf(-x)) == pytest.approx(1 - cdf, abs=1e-12)


def test_expectation_maximisation_is_as_likely_as_scikit_learns():
    values = TWO.sample(2000, np.random.default_rng(0))
    for components in (2, 3, 5):
        ours = fit_mixture(values, components).log_pdf(values).mean()
        theirs = (
            GaussianMixture(components, random_state=0, n_init=3)
            .fit(values[:, None])
            .score(values[:, None])
        )
        assert ours > theirs - 0.005
    fit = fit_mixture(values, 2)
    assert fit.means == pytest.approx(TWO.means, abs=0.15)
    assert fit.sds == pytest.approx(TWO.sds, abs=0.15)
    assert fit.weights == pytest.approx(TWO.weights, abs=0.05)


def naive_supremum(train, population, delta, cut=None):
    """The four ratios at a million quantiles of each side, in plain doubles."""
    x = np.linspace(-15, 15, 300_001)

    def chance(law, side):
        return sum(
            w * law(x, m, s) for w, m, s in zip(side.weights, side.means, side.sds, strict=True)
        )

    f, f_above, g, g_above = (
        chance(law, side) for side in (train, population) for law in (stats.norm.cdf, stats.norm.sf)
    )
    if cut is not None:
        kept = np.all([(r >= cut) & (r <= 1 - cut) for r in (f_above, g)], axis=0)
        f = f[kept]
        g = g[kept]
        f_above = f_above[kept]
        g_above = g_above[kept]
    pairs = ((f, g), (g_above, f_above), (f_above, g_above), (g, f))
    with np.errstate(divide="ignore", invalid="ignore"):
        return max(
            0.0, *(np.max(np.where(a > delta, np.log((a - delta) / b), -np.inf)) for a, b in pairs)
        )


PAIRS = {
    "gaussians": (Mixture.normal(0, 1), Mixture.normal(1, 1.2)),
    "wider": (Mixture.normal(0, 1.5), Mixture.normal(0, 1)),
    "mixture and gaussian": (TWO, Mixture.normal(0, 1.3)),
    "two mixtures": (
        TWO,
        Mixture(np.array([0.5, 0.5]), np.array([-1.0, 1.5]), np.array([1.0, 1.2])),
    ),
}


@pytest.mark.parametrize("cut", [None, 0.01])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_supremum_equals_its_naive_twin(pair, cut):
    value, place, ratio = supremum(*PAIRS[pair], 1e-3, cut)
    # At a cut the ratio still rises, and the twin's grid ends up to 1e-4 before the cut.
    assert value == pytest.approx(
        naive_supremum(*PAIRS[pair], 1e-3, cut), rel=1e-6 if cut is None else 1e-3
    )
    assert place is not None
    assert ratio is not None
    if cut is not None:
        fpr, fnr = (
            np.exp(PAIRS[pair][1].log_cdf(place)),
            np.exp(PAIRS[pair][0].mirrored().log_cdf(-place)),
        )
        assert cut * (1 - 1e-9) <= min(fpr, fnr)
        assert max(fpr, fnr) <= (1 - cut) * (1 + 1e-9)


def test_a_point_mass_against_a_gaussian_and_another():
    point, normal = Mixture.normal(0.5, 0), Mixture.normal(0, 1)
    expected = max(
        math.log1p(-0.01) - math.log(tail) for tail in (stats.norm.cdf(0.5), stats.norm.sf(0.5))
    )
    # Of the point over the Gaussian; the Gaussian over the point has nothing to divide by.
    assert math.isinf(supremum(point, normal, 0.01)[0])
    assert supremum(point, normal, 0.99)[0] == pytest.approx(
        max(0.0, expected + math.log(0.01 / 0.99)), abs=1e-12
    )
    assert math.isinf(supremum(point, Mixture.normal(0.6, 0), 0.01)[0])
    assert [supremum(point, point, delta) for delta in (0, 0.01)] == [(0, None, None)] * 2
    assert math.isnan(supremum(point, normal, 0.01, 0.1)[0])


def test_the_threshold_is_a_loss_where_the_value_is_attained():
    rng = np.random.default_rng(0)
    train, population = rng.gamma(2, 5, 1000), rng.gamma(4, 5, 1000)
    result = parametric_epsilon_star(train, population, 1e-4)
    assert audit(train, population, delta=1e-4).epsilon_star == result.value
    assert result.assumes == NORMAL
    scale = Scale.of(train, population)
    u = (result.threshold - scale.low) / (scale.high - scale.low)
    phi = -math.log(math.expm1(1 + u))
    tails = {
        "(TPR - delta) / FPR": ("train", "population", stats.norm.sf),
        "(TNR - delta) / FNR": ("population", "train", stats.norm.cdf),
    }
    top, bottom, tail = tails[result.ratio]
    means, sds = result.fit.means, result.fit.sds
    ratio = (tail(phi, means[top][0], sds[top][0]) - 1e-4) / tail(
        phi, means[bottom][0], sds[bottom][0]
    )
    assert math.log(ratio) == pytest.approx(result.value, rel=1e-6)


def test_without_a_threshold_inside_the_cut_there_is_no_value():
    found = audit(np.zeros(2), np.ones(2), delta=0.1, method="empirical", cut=0.4)
    assert math.isnan(found.epsilon_star)
    assert "0.4" in found.note


def test_the_recommended_delta_is_below_one_over_n():
    assert [recommended_delta(n) for n in (2, 100)] == [0.5, 1 / (100 * math.log(100))]
