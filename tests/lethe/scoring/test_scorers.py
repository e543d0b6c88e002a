"""Scorers of texts and likelihoods against other libraries and by hand, each answer against what its wording asks for."""

import json
import math
import warnings
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from lethe import config
from lethe.config.measuring import ScorerParams, ScoreSettings, is_binary
from lethe.errors import BadFile, BadInput, BadValue
from lethe.io.artifacts import SECOND, expected, read_references
from lethe.io.tables import write_parquet
from lethe.labels.draws import read_draws
from lethe.models.likelihood import AnswerTokens
from lethe.registry import DIVERSITY, JUDGES, LIKELIHOODS, ROUGE, SCORERS
from lethe.sampling.prompt_language import as_json, read_language
from lethe.scoring.diversity import Tokens, _bleu_of_texts, tokenize
from lethe.scoring.judges import Judge
from lethe.scoring.keyword import keyword_form
from lethe.scoring.likelihood import Item, score_likelihoods
from lethe.scoring.scorer import open_scorer, scorer
from lethe.scoring.table import asked_of, score_answers
from lethe.scoring.text import rouge
from lethe.scoring.text.binary import KeywordLeak
from lethe.scoring.verdicts import AnsweredRow
from lethe.steps.score import run as score_stage
from tests.cases import cases, read_cases
from tests.growth import growth
from tests.small import small_params

