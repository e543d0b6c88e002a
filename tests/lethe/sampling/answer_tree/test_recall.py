"""Questions from rows, and the recall that the automaton proves, against the definition of ROUGE-L."""

import copy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.sampling.answer_tree.asking import Asker
from lethe.sampling.answer_tree.automaton import KeywordAutomaton, WholeTexts
from lethe.sampling.answer_tree.enumeration import grow
from lethe.sampling.answer_tree.growth import Growth
from lethe.sampling.answer_tree.recall import GUIDED, LEAK, RecallAutomaton, TokenBytes
from lethe.sampling.answer_tree.spelling import Spelling, spelling_of
from lethe.sampling.draws import Law
from lethe.sampling.engine import Checkpoint
from lethe.scoring import scorer
from lethe.scoring.text.rouge import rouge_l, stems
from tests.lethe.sampling.answer_tree.small_tokenizers import SPELLED, byte_level, word_piece
from tests.lethe.sampling.answer_tree.toy_models import (
    LETTERS,
    ToyPredictor,
    decode,
    every_answer,
    read,
    whole_question,
)

END, LENGTH = len(LETTERS), 4
TOKENS = TokenBytes(Spelling((*LETTERS, None), "runs"))
REFERENCE = "Ron engravers cafe a n 37"


@cache
def tokens_of(kind: str) -> TokenBytes:
    tokenizer = SPELLED[kind]()
    return TokenBytes(spelling_of(tokenizer, len(tokenizer)))


@cache
def near(kind: str) -> list[int]:
    """The tokens whose letters stand in the reference, and blanks: words are often completed, and often not."""
    spelling = tokens_of(kind).spelling
    texts = [spelling.text([token]).casefold() for token in range(len(spelling.pieces))]
    return [
        token for token, text in enumerate(texts) if text in {" ", "a", "n", "on", "ron", " ron", "r", "e", "!"}
    ]


def exceeds(text: str, reference: str, above: float) -> bool:
    return bool(rouge_l([text], reference).recall[0] > above)


def naive(text: str, reference: str, above: float) -> bool:
    """The definition: the common subsequence of the complete words of a text, each written as in the reference."""
    lowered = text.lower().encode("ascii", "replace").decode()
    plain = "".join(sign if sign.isascii() and sign.isalnum() else " " for sign in lowered)
    words, wanted = plain.split(" ")[:-1], reference.lower().split()
    row = [0] * (len(wanted) + 1)
    for word in words:
        if word not in wanted:
            continue
        same = [stems([word]) == stems([other]) for other in wanted]
        new = [0]
        for place in range(len(wanted)):
            new.append(max(row[place + 1], new[-1], row[place] + same[place]))
        row = new
    return row[-1] / len(wanted) > above


@pytest.mark.parametrize("kind", SPELLED)
@given(data=st.data(), above=st.sampled_from([0.0, 0.0, 0.2, 0.34]))
@settings(max_examples=40)
def test_what_is_recognised_is_the_definition_and_stays_whatever_follows(kind, data, above):
    tokens, tokenizer = tokens_of(kind), SPELLED[kind]()
    every, likely = st.integers(0, tokens.size - 1), st.sampled_from(near(kind))
    answer = data.draw(st.lists(likely | likely | every, max_size=6))
    more = data.draw(st.lists(likely | every, max_size=4))
    automaton = RecallAutomaton(REFERENCE, above, tokens)
    state = read(automaton, answer)
    text = tokenizer.decode(answer, skip_special_tokens=True)
    if state >= 0:  # no byte is open, so that all characters are settled
        assert (state == LEAK) == naive(_as_spelled(tokens.spelling, answer), REFERENCE, above)
    if state == LEAK:
        assert exceeds(text, REFERENCE, above)
        assert exceeds(tokenizer.decode([*answer, *more], skip_special_tokens=True), REFERENCE, above)
        assert read(automaton, [*answer, *more]) == LEAK


def _as_spelled(spelling, answer):
    return "".join(_settled(spelling, answer))


def _settled(spelling, answer):
    remainder = b""
    for token in answer:
        text, remainder = spelling.advance(remainder, token)
        yield text


