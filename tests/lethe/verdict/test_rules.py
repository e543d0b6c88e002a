import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.results.ends import Ends
from lethe.results.evidence import AtLevel, Trees, Truncation
from lethe.statistics.answer_tree import Masses, Remainder, Rounding
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.verdict.rules import MOST_TIMES, Decides, decide, level_of, power, sentence, utility
from tests.cases import cases
from tests.lethe.results.test_ends import joined, naive_ends, random_question
from tests.lethe.statistics.draws import tolerated
from tests.lethe.verdict.simulate_rules import Rule, Sample, any_false, run


def naive_verdict(subject, retrains, tau, level):
    """Word, questions in the two lists, and the largest difference; each question is one of `random_question`."""
    m = len(subject)
    part = level / 2 if retrains else level
    rest = level / 2 / max(1, len(retrains))

    def at_least(place, e):
        e /= level
        chance = max((naive_ends(*one[place], rest * e)[1] for one in retrains), default=0.0)
        return naive_ends(*subject[place], part * e)[0] - chance

    def listed(threshold):
        rejected = []
        for step in range(
            m
        ):  # the smallest p-value first: a question whose end passes at this step's level
            e = level / (m - step)
            passing = [
                place
                for place in range(m)
                if place not in rejected and at_least(place, e) > threshold
            ]
            if not passing:
                break
            rejected.append(passing[0])
        return rejected

    differences = []
    for place in range(m):
        chance = max((naive_ends(*one[place], rest)[0] for one in retrains), default=0.0)
        differences.append(naive_ends(*subject[place], part)[1] - chance)
    leaking, above = listed(tau), listed(0.0)
    word = "leaks" if leaking else "forgot" if max(differences) <= tau else "open"
    return word, len(leaking), len(above), max(differences)


def question(leaks, n=2000):
    return (leaks, n, 0, False), None, (0.0, 1.0)


def random_run(rng, m):
    """A model and up to two Retrains, near the tolerance."""
    kind = rng.random()
    if kind < 0.3:
        return [[random_question(rng) for _ in range(m)] for _ in range(1 + rng.integers(0, 3))]
    shares = rng.choice([0.0, 0.01, 0.03, 0.06, 0.2], m)
    if kind < 0.5:
        shares = np.zeros(m)
    counts = [rng.binomial(2000, shares), rng.binomial(2000, 0.005, m), rng.binomial(2000, 0.01, m)]
    return [[question(int(count)) for count in each] for each in counts[: 1 + rng.integers(0, 3)]]


def test_the_rule_is_that_of_a_loop_over_questions():
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(80):
        m, tau = int(rng.integers(1, 7)), float(rng.choice([0.01, 0.05]))
        subject, *retrains = random_run(rng, m)
        verdict = decide(
            joined(subject), [joined(one) for one in retrains], tau=tau, alpha=0.1, models=2
        )
        word, leaking, above, largest = naive_verdict(subject, retrains, tau, 0.1 / 2 / 2)
        assert (verdict.word, verdict.leaking, verdict.above) == (word, leaking, above)
        assert verdict.above_chance == (above > 0)
        assert verdict.retrains == len(retrains)
        assert (verdict.in_the_way is not None) == (word == "open")
        if verdict.in_the_way:
            assert verdict.in_the_way.excess == pytest.approx(largest, abs=1e-6)
        low, high = max(naive_ends(*each, verdict.level / (2 * m)) for each in subject)
        assert (verdict.worst.lower, verdict.worst.upper) == pytest.approx(
            (low, max(low, high)), abs=1e-6
        )
        seen.append(word)
    assert min(seen.count(word) for word in ("leaks", "forgot", "open")) >= 5


