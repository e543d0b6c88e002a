"""A growth against the definition: every answer of tiny models, for every setting, and each outlook asked anew."""

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


def truth(predictor, wanted, rule, how):
    answers = every_answer(predictor, (0,), LENGTH, END, **how)
    leaking = {
        answer: chance
        for answer, chance in answers.items()
        if leaks(decode([answer])[0], wanted, rule)
    }
    blank = sum(chance for answer, chance in answers.items() if not decode([answer])[0].strip())
    return sum(leaking.values()), blank, leaking


@pytest.mark.parametrize("how", SETTINGS, ids=str)
@pytest.mark.parametrize("rule", ["word", "substring", "recall"])
@pytest.mark.parametrize("read", [True, False], ids=["automaton", "whole texts"])
def test_the_whole_tree_is_the_sum_over_all_781_prefixes(how, rule, read):
    for seed, wanted in enumerate(["ab", "a", "ab c"]):
        predictor = ToyPredictor(seed=seed)
        got = grow(
            asked(wanted, rule, read), Law((END,), LENGTH, **how), predictor, Growth(theta=1e-300)
        )
        leak, blank, _ = truth(predictor, wanted, rule, how)
        # What is finished and too light to be put to the scorer stays unknown.
        light = got.masses.unscored
        assert light == 0 if read and rule != "recall" else light < 1e-6
        light += 1e-12
        assert got.masses.leak == pytest.approx(leak, rel=1e-12, abs=light)
        assert got.masses.clean == pytest.approx(1 - leak, rel=1e-12, abs=light)
        assert got.masses.blank == pytest.approx(blank, rel=1e-12, abs=light)
        assert got.rest == pytest.approx(light, abs=1e-11)


@pytest.mark.parametrize("how", SETTINGS, ids=str)
@given(
    seed=st.integers(0, 50),
    theta=st.floats(1e-4, 2),
    guide=st.sampled_from([0.0, 4.0]),
    rows=st.sampled_from([1, 3, 1000]),
    wanted=st.sampled_from(["ab", "a", "abc", "a b c"]),
    rule=st.sampled_from(["word", "substring", "recall"]),
    seeded=st.booleans(),
)
@settings(max_examples=25)
def test_any_part_of_the_tree_brackets_the_truth(
    how, seed, theta, guide, rows, wanted, rule, seeded
):
    predictor = ToyPredictor(seed=seed, rows=rows)
    seeds = ((0, 1, END),) if seeded else ()
    question = asked(wanted, rule, seeds=seeds)
    got = grow(question, Law((END,), LENGTH, **how), predictor, Growth(theta=theta, guide=guide))
    leak, _, _ = truth(predictor, wanted, rule, how)
    assert got.masses.leak <= leak * (1 + 1e-12)
    assert 1 - got.masses.clean >= leak - 1e-12
    if theta <= 1:
        assert got.masses.leak + got.masses.clean + got.rest == pytest.approx(1, abs=1e-12)
    ends = leak_interval(got.masses, got.remainder, 0.01)
    assert ends.lower <= leak * (1 + 1e-12)
    assert ends.upper >= leak - 1e-12


def test_exactly_the_prefixes_that_best_first_would_expand_are_explored():
    predictor = ToyPredictor(seed=3)
    theta = 0.01
    question = whole_question(lambda text: False)
    got = grow(question, Law((END,), LENGTH), predictor, Growth(theta=theta))
    wanted = [()]
    for prefix in wanted:  # grows while it is read
        if len(prefix) < LENGTH - 1:
            wanted += [
                (*prefix, token)
                for token in range(END)
                if prefix_mass(predictor, (*prefix, token)) >= theta
            ]
    assert got.explored == len(wanted) == got.rows
    np.testing.assert_allclose(
        np.sort(got.priorities[np.isfinite(got.priorities)]),
        sorted(prefix_mass(predictor, prefix) for prefix in wanted if prefix),
    )


def prefix_mass(predictor, prefix):
    mass = 1.0
    for place in range(len(prefix)):
        logits = predictor.logits_of((0, *prefix[:place])).astype(np.float64)
        chances = np.exp(logits - logits.max())
        mass *= chances[prefix[place]] / chances.sum()
    return mass


def test_seeds_are_explored_however_unlikely_they_are():
    predictor = ToyPredictor(seed=1, scale=4.0)
    answer = (2, 2, 0, 1)
    law = Law((END,), 5)
    without = grow(asked("ccab", "substring"), law, predictor, Growth(theta=0.5))
    seeded = grow(
        asked("ccab", "substring", seeds=(answer, (3, END))), law, predictor, Growth(theta=0.5)
    )
    assert without.masses.leak == 0
    # The keyword is complete after four tokens; the fifth, whatever it is, settles it.
    assert seeded.masses.leak == pytest.approx(prefix_mass(predictor, answer), rel=1e-12)
    assert seeded.heaviest[0].text == "ccab"
    assert seeded.heaviest[0].probability == pytest.approx(seeded.masses.leak)


