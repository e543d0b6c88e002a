"""The game's arithmetic: oracles, what the definition forbids, grounding, bounds, coverage."""

import itertools
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
    """The advantage of answers to (forget, test) of the split and of its mirror image."""
    of_split = signed_advantage(*original)
    of_swapped = signed_advantage(*swapped)
    return swap_advantage([of_split], [of_swapped]).value


def solve_bits(case):
    split = case["input"]["split"]
    swapped = case["input"]["swapped"]
    return bits_advantage(
        (split["bits_forget"], split["bits_test"]), (swapped["bits_forget"], swapped["bits_test"])
    )


def solve_largest(case):
    advantages = {}
    for place, advantage in enumerate(case["input"]["advs"]):
        advantages[str(place)] = [advantage]
    return unlearning_quality(advantages, advantages).value


def solve_quality(case):
    original = {}
    swapped = {}
    for place, adversary in enumerate(case["input"]["adversaries"]):
        original[str(place)] = [signed_advantage(*adversary["split"])]
        swapped[str(place)] = [signed_advantage(*adversary["swapped"])]
    return unlearning_quality(original, swapped).value


def solve_weighted(case):
    values = case["input"]
    return signed_advantage(values["bits_F"], values["bits_T"], values["wF"], values["wT"])


def solve_scores(case):
    rng = np.random.Generator(np.random.PCG64(5))
    threshold = case["params"]["threshold"]
    accepted = [rng.normal(mean, 1, 200) >= threshold for mean in (0.5, 0, 0.4, 0)]
    return bits_advantage(accepted[:2], accepted[2:])


def solve_modified_entropy(case):
    return modified_entropy([case["input"]["p"]], [case["input"]["y"]])[0]


def solve_entropy(case):
    return entropy(np.array(case["input"]["p"]))


def solve_threshold(case):
    return fit_threshold(case["input"]["member_scores"], case["input"]["nonmember_scores"])


def solve_balanced_accuracy(case):
    members = np.array(case["input"]["member_scores"])
    others = np.array(case["input"]["nonmember_scores"])
    threshold = fit_threshold(members, others)
    return ((members >= threshold).mean() + (others < threshold).mean()) / 2


def solve_forget_size(case):
    return forget_size(case["input"]["N"], case["params"]["alpha"])


def solve_paper_bound(case):
    return certified_bound(case["params"]["eps"], case["params"]["delta"]).paper


def solve_sharp_bound(case):
    return certified_bound(case["params"]["eps"], case["params"]["delta"]).sharp


SOLUTION_OF_KIND = {
    "swap_adv_bits": solve_bits,
    "swap_Q_max": solve_largest,
    "swap_Q_from_bits": solve_quality,
    "split_adv_weighted": solve_weighted,
    "swap_adv_scores": solve_scores,
    "modified_entropy": solve_modified_entropy,
    "entropy": solve_entropy,
    "threshold_fit_value": solve_threshold,
    "threshold_fit_balanced_acc": solve_balanced_accuracy,
    "sizes_forget": solve_forget_size,
    "adv_bound_paper": solve_paper_bound,
    "adv_bound_sharp": solve_sharp_bound,
}


def test_every_oracle(shared):
    cases = json.loads((shared / "oracles/swap.json").read_text())["cases"]
    assert len(cases) == 26

    for case in cases:
        value = SOLUTION_OF_KIND[case["kind"]](case)

        assert value == pytest.approx(case["expected"], rel=1e-9, abs=1e-15), case["id"]


@given(n=st.integers(30, 5000), percent=st.integers(5, 60))
def test_the_forget_set_has_the_size_of_the_portion(n, percent):
    portion = Fraction(percent, 100)

    assert forget_size(n, percent / 100) == math.floor(n * portion / (1 + portion))


@given(n=st.integers(30, 5000), percent=st.integers(5, 60))
def test_a_split_holds_every_point_once(n, percent):
    size = forget_size(n, percent / 100)

    split = draw_split(n, percent / 100, np.random.default_rng(0))

    assert (len(split.forget), len(split.test), len(split.retain)) == (size, size, n - 2 * size)
    assert sorted(np.concatenate([split.retain, split.forget, split.test])) == list(range(n))


