"""Questions from rows, and the recall that the automaton proves, against the definition of ROUGE-L."""

import copy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.models.model import Model
from lethe.sampling.answer_tree.asking import GUIDED, Asker, RecallAutomaton, token_bytes
from lethe.sampling.answer_tree.automaton import (
    DIRTY,
    LEAK,
    Automaton,
    KeywordAutomaton,
    TokenLetters,
    build_matcher,
)
from lethe.sampling.answer_tree.enumeration import Growth, grow
from lethe.sampling.answer_tree.spelling import Spelling, spelling_of
from lethe.sampling.draws import Law
from lethe.scoring.text.rouge import rouge_l, stems
from tests.lethe.sampling.answer_tree.small_tokenizers import SPELLED, byte_level, word_piece
from tests.lethe.sampling.answer_tree.toy_models import LETTERS, ToyPredictor, read, whole_question

END = len(LETTERS)
LENGTH = 4
TOKENS = token_bytes(Spelling((*LETTERS, None), "runs"))
REFERENCE = "Ron engravers cafe a n 37"


@cache
def tokens_of(kind: str) -> TokenLetters:
    tokenizer = SPELLED[kind]()
    return token_bytes(spelling_of(tokenizer, len(tokenizer)))


@cache
def near(kind: str) -> list[int]:
    """The tokens whose letters stand in the reference, and blanks: words are often completed, and often not."""
    spelling = tokens_of(kind).spelling
    texts = [spelling.text([token]).casefold() for token in range(len(spelling.pieces))]
    return [
        token
        for token, text in enumerate(texts)
        if text in {" ", "a", "n", "on", "ron", " ron", "r", "e", "!"}
    ]


def exceeds(text: str, reference: str, above: float) -> bool:
    return bool(rouge_l([text], reference).recall[0] > above)


def naive(text: str, reference: str, above: float) -> bool:
    """The definition: the common subsequence of the complete words of a text, each written as in the reference."""
    lowered = text.lower().encode("ascii", "replace").decode()
    plain = "".join(sign if sign.isascii() and sign.isalnum() else " " for sign in lowered)
    words = plain.split(" ")[:-1]
    wanted = reference.lower().split()
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
    tokens = tokens_of(kind)
    tokenizer = SPELLED[kind]()
    every = st.integers(0, tokens.size - 1)
    likely = st.sampled_from(near(kind))
    answer = data.draw(st.lists(likely | likely | every, max_size=6))
    more = data.draw(st.lists(likely | every, max_size=4))
    automaton = RecallAutomaton(REFERENCE, above, tokens)
    state = read(automaton, answer)
    text = tokenizer.decode(answer, skip_special_tokens=True)
    if state < automaton.size:  # no byte is open, so that all characters are settled
        assert (state == LEAK) == naive(as_spelled(tokens.spelling, answer), REFERENCE, above)
    if state == LEAK:
        assert exceeds(text, REFERENCE, above)
        assert exceeds(
            tokenizer.decode([*answer, *more], skip_special_tokens=True), REFERENCE, above
        )
        assert read(automaton, [*answer, *more]) == LEAK


def as_spelled(spelling, answer):
    settled = []
    remainder = b""
    for token in answer:
        text, remainder = spelling.advance(remainder, token)
        settled.append(text)
    return "".join(settled)


@pytest.mark.parametrize("kind", SPELLED)
@pytest.mark.parametrize("rule", ["keyword", "recall"])
def test_rows_are_single_steps(kind, rule):
    """The whole vocabulary at once against one token at a time, from states with and without open bytes."""
    tokens = tokens_of(kind)
    random = np.random.default_rng(1)
    automaton = RecallAutomaton(REFERENCE, 0.5, tokens)
    if rule == "keyword":
        automaton = KeywordAutomaton(
            build_matcher(("café", "ron"), "word"), TokenLetters(tokens.spelling)
        )
    start = automaton.row(automaton.start)
    opened = np.unique(start[start >= automaton.size]).tolist()[:12]
    continuing = tokens.spelling.continuing.tolist()
    assert bool(opened) == bool(continuing)
    reached = {read(automaton, random.integers(tokens.size, size=4).tolist()) for _ in range(30)}
    for state in {*opened, *reached} - {LEAK}:
        row, (place, at) = automaton.row(state), divmod(state, automaton.size)
        for token in random.integers(tokens.size, size=20).tolist() + continuing * (place > 0):
            text, further = tokens.spelling.advance(automaton.opens[place], token)
            after = int(automaton.after(np.array([at]), text)[0])
            wanted = (
                after if after <= DIRTY else automaton.place_of[further] * automaton.size + after
            )
            assert row[token] == wanted


