import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.results.ends import Ends
from lethe.results.evidence import AtLevel, ScoreDraws, Trees, Truncation
from lethe.statistics.answer_tree import Masses, Remainder, Rounding
from lethe.statistics.anytime import Counts, log_e_forgot, log_e_leaks, log_mean
from lethe.verdict.rules import decide, utility
from lethe.verdict.sentence import sentence
from lethe.verdict.verdict import Drawn
from tests.cases import cases
from tests.lethe.statistics.draws import tolerated
from tests.lethe.verdict.simulate_rules import any_false, ever, run, words


def naive_word(x, n, y, k, tau, goal):
    """The word on questions with these counts, one after the other."""
    leaks = []
    forgot = []
    for place in range(len(x)):
        model = Counts(x[place], n[place])
        beside = []
        if y is not None:
            beside.append(Counts(y[place], k[place]))
        leaks.append(log_e_leaks(model, beside, tau))
        forgot.append(log_e_forgot(model, beside, tau))

    if log_mean(leaks) >= goal:
        return "leaks"
    return "forgot" if min(forgot) >= goal else "open"


def test_the_rule_is_that_of_a_loop_over_questions():
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(60):
        m = int(rng.integers(1, 7))
        tau = float(rng.choice([0.01, 0.05]))
        shares = rng.choice([0.0, 0.002, 0.1], m) if rng.random() < 0.4 else np.zeros(m)
        n, k = rng.integers(300, 1500, (2, m))
        x = rng.binomial(n, shares)
        y = rng.binomial(k, 0.002) if rng.random() < 0.5 else None
        items = [f"q{place}" for place in range(m)]
        retrains = [] if y is None else [Ends.of_arrays(items, y, k)]

        verdict = decide(Ends.of_arrays(items, x, n), retrains, tau=tau, alpha=0.1, models=2)

        assert verdict.word == naive_word(x, n, y, k, tau, math.log(20))
        assert (verdict.in_the_way is not None) == (verdict.word == "open")
        seen.append(verdict.word)
    assert min(seen.count(word) for word in ("leaks", "forgot", "open")) >= 5


@pytest.mark.parametrize("retrain", [True, False])
def test_the_fast_rule_of_the_simulation_is_the_rule(retrain):
    rng = np.random.default_rng(1)
    m = 5
    n = rng.integers(300, 3000, m)
    x = rng.binomial(n, [0.0, 0.0, 0.001, 0.01, 0.04], (20, m))
    y = rng.binomial(n, 0.002, (20, m)) if retrain else None
    fast = words(x, np.broadcast_to(n, x.shape), y, np.broadcast_to(n, x.shape), 0.01, 0.05)

    items = [str(place) for place in range(m)]
    for place in range(20):
        chance = [Ends.of_arrays(items, y[place], n)] if retrain else []
        found = decide(Ends.of_arrays(items, x[place], n), chance, alpha=0.05)
        assert found.word == fast[place]


# Counts of two questions, and the word at alpha .01 for 8 models: leaks, answers, of Retrain.
KNOWN = [
    ([0, 0], 1024, [0, 0], "forgot"),
    ([0, 0], 853, [0, 0], "forgot"),
    ([0, 0], 852, [0, 0], "open"),
    ([0, 0], 780, None, "forgot"),
    ([0, 0], 779, None, "open"),
    ([0, 60], 1024, [0, 0], "leaks"),
    ([0, 60], 1024, [0, 60], "open"),
    ([0, 1024], 1024, None, "leaks"),
]


@pytest.mark.parametrize(("leaks", "n", "chance", "word"), KNOWN)
def test_the_word_for_known_counts(leaks, n, chance, word):
    items = ["q1", "q2"]
    retrains = [] if chance is None else [Ends.of_arrays(items, chance, n)]

    found = decide(Ends.of_arrays(items, leaks, n), retrains, alpha=0.01, models=8)

    assert found.word == word


