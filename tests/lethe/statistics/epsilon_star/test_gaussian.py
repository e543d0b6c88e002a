"""Gaussians and mixtures: fits, tails, quantiles, the exact supremum, the test of fit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lethe.errors import BadValue
from lethe.statistics.epsilon_star.parametric import (
    Mixture,
    Scale,
    fit_mixture,
    goodness_of_fit,
    parametric_epsilon_star,
    supremum,
)

TWO = Mixture(np.array([0.3, 0.7]), np.array([-2.0, 1.0]), np.array([0.5, 1.5]))


def test_the_transform_and_its_way_back():
    rng = np.random.default_rng(0)
    train, population = rng.gamma(2, 5, 50), rng.gamma(3, 5, 40)
    scale = Scale.of(train, population)
    p = np.exp(-(1 + (train - scale.low) / (scale.high - scale.low)))
    assert scale.phi(train) == pytest.approx(np.log(p) - np.log1p(-p), rel=1e-12)
    assert [scale.loss(phi) for phi in scale.phi(train)] == pytest.approx(train, rel=1e-9)


def test_two_huge_losses_do_not_overflow():
    extremes = np.array([-1.7e308, 0.0, 1.7e308])
    assert np.isfinite(Scale.of(extremes, extremes).phi(extremes)).all()


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


def test_one_component_is_mean_and_standard_deviation():
    values = np.random.default_rng(0).random(100)
    fit = fit_mixture(values)
    assert (fit.means[0], fit.sds[0]) == pytest.approx((values.mean(), values.std()))


def test_expectation_maximisation_is_as_likely_as_scikit_learns():
    from sklearn.mixture import GaussianMixture

    values = TWO.sample(2000, np.random.default_rng(0))
    for components in (2, 3, 5):
        ours = fit_mixture(values, components).log_pdf(values).mean()
        theirs = GaussianMixture(components, random_state=0, n_init=3).fit(values[:, None]).score(values[:, None])
        assert ours > theirs - 0.005
    fit = fit_mixture(values, 2)
    assert fit.means == pytest.approx(TWO.means, abs=0.15)
    assert fit.sds == pytest.approx(TWO.sds, abs=0.15)
    assert fit.weights == pytest.approx(TWO.weights, abs=0.05)


def test_more_components_never_fit_worse():
    values = np.random.default_rng(1).gamma(2, 5, 1000)
    likelihoods = [fit_mixture(values, k).log_pdf(values).mean() for k in (1, 2, 4, 8, 20)]
    assert np.all(np.diff(likelihoods) > -1e-3)


def test_impossible_numbers_of_components_are_refused():
    for components in (0, 4):
        with pytest.raises(BadValue, match="components"):
            fit_mixture(np.arange(3.0), components)


def test_goodness_of_fit_is_level_on_gaussians_and_rejects_what_is_none():
    rng = np.random.default_rng(0)
    normal = [goodness_of_fit(rng.normal(size=400), 1, 100, rng) for _ in range(400)]
    assert np.mean(np.array(normal) < 0.05) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    assert goodness_of_fit(rng.exponential(size=4000), 1, 1000, rng) < 0.01
    assert goodness_of_fit(rng.exponential(size=4000), 12, 1000, rng) > 0.01
    assert math.isnan(goodness_of_fit(np.arange(3.0), 3, 1, rng))


def naive_supremum(train, population, delta, cut=None):
    """The four ratios at a million quantiles of each side, in plain doubles."""
    x = np.unique(np.concatenate([np.linspace(-15, 15, 300_001)]))

    def cdf(side, x):
        return sum(w * stats.norm.cdf(x, m, s) for w, m, s in zip(side.weights, side.means, side.sds, strict=True))

    def sf(side, x):
        return sum(w * stats.norm.sf(x, m, s) for w, m, s in zip(side.weights, side.means, side.sds, strict=True))

    f, g, f_above, g_above = cdf(train, x), cdf(population, x), sf(train, x), sf(population, x)
    if cut is not None:
        kept = np.all([(r >= cut) & (r <= 1 - cut) for r in (f_above, g)], axis=0)
        f, g, f_above, g_above = f[kept], g[kept], f_above[kept], g_above[kept]
    pairs = ((f, g), (g_above, f_above), (f_above, g_above), (g, f))
    with np.errstate(divide="ignore", invalid="ignore"):
        return max(0.0, *(np.max(np.where(a > delta, np.log((a - delta) / b), -np.inf)) for a, b in pairs))


PAIRS = {
    "gaussians": (Mixture.normal(0, 1), Mixture.normal(1, 1.2)),
    "wider": (Mixture.normal(0, 1.5), Mixture.normal(0, 1)),
    "mixture and gaussian": (TWO, Mixture.normal(0, 1.3)),
    "two mixtures": (TWO, Mixture(np.array([0.5, 0.5]), np.array([-1.0, 1.5]), np.array([1.0, 1.2]))),
}


@pytest.mark.parametrize("cut", [None, 0.01])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_supremum_equals_its_naive_twin(pair, cut):
    value, place, ratio = supremum(*PAIRS[pair], 1e-3, cut)
    # At a cut the ratio still rises, and the twin's grid ends up to 1e-4 before the cut.
    assert value == pytest.approx(naive_supremum(*PAIRS[pair], 1e-3, cut), rel=1e-6 if cut is None else 1e-3)
    assert place is not None
    assert ratio is not None
    if cut is not None:
        fpr, fnr = np.exp(PAIRS[pair][1].log_cdf(place)), np.exp(PAIRS[pair][0].mirrored().log_cdf(-place))
        assert cut * (1 - 1e-9) <= min(fpr, fnr)
        assert max(fpr, fnr) <= (1 - cut) * (1 + 1e-9)


@settings(max_examples=100)
@given(
    st.floats(-5, 5),
    st.floats(0.05, 5),
    st.floats(-5, 5),
    st.floats(0.05, 5),
    st.sampled_from([1e-9, 1e-5, 1e-2, 0.3]),
)
def test_no_threshold_beats_the_supremum(m_train, s_train, m_pop, s_pop, delta):
    train, population = Mixture.normal(m_train, s_train), Mixture.normal(m_pop, s_pop)
    value = supremum(train, population, delta)[0]
    x = np.concatenate([side.means + side.sds * np.linspace(-12, 12, 2001) for side in (train, population)])
    for top, bottom, points in (
        (train, population, x),
        (population, train, x),
        (train.mirrored(), population.mirrored(), -x),
        (population.mirrored(), train.mirrored(), -x),
    ):
        log_f = top.log_cdf(points)
        kept = log_f > math.log(delta) + 1e-9
        points, log_f = points[kept], log_f[kept]
        ratios = log_f + np.log1p(-np.exp(math.log(delta) - log_f)) - bottom.log_cdf(points)
        assert np.all(ratios <= value + 1e-9 * (1 + value))
    # Mirrored, members and population are exchanged, and so are the ratios.
    assert supremum(population.mirrored(), train.mirrored(), delta)[0] == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_a_cut_caps_the_value_and_leaves_none_between_far_gaussians():
    near, far = Mixture.normal(0, 1), Mixture.normal(3, 1)
    assert supremum(near, far, 1e-5, 1e-3)[0] < math.log(1e3) < supremum(near, far, 1e-5)[0]
    assert math.isnan(supremum(near, Mixture.normal(100, 1), 1e-5, 1e-3)[0])


def test_a_point_mass_against_a_gaussian_and_another():
    point, normal = Mixture.normal(0.5, 0), Mixture.normal(0, 1)
    expected = max(math.log1p(-0.01) - math.log(tail) for tail in (stats.norm.cdf(0.5), stats.norm.sf(0.5)))
    # Of the point over the Gaussian; the Gaussian over the point has nothing to divide by.
    assert math.isinf(supremum(point, normal, 0.01)[0])
    assert supremum(point, normal, 0.99)[0] == pytest.approx(max(0.0, expected + math.log(0.01 / 0.99)), abs=1e-12)
    assert math.isinf(supremum(point, Mixture.normal(0.6, 0), 0.01)[0])
    assert supremum(point, point, 0.01)[0] == 0
    assert math.isnan(supremum(point, normal, 0.01, 0.1)[0])


def test_the_threshold_is_a_loss_where_the_value_is_attained():
    rng = np.random.default_rng(0)
    train, population = rng.gamma(2, 5, 1000), rng.gamma(4, 5, 1000)
    result = parametric_epsilon_star(train, population, 1e-4)
    scale = Scale.of(train, population)
    u = (result.threshold - scale.low) / (scale.high - scale.low)
    phi = -math.log(math.expm1(1 + u))
    tails = {
        "(TPR - delta) / FPR": ("train", "population", stats.norm.sf),
        "(TNR - delta) / FNR": ("population", "train", stats.norm.cdf),
    }
    top, bottom, tail = tails[result.ratio]
    means, sds = result.fit.means, result.fit.sds
    ratio = (tail(phi, means[top][0], sds[top][0]) - 1e-4) / tail(phi, means[bottom][0], sds[bottom][0])
    assert math.log(ratio) == pytest.approx(result.value, rel=1e-6)


def test_a_mixture_of_more_components_comes_closer_to_the_truth():
    rng = np.random.default_rng(0)
    train, population = rng.gamma(2, 5, 5000), rng.gamma(3, 5, 5000)
    one, many = (parametric_epsilon_star(train, population, 1e-3, components=k) for k in (1, 6))
    assert many.method == "parametric, mixtures of 6"
    assert many.fit.ks_p_values["train"] > one.fit.ks_p_values["train"]
    assert one.note
    assert "rejected" in one.note
