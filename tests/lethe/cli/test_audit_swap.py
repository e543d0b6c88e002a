"""`lethe audit swap` as a user runs it."""

from __future__ import annotations

import csv
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app
from lethe.io.tables import read_table
from lethe.results.table import read_rows

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


@pytest.mark.parametrize("seed", range(8))
def test_the_interval_of_the_table_contains_that_of_the_json(audit, seed):
    draw = random.Random(seed)
    lines = [
        f"{half},{member},a,{draw.random()},{model}"
        for half, member in CASE
        for model in range(4)
        for _ in range(3)
    ]
    exact = answer(audit([f"{HEADER},seed", *lines], "--json"))["by_attack"]["a"]
    row = next(line for line in audit([f"{HEADER},seed", *lines]).output.splitlines() if line.startswith("│ a "))
    low, high = map(float, row.split("│")[5:7])
    assert low <= exact["ci_low"] <= exact["ci_high"] <= high


def test_json_is_the_contract(audit):
    got = answer(audit([HEADER, *rows()], "--json"))
    assert got == {
        "quality": 0.625,
        "advantage": 0.375,
        "by_attack": {
            "confidence": {
                "a_original": 0.5,
                "a_swapped": 0.25,
                "advantage": 0.375,
                "ci_low": None,
                "ci_high": None,
            }
        },
    }


def test_the_rows_are_the_json(audit, tmp_path):
    lines = [HEADER + ",seed", *rows(suffix=",0"), *rows(suffix=",1"), *rows(attack="loss", suffix=",0")]
    got = answer(audit(lines, "--alpha", "0.1", "--table", str(tmp_path / "t.parquet"), "--json"))
    (quality, *attacks) = read_rows(tmp_path / "t.parquet")
    assert quality.estimate == got["quality"]
    assert quality.evidence["attack"] in got["by_attack"]
    assert {row.item for row in attacks} == {"confidence", "loss"}
    for row in attacks:
        told = got["by_attack"][row.item]
        assert (row.estimate, row.lower, row.upper) == (told["advantage"], told["ci_low"], told["ci_high"])
        assert row.evidence["a_original"] == told["a_original"]
        assert row.alpha_upper == (None if told["ci_high"] is None else 0.1)
    found = lethe.audit.swap(tmp_path / "predictions.csv", alpha=0.1)
    assert found.to_results().equals(read_table(tmp_path / "t.parquet"))


def test_people_get_a_table_with_the_strongest_attack(audit):
    result = audit([HEADER, *rows()])
    assert result.exit_code == 0
    assert "0.6250" in result.stdout
    assert "No intervals" in result.stdout


def test_attacks_with_and_without_an_interval_are_told_apart(audit):
    lines = [HEADER + ",seed", *rows(suffix=",0"), *rows(suffix=",1"), *rows(attack="loss", suffix=",0")]
    said = " ".join(audit(lines).stdout.split())
    assert "over 2 seeds" in said
    assert "No intervals for loss" in said


def test_seeds_are_averaged_before_the_absolute_value(audit):
    mirrored = {(half, member): CASE[half, {"forget": "test", "test": "forget"}[member]] for half, member in CASE}
    lines = [HEADER + ",seed", *rows(suffix=",0"), *rows(mirrored, suffix=",1")]
    got = answer(audit(lines, "--json"))
    assert got["quality"] == 1
    interval = got["by_attack"]["confidence"]
    assert interval["ci_low"] == 0 < interval["ci_high"] <= 1


def test_weights_are_normalised_within_split_member_and_seed(audit):
    lines = [HEADER + ",weight"]
    for half in ("original", "swapped"):
        lines += [f"{half},forget,a,1,30", f"{half},forget,a,0,10", f"{half},test,a,1,1", f"{half},test,a,0,3"]
    assert answer(audit(lines, "--json"))["advantage"] == 0.5


def test_a_perfect_attack_leaves_no_quality_at_all(audit):
    """To the last bit, although the weights are no sums of powers of two."""
    lines = [HEADER + ",weight"]
    for half in ("original", "swapped"):
        for member, accept in (("forget", 1), ("test", 0)):
            lines += [f"{half},{member},a,{accept},{weight}" for weight in (0.1, 0.2, 0.3, 0.7)]
    got = answer(audit(lines, "--json"))
    assert (got["advantage"], got["quality"]) == (1.0, 0.0)