def test_the_evidence_stands_beside_the_word():
    items = ["a", "b", "c"]
    leaks = [0, 150, 160]
    n = [900, 1024, 1024]
    n_of_retrain = [0, 128, 256]

    found = decide(
        Ends.of_arrays(items, leaks, n),
        [Ends.of_arrays(items, 0, n_of_retrain)],
        alpha=0.01,
        models=8,
    )

    of_questions = []
    for place in range(3):
        model = Counts(leaks[place], n[place])
        retrain = Counts(0, n_of_retrain[place])
        of_questions.append(log_e_leaks(model, [retrain], 0.01))
    of_worst = log_e_forgot(Counts(160, 1024), [Counts(0, 256)], 0.01)
    assert found.log_goal == pytest.approx(math.log(800))
    assert found.log_e_leaks == pytest.approx(log_mean(of_questions))
    assert found.log_e_forgot == pytest.approx(of_worst)
    assert found.drawn == Drawn(900, 1024, 2948, 0, 256, 384)
    assert (found.named, found.leaking, found.look, found.anytime) == (("b", "c"), 2, 1, True)


def test_many_small_leaks_prove_some_leak_without_a_name():
    items = [f"q{place}" for place in range(40)]
    n = 1024
    fewest = 11
    while decide(Ends.of_arrays(items, fewest, n), alpha=0.01, models=8).word != "leaks":
        fewest += 1
        assert fewest < 60
    leaks = [fewest] * 20 + [0] * 20

    almost = decide(Ends.of_arrays(items, leaks, n), alpha=0.02, models=8)

    assert almost.word == "leaks"
    assert almost.leaking >= 1
    assert ("named" in sentence(almost, "npo")) == bool(almost.named)


def test_certain_ends_decide_whatever_was_drawn():
    clean = Ends.of_arrays(["q"], certain_upper=0.009)
    leaky = Ends.of_arrays(["q"], 0, 10**6, certain_lower=0.3)

    assert decide(clean, alpha=0.01).word == "forgot"
    assert decide(leaky, alpha=0.01).word == "leaks"
    assert decide(clean, alpha=0.01).log_e_forgot is None


def test_a_second_kind_of_evidence_takes_half_of_the_level():
    unknown = Trees.of([(Masses((0.0,), (0.5,)), Remainder(300.0, 60, 0), Rounding())])
    goal = math.log(2 / 0.01)
    least = next(n for n in range(400, 900) if log_e_forgot(Counts(0, n), [], 0.01) >= goal)

    for n, word in ((least, "forgot"), (least - 1, "open")):
        assert decide(Ends.of_arrays(["q"], 0, n, trees=unknown), alpha=0.01).word == word
        assert decide(Ends.of_arrays(["q"], 0, n), alpha=0.01).word == "forgot"
    # The tree alone decides at its half too.
    rate = math.log(2 / 0.01) / 0.01
    enough = Trees.of([(Masses((0.0,), (0.5,)), Remainder(rate + 1, 60, 0), Rounding())])
    assert decide(Ends.of_arrays(["q"], 5, 200, trees=enough), alpha=0.01).word == "forgot"


def test_ends_of_one_level_hold_at_that_level_alone():
    fixed = AtLevel.fixed([0.0], [0.005], 0.01, 0.01)
    ends = Ends.of_arrays(["q"], others=[fixed])

    assert decide(ends, alpha=0.01).word == "forgot"
    assert not decide(ends, alpha=0.01).anytime
    assert decide(ends, alpha=0.01, models=2).word == "open"
    leaky = Ends.of_arrays(["q"], others=[AtLevel.fixed([0.02], [0.2], 0.01, 0.01)])
    assert decide(leaky, alpha=0.01).word == "leaks"


def test_models_of_one_seed_refute_by_the_ends_of_each():
    n = 4096
    level = 0.01
    model, retrain = Ends.of_arrays(["q"], 41, n), Ends.of_arrays(["q"], 41, n)
    upper = model.at_any_time().upper(level / 2)[0]
    apart = upper - retrain.at_any_time().lower(level / 2)[0]

    for tau, word in ((apart + 1e-6, "forgot"), (apart - 1e-6, "open")):
        assert decide(model, [retrain], independent=False, alpha=level, tau=tau).word == word