@pytest.mark.parametrize(
    ("original", "swapped"),
    [([[0.4, 0.2]], [[-0.3, -0.3]]), ([[0.4], [-0.4]], [[0.0], [0.0]])],
)
def test_the_absolute_value_comes_after_the_average(original, swapped):
    """The adversary is right on one half and equally wrong on the other: it knows nothing about the model."""
    assert swap_advantage(original, swapped).value == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("forget_weights", "test_weights", "advantage"),
    [([3, 1], [9, 1], 0.75 - 0.1), ([1, 0], [1, 0], 1)],
)
def test_weights_are_normalised_within_each_set(forget_weights, test_weights, advantage):
    found = signed_advantage([1, 0], [0, 1], forget_weights, test_weights)

    assert found == pytest.approx(advantage)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.data())
def test_signed_advantage_against_its_naive_twin(forget, data):
    test = data.draw(st.lists(st.floats(0, 1), min_size=len(forget), max_size=len(forget)))
    naive = sum(forget) / len(forget) - sum(test) / len(test)

    found = signed_advantage(forget, test)

    assert found == pytest.approx(naive, abs=1e-12)
    assert signed_advantage(test, forget) == -found


def test_the_advantage_on_a_single_model_has_no_interval():
    found = swap_advantage([0.2], [0.1])

    assert (found.ci_low, found.ci_high) == (None, None)


def test_the_quality_of_a_single_model_has_no_interval():
    found = unlearning_quality({"a": [0.2]}, {"a": [0.1]})

    assert found.value == pytest.approx(0.85)
    assert (found.ci_low, found.n_pairs) == (None, 1)


def test_the_unpaired_interval_is_welchs():
    original = np.array([0.1, 0.25, 0.21, 0.3, 0.17])
    swapped = np.array([0.4, 0.2, 0.3])
    low, high = ttest_ind(original, -swapped, equal_var=False).confidence_interval()

    found = swap_advantage(original, swapped, paired=False)

    assert found.value == pytest.approx((low + high) / 4)
    assert (found.ci_low, found.ci_high) == pytest.approx((low / 2, high / 2))
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
        found = swap_advantage(original, swapped, paired=paired, alpha=0.1)
        missed += not found.ci_low <= mean <= found.ci_high

    error = 4 * math.sqrt(0.1 * 0.9 / 1500)
    assert missed / 1500 <= 0.1 + error
    if mean == 0.3:  # and the interval is not needlessly wide
        assert missed / 1500 >= 0.1 - error


def adversaries_without_advantage(rng):
    return {str(place): row for place, row in enumerate(rng.normal(0, 0.1, (8, 1, 4)))}


def test_the_quality_interval_holds_for_all_adversaries_at_once():
    """Null data: eight adversaries without any advantage; Q = 1 stays inside in at least nine of ten games."""
    rng = np.random.default_rng(3)

    missed = 0
    for _ in range(600):
        original = adversaries_without_advantage(rng)
        swapped = adversaries_without_advantage(rng)
        missed += unlearning_quality(original, swapped, alpha=0.1).ci_high < 1

    assert missed / 600 <= 0.1 + 4 * math.sqrt(0.1 * 0.9 / 600)


class HardCoded:
    """The paper's adversary (Proposition 3.9) draws points until its table knows one: forgotten points accept, test
    points reject, points that the splits disagree on are unknown."""

    def __init__(self, *splits: Split):
        self.answer_of_point: dict[int, float | None] = {}
        for split in splits:
            self._learn(split.forget, 1.0)
            self._learn(split.test, 0.0)

    def _learn(self, points: np.ndarray, answer: float) -> None:
        for point in points.tolist():
            known = self.answer_of_point.get(point, answer)
            self.answer_of_point[point] = answer if known == answer else None

    def accepts(self, points: np.ndarray) -> np.ndarray:
        for point in np.random.default_rng(0).choice(points, 1000).tolist():
            answer = self.answer_of_point[point]
            if answer is not None:
                return np.full(len(points), answer)
        return np.zeros(len(points))

    def advantage(self, split: Split) -> float:
        return signed_advantage(self.accepts(split.forget), self.accepts(split.test))


def hard_coded_advantage(split: Split, other: Split) -> float:
    adversary = HardCoded(split, other)
    return swap_advantage([adversary.advantage(split)], [adversary.advantage(other)]).value


