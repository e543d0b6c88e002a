"""Languages of prompts: what a file may say, the productions of a row and their probabilities."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import BadFile, BadInput
from lethe.io.yaml import read_yaml
from lethe.sampling.prompt_language import (
    MOST,
    as_json,
    packaged,
    place_of,
    productions,
    read_language,
)
from lethe.sampling.tasks import ask
from lethe.scoring.keyword import keyword_form, occurs
from tests.cases import cases
from tests.small import ROOT

ROW = {"id": "a", "question": "Who is {Ada}?", "answer": "A painter."}
ROW |= {"question_de": "Wer ist Ada?", "said": ["x", "y"]}


def language_of(tmp_path, text):
    path = tmp_path / "language.yaml"
    path.write_text(text, encoding="utf-8")
    return read_language(path)


def test_a_production_takes_a_choice_of_each_part(tmp_path):
    language = language_of(
        tmp_path,
        """
        system: [null, {name: kind, text: You are kind, weight: 3}]
        shots: [{name: one, examples: [{question: "Q?", answer: "A."}]}]
        wording: ["{question}", {name: de, text: "Sag: {question_de}"}]
        prefix: ["", "Sure, here is"]
        """,
    )
    found = productions(language, ROW)
    assert len(found) == 8
    assert sum(production.probability for production in found) == pytest.approx(1)
    (last,) = [
        production
        for production in found
        if production.name == "system: kind, wording: de, prefix: prefix 2"
    ]
    assert (last.system, last.shots, last.question, last.prefix) == (
        "You are kind",
        (("Q?", "A."),),
        "Sag: Wer ist Ada?",
        "Sure, here is",
    )
    assert last.probability == pytest.approx(3 / 4 / 2 / 2)
    plain = next(
        production
        for production in found
        if production.name == "system: plain, wording: plain, prefix: plain"
    )
    assert plain.question == ROW["question"]  # braces of the question stay


def test_a_list_of_the_row_shares_the_weight(tmp_path):
    language = language_of(
        tmp_path, 'wording: [{text: "{question}", weight: 2}, {name: other, text: "{said}"}]'
    )
    found = {
        production.name: (production.probability, production.question)
        for production in productions(language, ROW)
    }
    assert found == {
        "wording: plain": (pytest.approx(2 / 3), ROW["question"]),
        "wording: other 1": (pytest.approx(1 / 6), "x"),
        "wording: other 2": (pytest.approx(1 / 6), "y"),
    }


@cases
def test_a_mistake_names_its_key(tmp_path, text, told):
    with pytest.raises(BadInput, match=told) as caught:
        language_of(tmp_path, text)
    assert "language.yaml" in str(caught.value)


def test_a_row_without_the_key_is_named(tmp_path):
    language = language_of(tmp_path, 'wording: [{name: fr, text: "{question_fr}"}]')
    with pytest.raises(BadFile, match="'fr' names the key 'question_fr'"):
        productions(language, ROW)
    part = "[" + ", ".join(f"t{place}" for place in range(101)) + "]"
    large = language_of(tmp_path, f"system: {part}\nprefix: {part}\n")
    with pytest.raises(BadFile, match=f"10,201 productions for 'a'; .* {MOST:,}"):
        productions(large, ROW)


def test_a_row_goes_without_an_optional_choice_whose_key_it_lacks(tmp_path):
    entries = '["{question}", {name: fr, text: "{question_fr}", weight: 3, optional: true}]'
    language = language_of(tmp_path, f"wording: {entries}")
    (production,) = productions(language, ROW)
    assert (production.name, production.probability) == ("wording: plain", 1)
    both = productions(language, {**ROW, "question_fr": "Qui est Ada?"})
    assert [(production.name, production.probability) for production in both] == [
        ("wording: plain", 0.25),
        ("wording: fr", 0.75),
    ]
    alone = language_of(tmp_path, 'wording: [{name: fr, text: "{question_fr}", optional: true}]')
    with pytest.raises(BadFile, match="left out for row"):
        productions(alone, ROW)
    with pytest.raises(BadInput, match="optional: got 1"):
        language_of(tmp_path, 'wording: [{text: "{question}", optional: 1}]')


def test_a_wording_may_ask_for_an_answer_of_its_own(tmp_path):
    entries = (
        '["{question}", {name: back, text: "Who is {said}?", answer: "{question_de}, {said}"}]'
    )
    told = as_json(language_of(tmp_path, f"wording: {entries}"), [ROW])
    assert [production["name"] for production in told["productions"]] == [
        "wording: plain",
        "wording: back 1",
        "wording: back 2",
    ]
    assert told["references"] == {
        "a": {
            f"wording: back {number}": {
                "wording": f"back {number}",
                "question": f"Who is {said}?",
                "answer": f"Wer ist Ada?, {said}",
            }
            for number, said in ((1, "x"), (2, "y"))
        }
    }
    lacking = language_of(tmp_path, 'wording: [{text: "{question}", answer: "{none}"}]')
    with pytest.raises(BadFile, match="names the key 'none'"):
        productions(lacking, ROW)


PLAIN = ROOT / "flows/languages/plain.yaml"
ALONE = {"direct", "plain"}  # languages of one production


@pytest.mark.parametrize("language", [PLAIN, *packaged()], ids=str)
def test_the_languages_that_come_with_lethe(language):
    told = as_json(read_language(language), [ROW])

    assert (len(told["productions"]) > 1) == (Path(language).stem not in ALONE)
    assert sum(production["probability"] for production in told["productions"]) == pytest.approx(1)


def test_the_nine_kinds_of_wordings_are_languages_by_themselves():
    (whole,) = parse_language("wordings").values()

    assert len(whole) == 9
    for kind, parts in whole.items():
        assert parts == parse_language(kind.replace(" ", "-"))


def parse_language(name):
    return read_yaml(place_of(name))


def test_a_name_that_is_no_language_lists_those_of_the_package():
    with pytest.raises(BadInput, match=r"cloze, .* mean 'wordings'"):
        read_language("wording")


def test_a_kind_is_drawn_before_its_production(tmp_path):
    language = language_of(
        tmp_path,
        """
        kinds:
          direct: {weight: 3, wording: ["{question}"]}
          polite:
            wording: ["Please: {question}", {name: kind, text: "Be so kind: {question}"}]
            turns: [null, "Sure?"]
        """,
    )

    found = productions(language, ROW)

    named = [(production.name, production.probability) for production in found]
    assert named == [
        ("direct", pytest.approx(3 / 4)),
        ("polite: wording 1, plain", pytest.approx(1 / 16)),
        ("polite: wording 1, turns 2", pytest.approx(1 / 16)),
        ("polite: kind, plain", pytest.approx(1 / 16)),
        ("polite: kind, turns 2", pytest.approx(1 / 16)),
    ]
    assert [production.followups for production in found[1:3]] == [(), ("Sure?",)]
    assert as_json(language, [ROW])["varied"] == ["kind"]


def test_rows_bring_further_keys_by_their_ids(tmp_path):
    language = language_of(
        tmp_path,
        """
        wording: ["{question}", {name: other, text: "{other}", optional: true}]
        rows: {7: {other: ["Whose?", "Which?"]}, b: {other: "A painter is who?"}}
        """,
    )

    names = {}
    for name in ("7", "b", "c"):
        row = {**ROW, "id": name}
        names[name] = [production.question for production in productions(language, row)]

    assert names["7"] == [ROW["question"], "Whose?", "Which?"]
    assert names["c"] == [ROW["question"]]
    assert names["b"] == [ROW["question"]]  # the words tell the answer


def test_a_row_goes_without_words_that_tell_its_answer(tmp_path):
    language = language_of(
        tmp_path,
        """
        system: [null, {name: told, text: "Remember IRON."}]
        shots: [{name: two, examples: [{question: "A?", answer: Iron}, {question: "B?", answer: Tin}]}]
        prefix: [null, "Environment"]
        """,
    )
    row = {"id": "a", "question": "Which metal?", "answer": "It is iron.", "keywords": ["iron"]}

    kept = productions(language, row)
    asked_for = productions(language, {**row, "question": "Is it iron?"})

    assert {production.system for production in kept} == {""}
    assert {production.shots for production in kept} == {(("B?", "Tin"),)}
    assert len({production.prefix for production in kept}) == 2  # a part of a word is no keyword
    assert len(asked_for) == 4  # the question itself has the word
    assert as_json(language, [row])["left_out"] == {"system: told": 1}


def test_a_part_whose_words_all_tell_the_answer_is_refused(tmp_path):
    language = language_of(
        tmp_path, 'shots: [{examples: [{question: "A?", answer: "A painter."}]}]'
    )

    with pytest.raises(BadFile, match="left out for row"):
        productions(language, ROW)


odd = st.text(
    st.sampled_from("{}question_deאבج\u202e\u200f\n\t\"\\'%$# ") | st.characters(codec="utf-8"),
    max_size=40,
)
spoken = st.sampled_from(
    ["Mercury", "iron", "Oslo", "capital", "archive", "well known", "gap", "facts", "Sentence"]
)


def asked_or_refused(name, row):
    """The productions; none where a language has none for the row, which the nine kinds together always have."""
    language = read_language(name)
    if name == "wordings":
        return productions(language, row)
    with suppress(BadFile):
        return productions(language, row)
    return []


@pytest.mark.seconds
@pytest.mark.parametrize("name", packaged())
@given(row=st.builds(dict, question=odd, answer=odd | spoken, keywords=st.lists(odd | spoken)))
def test_no_packaged_language_tells_the_answer_of_a_row(name, row):
    row["id"] = "a"
    row["question"] = f"?{row['question']}"
    row["paraphrased_question"] = row["question"]
    secrets = [*row["keywords"], row["answer"], row["answer"].strip(".")]
    secrets = [keyword_form(secret) for secret in secrets if keyword_form(secret)]
    secrets = [secret for secret in secrets if not occurs(row["question"], [secret], "word")]

    found = asked_or_refused(name, row)

    for production in found:
        asked = [production.question, production.system, production.prefix, *production.followups]
        for question, answer in production.shots:
            asked += [question, answer]
        if "translation" not in production.name:  # every text has the question unchanged
            assert any(row["question"] in text for text in asked)
        for text in asked:
            words = text.replace(row["question"], "\n")
            assert not occurs(words, secrets, "word"), (production.name, words)


def test_every_production_of_wordings_is_drawn():
    ways = ask(read_language("wordings"), ROW, samples=1500, seed=0)

    drawn = {ways.productions[place].name for place in ways.of_sample}

    assert drawn == {production.name for production in ways.productions}
    assert len(drawn) == 23


leaf = (
    st.none()
    | st.booleans()
    | st.integers(-2, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
)
KEYS = st.sampled_from(["name", "text", "weight", "examples", "question", "answer", "prompts"])
tree = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner), max_leaves=8
)


@given(
    st.dictionaries(
        st.sampled_from(["system", "shots", "wording", "prefix", "share", "x", "kinds", "rows"]),
        tree,
        max_size=4,
    )
)
def test_any_file_is_a_language_or_an_error_of_the_user(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("language")
    try:
        found = productions(language_of(folder, json.dumps(value)), ROW)
    except BadInput as error:
        if str(folder / "language.yaml") not in str(error):
            raise
    else:
        assert sum(production.probability for production in found) == pytest.approx(1)
        assert len({production.name for production in found}) == len(found)
