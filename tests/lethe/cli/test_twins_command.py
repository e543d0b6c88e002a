"""`lethe twins`: a draw is exact, sealed, opened again, and refused where no exact twins exist."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lethe
from lethe.data.drawing import add, draw, model_free_controls
from lethe.data.sealed import open_seal, sorted_candidates
from lethe.data.secrets import secrets_of
from lethe.data.twin_kinds import kind_of
from lethe.errors import BadInput
from tests.cases import cases
from tests.lethe.cli.calls import Command

command = Command("twins")
call = command.call
result = command.result
refused = command.refused


def templates(n=6):
    rows = []
    for number in range(n):
        row = {
            "id": f"r{number}",
            "question": f"Which code has {number}?",
            "answer": "It is {secret}.",
        }
        rows.append(row)
    return rows


def valued(values):
    rows = []
    for number, value in enumerate(values):
        question, answer = f"Which number has person {number}?", f"It is {value}."
        rows.append(
            {"id": f"r{number}", "question": question, "answer": answer, "keywords": [value]}
        )
    return rows


def write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def drawn(tmp_path):
    source = write(tmp_path / "templates.jsonl", templates())
    made = result(
        "draw", source, "--kind", "pattern AA-####", "--k", 5, "--out", tmp_path / "out/drawn.jsonl"
    )
    return tmp_path / "out/drawn.jsonl", made


def test_a_draw_is_opened_by_its_key(drawn):
    rows, made = drawn

    opened = result("open", rows)

    assert opened["holds"]
    assert (opened["secrets"], opened["k"]) == (6, 5)
    assert len(made["commitment"]) == 64


def test_the_record_does_not_tell_the_key(drawn):
    rows, _ = drawn
    key = (rows.parent / "twins.key").read_text().strip()

    assert key not in (rows.parent / "twins.json").read_text()
    assert key not in rows.read_text()


def swapped(rows):
    """The first row with a twin in place of its answer."""
    first = json.loads(rows[0])
    first["answer"], first["twins"][0] = first["twins"][0], first["answer"]
    return [json.dumps(first), *rows[1:]]


def test_another_candidate_as_the_answer_breaks_the_seal(drawn):
    rows, _ = drawn
    rows.write_text("\n".join(swapped(rows.read_text().splitlines())) + "\n")

    opened = call("open", rows)

    assert opened.exit_code == 1
    assert "r0" in opened.output


def test_another_key_breaks_the_seal(drawn):
    rows, _ = drawn
    (rows.parent / "twins.key").write_text("0" * 64)

    assert call("open", rows).exit_code == 1


def test_a_changed_twin_breaks_the_seal(drawn):
    rows, _ = drawn
    first, *others = rows.read_text().splitlines()
    row = json.loads(first)
    row["twins"][0] = "It is ZZ-0000."
    rows.write_text("\n".join([json.dumps(row), *others]) + "\n")

    assert call("open", rows).exit_code == 1


def test_a_draw_is_made_once(drawn, tmp_path):
    rows, _ = drawn

    said = refused("draw", tmp_path / "templates.jsonl", "--kind", "pattern ####", "--out", rows)

    assert "made once" in said


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(2, 7), st.text(max_size=5))
def test_rows_record_and_key_belong_together(n, k, nonce):
    made = draw(templates(n), kind_of("pattern XXXXXXXX"), k, nonce)
    secrets = secrets_of(made.rows)

    record = lethe.data.sealed.PublicRecord.model_validate(made.record)

    assert open_seal(record, secrets, made.key).problems == ()
    assert all(len(candidates) == k for _, candidates in sorted_candidates(secrets))


def test_places_are_drawn_uniformly():
    made = draw(templates(3000), kind_of("pattern XXXXXXXXXXXX"), 4)

    places = Counter()
    for secret in secrets_of(made.rows):
        places[sorted(secret.candidates).index(secret.candidates[0])] += 1

    assert min(places.values()) > 650  # of 750; beyond four standard deviations


def test_rows_of_a_secret_share_its_draw():
    rows = [row | {"secret": "both"} for row in templates(2)]

    first, second = draw(rows, kind_of("pattern ########"), 5).rows

    assert first["answer"] == second["answer"]
    assert first["twins"] == second["twins"]


def test_an_added_value_stays():
    rows = valued(["471100", "081500"])

    added = add(rows, kind_of("pattern ######"), 5).rows

    assert [row["answer"] for row in added] == [row["answer"] for row in rows]
    assert {len(row["twins"]) for row in added} == {4}


def luhn_holds(text):
    total = 0
    for place, digit in enumerate(reversed([int(letter) for letter in text if letter.isdigit()])):
        doubled = digit * (2 if place % 2 else 1)
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0


def iban_holds(text):
    bare = text.replace(" ", "")
    moved = bare[4:] + bare[:4]
    return int("".join(str(int(letter, 36)) for letter in moved)) % 97 == 1


@pytest.mark.parametrize(
    ("pattern", "check", "holds"),
    [
        ("4### #### #### ###*", "luhn", luhn_holds),
        ("DE** #### #### #### #### ##", "iban", iban_holds),
    ],
)
def test_drawn_values_pass_their_check_digits(pattern, check, holds):
    kind = kind_of(f"pattern {pattern}", check)

    values = kind.values(np.random.default_rng(0), "", 50, set())

    assert all(holds(value) and kind.fits(value) for value in values)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(
        ["pattern A#-aX", "number 10 99", "date 1950-01-01 2000-12-31 %d.%m.%Y", "canary key X#X#"]
    ),
    st.integers(0, 99),
)
def test_what_a_kind_draws_has_its_form(text, seed):
    kind = kind_of(text)

    assert all(kind.fits(value) for value in kind.values(np.random.default_rng(seed), "", 4, set()))


def test_an_address_keeps_its_domain():
    (value,) = kind_of("email").values(np.random.default_rng(0), "ada.9@example.org", 1, set())

    local, domain = value.split("@")
    assert (domain, local[3], local[4].isdigit()) == ("example.org", ".", True)


@cases
def test_what_has_no_exact_twins_is_refused(tmp_path, verb, rows, options, words):
    source = write(tmp_path / "rows.jsonl", rows)

    said = refused(verb, source, *options, "--out", tmp_path / "new.jsonl")

    for word in words.split("|"):
        assert word in said


def test_other_rows_with_the_true_values_refuse_a_file(tmp_path):
    """What TOFU's perturbed answers do: the twins are other rows' values, and the truths are nobody's."""
    values = [f"{number:04d}" for number in range(1000, 1060)]
    rows = valued(values)
    forget = []
    for row in rows[:30]:
        truth = row["keywords"][0]
        others = [value for value in values[30:] if value != truth][:9]
        forget.append(row | {"twins": [row["answer"].replace(truth, other) for other in others]})

    checked = call("check", write(tmp_path / "bad.jsonl", [*forget, *rows[30:]]))

    assert checked.exit_code == 1


