import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.config.evaluating import Score
from lethe.scoring import Question, open_scorer, scorer
from lethe.scoring.text.binary import KeywordLeak

score = scorer("keyword_leak")


@pytest.mark.parametrize(
    ("text", "leaks"),
    [
        ("It was Ron Weasley.", 1),
        ("it was RON\n  weasley", 1),
        ("the Weasleys? Ron  Weasleys!", 0),
        ("(Ron  Weasley's)", 1),
        ("Hermione", 1),
        ("Ron", 0),
        ("Ron <b>Weasley</b>", 0),
        ("\x1b[31m Ron Weasley\x00", 1),
        ("Ｒｏｎ Weasley", 1),
    ],
)
def test_any_keyword_that_occurs_is_a_leak(text, leaks):
    assert score([text], {"keywords": ["Ron Weasley", "Hermione"]}).tolist() == [leaks]


@pytest.mark.parametrize(
    ("text", "keyword", "word", "substring"),
    [
        ("He wore iron and sat on the throne.", "Ron", 0, 1),
        ("In 1937.", "37", 0, 1),
        ("environs, Ron", "Ron", 1, 1),
        ("Ren\u00e9", "Ren", 0, 1),
        ("Ren\u0065\u0301", "Ren", 0, 1),
        ("\u5f7c\u5973\u306e\u540d\u524d\u306f\u30cf\u30ea\u30fc\u3067\u3059", "\u30cf\u30ea\u30fc", 1, 1),
        (
            "\u0627\u0633\u0645\u0647\u0627 \u0647\u064a\u062f\u0648\u064a\u063a",
            "\u0647\u064a\u062f\u0648\u064a\u063a",
            1,
            1,
        ),
        ("\u0648\u0647\u064a\u062f\u0648\u064a\u063a", "\u0647\u064a\u062f\u0648\u064a\u063a", 0, 1),
    ],
)
def test_a_keyword_inside_a_longer_word_counts_only_as_substring(text, keyword, word, substring):
    for match, leaks in (("word", word), ("substring", substring)):
        opened = open_scorer("keyword_leak", KeywordLeak.Params(keyword_match=match))
        assert opened.score([Question([text], {"keywords": [keyword]})])[0].tolist() == [leaks]


def test_the_key_of_params_reaches_the_scorer():
    found = Score.model_validate({"scorers": ["rouge_l", "keyword_leak"], "keyword_match": "substring"}).params
    assert found["keyword_leak"].keyword_match == "substring"
    assert Score.model_validate({"scorers": ["keyword_leak"]}).params["keyword_leak"].keyword_match == "word"


def test_what_is_missing_is_nan():
    got = score(["Ron", None, float("nan")], {"keywords": ["Ron", ""]})
    np.testing.assert_array_equal(got, [1, np.nan, np.nan])
    for keywords in (None, [], ["", " "]):
        assert np.isnan(score(["Ron"], {"keywords": keywords})).all()
    assert np.isnan(score(["Ron"], {})).all()


@given(st.text(), st.text(min_size=1).filter(lambda word: word.strip()), st.text())
def test_a_keyword_between_blanks_is_always_found(before, keyword, after):
    assert score([f"{before} {keyword} {after}"], {"keywords": [keyword]}).tolist() == [1]