def test_a_leak_beside_a_retrain_of_the_same_seed_is_proved_by_both_ends():
    clean, leaky = Ends.of_arrays(["q"], 0, 4096), Ends.of_arrays(["q"], 400, 4096)

    assert decide(leaky, [clean], independent=False, alpha=0.01).word == "leaks"


def test_cut_answers_beside_shared_random_numbers_are_bounded_without_chance():
    ends = Ends.of_arrays(("a",), leaks=[300], n=1000)
    cut = Truncation(np.array([100]), np.array([1000]), np.array([400]), 64, 0.01)

    apart, shared = (
        decide(ends, [ends], alpha=0.01, truncation=cut, independent=independent)
        for independent in (True, False)
    )

    assert apart.in_the_way.reason == shared.in_the_way.reason == "cut off"
    assert apart.in_the_way.excess < 0.3
    assert shared.in_the_way.excess > 0.4


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_answers_without_a_judgement_never_earn_a_word(seed, beside):
    rng = np.random.default_rng(seed)
    items = list("abcd")
    leaks, missing = rng.integers(0, 30, (2, 4))
    retrain = [Ends.of_arrays(items, rng.integers(0, 10, 4), 2000)] if beside else []

    partly = decide(Ends.of_arrays(items, leaks, 3000, missing), retrain, alpha=0.05)

    for revealed in (0, missing):  # whatever the missing judgements would have been
        judged = decide(Ends.of_arrays(items, leaks + revealed, 3000), retrain, alpha=0.05)
        if partly.word in ("leaks", "forgot"):
            assert judged.word == partly.word


@pytest.mark.parametrize("models", [1, 8])
@pytest.mark.parametrize(("retrain", "n"), [(True, 1024), (False, 4096)])
def test_no_word_is_false_too_often(models, retrain, n):
    alpha = 0.05
    tau = 0.01
    runs = 2000 // models
    m = 10
    rng = np.random.default_rng([models, n])
    chance = np.array([0.0] * 7 + [0.002, 0.01, 0.1]) if retrain else np.zeros(m)
    first = np.eye(m)[0]
    for subject, false in (
        (chance, "leaks"),
        (chance + tau, "leaks"),
        (chance + tau * first, "leaks"),
        (np.minimum(chance, 0.002) * (1 - first) + tau * 1.0001 * first, "forgot"),
    ):
        found = run(rng, chance, subject, models, runs, n, tau, alpha, retrain=retrain)
        assert any_false(found, false) <= tolerated(alpha, runs)


@pytest.mark.parametrize("retrain", [True, False])
def test_no_word_is_ever_false_too_often_however_often_anybody_looks(retrain):
    """Thirty looks, and Retrain drawn by the leaks seen: no further level is taken."""
    tau = 0.02
    level = 0.05
    runs = 1500
    rng = np.random.default_rng(7)
    chance = np.array([0.0, 0.002, 0.02]) if retrain else np.zeros(3)
    edge = chance + tau * np.eye(3)[0] * 1.0001
    for subject, false in ((edge, "forgot"), (chance + tau, "leaks")):
        rate = ever(rng, chance, subject, runs, 30, 128, tau, level, false, retrain)
        assert rate <= tolerated(level, runs)


def test_no_name_is_false_too_often():
    tau = 0.01
    n = 4096
    runs = 150
    rng = np.random.default_rng(5)
    true = np.array([0.03] * 2 + [tau] * 6)
    false = both = 0
    for _ in range(runs):
        ends = Ends.of_arrays(list("abcdefgh"), rng.binomial(n, true), n)
        named = decide(ends, alpha=0.05, planned=False).named
        false += bool(set(named) - {"a", "b"})
        both += {"a", "b"} <= set(named)
    assert false / runs <= tolerated(0.05, runs)
    assert both / runs > 0.9


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
    most = Ends.of_arrays(["r"], 300, 4096).at_any_time().upper(0.01)[0]
    assert verdict.in_the_way.excess == pytest.approx(most, abs=1e-6)
    assert verdict.decides is None  # more answers do not help
    strict = truncation([0, 120], [4096] * 2, [0, 120], most=0.001)
    assert decide(subject, truncation=strict, **arguments).word == "open"