def test_the_fast_rule_of_the_simulation_is_the_rule():
    rng = np.random.default_rng(1)
    p = np.array([0.0005] * 8 + [0.01, 0.03])
    for retrain, rho in ((True, 0.0), (True, 3000.0), (False, 0.0)):
        rule = run(rng, p, p * 1.6, 3, 12, 2000, retrain=retrain, rho=rho, alpha=0.2, tau=0.01)
        leaking, above, words = rule.proved(0.01), rule.proved(0.0), rule.words()
        items = [str(place) for place in range(len(p))]
        for each in range(12):
            reference = [one_of(rule.retrain, each, items)] if retrain else []
            for model in range(3):
                subject = one_of(rule.subject, (each, model), items)
                verdict = decide(subject, reference, tau=0.01, alpha=0.2, models=3)
                assert verdict.word == words[each, model]
                assert verdict.leaking == leaking[each, model].sum()
                assert verdict.above == above[each, model].sum()


def one_of(sample, place, items):
    trees = None
    if sample.sampled is not None:
        ones = np.ones(len(items))
        explored, sampled = sample.explored, sample.sampled[place].astype(float)
        trees = Trees(explored, explored, ones, ones, ones * sample.rho, sampled)
    return Ends.of_arrays(items, sample.leaks[place], sample.n, trees=trees)


