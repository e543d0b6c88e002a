"""`lethe audit twins`: ranks and scores of drawn secrets, read from any file or refused in one sentence."""

import csv
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lethe
from lethe.audits.twin_ranks import read_ranks
from lethe.errors import BadInput
from lethe.statistics.twins import twin_test
from tests.cases import cases
from tests.lethe.cli.calls import Command

command = Command("audit", "twins")
result, refused = command.result, command.refused

ranks = st.integers(2, 9).flatmap(lambda k: st.tuples(st.integers(1, k), st.just(k)))


def scored_table(scores, true):
    """A table of scores (m, k) whose candidates are texts."""
    rows = []
    for secret, values in enumerate(scores):
        for place, score in enumerate(values):
            row = (f"s{secret}", f"c{place}", score, int(place == true[secret]))
            rows.append(row)
    return pd.DataFrame(rows, columns=["secret", "candidate", "score", "true"])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ranks, min_size=1, max_size=8))
def test_ranks_survive_each_form_of_file(tmp_path, drawn):
    table = pd.DataFrame(drawn, columns=["rank", "candidates"])
    table.insert(0, "secret", [f"s{number}" for number in range(len(drawn))])
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_parquet(tmp_path / "a.parquet")
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)

    for name in ("a.csv", "a.parquet", "a.jsonl"):
        read = read_ranks(tmp_path / name)

        assert list(zip(read.ranks, read.candidates, strict=True)) == drawn


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(
            st.sampled_from(["a", "b", "", "1", "0", "nan", "x", "-inf", "1e999"]),
            min_size=4,
            max_size=4,
        ),
        max_size=6,
    )
)
def test_any_table_of_four_columns_is_read_or_refused(tmp_path, rows):
    text = io.StringIO()
    csv.writer(text).writerows([["secret", "candidate", "score", "true"], *rows])
    (tmp_path / "a.csv").write_text(text.getvalue())

    try:
        read = read_ranks(tmp_path / "a.csv")
    except BadInput:
        return

    assert all(1 <= rank <= k for rank, k in zip(read.ranks, read.candidates, strict=True))


def test_the_rank_of_a_truth_is_its_place_among_the_scores(tmp_path):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(7, 5))
    true = rng.integers(5, size=7)
    scored_table(scores, true).sample(frac=1, random_state=2).to_csv(tmp_path / "a.csv")

    read = read_ranks(tmp_path / "a.csv")

    for secret, rank in zip(read.secrets, read.ranks, strict=True):
        row = int(secret[1:])
        assert rank == 1 + (scores[row] > scores[row, true[row]]).sum()


def test_equal_scores_favour_no_place_of_the_file():
    scores = np.zeros((2000, 4))
    scores[0, 3] = 1  # of one secret: a table without any difference is refused
    first = read_ranks(scored_table(scores, np.zeros(2000, int)))

    counts = np.bincount(first.ranks, minlength=5)[1:]

    assert counts.min() > 400  # of 500 expected; the order of the rows would give 2,000 and 0


def test_a_known_draw_is_a_trace(tmp_path):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(12, 20))
    scores[:, 7] += 6
    scored_table(scores, np.full(12, 7)).to_csv(tmp_path / "a.csv")

    got = result(tmp_path / "a.csv")

    assert (got["word"], got["direction"], got["look"]) == ("trace", "preferred", 1)
    assert got["ranked_first"]["count"] == got["ranks"].count(1)
    assert got["epsilon_lower"] > 0
    assert got["smallest_lift"]["up"] > 0


def test_python_takes_ranks_as_they_are():
    audit = lethe.audit.twins([3, 17, 9], [20, 20, 20])

    assert audit.p == twin_test([3, 17, 9], [20, 20, 20]).p
    assert audit.word == "open"


def test_ranks_without_their_candidates_are_refused():
    with pytest.raises(BadInput, match="candidates"):
        lethe.audit.twins([1, 2])


def test_a_control_that_knows_the_draws_takes_the_word(tmp_path):
    known = scored_table(np.eye(12, 20), np.arange(12))
    known.to_csv(tmp_path / "a.csv")

    got = result(tmp_path / "a.csv", "--control", tmp_path / "a.csv")

    assert got["word"] == "none"
    assert not got["control"]["holds"]


def test_a_weak_test_says_how_many_secrets_would_do():
    audit = lethe.audit.twins([10] * 5, [20] * 5)

    assert audit.word == "open"
    assert "secrets with 20 candidates" in str(audit)


@cases
def test_a_wrong_table_is_refused(tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)

    said = refused(tmp_path / "a.csv")

    for word in words.split("|"):
        assert word in said


def test_a_score_that_tells_no_candidate_from_another_finds_nothing_out(tmp_path):
    table = scored_table(np.zeros((30, 10)), [0] * 30)
    table.to_csv(tmp_path / "a.csv", index=False)

    assert "have one score" in refused(tmp_path / "a.csv")
    table.loc[0, "score"] = 1
    table.to_csv(tmp_path / "b.csv", index=False)
    assert result(tmp_path / "b.csv")["word"] == "no trace found"


@pytest.mark.parametrize("column", ["model", "checkpoint"])
def test_secrets_of_two_models_are_no_trace_of_one(tmp_path, column):
    table = scored_table(np.eye(10), [0] * 10).assign(**{column: ["A"] * 50 + ["B"] * 50})
    table.to_csv(tmp_path / "a.csv", index=False)

    assert f"2 values of {column}" in refused(tmp_path / "a.csv")


def changed_control(change):
    table = scored_table(np.random.default_rng(1).random((6, 8)), [0] * 6)
    return change(table)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table[table["secret"] != "s3"], "lacks the secret s3"),
        (lambda table: table.assign(secret="x" + table["secret"]), "lacks the secret s0"),
        (lambda table: table.assign(candidate="x" + table["candidate"]), "other candidates of"),
        (lambda table: table[table["candidate"] != "c7"], "other candidates of"),
        (
            lambda table: table.assign(true=(table["candidate"] == "c1").astype(int)),
            "another true candidate of",
        ),
    ],
)
def test_a_control_on_other_draws_is_no_control(tmp_path, change, said):
    table = scored_table(np.random.default_rng(0).random((6, 8)), [0] * 6)
    table.to_csv(tmp_path / "a.csv", index=False)
    changed_control(change).to_csv(tmp_path / "b.csv", index=False)

    assert said in refused(tmp_path / "a.csv", "--control", tmp_path / "b.csv")


def test_ranks_and_scores_of_the_same_secrets_are_model_and_control(tmp_path):
    ranked = pd.DataFrame({"secret": [f"s{n}" for n in range(6)], "rank": 1, "candidates": 8})
    ranked.to_csv(tmp_path / "a.csv", index=False)
    changed_control(lambda table: table).to_csv(tmp_path / "b.csv", index=False)

    assert result(tmp_path / "a.csv", "--control", tmp_path / "b.csv")["control"]["holds"]


def test_a_secret_under_several_names_is_drawn_once(tmp_path):
    scores = np.random.default_rng(0).random((1, 8))
    table = scored_table(np.repeat(scores, 30, axis=0), [int(scores.argmax())] * 30)
    table.to_csv(tmp_path / "a.csv", index=False)

    assert "s1 has" in refused(tmp_path / "a.csv")