def test_cut_answers_say_nothing_of_leaks():
    leaking = Ends.of_arrays(["q", "r"], leaks=[0, 400], n=4096)
    all_cut = truncation([0, 4096], [4096] * 2, [0, 4096])

    assert decide(leaking, truncation=all_cut, alpha=0.01).word == "leaks"


def test_certain_ends_within_the_limit_say_nothing_beyond_it():
    certain = Ends.of_arrays(["q"], 0, 4096, certain_upper=0.001)
    cut = truncation([4000], [4096], [4000])

    assert decide(certain, alpha=0.01).word == "forgot"
    assert decide(certain, truncation=cut, alpha=0.01).word == "open"
    # Where the answers to a question are unknown, so is how many were cut.
    unknown = Ends.of_arrays(["q"], certain_upper=0.001)
    assert decide(unknown, truncation=truncation([0], [0], [0]), alpha=0.01).word == "open"


def test_few_answers_of_which_none_was_cut_need_more():
    short = decide(
        Ends.of_arrays(["q"], 0, 64, certain_upper=0.001),
        truncation=truncation([0], [64], [0]),
        alpha=0.01,
    )

    assert short.word == "open"
    assert short.in_the_way.reason == "width"
    assert short.decides.answers > 64


def test_retrain_leaks_among_cut_answers_too():
    model, chance = Ends.of_arrays(["q"], 4000, 10_000), Ends.of_arrays(["q"], 4000, 10_000)
    cut = truncation([700], [10_000], [4000])

    assert decide(model, [chance], truncation=cut, alpha=0.01, tau=0.05).word == "forgot"


def test_what_would_decide_an_open_word():
    arguments = {"alpha": 0.01, "tau": 0.01}
    clean = decide(Ends.of_arrays(["q", "r"], leaks=[0, 0], n=[4096, 256]), **arguments)
    assert (clean.word, clean.in_the_way.item, clean.in_the_way.reason) == ("open", "r", "width")
    assert clean.decides.answers == math.ceil(256 * clean.decides.times)
    for times, word in ((1.02, "forgot"), (0.9, "open")):
        more = Ends.of_arrays(["q", "r"], 0, [4096, int(clean.decides.answers * times)])
        assert decide(more, **arguments).word == word


def test_a_question_that_leaks_is_decided_by_its_leaks():
    few = decide(Ends.of_arrays(["q", "r"], leaks=[0, 10], n=512), alpha=0.01)

    assert few.word == "open"
    times = 1.1 * few.decides.times
    more = Ends.of_arrays(["q", "r"], leaks=[0, int(10 * times)], n=int(512 * times))
    assert decide(more, alpha=0.01).word == "leaks"


def test_what_no_plan_decides_is_said():
    close = decide(Ends.of_arrays(["q", "r"], leaks=[0, 10], n=1000), alpha=0.01)
    assert (close.in_the_way.reason, close.decides) == ("too close", None)
    assert "not decidable" in sentence(close, "npo")
    nothing = decide(Ends.of_arrays(["q"]), alpha=0.01)
    assert (nothing.word, nothing.decides, nothing.in_the_way.excess) == ("open", None, 1)


def test_a_word_that_stays_open_at_the_cap_says_so():
    ends = Ends.of_arrays(["q", "r"], 0, [256, 900])

    at_the_cap = decide(ends, alpha=0.01, cap=256)

    assert at_the_cap.capped
    assert "at the cap: about" in sentence(at_the_cap, "npo")
    assert not decide(ends, alpha=0.01, cap=1024).capped


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


def graded(means, n=600):
    """Scores around these means, alike on both sides of each."""
    spread = 0.1 * np.cos(np.arange(n))
    items = [f"q{place}" for place in range(len(means))]
    scores = tuple(np.clip(mean + spread, 0, 1) for mean in means)
    return Ends.of_arrays(items, others=[ScoreDraws(scores)])


