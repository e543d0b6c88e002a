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
@pytest.mark.parametrize("delta", [0.0, 0.05, 0.3])
def test_empirical_equals_its_naive_twin(delta, seed):
    rng = np.random.default_rng(seed)
    train = rng.integers(0, 9, 40) / 3
    population = rng.integers(0, 11, 30) / 3

    found = empirical_epsilon_star(train, population, delta)

    naive = naive_empirical(train, population, delta)
    assert found.value == pytest.approx(naive)


@pytest.mark.parametrize("method", LOWER)
@pytest.mark.parametrize("setting", SETTINGS)
def test_coverage_of_the_lower_bounds(method, setting):
    """Null data among them: the bound exceeds the truth at most alpha of the time. The target makes 1,000 runs each."""
    runs = 150
    alpha = 0.05

    share = share_above(method, *setting, alpha, runs)

    assert share <= tolerated(alpha, runs)


@pytest.mark.parametrize("method", LOWER)
def test_coverage_where_the_training_shares_are_known(method):
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
    fnr = 1 - np.concatenate([tpr, tpr])
    exact = from_rates(fpr, fnr, delta)

    values = []
    for _ in range(runs):
        population = rng.random(150)
        bound = LOWER[method](train, population, delta, alpha, train_complete=True)
        values.append(bound.value)

    missed = np.array(values) > exact + 1e-6
    assert np.mean(missed) <= tolerated(alpha, runs)
    assert max(values) > 0


def instances(count, shift, n=400, seed=0):
    rng = np.random.default_rng(seed)
    models = []
    for _ in range(count):
        train = rng.random(n)
        population = rng.random(n) + shift
        models.append((train, population))
    return models


def naive(models, delta):
    """FNR averaged at equal FPR = j / k, thresholds read off the sorted population of each model."""
    k = min(len(population) for _, population in models)
    mean_fpr = []
    mean_fnr = []
    for j in range(1, k + 1):
        fpr = []
        fnr = []
        for train, population in models:
            place = math.ceil(j / k * len(population) - 1e-9) - 1
            tau = np.sort(population)[place]
            fpr.append(np.mean(population <= tau))
            fnr.append(np.mean(train > tau))
        mean_fpr.append(np.mean(fpr))
        mean_fnr.append(np.mean(fnr))
    return from_rates(mean_fpr, mean_fnr, delta)


def test_a_share_up_to_delta_has_no_ratio():
    half = (np.array([0.5]), np.array([0.5]))

    ratios = log_ratios(half, half, 0.5)

    assert (ratios == -np.inf).all()


def test_the_mean_equals_its_naive_twin():
    models = [*instances(2, 0.3, n=40), *instances(2, 0.2, n=60, seed=1)]

    found = mechanism_epsilon(models, 0.01)

    assert found.value == pytest.approx(naive(models, 0.01))


def test_a_mechanism_that_does_not_memorise_has_no_place_of_its_largest_ratio():
    ((losses, _),) = instances(1, 0.3, n=40)

    assert mechanism_epsilon([(losses, losses)], 0.01).fpr is None


@pytest.mark.parametrize("seed", range(5))
def test_theorem_two(seed):
    """eps-bar is at most ln E[e^eps*]; with equal sizes both use thresholds from the population."""
    models = instances(5, 0.1, n=50, seed=seed)
    exponentials = []
    for train, population in models:
        alone = empirical_epsilon_star(train, population, 0.05)
        exponentials.append(math.exp(alone.value))

    result = mechanism_epsilon(models, 0.05)

    assert result.jensen_upper == pytest.approx(math.log(np.mean(exponentials)))
    assert result.value <= result.jensen_upper + 1e-12


TWO = Mixture(np.array([0.3, 0.7]), np.array([-2.0, 1.0]), np.array([0.5, 1.5]))


def two_gammas(shape_of_population, n_train, n_population):
    """Losses of training and population from two Gamma laws of scale 5, with the seed 0."""
    rng = np.random.default_rng(0)
    train = rng.gamma(2, 5, n_train)
    population = rng.gamma(shape_of_population, 5, n_population)
    return train, population


