"""A growth against the definition: every answer of tiny models, for every setting, and each outlook asked anew."""

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.sampling.answer_tree import FLATTEST, PrefixCurve, search
from lethe.sampling.answer_tree.asking import RecallAutomaton, token_bytes
from lethe.sampling.answer_tree.automaton import (
    Automaton,
    KeywordAutomaton,
    TokenLetters,
    build_matcher,
)
from lethe.sampling.answer_tree.enumeration import Growth, grow, outlooks
from lethe.sampling.answer_tree.spelling import Spelling
from lethe.sampling.draws import Law
from lethe.scoring.keyword import occurs
from lethe.scoring.text.rouge import rouge_l
from lethe.statistics.answer_tree import leak_interval
from tests.cases import read_cases
from tests.lethe.sampling.answer_tree.toy_models import (
    LETTERS,
    ToyPredictor,
    decode,
    every_answer,
    read,
    whole_question,
)

END = len(LETTERS)
LENGTH = 4
SETTINGS = read_cases(__file__)["SETTINGS"]
ABOVE = 0.5  # of a recall
TOKENS = TokenLetters(Spelling((*LETTERS, None), "runs"))


@cache
def automaton_of(wanted: str, rule: str) -> Automaton:
    if rule == "recall":
        return RecallAutomaton(wanted, ABOVE, token_bytes(TOKENS.spelling))
    return KeywordAutomaton(build_matcher((wanted,), rule), TOKENS)


def leaks(text: str, wanted: str, rule: str) -> bool:
    """Whether the text has a keyword, as a word or a substring, or recalls enough of a reference."""
    if rule == "recall":
        return bool(rouge_l([text], wanted).recall[0] > ABOVE)
    return occurs(text, (wanted,), rule)


def asked(wanted: str, rule: str, read: bool = True, **more):
    automaton = {"automaton": automaton_of(wanted, rule)} if read else {}
    return whole_question(lambda text: leaks(text, wanted, rule), **automaton, **more)


@dataclass(frozen=True)
class Truth:
    """P(leak) and P(blank) written out over every answer, and the probability of each leaking one."""

    leak: float
    blank: float
    chance_of_leak: dict[tuple[int, ...], float]


def truth(predictor, wanted, rule, how) -> Truth:
    blank = 0.0
    chance_of_leak = {}
    for answer, chance in every_answer(predictor, (0,), LENGTH, END, **how).items():
        (text,) = decode([answer])
        if leaks(text, wanted, rule):
            chance_of_leak[answer] = chance
        if not text.strip():
            blank += chance
    return Truth(sum(chance_of_leak.values()), blank, chance_of_leak)


PLAIN = Law((END,), LENGTH)


def no_leak():
    """A question that no answer leaks and no automaton reads."""
    return whole_question(lambda text: False)


@pytest.mark.parametrize("how", SETTINGS, ids=str)
@pytest.mark.parametrize("rule", ["word", "substring", "recall"])
@pytest.mark.parametrize("read", [True, False], ids=["automaton", "whole texts"])
def test_the_whole_tree_is_the_sum_over_all_781_prefixes(how, rule, read):
    for seed, wanted in enumerate(["ab", "a", "ab c"]):
        predictor = ToyPredictor(seed=seed)
        true = truth(predictor, wanted, rule, how)
        law = Law((END,), LENGTH, **how)

        got = grow(asked(wanted, rule, read), law, predictor, Growth(theta=1e-300))

        # What is finished and too light to be put to the scorer stays unknown.
        light = got.masses.unscored
        if read and rule != "recall":
            assert light == 0
        assert light < 1e-6
        slack = light + 1e-12
        assert got.masses.leak == pytest.approx(true.leak, rel=1e-12, abs=slack)
        assert got.masses.clean == pytest.approx(1 - true.leak, rel=1e-12, abs=slack)
        assert got.masses.blank == pytest.approx(true.blank, rel=1e-12, abs=slack)
        assert got.rest == pytest.approx(slack, abs=1e-11)