def test_the_strongest_attack_decides(audit):
    silent = dict.fromkeys(CASE, "1111")
    got = answer(audit([HEADER, *rows(), *rows(silent, attack="always yes")], "--json"))
    assert got["advantage"] == 0.375
    assert got["by_attack"]["always yes"]["advantage"] == 0


def test_different_seeds_in_the_halves_are_two_samples(audit):
    lines = [HEADER + ",seed"]
    for seed, half in [(0, "original"), (1, "original"), (2, "swapped"), (3, "swapped"), (4, "swapped")]:
        lines += [f"{half},forget,a,{0.5 + seed / 20},{seed}", f"{half},test,a,0.1,{seed}"]
    got = answer(audit(lines, "--json"))["by_attack"]["a"]
    assert got["advantage"] == pytest.approx((0.425 + 0.55) / 2)
    assert got["ci_low"] < got["advantage"] < got["ci_high"]


def test_jsonl_and_parquet_are_read_alike(tmp_path):
    import pandas as pd

    table = pd.DataFrame([row.split(",") for row in rows()], columns=HEADER.split(",")).astype({"accept": float})
    table.to_parquet(tmp_path / "p.parquet")
    table.to_json(tmp_path / "p.jsonl", orient="records", lines=True)
    for name in ("p.parquet", "p.jsonl"):
        result = CliRunner().invoke(app, ["audit", "swap", "--predictions", str(tmp_path / name), "--json"])
        assert answer(result)["quality"] == 0.625


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([HEADER, *rows()[:-1]], "3 points against 4 to forget"),
        ([HEADER, *rows()[:8]], "no rows with split swapped"),
        ([HEADER, *[r for r in rows() if "test" not in r]], "0 points against 4"),
        ([HEADER, *rows(), "originel,forget,a,1"], "line 18: column split: got 'originel'"),
        ([HEADER, *rows(), "original,retain,a,1"], "line 18: column member: got 'retain'"),
        ([HEADER, "original,forget,a,1.5"], "line 2: column accept: got 1.5"),
        ([HEADER, "original,forget,a,"], "line 2: column accept: got nan"),
        ([HEADER, "original,forget,a,yes"], "line 2: column accept: got 'yes', expected a number"),
        ([HEADER, "original,forget,,1"], "line 2: column attack"),
        ([HEADER], "has no rows"),
        (["split,member,accept"], "no column 'attack'"),
        ([HEADER + ",weight", *rows(suffix=",0")], "not all zero"),
        ([HEADER + ",weight", *rows(suffix=",-1")], "column weight"),
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


def test_an_impossible_alpha_is_refused(audit):
    assert audit([HEADER, *rows()], "--alpha", "1").exit_code == 2


def swap(path):
    return CliRunner().invoke(app, ["audit", "swap", "--predictions", str(path), "--json"])


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from(["original", "swapped", "forget", "test", "", "1", "x", "nan"]), max_size=6))
)
def test_no_file_makes_a_traceback(tmp_path_factory, cells):
    file = tmp_path_factory.mktemp("swap") / "p.csv"
    file.write_text("\n".join([HEADER, *(",".join(row) for row in cells)]))
    result = swap(file)
    assert result.exit_code in (0, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit)


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


@pytest.mark.parametrize("text", ["", "\n", " \n\n", "\0", "[]", "{}"])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_file_without_a_table_is_told(tmp_path, text, ending):
    file = tmp_path / f"p.{ending}"
    file.write_text(text)
    result = swap(file)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert f"p.{ending}" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("column", HEADER.split(","))
def test_a_missing_column_is_named(audit, column):
    keep = [at for at, name in enumerate(HEADER.split(",")) if name != column]
    lines = [",".join(line.split(",")[at] for at in keep) for line in (HEADER, *rows())]
    result = audit(lines)
    assert result.exit_code == 2
    assert "predictions.csv" in result.stderr
    assert f"no column '{column}'" in result.stderr


def test_an_attack_may_be_called_na_or_none(audit):
    lines = [HEADER + ",seed", *rows(attack="NA", suffix=",null"), *rows(attack="None", suffix=",null")]
    assert set(answer(audit(lines, "--json"))["by_attack"]) == {"NA", "None"}


def test_weights_whose_sum_is_beyond_doubles(audit):
    lines = [HEADER + ",weight", *rows(suffix=",1e308")]
    assert answer(audit(lines, "--json"))["quality"] == 0.625
    said = audit([HEADER + ",weight", *rows(suffix=",0")]).stderr
    assert "got 0.0; must be finite" in said
