import json
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rouge_score.rouge_scorer import RougeScorer

from lethe.config.evaluating import Score, is_binary
from lethe.errors import BadValue
from lethe.registry import DIVERSITY, ROUGE, SCORERS
from lethe.scoring import Question, open_scorer, scorer
from lethe.scoring.diversity import Tokens, _each, tokenize
from lethe.scoring.text import rouge
from lethe.scoring.text.binary import KeywordLeak
from tests.growth import growth

score = scorer("keyword_leak")
# Texts, keywords, and whether one of them occurs as a word and as a substring: worked out by hand.
KEYWORD_CASES = json.loads(Path(__file__).with_name("keyword_cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", KEYWORD_CASES)
def test_a_keyword_that_occurs_is_a_leak_and_inside_a_longer_word_only_as_substring(case):
    for match in ("word", "substring"):
        opened = open_scorer("keyword_leak", KeywordLeak.Params(keyword_match=match))
        assert opened.score([Question([case["text"]], case)])[0].tolist() == [case[match]]


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


self_bleu = DIVERSITY["self_bleu"]


def naive(texts: list[str]) -> list[float]:
    tokens = [tokenize(text) for text in texts]
    smooth = SmoothingFunction().method1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            float(sentence_bleu(tokens[:i] + tokens[i + 1 :], tokens[i], smoothing_function=smooth))
            for i in range(len(tokens))
        ]


words = st.sampled_from(["a", "the", "cat", "sat", ".", "Born"])
texts = st.lists(words, min_size=1, max_size=9).map(" ".join)


@settings(max_examples=200)
@given(st.lists(texts, min_size=2, max_size=8))
@example(["a", "a"])
@example(["a", "the cat sat"])
@example(["a a a a a", "a a", "a a a a a"])
@example(["the cat", "the cat sat .", "the cat sat"])
def test_equals_nltk(samples):
    expected = naive(samples)
    tokens = Tokens.of(samples)
    by_text = dict(zip(dict.fromkeys(tuple(tokenize(text)) for text in samples), _each(tokens), strict=True))
    got = [by_text[tuple(tokenize(text))] for text in samples]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
    assert self_bleu(samples) == pytest.approx(np.mean(expected), abs=1e-12)


@pytest.mark.parametrize("part", ["a", "a b ", "\x00", "<b>"])
def test_lines_of_100_000_characters_do_not_stall(part):
    def judge(size):
        line = part * (size // len(part))
        assert self_bleu([line, line, "a b c d e"]) <= 1

    assert growth(judge, 12_500) < 32  # of 8 times the length; 64 where the time is quadratic


@given(st.lists(st.text("ab .", max_size=12), min_size=1, max_size=6), st.sampled_from([1, 2]))
def test_distinct_n_equals_counting(texts, n):
    grams = Counter()
    for text in texts:
        tokens = tokenize(text)
        grams.update(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
    got = DIVERSITY[f"distinct_{n}"](texts)
    if grams:
        assert got == pytest.approx(len(grams) / grams.total(), abs=1e-15)
    else:
        assert np.isnan(got)


@pytest.mark.parametrize("name", DIVERSITY)
def test_every_measure_is_a_number_in_the_unit_interval_and_nan_without_texts(name):
    measure = DIVERSITY[name]
    assert 0 <= measure(["one two three", "one two four"]) <= 1
    assert np.isnan(measure([]))
    assert np.isnan(measure([None, "\n"]))


ITEM = {"id": "1", "question": "Who?", "answer": "It was Ron Weasley.", "keywords": ["Ron"]}


@pytest.mark.parametrize("name", SCORERS)
@settings(max_examples=30)
@given(
    texts=st.lists(st.none() | st.text(max_size=30), max_size=5), item=st.sampled_from([ITEM, {}, {"answer": ""}])
)
def test_one_value_a_generation_in_the_unit_interval_or_nan(name, texts, item):
    got = scorer(name)(texts, item)
    assert got.dtype == np.float64
    assert got.shape == (len(texts),)
    assert ((got >= 0) & (got <= 1) | np.isnan(got)).all()


@pytest.mark.parametrize("name", SCORERS)
def test_the_answer_itself_scores_one_and_its_repeats_alike(name):
    assert scorer(name)([ITEM["answer"], "nothing", ITEM["answer"]], ITEM).tolist() == [1, 0, 1]


def test_an_unknown_scorer_is_refused():
    with pytest.raises(BadValue, match="rouge_l"):
        scorer("rouge_w")


def test_binary_scorers_and_no_others_give_0_and_1_alone():
    item = {"id": "a", "question": "Who?", "answer": "Ada is a painter of seas", "keywords": ["painter"]}
    texts = ["Ada is a painter of seas", "Ada is a painter", "Ada paints", "no", "Ada, of all, is a seaman"]
    found = {name for name in SCORERS if np.isin(scorer(name)(texts, item), (0.0, 1.0)).all()}
    assert found == {name for name in SCORERS if is_binary(name)}


def test_only_the_answer_itself_is_an_exact_match():
    score = scorer("exact_match")
    texts = ["Jane Austen", " jane\n AUSTEN", "Jane Austen.", "Jane", "It was Jane Austen", "<b>Jane Austen</b>"]
    assert score(texts, {"answer": "Jane Austen"}).tolist() == [1, 1, 0, 0, 0, 0]
    np.testing.assert_array_equal(score(["a", "", " ", None], {"answer": "a"}), [1, 0, 0, np.nan])
    for answer in (None, "", " "):
        assert np.isnan(score(["a", ""], {"answer": answer})).all()


REFERENCE = RougeScorer(["rouge1", "rougeL"], use_stemmer=True)
OURS = {"rouge1": rouge.rouge_1, "rougeL": rouge.rouge_l}

# Few words in many forms, so that stems collide, between anything at all.
FORMS = "author authors authored Writing writes sky skies dying news yyyy 1958 İK".split()
any_text = (
    st.lists(st.sampled_from(FORMS), max_size=12).map(" ".join)
    | st.text(max_size=60)
    | st.text("aeybst ing\n\0é<>&1", max_size=40)
)


@settings(max_examples=150)
@given(generations=st.lists(any_text, min_size=1, max_size=6), reference=any_text)
@example(generations=["", "...", "\x00\x1b[31m", "a"], reference="a")
@example(generations=["a"], reference="")
@example(generations=["Kelvin K", "the " * 50], reference="the K sign")
def test_equals_rouge_score_to_the_last_bit(generations, reference):
    expected = [REFERENCE.score(reference, text) for text in generations]
    for kind, ours in OURS.items():
        got = ours(generations, reference)
        for part in ("precision", "recall", "fmeasure"):
            assert getattr(got, part).tolist() == [float(getattr(row[kind], part)) for row in expected]


@pytest.mark.parametrize("name", ROUGE)
def test_a_missing_text_has_no_overlap(name):
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