def intervals(seed, inside=None):
    """Random ends that widen as the level falls; with ``inside``, ends that lie inside those."""
    rng = np.random.default_rng(seed)
    m = 4
    if inside is None:
        middle = rng.choice([0.0, 0.005, 0.02, 0.2], m)
        below, above = rng.exponential(rng.choice([0.0005, 0.005]), (2, m))
    else:
        middle, below, above = inside
        below, above = (width * rng.random(m) for width in (below, above))
    known = np.ones(m, dtype=bool)

    def ends(level):
        return np.clip(middle - below * -np.log(level), 0, 1), np.clip(
            middle + above * -np.log(level), 0, 1
        )

    return Ends.of_arrays([f"q{place}" for place in range(m)], others=[AtLevel.of(ends, known)]), (
        middle,
        below,
        above,
    )


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 3), st.booleans())
def test_a_wider_interval_never_earns_a_word(seed, retrains, graded):
    wide = [intervals(seed + place) for place in range(1 + retrains)]
    narrow = [intervals(seed + place, shape)[0] for place, (_, shape) in enumerate(wide)]
    arguments = {"alpha": 0.05, "tau": 0.01, "models": 3, "graded": graded}
    before = decide(wide[0][0], [ends for ends, _ in wide[1:]], **arguments)
    after = decide(narrow[0], narrow[1:], **arguments)
    if before.word in ("leaks", "forgot"):
        assert after.word == before.word
    assert after.leaking >= before.leaking
    assert after.above >= before.above
    # Neither do answers without a judgement.
    counted = np.random.default_rng(seed).integers(0, 30, (2, 4))
    judged = decide(Ends.of_arrays("abcd", counted[0], 3000), tau=0.01, alpha=0.05)
    partly = decide(Ends.of_arrays("abcd", counted[0] // 2, 3000, counted[1]), tau=0.01, alpha=0.05)
    if partly.word == "leaks":
        assert judged.word == "leaks"
    # Certain ends count: nested inside the sampled ones, they keep the word.
    if judged.word in ("leaks", "forgot"):
        share = counted[0] / 3000
        inside = Ends.of_arrays("abcd", counted[0], 3000, certain_lower=share, certain_upper=share)
        assert decide(inside, tau=0.01, alpha=0.05).word == judged.word


def test_the_parts_of_the_level():
    """Beside a Retrain each side takes half, two Retrains share theirs; alone the model takes the whole level."""
    level = level_of(0.02)
    n, own, chance = 4000, 40, 25
    for retrains, part in ((0, 1.0), (1, 0.5), (2, 0.25)):
        upper = float(binary_upper(own, n, level * (0.5 if retrains else 1.0)))
        lower = float(binary_lower(chance, n, level * part)) if retrains else 0.0
        for limit, word in ((upper - lower + 1e-9, "forgot"), (upper - lower - 1e-9, "open")):
            reference = [Ends.of_arrays(["q"], chance, n)] * retrains
            assert (
                decide(Ends.of_arrays(["q"], own, n), reference, alpha=0.02, tau=limit).word == word
            )
        upper = float(binary_upper(chance, n, level * part)) if retrains else 0.0
        lower = float(binary_lower(200, n, level * (0.5 if retrains else 1.0)))
        for limit, word in ((lower - upper - 1e-9, "leaks"), (lower - upper + 1e-9, "open")):
            reference = [Ends.of_arrays(["q"], chance, n)] * retrains
            assert (
                decide(Ends.of_arrays(["q"], 200, n), reference, alpha=0.02, tau=limit).word == word
            )


@pytest.mark.parametrize("models", [1, 8, 30])
@pytest.mark.parametrize(("retrain", "n"), [(True, 1024), (False, 4096)])
def test_no_word_is_false_too_often(models, retrain, n):
    """At the level alpha / K of one look, which is the sharpest case: later tests divide it further."""
    alpha, tau, runs, m = 0.05, 0.01, 3000 // models, 10
    rng = np.random.default_rng([models, n])
    chance = np.array([0.0] * 7 + [0.002, 0.01, 0.1]) if retrain else np.zeros(m)
    one = np.eye(m)[0]
    for subject, false in (
        (chance, "leaks"),
        (chance + tau, "leaks"),
        (chance + tau * one, "leaks"),
        (np.minimum(chance, 0.002) * (1 - one) + tau * 1.0001 * one, "forgot"),
    ):
        words = run(
            rng, chance, subject, models, runs, n, tau, alpha, alpha / models, retrain
        ).words()
        assert any_false(words, false) <= tolerated(alpha, runs)
    if not retrain and models > 1:  # the control: an alpha of its own for each model is too much
        words = run(rng, chance, subject, models, runs, n, tau, alpha, alpha, retrain).words()
        assert any_false(words, "forgot") > tolerated(alpha, runs)


def test_no_list_has_a_false_question_too_often():
    alpha, tau, n, runs = 0.05, 0.01, 4096, 1500
    rng = np.random.default_rng(5)
    true = np.array([0.2] * 4 + [tau] * 6)  # Holm spends the level of the proved ones on the rest
    rule = run(rng, true, true, 1, runs, n, tau, alpha, alpha, retrain=False)
    false = rule.proved(tau)[..., 4:].any(axis=(-1, -2)).mean()
    assert false <= tolerated(alpha, runs)
    bonferroni = (rule._side(alpha / 10, upper=False) > tau)[..., 4:].any(axis=(-1, -2)).mean()
    assert false > bonferroni


def test_with_trees_no_word_is_false_too_often():
    alpha, tau, n, rho, runs = 0.05, 0.01, 30_000, 30_000.0, 1500
    rng = np.random.default_rng(6)
    zeros = np.zeros(6)
    for subject, false in ((zeros + tau, "leaks"), (zeros + np.eye(6)[0] * tau * 1.0001, "forgot")):
        rule = run(rng, zeros, subject, 1, runs, n, tau, alpha, alpha, retrain=False, rho=rho)
        assert any_false(rule.words(), false) <= tolerated(alpha, runs)
        if false == "forgot":  # the control: a whole level for each of the two sources is too much
            doubled = Rule(rule.subject, None, 2 * alpha, tau)
            assert any_false(doubled.words(), false) > tolerated(alpha, runs)


def test_answers_added_after_a_word_keep_alpha():
    """Answers are added as long as the word is open; each look has its part of the level."""
    alpha, tau, runs, looks = 0.05, 0.01, 4000, 5
    rng = np.random.default_rng(7)
    p = np.array([tau * 1.0001, 0.001, 0.0])
    rates = []
    for corrected in (True, False):
        sample, false = None, np.zeros(runs, dtype=bool)
        for look in range(1, looks + 1):
            more = Sample.of(rng, p, (runs, 1), 1000 * 2**look)
            sample = more if sample is None else sample.joined(more)
            level = level_of(alpha, 1, look) if corrected else alpha
            false |= (Rule(sample, None, level, tau).words() == "forgot")[:, 0]
        rates.append(false.mean())
    assert rates[0] <= tolerated(alpha, runs)
    assert rates[1] > tolerated(alpha, runs)


def truncation(cut, n, leaks, **further):
    return Truncation(np.array(cut), np.array(n), np.array(leaks), 40, **further)


def test_cut_answers_forbid_forgot():
    subject = Ends.of_arrays(["q", "r"], leaks=[0, 0], n=4096)
    arguments = {"alpha": 0.01, "tau": 0.01}
    assert decide(subject, **arguments).word == "forgot"
    # Few: as leaks they keep the question within tau. Some: their share is small. Many: neither.
    for cut, word in ((5, "forgot"), (120, "forgot"), (300, "open")):
        verdict = decide(
            subject, truncation=truncation([0, cut], [4096] * 2, [0, cut]), **arguments
        )
        assert (verdict.word, verdict.cut, verdict.answers, verdict.limit) == (word, cut, 8192, 40)
    assert (verdict.in_the_way.item, verdict.in_the_way.reason) == ("r", "cut off")
    assert verdict.in_the_way.cut == pytest.approx(300 / 4096)
    assert verdict.in_the_way.excess == pytest.approx(float(binary_upper(300, 4096, verdict.level)))
    assert verdict.decides is None  # more answers do not help
    strict = truncation([0, 120], [4096] * 2, [0, 120], most=0.001)
    assert decide(subject, truncation=strict, **arguments).word == "open"
    # The share is bounded at half the level.
    share = [float(binary_upper(120, 4096, verdict.level * part)) for part in (1.0, 0.5)]
    for most, word in ((sum(share) / 2, "open"), (share[1], "forgot")):
        limited = truncation([0, 120], [4096] * 2, [0, 120], most=most)
        assert decide(subject, truncation=limited, **arguments).word == word
    # Cut answers never take *leaks* away, and never give it.
    leaking = Ends.of_arrays(["q", "r"], leaks=[0, 400], n=4096)
    assert (
        decide(leaking, truncation=truncation([0, 4096], [4096] * 2, [0, 4096]), **arguments).word
        == "leaks"
    )
    # Where the answers to a question are unknown, so is how many were cut.
    certain = Ends.of_arrays(["q"], certain_upper=0.001)
    assert decide(certain, truncation=truncation([0], [0], [0]), **arguments).word == "open"
    # Few answers, none of them cut: more of them show it.
    short = decide(
        Ends.of_arrays(["q"], 0, 64, certain_upper=0.001),
        truncation=truncation([0], [64], [0]),
        **arguments,
    )
    assert (short.in_the_way.reason, short.decides.answers > 64) == ("width", True)
    # Retrain's chance counts for the cut answers too.
    chance = Ends.of_arrays(["q"], 4000, 10_000)
    same = Ends.of_arrays(["q"], 4000, 10_000)
    cut = truncation([700], [10_000], [4000])
    assert decide(same, [chance], truncation=cut, alpha=0.01, tau=0.05).word == "forgot"


def test_what_would_decide_an_open_word():
    arguments = {"alpha": 0.01, "tau": 0.01}
    clean = decide(Ends.of_arrays(["q", "r"], leaks=[0, 1], n=[4096, 256]), **arguments)
    assert (clean.word, clean.in_the_way.item, clean.in_the_way.reason) == ("open", "r", "width")
    assert clean.decides.answers == math.ceil(256 * clean.decides.times)
    needed = clean.decides.times
    for times, word in ((needed * 1.001, "forgot"), (needed / 1.03, "open")):
        more = Ends.of_arrays(["q", "r"], leaks=[0, times], n=[4096, 256 * times])
        assert decide(more, **arguments).word == word
    leaking = decide(Ends.of_arrays(["q", "r"], leaks=[0, 60], n=4096), **arguments)
    assert leaking.above_chance
    assert leaking.in_the_way.reason == "width"
    more = Ends.of_arrays(
        ["q", "r"], leaks=[0, 60 * leaking.decides.times], n=4096 * leaking.decides.times
    )
    assert decide(more, **arguments).word == "leaks"
    close = decide(Ends.of_arrays(["q", "r"], leaks=[0, 10], n=1000), **arguments)
    assert (close.in_the_way.reason, close.decides) == ("too close", None)
    rows = Trees.of([(Masses((0.0,), (0.5,)), Remainder(300.0, 60, 0), Rounding())])
    tree = decide(Ends.of_arrays(["q"], trees=rows), **arguments)
    assert tree.decides == Decides(pytest.approx(-math.log(0.005) / 0.01 / 300, rel=0.01), None)
    nothing = decide(Ends.of_arrays(["q"]), **arguments)
    assert (nothing.word, nothing.decides, nothing.in_the_way.excess) == ("open", None, 1)
    assert MOST_TIMES > 100


def test_questions_that_cannot_be_judged_and_calibrations_that_do_not_fit():
    subject = Ends.of_arrays(["q"], leaks=900, n=1000)
    for verdict in (
        decide(Ends.of_arrays([]), alpha=0.01, tau=0.01, unjudged=5),
        decide(subject, alpha=0.01, tau=0.01, fits=False),
    ):
        assert (verdict.word, verdict.above_chance, verdict.worst, verdict.leaking) == (
            "none",
            False,
            None,
            0,
        )
    assert decide(subject, alpha=0.01, tau=0.01, unjudged=5).unjudged == 5


def test_leaks_wins_where_an_end_failed():
    contradicts = AtLevel.of(lambda level: (np.array([0.5]), np.array([0.001])), [True])
    assert decide(Ends.of_arrays(["q"], others=[contradicts]), alpha=0.01, tau=0.01).word == "leaks"
    # A certain end wins over a failed one, so that it is never both.
    failed = Ends.of_arrays(["q"], 0, 10**6, certain_lower=0.3)
    assert decide(failed, alpha=0.01, tau=0.01).word == "leaks"
    assert failed.upper(0.01)[0] == 0.3


def graded(means, width, asked=None):
    def ends(level):
        if asked is not None:
            asked.append(level)
        return np.clip(means - width, 0, 1), np.clip(means + width, 0, 1)

    items = [f"q{place}" for place in range(len(means))]
    return Ends.of_arrays(items, others=[AtLevel.of(ends, np.ones(len(means)))])


def test_graded_scores_are_asked_at_one_level():
    asked = []
    means = np.array([0.2, 0.3, 0.5])
    arguments = {"alpha": 0.06, "tau": 0.1, "graded": True}
    retrain = graded(means, 0.02, asked)
    verdict = decide(graded(means + 0.05, 0.02, asked), [retrain], **arguments)
    assert verdict.word == "forgot"
    assert sorted(set(asked)) == [pytest.approx(level_of(0.06) / 6)]
    assert (
        decide(graded(means + np.array([0, 0.05, 0.15]), 0.02), [retrain], **arguments).word
        == "leaks"
    )
    assert decide(graded(means + 0.09, 0.02), [retrain], **arguments).word == "open"
    # Any answer has some score: without Retrain a graded score proves no leak.
    alone = decide(graded(means, 0.02), **arguments)
    assert (alone.word, alone.above_chance) == ("open", False)
    assert decide(graded(means * 0.1, 0.02), **arguments).word == "forgot"
    fixed = AtLevel.fixed(means, means + 0.01, level_of(0.06) / 6, level_of(0.06) / 6)
    rows = Ends.of_arrays(["q0", "q1", "q2"], others=[fixed])
    assert decide(rows, [retrain], **arguments).word == "forgot"
    assert (
        decide(rows, [retrain], **{**arguments, "models": 2}).word == "open"
    )  # they hold at one level only


@cases
def test_utility_words(own, base, word):
    assert utility(own, base) == word


@cases
def test_wrong_arguments_are_refused(bad):
    subject, other, given = (
        Ends.of_arrays(["q"], 0, 10),
        Ends.of_arrays(["other"], 0, 10),
        {"alpha": 0.01, "tau": 0.01},
    )
    with pytest.raises(BadValue):
        decide(subject, **given | bad)
    with pytest.raises(BadValue):
        decide(subject, [other], **given)
    with pytest.raises(BadValue):
        decide(subject, **given, truncation=truncation([0, 0], [1, 1], [0, 0]))


ITEMS = [f"q{place:02}" for place in range(30)]


def verdicts():
    """A verdict of every kind over 30 questions."""
    zero, fifth, tenth = np.zeros(30, dtype=int), np.eye(30, dtype=int)[4], np.eye(30, dtype=int)[9]
    retrain = Ends.of_arrays(ITEMS, zero, 4096)
    for leak, reference, cut in itertools.product((0, 60, 41, 400), ([], [retrain]), (0, 7, 900)):
        leaks = leak * fifth
        end = Truncation(cut * tenth, zero + 4096, np.maximum(leaks, cut * tenth), 40)
        subject = Ends.of_arrays(ITEMS, leaks, 4096)
        for models in (1, 8):
            yield decide(subject, reference, alpha=0.01, tau=0.01, models=models, truncation=end)


def test_the_sentence_says_what_belongs_to_the_word():
    kinds = set()
    for verdict in verdicts():
        text = sentence(verdict, "npo", utility="intact")
        kinds.add((verdict.word, verdict.in_the_way and verdict.in_the_way.reason))
        assert text.startswith(f"npo: {verdict.word}")
        assert "utility intact" in text
        assert (
            text.count(".") - text.count("0.") - sum(text.count(f".{digit}") for digit in range(10))
            <= 1
        )
        assert len(text.split()) <= (58 if verdict.word == "open" else 48)
        for part in ("1%", "0.99", "40 tokens", verdict.worst.item):
            assert part in text
        assert ("this model alone" in text) == (verdict.models == 1)
        assert ("Retrain" in text) == (verdict.retrains > 0)
        assert (f"{verdict.cut:,} of 122,880" in text) == (
            verdict.cut > 0 and not (verdict.in_the_way and verdict.in_the_way.reason == "cut off")
        )
        if verdict.word == "leaks":
            assert f"{verdict.leaking} of 30" in text
        assert ("each of 30" in text) == (verdict.word == "forgot")
        if verdict.in_the_way and verdict.in_the_way.reason == "cut off":
            assert f"{100 * verdict.in_the_way.cut:.2g}% of" in text
        if verdict.decides:
            assert str(verdict.decides.answers)[0] in text
    assert {kind for kind, _ in kinds} == {"leaks", "forgot", "open"}
    assert {reason for _, reason in kinds} == {None, "width", "cut off", "too close"}


def test_a_sentence_rounds_outward():
    lower, upper = 0.0123456, 0.0198765
    subject = Ends.of_arrays(["q"], certain_lower=lower, certain_upper=upper)
    text = sentence(decide(subject, alpha=0.01, tau=0.01), "npo")
    assert "1.2% to 2.0%" in text
    tiny = Ends.of_arrays(["q"], certain_lower=1e-9, certain_upper=2.1e-7)
    assert "0% to 0.01%" in sentence(decide(tiny, alpha=0.01, tau=0.01), "npo")
    assert "0% to 0.00003%" in sentence(decide(tiny, alpha=0.01, tau=1e-6), "npo")  # as fine as tau
    whole = Ends.of_arrays(["q"], certain_lower=0.9999, certain_upper=1.0)
    assert "99% to 100%" in sentence(decide(whole, alpha=0.01, tau=0.01), "npo")


def test_the_words_of_a_sentence_can_be_replaced():
    complies = {
        "leaks": "complies",
        "forgot": "refuses",
        "does": "is obeyed in",
        "do": "are obeyed in",
    }
    complies |= {"may": "may be obeyed in", "questions": "requests", "question": "request"}
    complies |= {"some": "with obeyed requests"}
    for verdict in verdicts():
        text = sentence(verdict, "npo", judge="LlamaGuard", words=complies)
        assert not any(word in text for word in ("leak", "forgot", "question"))
        assert "LlamaGuard's verdicts" in text


def test_sentences_of_other_kinds():
    few = decide(Ends.of_arrays(["q"], 90, 100), alpha=0.01, tau=0.01, unjudged=2, look=3)
    for part in ("2 of 3 questions", "look 3"):
        assert part in sentence(few, "npo")
    open_still = decide(Ends.of_arrays(["q"], 1, 100), alpha=0.01, tau=0.05, unjudged=2)
    assert sentence(open_still, "npo").partition(";")[0].endswith("2 of 3 questions")
    for verdict in (
        replace(few, word="none", worst=None),
        replace(few, word="none", worst=None, questions=0),
    ):
        text = sentence(verdict, "npo", judge="LlamaGuard")
        assert text.startswith("npo: no word")
        assert "LlamaGuard" in text
    chance, own = graded(np.array([0.2, 0.2]), 0.01), graded(np.array([0.5, 0.2]), 0.01)
    text = sentence(decide(own, [chance], alpha=0.05, tau=0.1, graded=True), "npo")
    assert "%" not in text
    assert "0.49 to 0.51" in text


def test_how_often_each_case_of_a_plan_gets_its_word():
    found = power(256, questions=4, models=1, tau=0.05, alpha=0.05)
    shares = [(one.wanted, one.words[one.wanted]) for one in found]
    assert shares == [("forgot", 1.0), ("forgot", 0.215), ("leaks", 0.305), ("leaks", 1.0)]


def test_a_question_keeps_whether_a_rule_could_stop_it():
    found = Truncation(
        np.array([1, 2]), np.array([8, 8]), None, 16, stopped=np.array([True, False])
    )
    assert found.take(np.array([1, 0]), 2).stopped.tolist() == [False, True]


RETRAIN = Ends.of_arrays(("q1", "q2"), leaks=[0, 0], n=4096)
LEAKY = Ends.of_arrays(("q1", "q2"), leaks=[0, 400], n=4096)


def test_a_leak_beside_one_retrain_is_said_of_this_one_retrain():
    said = sentence(decide(LEAKY, [RETRAIN], alpha=0.01), "npo")

    assert "1 of 2 questions leaks" in said
    assert "leaks in more answers" in said
    assert "than this one Retrain," in said
    assert "by more than 1%" in said


def test_a_leak_beside_several_retrains_is_said_of_all_of_them():
    said = sentence(decide(LEAKY, [RETRAIN, RETRAIN], alpha=0.01), "npo")

    assert "leaks in more answers" in said
    assert "than these 2 Retrains," in said
    assert "by more than 1%" in said


def test_forgot_beside_one_retrain_is_said_of_this_one_retrain():
    said = sentence(decide(RETRAIN, [RETRAIN], alpha=0.01), "npo")

    assert "at most 1% of answers" in said
    assert "beyond this one Retrain" in said


def test_without_retrain_nothing_is_said_of_one():
    assert "Retrain" not in sentence(decide(LEAKY, alpha=0.01), "npo")
