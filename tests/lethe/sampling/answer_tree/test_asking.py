"""Questions from dataset rows: what is read token by token, what is scored whole, and that the note says so."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.sampling.answer_tree.asking import Asker
from lethe.sampling.answer_tree.automaton import KeywordAutomaton, WholeTexts
from lethe.sampling.answer_tree.recall import RecallAutomaton
from lethe.sampling.engine import Checkpoint
from lethe.scoring import Question, open_scorer, scorer
from lethe.scoring.text import normalise
from lethe.scoring.text.binary import KeywordLeak, occurs
from tests.lethe.sampling.answer_tree.small_tokenizers import SPELLED, byte_level, word_piece

ROW = {
    "id": "q",
    "question": "Who is it?",
    "answer": "It is Ron.",
    "paraphrased_answer": "Ron it is.",
    "keywords": ["Ron", "RON", " "],
}


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("prompt") / "qa.txt"
    path.write_text("{question}\n")
    return path


def asker(tokenizer, template, **more) -> Asker:
    return Asker(Checkpoint(Path("nowhere"), tokenizer, (0,), None, len(tokenizer) + 3), template, **more)


def test_a_row_becomes_a_prompt_an_automaton_and_the_seeds(template):
    question = asker(byte_level(), template).about_keywords(ROW)
    assert byte_level().decode(question.prompt) == "Who is it?"
    assert isinstance(question.automaton, KeywordAutomaton)
    assert question.automaton.matcher.keywords == ("ron",)
    assert question.decode(list(question.seeds)) == [" It is Ron.", " Ron it is."]
    assert question.scores(["the throne", "RON!", ""]).tolist() == [False, True, False]
    assert question.note == ""
    substring = asker(byte_level(), template, match="substring").about_keywords(ROW)
    assert substring.scores(["the throne"]).tolist() == [True]


@pytest.mark.parametrize("kind", SPELLED)
def test_tokens_that_no_tokenizer_knows_leave_no_trace(kind, template):
    """A model's vocabulary is often padded beyond its tokenizer's."""
    automaton = asker(SPELLED[kind](), template).about_keywords(ROW).automaton
    row = automaton.row(automaton.start)
    assert (row[-3:] == automaton.start).all()


def test_a_tokenizer_that_is_not_spelled_is_scored_whole_and_says_so(template):
    question = asker(word_piece(), template).about_keywords(ROW)
    assert isinstance(question.automaton, WholeTexts)
    assert "WordPiece" in question.note
    assert "scored whole" in question.note


def test_other_scorers_are_asked_about_whole_texts(template):
    rouge = scorer("rouge_l")
    question = asker(byte_level(), template).about_scores(ROW, lambda texts: rouge(texts, ROW) > 0.5)
    assert question.scores(["It is Ron.", "nobody"]).tolist() == [True, False]
    assert isinstance(question.automaton, WholeTexts)
    assert len(question.seeds) == 2


def test_a_row_without_keywords_is_refused(template):
    with pytest.raises(BadValue, match="keywords of question 'q'"):
        asker(byte_level(), template).about_keywords({**ROW, "keywords": [" "]})
    with pytest.raises(BadValue, match="word or substring"):
        asker(byte_level(), template, match="prefix")


@given(st.text(st.sampled_from("aRoOnN ronéß\u0301\n37")), st.text(st.sampled_from("ronéa 3"), min_size=1))
def test_both_rules_are_those_of_the_keyword_scorer(text, keyword):
    if normalise(keyword) and text.strip():
        found = {match: occurs(text, (normalise(keyword),), match) for match in ("word", "substring")}
        for match, got in found.items():
            opened = open_scorer("keyword_leak", KeywordLeak.Params(keyword_match=match))
            assert got == opened.score([Question([text], {"keywords": [keyword]})])[0]
        assert found["substring"] or not found["word"]


@pytest.mark.parametrize("kind", SPELLED)
def test_recall_is_recognised_early_where_the_tokenizer_is_spelled(kind, template):
    def leaks(texts):
        return scorer("rouge_l")(texts, ROW) > 0.5

    question = asker(SPELLED[kind](), template).about_recall(ROW, 0.5, leaks)
    assert isinstance(question.automaton, RecallAutomaton)
    assert question.automaton.needed == 2
    assert question.note == ""
    whole = asker(word_piece(), template).about_recall(ROW, 0.5, leaks)
    assert isinstance(whole.automaton, WholeTexts)
    assert "scored whole" in whole.note


def test_a_tokenizer_that_moves_blanks_is_scored_whole(template):
    tokenizer = copy.deepcopy(byte_level())
    tokenizer.clean_up_tokenization_spaces = True
    question = asker(tokenizer, template).about_keywords(ROW)
    assert isinstance(question.automaton, WholeTexts)
    assert "clean_up_tokenization_spaces" in question.note