def test_a_hard_coded_adversary_wins_two_random_splits_and_loses_the_swapped_pair():
    rng = np.random.default_rng(7)

    for _ in range(20):
        split = draw_split(200, 0.1, rng)
        other = draw_split(200, 0.1, rng)
        assert hard_coded_advantage(split, other) == 1
        assert hard_coded_advantage(split, split.swapped()) == 0


def test_one_retrained_model_for_both_halves_has_quality_exactly_one():
    rng = np.random.default_rng(9)
    scores = rng.normal(size=500)  # of one retrained model, on every point
    accept = (scores >= 0.3).astype(float)

    for _ in range(50):
        split = draw_split(500, 0.2, rng)
        swapped = split.swapped()
        of_split = signed_advantage(accept[split.forget], accept[split.test])
        of_swapped = signed_advantage(accept[swapped.forget], accept[swapped.test])
        assert unlearning_quality({"t": [of_split]}, {"t": [of_swapped]}).value == 1


@given(st.floats(0, 30), st.floats(0, 0.5))
def test_the_sharp_bound_is_never_above_the_printed_one(epsilon, delta):
    printed = 2 * (1 - (2 - 2 * delta) / (math.exp(epsilon) + 1))
    quality = max(0, math.exp(-epsilon) * (1 - 2 * delta))

    bound = certified_bound(epsilon, delta)

    assert bound.sharp <= bound.paper + 1e-12
    assert bound.paper == pytest.approx(printed, abs=1e-12)
    assert bound.quality_lower == pytest.approx(quality, abs=1e-12)


def largest_advantage(epsilon, delta):
    """A finite game solved by linear programming: outputs {s, s', other} against one retrained distribution.

    Unknowns: u(o | s), u(o | s') and r(o) over three outputs; s-model accepts F, s'-model accepts T. The
    adversary accepts "forget" where output 0 (told s) or output 1 (told s') names the right half.
    """
    size = 3
    ratio = math.exp(epsilon)
    events = [[o for o in range(size) if mask >> o & 1] for mask in range(1, 2**size)]

    rows = []
    for half, event in itertools.product(range(2), events):
        unlearned_above = np.zeros(3 * size)  # u <= e^eps r + delta on every event
        retrained_above = np.zeros(3 * size)  # r <= e^eps u + delta on every event
        for o in event:
            unlearned_above[half * size + o] = 1
            unlearned_above[2 * size + o] = -ratio
            retrained_above[half * size + o] = -ratio
            retrained_above[2 * size + o] = 1
        rows += [unlearned_above, retrained_above]

    # Signed advantages: u(0|s) - u(1|s) for s and the mirror image for s', averaged; negative for the minimiser.
    gain = np.zeros(3 * size)
    gain[[0, size + 1]] = -0.5
    gain[[1, size]] = 0.5
    each_sums_to_1 = np.kron(np.eye(3), np.ones(size))
    limits = np.full(len(rows), delta)
    solution = linprog(gain, A_ub=np.array(rows), b_ub=limits, A_eq=each_sums_to_1, b_eq=np.ones(3))
    return -solution.fun


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_the_sharp_bound_is_attained(epsilon, delta):
    sharp = min(1, certified_bound(epsilon, delta).sharp)

    assert largest_advantage(epsilon, delta) == pytest.approx(sharp, abs=1e-7)


def test_the_privacy_of_a_single_record_is_that_of_a_group_of_one():
    bound = group_bound(0.1, 1e-6, 1)

    assert bound.sharp == pytest.approx(certified_bound(0.1, 1e-6).sharp)


def test_record_level_privacy_bounds_a_forget_set_only_through_group_privacy():
    bound = group_bound(0.1, 1e-6, 20)

    assert bound.epsilon == pytest.approx(2)
    assert bound.delta == pytest.approx(1e-6 * (math.exp(2) - 1) / (math.exp(0.1) - 1))
    assert "only through group privacy" in bound.assumes
    assert "20" in bound.method


def test_the_papers_setting_promises_nothing_and_does_not_overflow():
    assert group_bound(50, 1e-5, 2727).vacuous


def test_at_epsilon_0_the_deltas_of_a_group_add_up():
    assert group_bound(0, 0.01, 5).delta == pytest.approx(0.05)
