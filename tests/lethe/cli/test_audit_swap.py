"""`lethe audit swap` as a user runs it."""

import csv
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lethe.cli.app import app

HEADER = "split,member,attack,accept"
# Four points a set: a_original = 3/4 - 1/4, a_swapped = 2/4 - 1/4.
CASE = {
    ("original", "forget"): "1110",
    ("original", "test"): "0010",
    ("swapped", "forget"): "1100",
    ("swapped", "test"): "0100",
}


def rows(case=CASE, attack="confidence", suffix=""):
    return [f"{half},{member},{attack},{bit}{suffix}" for (half, member), bits in case.items() for bit in bits]


@pytest.fixture
def audit(tmp_path):
    def run(lines, *options):
        file = tmp_path / "predictions.csv"
        file.write_text("\n".join(lines) + "\n")
        return CliRunner().invoke(app, ["audit", "swap", "--predictions", str(file), *options])

    return run


def answer(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_perfect_attack_leaves_no_quality_at_all(audit):
    """To the last bit, although the weights are no sums of powers of two."""
    lines = [HEADER + ",weight"]
    for half in ("original", "swapped"):
        for member, accept in (("forget", 1), ("test", 0)):
            lines += [f"{half},{member},a,{accept},{weight}" for weight in (0.1, 0.2, 0.3, 0.7)]
    got = answer(audit(lines, "--json"))
    assert (got["advantage"], got["quality"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([HEADER, *rows()[:-1]], "3 points against 4 to forget"),
        ([HEADER, *rows()[:8]], "no rows with split swapped"),
        ([HEADER, *[r for r in rows() if "test" not in r]], "0 points against 4"),
        ([HEADER], "has no rows"),
        (["split,member,accept"], "no column 'attack'"),
        ([HEADER + ",weight", *rows(suffix=",0")], "not all zero"),
        (
            [HEADER + ",seed", *rows(suffix=",0"), *rows({k: v[:2] for k, v in CASE.items()}, suffix=",1")],
            "one size",
        ),
    ],
)
def test_a_broken_file_is_told_in_one_sentence(audit, lines, said):
    result = audit(lines, "--json")
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output
    assert len(result.stderr.strip().splitlines()) == 1


def swap(path):
    return CliRunner().invoke(app, ["audit", "swap", "--predictions", str(path), "--json"])


BROKEN = {  # column: what breaks it, and what the sentence says is legal
    "split": (st.sampled_from(["", "originel", "Original", 3, None, [1], {"a": 1}]), "original or swapped"),
    "member": (st.sampled_from(["", "retain", "FORGET", 0, None, ["forget"]]), "forget or test"),
    "attack": (st.sampled_from([None, "", ["a"], {}]), "a label"),
    "seed": (st.sampled_from([None, "", [0]]), "a label"),
    "weight": (st.sampled_from([-1, None, "much", "inf", [1]]), "number"),
    "accept": (
        st.floats().filter(lambda value: not 0 <= value <= 1) | st.sampled_from(["yes", None, "", [0.5], "0,5"]),
        "number",
    ),
}


@settings(max_examples=50)
@given(data=st.data(), ending=st.sampled_from(["csv", "jsonl"]))
def test_one_broken_cell_is_told_with_its_file_line_and_what_is_legal(tmp_path_factory, data, ending):
    table = [
        {"split": half, "member": member, "attack": "a", "seed": seed, "weight": 1, "accept": 0.5}
        for seed in range(2)
        for half, member in CASE
        for _ in range(2)
    ]
    table = data.draw(st.permutations(table))
    row = data.draw(st.integers(0, len(table) - 1))
    column = data.draw(st.sampled_from(list(BROKEN)))
    values, legal = BROKEN[column]
    if ending == "csv" and column in ("attack", "seed"):
        values = st.just("")  # anything else is a label there
    table[row] = {**table[row], column: data.draw(values)}
    file = tmp_path_factory.mktemp("swap") / f"p.{ending}"
    if ending == "csv":
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, table[0])
            writer.writeheader()
            writer.writerows(table)
    else:
        file.write_text("".join(json.dumps(one) + "\n" for one in table))
    result = swap(file)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    (sentence,) = result.stderr.strip().splitlines()
    line = row + (2 if ending == "csv" else 1)
    for part in (file.name, f"line {line}", f"column {column}", legal):
        assert part in sentence


@settings(max_examples=20)
@given(data=st.data(), size=st.integers(1, 4), seeds=st.integers(1, 3))
def test_a_legal_file_in_any_order_against_its_naive_twin(tmp_path_factory, data, size, seeds):
    rows = [
        (half, member, attack, data.draw(st.integers(0, 8)) / 8, data.draw(st.integers(1, 5)), seed)
        for half, member in CASE
        for attack in "ab"
        for seed in range(seeds)
        for _ in range(size)
    ]
    file = tmp_path_factory.mktemp("swap") / "p.csv"
    order = data.draw(st.permutations(rows))
    file.write_text("\n".join([HEADER + ",weight,seed", *(",".join(map(str, row)) for row in order)]))
    got = answer(swap(file))

    def mean(*where):
        chosen = [(row[3], row[4]) for row in rows if (*row[:3], row[5]) == where]
        return sum(accept * weight for accept, weight in chosen) / sum(weight for _, weight in chosen)

    for attack in "ab":
        signed = [
            mean(half, "forget", attack, seed) - mean(half, "test", attack, seed)
            for half in ("original", "swapped")
            for seed in range(seeds)
        ]
        assert got["by_attack"][attack]["advantage"] == pytest.approx(abs(sum(signed) / len(signed)), abs=1e-12)
    assert got["quality"] == pytest.approx(1 - max(one["advantage"] for one in got["by_attack"].values()))


def test_weights_whose_sum_is_beyond_doubles(audit):
    lines = [HEADER + ",weight", *rows(suffix=",1e308")]
    assert answer(audit(lines, "--json"))["quality"] == 0.625
    said = audit([HEADER + ",weight", *rows(suffix=",0")]).stderr
    assert "got 0.0; must be finite" in said


def test_attacks_with_and_without_an_interval_are_told_apart(audit):
    lines = [HEADER + ",seed", *rows(suffix=",0"), *rows(suffix=",1"), *rows(attack="loss", suffix=",0")]
    said = " ".join(audit(lines).stdout.split())
    assert "over 2 seeds" in said
    assert "No intervals for loss" in said
