"""ROUGE against the package rouge-score: equal to the last bit, on any text."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer

from lethe.scoring import scorer
from lethe.scoring.text import rouge

REFERENCE = RougeScorer(["rouge1", "rougeL"], use_stemmer=True)
OURS = {"rouge1": rouge.rouge_1, "rougeL": rouge.rouge_l}

# Few words in many forms, so that stems collide, between anything at all.
FORMS = [
    "author",
    "authors",
    "authored",
    "Writing",
    "writes",
    "sky",
    "skies",
    "dying",
    "news",
    "yyyy",
    "1958",
    "İK",
]
words = st.sampled_from(FORMS)
phrases = st.lists(words, max_size=12).map(" ".join)
texts = st.one_of(phrases, st.text(max_size=60), st.text("aeybst ing\n\0é<>&1", max_size=40))


@settings(max_examples=150)
@given(generations=st.lists(texts, min_size=1, max_size=6), reference=texts)
@example(generations=["", "...", "\x00\x1b[31m", "a"], reference="a")
@example(generations=["a"], reference="")
@example(generations=["Kelvin K", "the " * 50], reference="the K sign")
def test_equals_rouge_score_to_the_last_bit(generations, reference):
    expected = [REFERENCE.score(reference, text) for text in generations]
    for kind, ours in OURS.items():
        got = ours(generations, reference)
        for part in ("precision", "recall", "fmeasure"):
            assert getattr(got, part).tolist() == [float(getattr(row[kind], part)) for row in expected]


@pytest.mark.parametrize(
    "name", ["rouge_l", "rouge_l_precision", "rouge_l_f", "rouge_1", "rouge_1_precision", "rouge_1_f"]
)
def test_what_is_missing_is_nan(name):
    score = scorer(name)
    got = score(["an author", "", None, " \n", float("nan"), "..."], {"answer": "an author"})
    np.testing.assert_array_equal(got, [1, 0, np.nan, 0, np.nan, 0])  # an empty answer is an answer
    for answer in (None, "", " ", "!?"):
        assert np.isnan(score(["an author"], {"answer": answer})).all()
    assert np.isnan(score(["an author"], {})).all()
    assert score([], {"answer": "an author"}).shape == (0,)


@settings(max_examples=500)
@given(st.text("aeiouybsting0123456789", min_size=4, max_size=12) | st.sampled_from(sorted(PorterStemmer().pool)))
def test_stemming_never_changes_the_first_letter(word):
    """What lets most words of a generation go unstemmed."""
    assert PorterStemmer().stem(word)[0] == word[0]