@pytest.mark.parametrize("how", SETTINGS, ids=str)
@given(
    seed=st.integers(0, 50),
    theta=st.floats(1e-4, 2),
    guide=st.sampled_from([0.0, 4.0]),
    rows=st.sampled_from([1, 3, 1000]),
    wanted=st.sampled_from(["ab", "a", "abc", "a b c"]),
    rule=st.sampled_from(["word", "substring", "recall"]),
    seeds=st.sampled_from([(), ((0, 1, END),)]),
)
@settings(max_examples=25)
def test_any_part_of_the_tree_brackets_the_truth(
    how, seed, theta, guide, rows, wanted, rule, seeds
):
    predictor = ToyPredictor(seed=seed, rows=rows)
    law = Law((END,), LENGTH, **how)
    leak = truth(predictor, wanted, rule, how).leak

    question = asked(wanted, rule, seeds=seeds)
    got = grow(question, law, predictor, Growth(theta=theta, guide=guide))

    masses = got.masses
    assert masses.leak <= leak * (1 + 1e-12)
    assert 1 - masses.clean >= leak - 1e-12
    if theta <= 1:
        assert masses.leak + masses.clean + got.rest == pytest.approx(1, abs=1e-12)
    ends = leak_interval(masses, got.remainder, 0.01)
    assert ends.lower <= leak * (1 + 1e-12)
    assert ends.upper >= leak - 1e-12


def prefixes_of_mass(predictor, theta):
    """The prefixes that best-first search would expand: the empty one, and each of at least ``theta``."""
    prefixes = [()]
    for prefix in prefixes:  # grows while it is read
        if len(prefix) == LENGTH - 1:
            continue
        for token in range(END):
            longer = (*prefix, token)
            if prefix_mass(predictor, longer) >= theta:
                prefixes.append(longer)
    return prefixes


def test_exactly_the_prefixes_that_best_first_would_expand_are_explored():
    predictor = ToyPredictor(seed=3)
    theta = 0.01
    wanted = prefixes_of_mass(predictor, theta)
    masses = sorted(prefix_mass(predictor, prefix) for prefix in wanted if prefix)

    got = grow(no_leak(), PLAIN, predictor, Growth(theta=theta))

    finite = got.priorities[np.isfinite(got.priorities)]
    assert got.explored == len(wanted)
    assert got.rows == len(wanted)
    np.testing.assert_allclose(np.sort(finite), masses)


def prefix_mass(predictor, prefix):
    mass = 1.0
    for place in range(len(prefix)):
        logits = predictor.logits_of((0, *prefix[:place])).astype(np.float64)
        chances = np.exp(logits - logits.max())
        mass *= chances[prefix[place]] / chances.sum()
    return mass


def grown_from_seeds(*seeds):
    """A growth so short that only its seeds reach a keyword of four tokens; the fifth token, whatever it is, settles it."""
    predictor = ToyPredictor(seed=1, scale=4.0)
    question = asked("ccab", "substring", seeds=seeds)
    return grow(question, Law((END,), 5), predictor, Growth(theta=0.5))


def test_without_seeds_an_unlikely_keyword_is_not_found():
    assert grown_from_seeds().masses.leak == 0


def test_seeds_are_explored_however_unlikely_they_are():
    answer = (2, 2, 0, 1)
    mass = prefix_mass(ToyPredictor(seed=1, scale=4.0), answer)

    seeded = grown_from_seeds(answer, (3, END))

    assert seeded.masses.leak == pytest.approx(mass, rel=1e-12)
    assert seeded.heaviest[0].text == "ccab"
    assert seeded.heaviest[0].probability == pytest.approx(seeded.masses.leak)