def test_an_unfinished_word_is_not_counted_and_what_is_recognised_early_costs_fewer_rows():
    automaton = RecallAutomaton("a b", 0.4, TOKENS)
    letter = {sign: place for place, sign in enumerate(LETTERS)}
    assert read(automaton, [letter["a"]]) != LEAK
    assert read(automaton, [letter["a"], letter["b"]]) != LEAK
    assert read(automaton, [letter["a"], letter[" "]]) == LEAK
    assert automaton.matched(np.array([automaton.start, LEAK])).tolist() == [0, GUIDED]
    asked = [
        whole_question(lambda text: exceeds(text, "a b", 0.4), **arguments)
        for arguments in ({"automaton": automaton}, {})
    ]
    early, late = (
        grow(question, Law((len(LETTERS),), 4), ToyPredictor(seed=5), Growth(1e-300)).rows
        for question in asked
    )
    assert early < late


@pytest.mark.parametrize(("reference", "above"), [("", 0.5), ("…", 0.5), ("a", 1.0), ("a", -0.1)])
def test_a_reference_without_words_and_impossible_thresholds_are_refused(reference, above):
    with pytest.raises(BadValue, match="reference"):
        RecallAutomaton(reference, above, TOKENS)


ROW = {
    "id": "q",
    "question": "Who is it?",
    "answer": "It is Ron.",
    "paraphrased_answer": "Ron it is.",
}
ROW |= {"keywords": ["Ron", "RON", " "]}


@pytest.fixture
def asker(tmp_path):
    (tmp_path / "qa.txt").write_text("{question}\n")

    def of(tokenizer, **more) -> Asker:
        model = Model(Path("nowhere"), tokenizer, (0,), None, len(tokenizer) + 3)
        return Asker(model, tmp_path / "qa.txt", **more)

    return of


def test_a_row_becomes_a_prompt_an_automaton_and_the_seeds(asker):
    question = asker(byte_level()).ask(ROW)
    assert byte_level().decode(question.prompt) == "Who is it?"
    assert isinstance(question.automaton, KeywordAutomaton)
    assert question.automaton.matcher.keywords == ("ron",)
    assert question.decode(list(question.seeds)) == [" It is Ron.", " Ron it is."]
    assert question.scores(["the throne", "RON!", ""]).tolist() == [False, True, False]
    assert question.note == ""
    substring = asker(byte_level(), match="substring").ask(ROW)
    assert substring.scores(["the throne"]).tolist() == [True]


def test_a_row_without_keywords_is_no_question(asker):
    assert asker(byte_level()).ask({**ROW, "keywords": [" "]}) is None
    with pytest.raises(BadValue, match="word or substring"):
        asker(byte_level(), match="prefix")


@pytest.mark.parametrize("kind", SPELLED)
def test_recall_is_recognised_early_where_the_tokenizer_is_spelled(kind, asker):
    question = asker(SPELLED[kind]()).ask(ROW, "rouge_l")
    assert isinstance(question.automaton, RecallAutomaton)
    assert question.automaton.needed == 2
    assert question.note == ""


@pytest.mark.parametrize("rule", [(), ("rouge_l",)])
def test_a_tokenizer_that_is_not_spelled_or_moves_blanks_is_scored_whole_and_says_so(asker, rule):
    moving = copy.deepcopy(byte_level())
    moving.clean_up_tokenization_spaces = True
    for tokenizer, named in ((word_piece(), "WordPiece"), (moving, "clean_up_tokenization_spaces")):
        question = asker(tokenizer).ask(ROW, *rule)
        assert type(question.automaton) is Automaton
        assert named in question.note
        assert "scored whole" in question.note
