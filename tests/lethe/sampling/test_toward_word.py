"""What is shown while answers are drawn: which question keeps the word away."""

import math

from lethe.sampling.toward_word import goals_of, sentence_of
from lethe.statistics.policy import Policy, Tally

ITEMS = ["q1", "q2", "q3"]
POLICY = Policy(first=128, batch=128, cap=4096, tolerance=0.01, goal=math.log(100))


def test_the_question_with_the_least_evidence_is_in_the_way():
    step = POLICY.next(Tally.of([0, 1, 0], [640, 256, 256]))

    sentence = sentence_of(ITEMS, step)

    assert sentence.startswith("1 of 3 questions has")
    assert "q2 is in the way" in sentence
    assert "with 4% of" in sentence


def test_a_word_that_is_forgot_has_no_question_in_the_way():
    step = POLICY.next(Tally.of([0, 0, 0], 1024))

    sentence = sentence_of(ITEMS, step)

    assert sentence == "3 of 3 questions have passed; leaks has 0%"


def test_evidence_for_leaks_is_shown_up_to_all_of_it():
    step = POLICY.next(Tally.of([0, 0, 100], 256))

    assert sentence_of(ITEMS, step).endswith("leaks has 100%")


def test_only_questions_that_have_not_passed_have_a_goal():
    counts = Tally.of([0, 1, 0], [640, 256, 256])

    goals = goals_of(ITEMS, counts, POLICY.next(counts))

    assert [goal.name for goal in goals] == ["q2", "q3"]
    assert [goal.note for goal in goals] == [
        "4% after 256 answers, 1 of them leak",
        "42% after 256 answers",
    ]
    assert goals[0].share < goals[1].share < 1