def test_the_transform_is_the_log_odds_of_a_scaled_loss():
    train, population = two_gammas(3, 50, 40)
    scale = Scale.of(train, population)
    scaled = (train - scale.low) / (scale.high - scale.low)
    p = np.exp(-(1 + scaled))

    phi = scale.phi(train)

    assert phi == pytest.approx(np.log(p) - np.log1p(-p), rel=1e-12)


def test_the_transform_has_a_way_back():
    train, population = two_gammas(3, 50, 40)
    scale = Scale.of(train, population)

    losses = [scale.loss(phi) for phi in scale.phi(train)]

    assert losses == pytest.approx(train, rel=1e-9)


def mixed(function, x):
    """A function of ``TWO`` as the weighted sum of scipy's normal laws."""
    total = np.zeros(len(x))
    for weight, mean, sd in zip(TWO.weights, TWO.means, TWO.sds, strict=True):
        law = stats.norm(mean, sd)
        total += weight * getattr(law, function)(x)
    return total


def test_distribution_function_and_density_of_a_mixture_agree_with_scipy():
    x = np.linspace(-40, 20, 200)

    assert np.exp(TWO.log_cdf(x)) == pytest.approx(mixed("cdf", x), rel=1e-10)
    assert np.exp(TWO.log_pdf(x)) == pytest.approx(mixed("pdf", x), rel=1e-10)


def test_a_mirrored_mixture_has_the_upper_tail_below():
    x = np.linspace(-40, 20, 200)

    below = np.exp(TWO.mirrored().log_cdf(-x))

    assert below == pytest.approx(1 - mixed("cdf", x), abs=1e-12)


@pytest.mark.parametrize("p", [1e-300, 1e-5, 0.3, 0.9999])
def test_the_quantile_of_a_mixture_has_its_probability_below(p):
    quantile = np.float64(TWO.quantile(p))

    assert TWO.log_cdf(quantile) == pytest.approx(math.log(p), rel=1e-9)


@pytest.mark.parametrize("components", [2, 3, 5])
def test_expectation_maximisation_is_as_likely_as_scikit_learns(components):
    values = TWO.sample(2000, np.random.default_rng(0))
    column = values[:, None]
    theirs = GaussianMixture(components, random_state=0, n_init=3).fit(column)

    ours = fit_mixture(values, components)

    assert ours.log_pdf(values).mean() > theirs.score(column) - 0.005


def test_expectation_maximisation_finds_the_mixture_that_was_drawn_from():
    values = TWO.sample(2000, np.random.default_rng(0))

    fit = fit_mixture(values, 2)

    assert fit.means == pytest.approx(TWO.means, abs=0.15)
    assert fit.sds == pytest.approx(TWO.sds, abs=0.15)
    assert fit.weights == pytest.approx(TWO.weights, abs=0.05)


def naive_supremum(train, population, delta, cut=None):
    """The four ratios at a million quantiles of each side, in plain doubles."""
    x = np.linspace(-15, 15, 300_001)

    def chance(law, side):
        total = np.zeros(len(x))
        for weight, mean, sd in zip(side.weights, side.means, side.sds, strict=True):
            total += weight * law(x, mean, sd)
        return total

    f = chance(stats.norm.cdf, train)
    f_above = chance(stats.norm.sf, train)
    g = chance(stats.norm.cdf, population)
    g_above = chance(stats.norm.sf, population)
    kept = np.ones(len(x), dtype=bool)
    if cut is not None:
        for rate in (f_above, g):
            kept &= (rate >= cut) & (rate <= 1 - cut)

    best = 0.0
    for top, bottom in [(f, g), (g_above, f_above), (f_above, g_above), (g, f)]:
        with_ratio = kept & (top > delta)
        with np.errstate(divide="ignore"):
            ratios = np.log((top[with_ratio] - delta) / bottom[with_ratio])
        best = max(best, ratios.max(initial=-np.inf))
    return best


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
    train, population = PAIRS[pair]
    naive = naive_supremum(train, population, 1e-3, cut)
    # At a cut the ratio still rises, and the twin's grid ends up to 1e-4 before the cut.
    rel = 1e-6 if cut is None else 1e-3

    value, place, ratio = supremum(train, population, 1e-3, cut)

    assert value == pytest.approx(naive, rel=rel)
    assert place is not None
    assert ratio is not None


