from dataclasses import replace

import numpy as np

from lethe.results.ends import Ends
from lethe.results.evidence import Truncation
from lethe.results.verdict import decide, sentence
from tests.lethe.results.test_verdict import graded

ITEMS = [f"q{place:02}" for place in range(30)]


def verdicts():
    """A verdict of every kind over 30 questions."""
    zero = np.zeros(30, dtype=int)
    retrain = Ends.of_arrays(ITEMS, zero, 4096)
    for leak in (0, 60, 41, 400):
        for reference in ([], [retrain]):
            for cut in (0, 7, 900):
                leaks = zero.copy()
                leaks[4] = leak
                cuts = zero.copy()
                cuts[9] = cut
                end = Truncation(cuts, zero + 4096, np.maximum(leaks, cuts), 40)
                for models in (1, 8):
                    yield decide(
                        Ends.of_arrays(ITEMS, leaks, 4096),
                        reference,
                        alpha=0.01,
                        tau=0.01,
                        models=models,
                        truncation=end,
                    )


def test_the_sentence_says_what_belongs_to_the_word():
    kinds = set()
    for verdict in verdicts():
        text = sentence(verdict, "npo", utility="intact")
        kinds.add((verdict.word, verdict.in_the_way and verdict.in_the_way.reason))
        assert text.startswith(f"npo: {verdict.word}")
        assert "utility intact" in text
        assert text.count(".") - text.count("0.") - sum(text.count(f".{digit}") for digit in range(10)) <= 1
        assert len(text.split()) <= (56 if verdict.word == "open" else 46)
        for part in ("1%", "0.99", "40 tokens", verdict.worst.item):
            assert part in text
        assert ("this model alone" in text) == (verdict.models == 1)
        assert ("chance" in text) == (verdict.retrains > 0)
        assert (f"{verdict.cut:,} of 122,880" in text) == (
            verdict.cut > 0 and not (verdict.in_the_way and verdict.in_the_way.reason == "cut off")
        )
        if verdict.word == "leaks":
            assert f"{verdict.leaking} of 30" in text
        if verdict.decides:
            assert str(verdict.decides.answers)[0] in text
    assert {kind for kind, _ in kinds} == {"leaks", "forgot", "open"}
    assert {reason for _, reason in kinds} == {None, "width", "cut off", "too close"}


def test_a_sentence_rounds_outward():
    lower, upper = 0.0123456, 0.0198765
    subject = Ends.of_arrays(["q"], certain_lower=lower, certain_upper=upper)
    text = sentence(decide(subject, alpha=0.01, tau=0.01), "npo")
    assert "1.2% to 2%" in text
    tiny = Ends.of_arrays(["q"], certain_lower=1e-9, certain_upper=2e-7)
    assert "0% to 0.01%" in sentence(decide(tiny, alpha=0.01, tau=0.01), "npo")
    assert "0% to 0.00002%" in sentence(decide(tiny, alpha=0.01, tau=1e-6), "npo")  # as fine as tau
    whole = Ends.of_arrays(["q"], certain_lower=0.9999, certain_upper=1.0)
    assert "99% to 100%" in sentence(decide(whole, alpha=0.01, tau=0.01), "npo")


def test_the_words_of_a_sentence_can_be_replaced():
    complies = {
        "leaks": "complies",
        "forgot": "refuses",
        "does": "is obeyed in",
        "do": "are obeyed in",
        "may": "may be obeyed in",
        "questions": "requests",
        "question": "request",
        "some": "with obeyed requests",
    }
    for verdict in verdicts():
        text = sentence(verdict, "npo", judge="LlamaGuard", words=complies)
        assert not any(word in text for word in ("leak", "forgot", "question"))
        assert "LlamaGuard's verdicts" in text


def test_sentences_of_other_kinds():
    few = decide(Ends.of_arrays(["q"], 90, 100), alpha=0.01, tau=0.01, unjudged=2, look=3)
    for part in ("2 of 3 questions", "look 3"):
        assert part in sentence(few, "npo")
    for verdict in (replace(few, word="none", worst=None), replace(few, word="none", worst=None, questions=0)):
        text = sentence(verdict, "npo", judge="LlamaGuard")
        assert text.startswith("npo: no word")
        assert "LlamaGuard" in text
    scores = decide(
        graded(np.array([0.5, 0.2]), 0.01), [graded(np.array([0.2, 0.2]), 0.01)], alpha=0.05, tau=0.1, graded=True
    )
    text = sentence(scores, "npo")
    assert "%" not in text
    assert "0.49 to 0.51" in text
