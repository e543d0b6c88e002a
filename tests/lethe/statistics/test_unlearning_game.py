"""The game's arithmetic: oracles, what the definition forbids, grounding, bounds, coverage."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import ttest_ind

from lethe.statistics.two_sample import fit_threshold
from lethe.statistics.unlearning_game import (
    Split,
    certified_bound,
    draw_split,
    forget_size,
    group_bound,
    signed_advantage,
    swap_advantage,
    unlearning_quality,
)
from studies.image_game.play import entropy, modified_entropy


def bits_advantage(original, swapped):
    return swap_advantage([signed_advantage(*original)], [signed_advantage(*swapped)]).value


def solve_oracle(case):
    given, params = case["input"], case["params"]
    match case["kind"]:
        case "swap_adv_bits":
            halves = [
                (given[half]["bits_forget"], given[half]["bits_test"])
                for half in ("split", "swapped")
            ]
            return bits_advantage(*halves)
        case "swap_Q_max":
            halves = {str(i): [advantage] for i, advantage in enumerate(given["advs"])}
            return unlearning_quality(halves, halves).value
        case "swap_Q_from_bits":
            original, swapped = (
                {
                    str(i): [signed_advantage(*one[half])]
                    for i, one in enumerate(given["adversaries"])
                }
                for half in ("split", "swapped")
            )
            return unlearning_quality(original, swapped).value
        case "split_adv_weighted":
            return signed_advantage(given["bits_F"], given["bits_T"], given["wF"], given["wT"])
        case "swap_adv_scores":
            rng = np.random.Generator(np.random.PCG64(5))
            forget, test = rng.normal(0.5, 1, 200), rng.normal(0, 1, 200)
            swapped_forget, swapped_test = rng.normal(0.4, 1, 200), rng.normal(0, 1, 200)
            accepted = [
                scores >= params["threshold"]
                for scores in (forget, test, swapped_forget, swapped_test)
            ]
            return bits_advantage(accepted[:2], accepted[2:])
        case "modified_entropy":
            return modified_entropy([given["p"]], [given["y"]])[0]
        case "entropy":
            return entropy(np.array(given["p"]))
        case "threshold_fit_value":
            return fit_threshold(given["member_scores"], given["nonmember_scores"])
        case "threshold_fit_balanced_acc":
            members, others = (
                np.array(given[f"{side}_scores"]) for side in ("member", "nonmember")
            )
            value = fit_threshold(members, others)
            return ((members >= value).mean() + (others < value).mean()) / 2
        case "sizes_forget":
            return forget_size(given["N"], params["alpha"])
        case "adv_bound_paper":
            return certified_bound(params["eps"], params["delta"]).paper
        case "adv_bound_sharp":
            return certified_bound(params["eps"], params["delta"]).sharp
    raise AssertionError(f"unknown kind {case['kind']}")


def test_every_oracle(shared):
    cases = json.loads((shared / "oracles/swap.json").read_text())["cases"]
    assert len(cases) == 26
    for case in cases:
        assert solve_oracle(case) == pytest.approx(case["expected"], rel=1e-9, abs=1e-15), case[
            "id"
        ]


@given(n=st.integers(30, 5000), percent=st.integers(5, 60))
def test_sizes_follow_the_portion(n, percent):
    size = forget_size(n, percent / 100)
    a = Fraction(percent, 100)
    assert size == math.floor(n * a / (1 + a))
    split = draw_split(n, percent / 100, np.random.default_rng(0))
    assert (len(split.forget), len(split.test), len(split.retain)) == (size, size, n - 2 * size)
    assert sorted(np.concatenate([split.retain, split.forget, split.test])) == list(range(n))


def test_the_absolute_value_comes_after_the_average():
    # The adversary is right on one half and equally wrong on the other: it knows nothing about the model.
    assert swap_advantage([[0.4, 0.2]], [[-0.3, -0.3]]).value == pytest.approx(0, abs=1e-15)
    assert swap_advantage([[0.4], [-0.4]], [[0.0], [0.0]]).value == 0


def test_weights_are_normalised_within_each_set():
    assert signed_advantage([1, 0], [0, 1], [3, 1], [9, 1]) == pytest.approx(0.75 - 0.1)
    assert signed_advantage([1, 0], [0, 1], [1, 0], [1, 0]) == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.data())
def test_signed_advantage_against_its_naive_twin(forget, data):
    test = data.draw(st.lists(st.floats(0, 1), min_size=len(forget), max_size=len(forget)))
    naive = sum(forget) / len(forget) - sum(test) / len(test)
    assert signed_advantage(forget, test) == pytest.approx(naive, abs=1e-12)
    assert signed_advantage(test, forget) == -signed_advantage(forget, test)


def test_a_single_model_has_no_interval():
    result = swap_advantage([0.2], [0.1])
    assert (result.ci_low, result.ci_high) == (None, None)
    found = unlearning_quality({"a": [0.2]}, {"a": [0.1]})
    assert (found.value, found.ci_low, found.n_pairs) == (pytest.approx(0.85), None, 1)


def test_the_unpaired_interval_is_welchs():
    halves = np.array([0.1, 0.25, 0.21, 0.3, 0.17]), np.array([0.4, 0.2, 0.3])
    found = swap_advantage(*halves, paired=False)
    low, high = ttest_ind(halves[0], -halves[1], equal_var=False).confidence_interval()
    assert (found.value, found.ci_low, found.ci_high) == pytest.approx(
        ((low + high) / 4, low / 2, high / 2)
    )
    assert (found.n_seeds, found.method) == (3, "Welch t")


@pytest.mark.parametrize(("pairs", "seeds", "paired"), [(1, 4, True), (1, 4, False), (5, 3, True)])
@pytest.mark.parametrize("mean", [0.0, 0.03, 0.3])
def test_intervals_cover_the_advantage(pairs, seeds, paired, mean):
    """Monte Carlo: at alpha .1 the interval misses the true |mean| in at most a tenth of 1,500 games."""
    rng = np.random.default_rng([pairs, seeds, int(mean * 100)])
    missed = 0
    for _ in range(1500):
        # Seeds of a pair share the effect of the pair's split, which an interval over points or over seeds would miss.
        split_effect = rng.normal(0, 0.1, (pairs, 1)) if pairs > 1 else 0.0
        original, swapped = mean + split_effect + rng.normal(0, 0.05, (2, pairs, seeds))
        result = swap_advantage(original, swapped, paired=paired, alpha=0.1)
        missed += not result.ci_low <= mean <= result.ci_high
    assert missed / 1500 <= 0.1 + 4 * math.sqrt(0.1 * 0.9 / 1500)
    if mean == 0.3:  # and the interval is not needlessly wide
        assert missed / 1500 >= 0.1 - 4 * math.sqrt(0.1 * 0.9 / 1500)


def test_the_quality_interval_holds_for_all_adversaries_at_once():
    """Null data: eight adversaries without any advantage; Q = 1 stays inside in at least nine of ten games."""
    rng = np.random.default_rng(3)
    missed = sum(
        unlearning_quality(
            {str(i): row for i, row in enumerate(rng.normal(0, 0.1, (8, 1, 4)))},
            {str(i): row for i, row in enumerate(rng.normal(0, 0.1, (8, 1, 4)))},
            alpha=0.1,
        ).ci_high
        < 1
        for _ in range(600)
    )
    assert missed / 600 <= 0.1 + 4 * math.sqrt(0.1 * 0.9 / 600)


def hard_coded_advantage(*splits: Split) -> float:
    """The paper's adversary (Proposition 3.9) draws points until its table knows one: forgotten points accept, test points
    reject, points that the splits disagree on are unknown."""
    table: dict = {}
    for split in splits:
        for answer, points in ((1.0, split.forget), (0.0, split.test)):
            for point in points.tolist():
                table[point] = answer if table.get(point, answer) == answer else None

    def accepts(points):
        drawn = np.random.default_rng(0).choice(points, 1000).tolist()
        return np.full(
            len(points), next((table[point] for point in drawn if table[point] is not None), 0.0)
        )

    return swap_advantage(
        *([signed_advantage(accepts(one.forget), accepts(one.test))] for one in splits)
    ).value


def test_a_hard_coded_adversary_wins_two_random_splits_and_loses_the_swapped_pair():
    rng = np.random.default_rng(7)
    for _ in range(20):
        split, other = draw_split(200, 0.1, rng), draw_split(200, 0.1, rng)
        assert hard_coded_advantage(split, other) == 1
        assert hard_coded_advantage(split, split.swapped()) == 0


def test_one_retrained_model_for_both_halves_has_quality_exactly_one():
    rng = np.random.default_rng(9)
    scores = rng.normal(size=500)  # of one retrained model, on every point
    for _ in range(50):
        split = draw_split(500, 0.2, rng)
        accept = (scores >= 0.3).astype(float)
        signed = [
            signed_advantage(accept[half.forget], accept[half.test])
            for half in (split, split.swapped())
        ]
        assert unlearning_quality({"t": signed[:1]}, {"t": signed[1:]}).value == 1


@given(st.floats(0, 30), st.floats(0, 0.5))
def test_the_sharp_bound_is_never_above_the_printed_one(epsilon, delta):
    bound = certified_bound(epsilon, delta)
    assert bound.sharp <= bound.paper + 1e-12
    assert bound.paper == pytest.approx(
        2 * (1 - (2 - 2 * delta) / (math.exp(epsilon) + 1)), abs=1e-12
    )
    assert bound.quality_lower == pytest.approx(
        max(0, math.exp(-epsilon) * (1 - 2 * delta)), abs=1e-12
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_the_sharp_bound_is_attained(epsilon, delta):
    """A finite game solved by linear programming: outputs {s, s', other} against one retrained distribution."""
    # Unknowns: u(o | s), u(o | s') and r(o) over three outputs; s-model accepts F, s'-model accepts T. The
    # adversary accepts "forget" where output 0 (told s) or output 1 (told s') names the right half.
    size, ratio = 3, math.exp(epsilon)
    rows, limits = [], []
    subsets = [[o for o in range(size) if mask >> o & 1] for mask in range(1, 2**size)]
    for half in range(2):
        for subset in subsets:
            for sign in (1, -1):  # u <= e^eps r + delta and r <= e^eps u + delta on every event
                row = np.zeros(3 * size)
                for o in subset:
                    row[half * size + o] = 1 if sign == 1 else -ratio
                    row[2 * size + o] = -ratio if sign == 1 else 1
                rows.append(row)
                limits.append(delta)
    equal = np.kron(np.eye(3), np.ones(size))
    gain = np.zeros(3 * size)
    # Signed advantages: u(0|s) - u(1|s) for s and the mirror image for s', averaged; negative for the minimiser.
    gain[0], gain[1], gain[size + 1], gain[size] = -0.5, 0.5, -0.5, 0.5
    solution = linprog(gain, A_ub=np.array(rows), b_ub=limits, A_eq=equal, b_eq=np.ones(3))
    assert -solution.fun == pytest.approx(min(1, certified_bound(epsilon, delta).sharp), abs=1e-7)


def test_record_level_privacy_bounds_a_forget_set_only_through_group_privacy():
    one, many = group_bound(0.1, 1e-6, 1), group_bound(0.1, 1e-6, 20)
    assert one.sharp == pytest.approx(certified_bound(0.1, 1e-6).sharp)
    assert many.epsilon == pytest.approx(2)
    assert many.delta == pytest.approx(1e-6 * (math.exp(2) - 1) / (math.exp(0.1) - 1))
    assert "only through group privacy" in many.assumes
    assert group_bound(
        50, 1e-5, 2727
    ).vacuous  # the paper's setting: no overflow, and nothing is promised
    assert group_bound(0, 0.01, 5).delta == pytest.approx(0.05)
    assert "20" in many.method