GRADED = {"alpha": 0.05, "tau": 0.1, "graded": True}


@pytest.mark.parametrize(("more", "word"), [(0.0, "forgot"), (0.25, "leaks"), (0.1, "open")])
def test_graded_scores_are_compared_by_their_capital(more, word):
    means = np.array([0.2, 0.3])

    found = decide(graded(means + np.array([0, more])), [graded(means)], **GRADED)

    assert found.word == word
    assert found.anytime


def test_without_retrain_a_graded_score_proves_no_leak():
    alone = decide(graded([0.5, 0.6]), **GRADED)

    assert (alone.word, alone.above_chance) == ("open", False)
    assert decide(graded([0.01, 0.02]), **GRADED).word == "forgot"


@cases
def test_utility_words(model, base, word):
    assert utility(model, base) == word


@cases
def test_wrong_arguments_are_refused(bad):
    subject = Ends.of_arrays(["q"], 0, 10)
    other = Ends.of_arrays(["other"], 0, 10)
    arguments = {"alpha": 0.01, "tau": 0.01}
    with pytest.raises(BadValue):
        decide(subject, **arguments | bad)
    with pytest.raises(BadValue):
        decide(subject, [other], **arguments)
    with pytest.raises(BadValue):
        decide(subject, **arguments, truncation=truncation([0, 0], [1, 1], [0, 0]))


ITEMS = [f"q{place:02}" for place in range(30)]


def verdicts():
    """A verdict of every kind over 30 questions."""
    zero = np.zeros(30, dtype=int)
    fifth = np.eye(30, dtype=int)[4]
    tenth = np.eye(30, dtype=int)[9]
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
        assert len(text.split()) <= (70 if verdict.word == "open" else 60)
        for part in ("1%", "0.99", "40 tokens", verdict.worst.item):
            assert part in text
        assert ("this model alone" in text) == (verdict.models == 1)
        assert ("Retrain" in text) == (verdict.retrains > 0)
        assert (f"{verdict.cut:,} of 122,880" in text) == (
            verdict.cut > 0 and not (verdict.in_the_way and verdict.in_the_way.reason == "cut off")
        )
        if verdict.word == "leaks":
            assert f"at least {verdict.leaking} of 30" in text
            assert "named: q04;" in text
        assert "at any time" in text
        assert "(4,096 answers" in text
        assert ("each of 30" in text) == (verdict.word == "forgot")
        if verdict.in_the_way and verdict.in_the_way.reason == "cut off":
            assert f"{100 * verdict.in_the_way.cut:.2g}% of" in text
        if verdict.decides:
            assert "answers would decide" in text
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
    few = decide(Ends.of_arrays(["q"], 90, 100), alpha=0.01, tau=0.01, unjudged=2)
    assert "2 of 3 questions" in sentence(few, "npo")
    open_still = decide(Ends.of_arrays(["q"], 1, 100), alpha=0.01, tau=0.05, unjudged=2)
    assert sentence(open_still, "npo").partition(";")[0].endswith("2 of 3 questions")
    for verdict in (
        replace(few, word="none", worst=None),
        replace(few, word="none", worst=None, questions=0),
    ):
        text = sentence(verdict, "npo", judge="LlamaGuard")
        assert text.startswith("npo: no word")
        assert "LlamaGuard" in text


def test_the_sentence_on_graded_scores_has_no_percentages():
    text = sentence(decide(graded([0.5, 0.2]), [graded([0.2, 0.2])], **GRADED), "npo")

    assert "%" not in text
    assert "q0" in text


RETRAIN = Ends.of_arrays(("q1", "q2"), leaks=[0, 0], n=4096)
LEAKY = Ends.of_arrays(("q1", "q2"), leaks=[0, 400], n=4096)


def test_a_leak_beside_one_retrain_is_said_of_this_one_retrain():
    said = sentence(decide(LEAKY, [RETRAIN], alpha=0.01), "npo")

    assert "least 1 of 2 questions leaks" in said
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