def test_the_heaviest_leaks_are_the_heaviest_leaking_texts():
    predictor = ToyPredictor(seed=2)
    got = grow(
        asked("ab", "substring", read=False), Law((END,), LENGTH), predictor, Growth(theta=1e-300)
    )
    texts: dict = {}
    for answer, chance in truth(predictor, "ab", "substring", {})[2].items():
        texts[decode([answer])[0]] = texts.get(decode([answer])[0], 0.0) + chance
    wanted = sorted(texts.values(), reverse=True)[:5]
    np.testing.assert_allclose([leak.probability for leak in got.heaviest], wanted, rtol=1e-6)
    assert all("ab" in leak.text for leak in got.heaviest)


def test_a_heavy_leak_has_no_more_than_the_answers_that_begin_with_it():
    """Of two keywords that end at the last token, each text has its own mass."""
    predictor = ToyPredictor(seed=2)
    keywords = ("aaab", "aaac")
    automaton = KeywordAutomaton(build_matcher(keywords, "substring"), TOKENS)
    question = whole_question(
        lambda text: any(word in text for word in keywords), automaton=automaton
    )
    got = grow(question, Law((END,), LENGTH), predictor, Growth(theta=1e-300))
    answers = every_answer(predictor, (0,), LENGTH, END)
    for leak in got.heaviest:
        chances = [
            chance
            for answer, chance in answers.items()
            if decode([answer])[0].startswith(leak.text)
        ]
        assert 0 < leak.probability <= sum(chances) * (1 + 1e-6)
    assert got.heaviest[0].probability < got.masses.leak * 0.99


def test_a_limit_ends_the_exploration():
    predictor = ToyPredictor(seed=4)
    law = Law((END,), LENGTH)
    got = grow(asked("ab", "word"), law, predictor, Growth(theta=1e-9, most_explored=10))
    assert got.explored <= 11


@pytest.mark.parametrize(("theta", "read"), [(2.0, True), (0.3, True), (0.05, True), (0.1, False)])
@pytest.mark.parametrize("rows", [4, 1000])
def test_the_sample_is_poisson_with_the_mean_of_the_unexplored_leak(theta, read, rows):
    """Counts of 200 growths: their mean, their variance, and none of what is explored among them. An answer that the
    automaton does not read, so that the scorer must decide, is sampled as well."""
    predictor = ToyPredictor(seed=7, rows=rows)
    rho = 40.0
    runs = 200
    law = Law((END,), LENGTH, temperature=2.0)
    question = asked("a", "word", read)
    leak, _, _ = truth(predictor, "a", "word", {"temperature": 2.0})
    grown = [
        grow(question, law, predictor, Growth(theta=theta, rho=rho), seed) for seed in range(runs)
    ]
    if theta > 1:
        assert grown[0].explored == 0
        assert grown[0].rest == 1
    mean = rho * (leak - grown[0].masses.leak)
    assert mean > 0.5
    counts = np.array([tree.remainder.leaks for tree in grown])
    assert abs(counts.mean() - mean) < 4 * np.sqrt(mean / runs)
    assert abs(counts.var() - mean) < 4 * np.sqrt((2 * mean**2 + mean) / runs)
    for tree in grown:  # sums in another order, where memory has no room for all rows at once
        assert tree.masses.leak == pytest.approx(grown[0].masses.leak, rel=1e-12)
        assert tree.explored == grown[0].explored
    drawn = np.array([tree.remainder.sampled for tree in grown])
    assert abs(drawn.mean() - rho * grown[0].rest) < 4 * np.sqrt(rho * grown[0].rest / runs)


def test_the_pilot_measures_entropy_and_length():
    predictor = ToyPredictor(seed=9)
    law = Law((END,), LENGTH)
    answers = every_answer(predictor, (0,), LENGTH, END)
    chances = np.array(list(answers.values()))
    got = grow(whole_question(lambda text: False), law, predictor, Growth(theta=2, rho=20000.0), 1)
    assert got.entropy == pytest.approx(-(chances * np.log(chances)).sum(), rel=0.01)
    assert got.length == pytest.approx(
        sum(len(answer) * chance for answer, chance in answers.items()), rel=0.01
    )
    short = grow(
        whole_question(lambda text: False), Law((END,), 1), predictor, Growth(theta=2, rho=50.0), 1
    )
    assert short.length == 1


def test_tokens_outside_the_vocabulary_are_refused():
    with pytest.raises(BadValue, match="tokens of question 'toy'"):
        grow(
            whole_question(lambda text: False, prompt=(9,)),
            Law((END,), 2),
            ToyPredictor(),
            Growth(theta=0.1),
        )


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


def test_a_curve_that_stays_flat_is_extrapolated_with_the_least_power():
    curve = PrefixCurve((1.0, 0.1, 0.01), (1, 50, 50), (0.9, 0.5, 0.5))
    assert curve.at(0.005) == pytest.approx(50 * 2 ** max(FLATTEST, np.log(50) / np.log(100)))
    flat = PrefixCurve((0.1, 0.01), (50, 50), (0.5, 0.5))
    assert flat.at(0.005) == pytest.approx(50 * 2**0.15)