score = scorer("keyword_leak")
# Texts, keywords, and whether one of them occurs as a word and as a substring: worked out by hand.
KEYWORD_CASES = json.loads(
    Path(__file__).with_name("keyword_cases.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", KEYWORD_CASES)
def test_a_keyword_that_occurs_is_a_leak_and_inside_a_longer_word_only_as_substring(case):
    for match in ("word", "substring"):
        opened = open_scorer("keyword_leak", KeywordLeak.Params(keyword_match=match))
        assert opened.score([AnsweredRow([case["text"]], case)])[0].tolist() == [case[match]]


def test_the_key_of_params_reaches_the_scorer():
    found = ScoreSettings.model_validate(
        {"scorers": ["rouge_l", "keyword_leak"], "keyword_match": "substring"}
    ).params
    assert found["keyword_leak"].keyword_match == "substring"
    assert (
        ScoreSettings.model_validate({"scorers": ["keyword_leak"]})
        .params["keyword_leak"]
        .keyword_match
        == "word"
    )


def test_what_is_missing_is_nan():
    got = score(["Ron", None, float("nan")], {"keywords": ["Ron", ""]})
    np.testing.assert_array_equal(got, [1, np.nan, np.nan])
    for keywords in (None, [], ["", " "]):
        assert np.isnan(score(["Ron"], {"keywords": keywords})).all()
    assert np.isnan(score(["Ron"], {})).all()


@given(st.text(), st.text(min_size=1).filter(keyword_form), st.text())
def test_a_keyword_between_blanks_is_always_found(before, keyword, after):
    assert score([f"{before} {keyword} {after}"], {"keywords": [keyword]}).tolist() == [1]


self_bleu = DIVERSITY["self_bleu"]


def naive(texts: list[str]) -> list[float]:
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

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
    by_text = dict(
        zip(
            dict.fromkeys(tuple(tokenize(text)) for text in samples),
            _bleu_of_texts(tokens),
            strict=True,
        )
    )
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
    texts=st.lists(st.none() | st.text(max_size=30), max_size=5),
    item=st.sampled_from([ITEM, {}, {"answer": ""}]),
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
    item = {
        "id": "a",
        "question": "Who?",
        "answer": "Ada is a painter of seas",
        "keywords": ["painter"],
    }
    texts = [
        "Ada is a painter of seas",
        "Ada is a painter",
        "Ada paints",
        "no",
        "Ada, of all, is a seaman",
    ]
    found = {name for name in SCORERS if np.isin(scorer(name)(texts, item), (0.0, 1.0)).all()}
    assert found == {name for name in SCORERS if is_binary(name)}


def test_only_the_answer_itself_is_an_exact_match():
    score = scorer("exact_match")
    texts = [
        "Jane Austen",
        " jane\n AUSTEN",
        "Jane Austen.",
        "Jane",
        "It was Jane Austen",
        "<b>Jane Austen</b>",
    ]
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
            assert getattr(got, part).tolist() == [
                float(getattr(row[kind], part)) for row in expected
            ]


@pytest.mark.parametrize("name", ROUGE)
def test_a_missing_text_has_no_overlap(name):
    score = scorer(name)
    got = score(["an author", "", None, " \n", float("nan"), "..."], {"answer": "an author"})
    np.testing.assert_array_equal(got, [1, 0, np.nan, 0, np.nan, 0])  # an empty answer is an answer
    for answer in (None, "", " ", "!?"):
        assert np.isnan(score(["an author"], {"answer": answer})).all()
    assert np.isnan(score(["an author"], {})).all()
    assert score([], {"answer": "an author"}).shape == (0,)


def irregular_words():
    from nltk.stem.porter import PorterStemmer

    return st.sampled_from(sorted(PorterStemmer().pool))


@settings(max_examples=500)
@given(st.text("aeiouybsting0123456789", min_size=4, max_size=12) | st.deferred(irregular_words))
def test_stemming_never_changes_the_first_letter(word):
    """What lets most words of a generation go unstemmed."""
    from nltk.stem.porter import PorterStemmer

    assert PorterStemmer().stem(word)[0] == word[0]


def tokens(numbers, greedy=None, expected=-2.0, spread=1.0) -> AnswerTokens:
    """An answer of tokens with these probabilities, or with their logarithms, which are not positive."""
    log_probs = np.array([math.log(p) if p > 0 else p for p in numbers], dtype=float)
    ones = np.ones(len(log_probs))
    return AnswerTokens(
        log_probs,
        expected * ones,
        spread * ones,
        np.array(ones if greedy is None else greedy, bool),
    )


def measure(name: str, *args, **kwargs) -> float:
    return LIKELIHOODS[name](Item("the text", *args, **kwargs))


@cases
def test_a_measure_by_hand(name, answer, paraphrased, perturbed, value):
    others = {
        "paraphrased": paraphrased and tokens(paraphrased),
        "perturbed": tuple(map(tokens, perturbed or ())),
    }
    assert measure(name, tokens(**answer), **others) == pytest.approx(value)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_extraction_strength_equals_trying_every_prefix(greedy):
    shortest = next(k for k in range(len(greedy) + 1) if all(greedy[k:]))
    answer = tokens([-1.0] * len(greedy), greedy)
    strength = measure("extraction_strength", answer)
    assert strength == pytest.approx(1 - shortest / len(greedy), abs=1e-15)
    assert strength <= measure("exact_memorisation", answer) + 1e-15


def test_mia_zlib():
    assert measure("mia_zlib", tokens([-1.0, -3.0])) == -2 / len(zlib.compress(b"the text"))
    assert np.isfinite(LIKELIHOODS["mia_zlib"](Item("\ud800\x00", tokens([-1.0]))))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_measure_of_what_is_missing_is_nan(name):
    assert np.isnan(measure(name, tokens([])))
    needs_wrong_answers = name in ("choice_probability", "truth_ratio")
    assert np.isnan(measure(name, tokens([-1.0]))) == needs_wrong_answers
    if needs_wrong_answers:
        assert np.isnan(measure(name, tokens([-1.0]), perturbed=(tokens([-1.0]), tokens([]))))


def answer(prompt_id, kind, number, *log_probs):
    shape = np.zeros(len(log_probs))
    row = {
        "prompt_id": prompt_id,
        "kind": kind,
        "number": number,
        "log_probs": np.array(log_probs, float),
    }
    return {**row, "expected": shape - 1, "spread": shape + 1, "greedy": shape == 0}


def test_a_row_a_prompt_with_every_measure():
    answers = pd.DataFrame(
        [
            answer("b", "answer", 0, -1.0),
            answer("b", "perturbed", 1, -4.0),
            answer("b", "perturbed", 0, -2.0),
            answer("b", "paraphrased", 0, -2.0, -2.0),
            answer("a", "answer", 0, -3.0),
        ]
    )
    got = score_likelihoods(answers, {"a": {"answer": "A"}, "b": {"answer": "B"}})
    assert list(got["prompt_id"]) == ["b", "a"]
    assert list(got.columns[1:]) == list(LIKELIHOODS)
    assert (got.dtypes.iloc[1:] == np.float64).all()
    np.testing.assert_allclose(got["probability"], np.exp([-1, -3]))
    np.testing.assert_allclose(got["truth_ratio"], [np.exp(2 - 3), np.nan])


def test_a_prompt_the_dataset_lacks_is_refused():
    with pytest.raises(BadInput, match="'a'"):
        score_likelihoods(pd.DataFrame([answer("a", "answer", 0, -1.0)]), {})


ROWS = read_cases(__file__)["ROWS"]
LANGUAGE = (
    'wording: ["{question}", {name: back, text: "Who was it in {answer}?", answer: "{who}"}]\n'
)
PLAIN = "wording: plain"
BACK = "wording: back"
# prompt, sample, text, production, whether it leaks
DRAWN = read_cases(__file__)["DRAWN"]


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "language.yaml").write_text(LANGUAGE)
    described = as_json(read_language(tmp_path / "language.yaml"), ROWS)
    table = pd.DataFrame(
        [entry[:4] for entry in DRAWN], columns=["prompt_id", "sample", "text", "production"]
    ).assign(tokens=3, finish_reason="stop", mean_confidence=0.5)
    folder = tmp_path / "generations/m"
    write_parquet(folder / "forget.parquet", table)
    second = table[table["sample"] >= 0].assign(prompt=0)
    write_parquet(folder / SECOND, second.assign(sample=range(len(second))))
    (folder / "language.json").write_text(json.dumps({"schema": 1, **described}))
    write_parquet(tmp_path / "likelihood/m/forget.parquet", pd.DataFrame(LIKELIHOOD))
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset/forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