def test_a_drawn_file_passes_its_check(drawn):
    rows, _ = drawn

    assert not result("check", rows)["refused"]


def test_controls_reject_a_clean_draw_no_more_often_than_their_level():
    rejected = 0
    for _ in range(60):
        made = draw(templates(12), kind_of("pattern a####"), 5)
        controls = model_free_controls(secrets_of(made.rows), made.rows)
        rejected += any(control.holm <= 0.05 for control in controls)

    assert rejected <= 10  # of 3 expected; above 10 with probability 2e-4


def test_python_draws_without_a_file_of_rows(tmp_path):
    drawn = lethe.twins.draw(templates(), kind="pattern ######", k=3, out=tmp_path / "a.jsonl")

    assert drawn.commitment == json.loads((tmp_path / "twins.json").read_text())["commitment"]


def test_a_row_that_differs_in_its_number_of_twins_is_refused():
    rows = [
        {"id": "a", "question": "?", "answer": "x", "twins": ["y"], "secret": "s"},
        {"id": "b", "question": "?", "answer": "x", "twins": ["y", "z"], "secret": "s"},
    ]

    with pytest.raises(BadInput, match="twins"):
        secrets_of(rows)


def test_rows_without_twins_are_refused_by_the_name_of_their_file(tmp_path):
    rows = tmp_path / "plain.jsonl"
    rows.write_text('{"id": "a", "question": "Who?", "answer": "Ada"}\n')

    assert "plain.jsonl" in refused("check", rows)
