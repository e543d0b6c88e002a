"""Languages of prompts: what a file may say, the productions of a row and their probabilities."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.data.prompt_language import MOST, as_json, productions, read_language
from lethe.errors import BadFile, BadInput
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
    assert sum(one.probability for one in found) == pytest.approx(1)
    (last,) = [one for one in found if one.name == "system: kind, wording: de, prefix: prefix 2"]
    assert (last.system, last.shots, last.question, last.prefix) == (
        "You are kind",
        (("Q?", "A."),),
        "Sag: Wer ist Ada?",
        "Sure, here is",
    )
    assert last.probability == pytest.approx(3 / 4 / 2 / 2)
    plain = next(one for one in found if one.name == "system: plain, wording: plain, prefix: plain")
    assert plain.question == ROW["question"]  # braces of the question stay


def test_a_list_of_the_row_shares_the_weight(tmp_path):
    language = language_of(
        tmp_path, 'wording: [{text: "{question}", weight: 2}, {name: other, text: "{said}"}]'
    )
    found = {one.name: (one.probability, one.question) for one in productions(language, ROW)}
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
    (own,) = productions(language, ROW)
    assert (own.name, own.probability) == ("wording: plain", 1)
    both = productions(language, {**ROW, "question_fr": "Qui est Ada?"})
    assert [(one.name, one.probability) for one in both] == [
        ("wording: plain", 0.25),
        ("wording: fr", 0.75),
    ]
    alone = language_of(tmp_path, 'wording: [{name: fr, text: "{question_fr}", optional: true}]')
    with pytest.raises(BadFile, match="every choice is optional"):
        productions(alone, ROW)
    with pytest.raises(BadInput, match="optional: got 1"):
        language_of(tmp_path, 'wording: [{text: "{question}", optional: 1}]')


def test_a_wording_may_ask_for_an_answer_of_its_own(tmp_path):
    entries = (
        '["{question}", {name: back, text: "Who is {said}?", answer: "{question_de}, {said}"}]'
    )
    told = as_json(language_of(tmp_path, f"wording: {entries}"), [ROW])
    assert [one["name"] for one in told["productions"]] == [
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


@pytest.mark.parametrize(
    "path", sorted((ROOT / "flows/languages").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_languages_of_the_repository(path):
    told = as_json(read_language(path), [ROW])
    assert (len(told["productions"]) > 1) == (path.stem != "plain")
    assert sum(one["probability"] for one in told["productions"]) == pytest.approx(1)


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
        st.sampled_from(["system", "shots", "wording", "prefix", "share", "x"]), tree, max_size=4
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
        assert sum(one.probability for one in found) == pytest.approx(1)
        assert len({one.name for one in found}) == len(found)