def test_the_heaviest_leaks_are_the_heaviest_leaking_texts():
    predictor = ToyPredictor(seed=2)
    chance_of_text: dict[str, float] = {}
    for answer, chance in truth(predictor, "ab", "substring", {}).chance_of_leak.items():
        (text,) = decode([answer])
        chance_of_text[text] = chance_of_text.get(text, 0.0) + chance
    wanted = sorted(chance_of_text.values(), reverse=True)[:5]

    question = asked("ab", "substring", read=False)
    got = grow(question, PLAIN, predictor, Growth(theta=1e-300))

    found = [leak.probability for leak in got.heaviest]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert all("ab" in leak.text for leak in got.heaviest)


def test_a_heavy_leak_has_no_more_than_the_answers_that_begin_with_it():
    """Of two keywords that end at the last token, each text has its own mass."""
    predictor = ToyPredictor(seed=2)
    keywords = ("aaab", "aaac")
    question = whole_question(
        lambda text: any(word in text for word in keywords),
        automaton=KeywordAutomaton(build_matcher(keywords, "substring"), TOKENS),
    )
    answers = every_answer(predictor, (0,), LENGTH, END)

    got = grow(question, PLAIN, predictor, Growth(theta=1e-300))

    for leak in got.heaviest:
        of_beginning = 0.0
        for answer, chance in answers.items():
            (text,) = decode([answer])
            if text.startswith(leak.text):
                of_beginning += chance
        assert 0 < leak.probability <= of_beginning * (1 + 1e-6)
    assert got.heaviest[0].probability < got.masses.leak * 0.99


def test_a_limit_ends_the_exploration():
    growth = Growth(theta=1e-9, most_explored=10)

    got = grow(asked("ab", "word"), PLAIN, ToyPredictor(seed=4), growth)

    assert got.explored <= 11


RHO = 40.0
RUNS = 200


@cache
def sampled_trees(theta, read, rows):
    """The trees of 200 seeds, and the probability of a leak."""
    predictor = ToyPredictor(seed=7, rows=rows)
    law = Law((END,), LENGTH, temperature=2.0)
    question = asked("a", "word", read)
    growth = Growth(theta=theta, rho=RHO)
    trees = [grow(question, law, predictor, growth, seed) for seed in range(RUNS)]
    return trees, truth(predictor, "a", "word", {"temperature": 2.0}).leak


def of_sampled_trees(test):
    """An answer that the automaton does not read, so that the scorer must decide, is sampled as well."""
    depths = [(2.0, True), (0.3, True), (0.05, True), (0.1, False)]
    with_depths = pytest.mark.parametrize(("theta", "read"), depths)(test)
    return pytest.mark.parametrize("rows", [4, 1000])(with_depths)


@pytest.mark.seconds
@of_sampled_trees
def test_the_sample_is_poisson_with_the_mean_of_the_unexplored_leak(theta, read, rows):
    """Counts of 200 growths: their mean, their variance, and none of what is explored among them."""
    trees, leak = sampled_trees(theta, read, rows)
    mean = RHO * (leak - trees[0].masses.leak)

    counts = np.array([tree.remainder.leaks for tree in trees])

    assert mean > 0.5
    assert abs(counts.mean() - mean) < 4 * np.sqrt(mean / RUNS)
    assert abs(counts.var() - mean) < 4 * np.sqrt((2 * mean**2 + mean) / RUNS)


@of_sampled_trees
def test_as_much_is_sampled_as_the_unexplored_rest_has_of_mass(theta, read, rows):
    trees, _ = sampled_trees(theta, read, rows)
    expected = RHO * trees[0].rest

    drawn = np.array([tree.remainder.sampled for tree in trees])

    assert abs(drawn.mean() - expected) < 4 * np.sqrt(expected / RUNS)


@of_sampled_trees
def test_the_explored_part_is_the_same_for_every_seed_of_the_sample(theta, read, rows):
    """The sums are in another order where memory has no room for all rows at once."""
    (first, *others), _ = sampled_trees(theta, read, rows)

    for tree in others:
        assert tree.masses.leak == pytest.approx(first.masses.leak, rel=1e-12)
        assert tree.explored == first.explored