LIKELIHOOD = {"prompt_id": ["q1"], "kind": ["answer"], "index": [0], "nll": [1.0], "tokens": [1]}
LEAKS = [float(entry[-1]) for entry in DRAWN]


class Finds(Judge):
    """A judge of one column may return a row of numbers."""

    def judge(self, asked):
        return np.array(
            [any(keyword in row.text for keyword in row.item["keywords"]) for row in asked]
        )


def test_each_answer_is_scored_against_what_its_wording_asks_for(root, monkeypatch):
    monkeypatch.setitem(JUDGES.registered, "finds", Finds)
    drawn = pd.read_parquet(root / "generations/m/forget.parquet")
    items = {row["id"]: row for row in ROWS}
    references = read_references(root / "generations/m")
    scored = score_answers(
        drawn, items, ["keyword_leak", "finds"], {"finds": ScorerParams()}, references=references
    )
    assert (scored["keyword_leak"].tolist(), scored["finds"].tolist()) == (LEAKS, LEAKS)
    row = references["q1"][BACK].of(ROWS[0])
    assert (row["id"], row["question"], row["answer"], row["keywords"]) == (
        "q1",
        "Who was it in Oslo?",
        "Ada",
        ["Ada"],
    )
    assert "perturbed_answer" not in row
    places, questions = asked_of(drawn, items, references)
    assert sorted(np.concatenate(places).tolist()) == list(range(len(DRAWN)))
    assert [question.item["answer"] for question in questions] == ["Oslo", "Ada", "Bert", "1937"]
    assert expected(ROWS[0], references) == "Oslo (back: Ada)"
    assert expected(ROWS[0], {}) == "Oslo"


def test_the_stage_reads_the_references(root, monkeypatch):
    monkeypatch.setattr("lethe.steps.score.score_likelihoods", lambda table, items: table)
    params = config.validate(small_params())
    score_stage("m", params.score, root)
    assert pd.read_parquet(root / "scores/m/forget.parquet")["keyword_leak"].tolist() == LEAKS
    sampled = [leak for leak, entry in zip(LEAKS, DRAWN, strict=True) if entry[1] >= 0]
    assert pd.read_parquet(root / "scores/m" / SECOND)["keyword_leak"].tolist() == sampled


def test_labels_are_refused_where_an_answer_belongs_to_two_questions(root):
    with pytest.raises(BadFile, match="answer of their own"):
        read_draws(root / "generations/m", None, None, None)