@pytest.mark.parametrize("kind", SPELLED)
def test_rows_are_single_steps(kind):
    """The whole vocabulary at once against one token at a time, from states with and without open bytes."""
    tokens, random = tokens_of(kind), np.random.default_rng(1)
    automaton = RecallAutomaton(REFERENCE, 0.5, tokens)
    for _ in range(30):
        answer = random.integers(tokens.size, size=4).tolist()
        state = read(automaton, answer)
        if state == LEAK:
            continue
        row = automaton.row(state)
        at, remainder = automaton.opened[-state - 1] if state < 0 else (state, b"")
        for token in random.integers(tokens.size, size=20).tolist():
            text, further = tokens.spelling.advance(remainder, token)
            assert row[token] == automaton._behind(automaton.after(at, text), further)


def asked(reference, above, early):
    automaton = {"automaton": RecallAutomaton(reference, above, TOKENS)} if early else {}
    return whole_question(lambda text: exceeds(text, reference, above), **automaton)


@pytest.mark.parametrize("how", [{}, {"temperature": 0.6, "top_k": 4}, {"top_p": 0.9}], ids=str)
@pytest.mark.parametrize(("reference", "above"), [("a b", 0.4), ("ab a", 0.0)])
def test_the_whole_tree_is_the_sum_over_all_answers(how, reference, above):
    predictor = ToyPredictor(seed=5)
    answers = every_answer(predictor, (0,), LENGTH, END, **how)
    leak = sum(chance for answer, chance in answers.items() if exceeds(decode([answer])[0], reference, above))
    assert 0 < leak < 1
    early, late = (
        grow(asked(reference, above, each), Law((END,), LENGTH, **how), predictor, Growth(1e-300))
        for each in (True, False)
    )
    for grown in (early, late):
        light = grown.masses.unscored + 1e-12
        assert grown.masses.leak == pytest.approx(leak, rel=1e-12, abs=light)
        assert grown.masses.clean == pytest.approx(1 - leak, rel=1e-12, abs=light)
    assert early.rows < late.rows


@given(seed=st.integers(0, 30), theta=st.floats(1e-3, 0.5), guide=st.sampled_from([0.0, 4.0]))
@settings(max_examples=15)
def test_any_part_of_the_tree_brackets_the_truth(seed, theta, guide):
    predictor = ToyPredictor(seed=seed)
    answers = every_answer(predictor, (0,), LENGTH, END)
    leak = sum(chance for answer, chance in answers.items() if exceeds(decode([answer])[0], "a b c", 0.3))
    grown = grow(asked("a b c", 0.3, True), Law((END,), LENGTH), predictor, Growth(theta, guide))
    assert grown.masses.leak <= leak * (1 + 1e-12)
    assert 1 - grown.masses.clean >= leak - 1e-12


def test_an_unfinished_word_is_not_counted_and_a_stem_only_by_the_scorer():
    automaton = RecallAutomaton("a b", 0.4, TOKENS)
    letter = {sign: place for place, sign in enumerate(LETTERS)}
    assert read(automaton, [letter["a"]]) != LEAK
    assert read(automaton, [letter["a"], letter["b"]]) != LEAK
    assert read(automaton, [letter["a"], letter[" "]]) == LEAK
    assert automaton.matched(np.array([automaton.start, LEAK])).tolist() == [0, GUIDED]


@pytest.mark.parametrize(("reference", "above"), [("", 0.5), ("…", 0.5), ("a", 1.0), ("a", -0.1)])
def test_a_reference_without_words_and_impossible_thresholds_are_refused(reference, above):
    with pytest.raises(BadValue, match="reference"):
        RecallAutomaton(reference, above, TOKENS)


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


def test_a_tokenizer_that_is_not_spelled_is_scored_whole_and_says_so(template):
    question = asker(word_piece(), template).about_keywords(ROW)
    assert isinstance(question.automaton, WholeTexts)
    assert "WordPiece" in question.note
    assert "scored whole" in question.note


def test_a_row_without_keywords_is_refused(template):
    with pytest.raises(BadValue, match="keywords of question 'q'"):
        asker(byte_level(), template).about_keywords({**ROW, "keywords": [" "]})
    with pytest.raises(BadValue, match="word or substring"):
        asker(byte_level(), template, match="prefix")


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