@pytest.mark.parametrize("rows", [4, 1000])
def test_above_a_theta_of_1_nothing_is_explored(rows):
    (tree, *_), _ = sampled_trees(2.0, True, rows)

    assert tree.explored == 0
    assert tree.rest == 1


def test_the_pilot_measures_entropy_and_length():
    predictor = ToyPredictor(seed=9)
    entropy = 0.0
    length = 0.0
    for answer, chance in every_answer(predictor, (0,), LENGTH, END).items():
        entropy -= chance * np.log(chance)
        length += chance * len(answer)

    got = grow(no_leak(), PLAIN, predictor, Growth(theta=2, rho=20000.0), 1)

    assert got.entropy == pytest.approx(entropy, rel=0.01)
    assert got.length == pytest.approx(length, rel=0.01)


def test_the_pilot_measures_no_more_than_the_longest_answer():
    short = grow(no_leak(), Law((END,), 1), ToyPredictor(seed=9), Growth(theta=2, rho=50.0), 1)

    assert short.length == 1


def test_tokens_outside_the_vocabulary_are_refused():
    question = whole_question(lambda text: False, prompt=(9,))

    with pytest.raises(BadValue, match="tokens of question 'toy'"):
        grow(question, Law((END,), 2), ToyPredictor(), Growth(theta=0.1))


@pytest.mark.parametrize("guide", [0.0, 8.0])
def test_an_outlook_depends_on_the_tokens_left_only_as_far_as_a_keyword_needs(guide):
    reader = KeywordAutomaton(build_matcher(("abc ab", "cc"), "word"), TOKENS)
    growth = Growth(1e-3, guide)
    answers = [(0,), (0, 1), (0, 1, 2, 3), (3, 3), (2, 2), (0, 1, 2, 3, 0, 1)]
    states = {reader.start, *(read(reader, answer) for answer in answers)}
    needed = set()
    outlook_of = outlooks(reader, growth, END + 1, (END,))
    for left in range(8):
        for state in states:
            outlook = outlook_of(state, left)
            following = reader.row(state)
            ends = reader.ends(following)
            over = (np.arange(END + 1) == END) | (left == 0)
            needed |= set(reader.needs(following).tolist())
            leak = reader.leaks(following) | (over & (ends == 1))
            hopeless = (reader.needs(following) > left) & ~reader.blank(following)
            clean = ~leak & np.where(over, ends == 0, hopeless)
            least = np.where(
                leak | clean | over,
                np.inf,
                1e-3 / np.exp(guide * np.array(reader.matched(following))),
            )
            assert outlook.leak.tolist() == leak.tolist()
            assert outlook.clean.tolist() == clean.tolist()
            assert outlook.least.tolist() == least.tolist()
            assert outlook.pending.tolist() == reader.pending(following).tolist()
    assert needed == {0, 1, 2}  # some outlooks differ by the tokens left


def test_a_search_ends_where_nothing_is_left():
    growths = []

    def whole(growth):
        growths.append(growth)
        return SimpleNamespace(rest=0.0, rows=1, masses=SimpleNamespace(leak=0.0))

    assert search(whole, 1000, 1.0).rows == len(growths) == 1


def test_a_curve_is_extrapolated_with_its_own_power():
    curve = PrefixCurve((1.0, 0.1, 0.01), (1, 50, 50), (0.9, 0.5, 0.5))
    power = max(FLATTEST, np.log(50) / np.log(100))

    assert curve.at(0.005) == pytest.approx(50 * 2**power)


def test_a_curve_that_stays_flat_is_extrapolated_with_the_least_power():
    flat = PrefixCurve((0.1, 0.01), (50, 50), (0.5, 0.5))

    assert flat.at(0.005) == pytest.approx(50 * 2**0.15)