@pytest.mark.parametrize("pair", PAIRS)
def test_at_the_place_of_the_supremum_both_errors_are_within_the_cut(pair):
    train, population = PAIRS[pair]
    cut = 0.01

    _, place, _ = supremum(train, population, 1e-3, cut)

    fpr = np.exp(population.log_cdf(place))
    fnr = np.exp(train.mirrored().log_cdf(-place))
    assert cut * (1 - 1e-9) <= min(fpr, fnr)
    assert max(fpr, fnr) <= (1 - cut) * (1 + 1e-9)


POINT = Mixture.normal(0.5, 0)
STANDARD = Mixture.normal(0, 1)


@pytest.mark.parametrize("population", [STANDARD, Mixture.normal(0.6, 0)], ids=["normal", "point"])
def test_a_point_mass_has_an_infinite_supremum_against_another_law(population):
    value, _, _ = supremum(POINT, population, 0.01)

    assert math.isinf(value)


def test_at_a_large_delta_a_point_mass_has_a_finite_supremum_against_a_gaussian():
    """Of the point over the Gaussian; the Gaussian over the point has nothing to divide by."""
    smaller_tail = min(stats.norm.cdf(0.5), stats.norm.sf(0.5))
    expected = math.log(0.01) - math.log(smaller_tail)

    value, _, _ = supremum(POINT, STANDARD, 0.99)

    assert value == pytest.approx(max(0.0, expected), abs=1e-12)


@pytest.mark.parametrize("delta", [0, 0.01])
def test_a_point_mass_against_itself_has_the_supremum_0_at_no_place(delta):
    assert supremum(POINT, POINT, delta) == (0, None, None)


def test_a_point_mass_beyond_the_cut_has_no_supremum():
    value, _, _ = supremum(POINT, STANDARD, 0.01, 0.1)

    assert math.isnan(value)


def test_the_threshold_is_a_loss_where_the_value_is_attained():
    train, population = two_gammas(4, 1000, 1000)
    scale = Scale.of(train, population)

    result = parametric_epsilon_star(train, population, 1e-4)

    u = (result.threshold - scale.low) / (scale.high - scale.low)
    phi = -math.log(math.expm1(1 + u))

    def tail_of(side, tail):
        return tail(phi, result.fit.means[side][0], result.fit.sds[side][0])

    if result.ratio == "(TPR - delta) / FPR":
        top = tail_of("train", stats.norm.sf)
        bottom = tail_of("population", stats.norm.sf)
    else:
        assert result.ratio == "(TNR - delta) / FNR"
        top = tail_of("population", stats.norm.cdf)
        bottom = tail_of("train", stats.norm.cdf)
    assert math.log((top - 1e-4) / bottom) == pytest.approx(result.value, rel=1e-6)


def test_an_audit_is_parametric_unless_another_method_is_named():
    train, population = two_gammas(4, 1000, 1000)

    result = parametric_epsilon_star(train, population, 1e-4)

    assert audit(train, population, delta=1e-4).epsilon_star == result.value
    assert result.assumes == NORMAL


def test_without_a_threshold_inside_the_cut_there_is_no_value():
    train = np.zeros(2)
    population = np.ones(2)

    found = audit(train, population, delta=0.1, method="empirical", cut=0.4)

    assert math.isnan(found.epsilon_star)
    assert "0.4" in found.note


@pytest.mark.parametrize(("n", "delta"), [(2, 0.5), (100, 1 / (100 * math.log(100)))])
def test_the_recommended_delta_is_below_one_over_n(n, delta):
    assert recommended_delta(n) == delta
