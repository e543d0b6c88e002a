"""`lethe bounds` on files: the contract of its JSON, missing scores, and what is refused."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy.special import betaincinv

import lethe
from lethe.io.tables import read_table
from lethe.results.table import Results, read_rows
from lethe.statistics.bound import Covers
from lethe.statistics.bounds import binary_lower, binary_upper, paper_bounds, tighter_bounds
from tests.lethe.cli.calls import Command
from tests.lethe.statistics.draws import drawn

ENTRY = {
    *("prompt_id", "n", "mean", "sd", "max", "ed_score", "m_bin", "m_bin_lower", "m_gen", "m_mu", "m_mu_lower"),
    *("m_sigma", "tighter", "leak_at_k"),
}


command = Command("bounds")
call, result = command.call, command.result


def write(tmp_path, scores, prompts=None, suffix=".csv"):
    table = pd.DataFrame({"score": scores} if prompts is None else {"prompt_id": prompts, "score": scores})
    path = tmp_path / f"s{suffix}"
    {".csv": lambda: table.to_csv(path, index=False), ".parquet": lambda: table.to_parquet(path)}.get(
        suffix, lambda: table.to_json(path, orient="records", lines=True)
    )()
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_the_contract(tmp_path, suffix):
    rng = np.random.default_rng(0)
    scores, prompts = rng.random(40), ["b", "a"] * 20
    got = result(write(tmp_path, scores, prompts, suffix), "--alpha", 0.05, "--threshold", 0.5)
    assert set(got) == {"alpha", "n_prompts", "per_prompt", "worst_prompt", "pooled", "share_above"}
    assert (got["alpha"], got["n_prompts"], got["pooled"]) == (0.05, 2, None)
    assert [row["prompt_id"] for row in got["per_prompt"]] == ["b", "a"]
    row = got["per_prompt"][0]
    assert set(row) == ENTRY
    assert set(row["tighter"]) == {"mean_upper", "mean_lower", "exceedance", "sd_upper"}
    paper, sharp = paper_bounds(scores[::2], 0.05, [0.5]), tighter_bounds(scores[::2], 0.05, [0.5])
    assert row["m_gen"] == [
        {"x": 0.5, "bound": pytest.approx(paper.m_gen[0, 0]), "lower": pytest.approx(paper.m_gen_lower[0, 0])}
    ]
    assert row["m_mu"] == pytest.approx(paper.m_mu[0])
    assert row["m_sigma"] == pytest.approx(paper.m_sigma[0])
    assert row["m_bin"] is row["leak_at_k"] is None
    assert row["tighter"]["mean_upper"] == pytest.approx(sharp.mean_upper[0])
    exceedance = {"x": 0.5, "bound": pytest.approx(sharp.exceedance[0, 0]), "method": "berk-jones"}
    assert row["tighter"]["exceedance"] == [exceedance]
    assert got["worst_prompt"]["metric"] == "m_mu"
    assert got["worst_prompt"]["bound"] == max(row["m_mu"] for row in got["per_prompt"])
    assert got["share_above"] == {"threshold": 0.1, "share": 1.0}


OF_ORACLE = {
    "M_bin": lambda row, case: row["m_bin"],
    "M_gen_clipped": lambda row, case: {at["x"]: at["bound"] for at in row["m_gen"]}[case["params"]["x"]],
    "M_mu_upper_onesided_exactgrid": lambda row, case: row["m_mu"],
    "ED_score": lambda row, case: row["ed_score"],
}


def test_the_oracles_through_the_command(shared, tmp_path):
    """Every case whose value the command gives, as the prompts of one file at its level, in the order of its draws."""
    cases = json.loads((shared / "oracles/bounds.json").read_text())["cases"]
    files: dict = {}
    for case in cases:
        if case["metric"] in OF_ORACLE:
            files.setdefault(case["params"].get("alpha", 0.01), []).append(case)
    for alpha, cases in files.items():
        tables = []
        for case in cases:
            hits = case["input"].get("S")
            scores = drawn(case) if hits is None else np.repeat([1.0, 0.0], [hits, case["input"]["n"] - hits])
            tables.append(pd.DataFrame({"prompt_id": case["id"], "score": scores}))
        pd.concat(tables).to_csv(path := tmp_path / f"{alpha}.csv", index=False)
        got = result(path, "--alpha", alpha, "--threshold", 0, "--threshold", 0.5)
        rows = {row["prompt_id"]: row for row in got["per_prompt"]}
        for case in cases:
            value = OF_ORACLE[case["metric"]](rows[case["id"]], case)
            assert value == pytest.approx(case["expected"], rel=1e-9, abs=1e-12), case["id"]
    assert sum(map(len, files.values())) >= 29


def test_the_exceedance_is_the_berk_jones_band_at_the_oracles_level(shared, tmp_path):
    cases = json.loads((shared / "oracles/bounds.json").read_text())["cases"]
    case = next(case for case in cases if case["metric"] == "bj_one_sided_eta")
    n, zeros = case["input"]["n"], case["input"]["n"] // 2
    path = write(tmp_path, [0.0] * zeros + [0.4] * (n - zeros))
    row = result(path, "--alpha", case["params"]["alpha"], "--threshold", 0, "--threshold", 0.5)["per_prompt"][0]
    got = [at["bound"] for at in row["tighter"]["exceedance"]]
    assert got == pytest.approx([1 - betaincinv(k, n - k + 1, case["expected"]) for k in (zeros, n)], rel=1e-6)


def test_binary_asked_of_scores_that_are_not_binary_is_null(tmp_path):
    got = result(write(tmp_path, [0, 1, 0, 0.5], ["a", "a", "b", "b"]))
    assert [row["m_bin"] is None for row in got["per_prompt"]] == [False, True]
    assert (got["pooled"], got["worst_prompt"]["metric"]) == (None, "m_mu")


def test_one_sample_has_bounds(tmp_path):
    row = result(write(tmp_path, [1.0]), "--alpha", 0.05)["per_prompt"][0]
    assert (row["n"], row["m_bin"], row["m_bin_lower"], row["sd"]) == (1, 1.0, pytest.approx(0.05), 0.0)


def test_binary_scores_of_equal_n_are_pooled(tmp_path):
    got = result(write(tmp_path, [0, 1, 0, 0], ["a", "a", "b", "b"]), "--alpha", 0.05)
    assert got["pooled"] == pytest.approx(float(binary_upper(1, 4, 0.05)))
    assert got["worst_prompt"] == {"prompt_id": "a", "metric": "m_bin", "bound": got["per_prompt"][0]["m_bin"]}
    assert got["per_prompt"][1]["m_bin_lower"] == 0.0


def test_leak_at_k_of_binary_prompts(tmp_path):
    """The band is 1 - (1 - p)^k of the prompt's own M_bin and its lower bound; the estimate needs k answers."""
    got = result(write(tmp_path, [0, 0, 1, 0, 0.5, 1], [*"aaaa", *"bb"]), "--alpha", 0.05)["per_prompt"]
    a = got[0]
    assert got[1]["leak_at_k"] is None
    points = {point["k"]: point for point in a["leak_at_k"]}
    assert [*points] == [*(d * 10**p for p in range(6) for d in (1, 2, 5)), 10**6]
    assert (points[1]["lower"], points[1]["upper"]) == (a["m_bin_lower"], a["m_bin"])
    assert [points[k]["estimate"] for k in (1, 2, 5)] == [pytest.approx(0.25), pytest.approx(0.5), None]
    for k in (2, 50, 1000):
        for side, p in (("lower", a["m_bin_lower"]), ("upper", a["m_bin"])):
            assert points[k][side] == pytest.approx(1 - (1 - p) ** k)


def test_leak_at_k_of_missing_answers(tmp_path):
    """A missing answer is a leak above and none below; over the judged ones alone it is left out."""
    file = write(tmp_path, [0, None, 1, 0])
    row = result(file, "--alpha", 0.05, "--missing", "worst")["per_prompt"][0]
    at_1, judged = row["leak_at_k"][0], row["judged"]["leak_at_k"][0]
    assert at_1["lower"] == pytest.approx(float(binary_lower(1, 4, 0.05)))
    assert at_1["upper"] == pytest.approx(float(binary_upper(2, 4, 0.05)))
    assert at_1["estimate"] == judged["estimate"] == pytest.approx(1 / 3)
    assert (judged["lower"], judged["upper"]) == (row["judged"]["m_bin_lower"], row["judged"]["m_bin"])
    dropped = result(file, "--alpha", 0.05, "--missing", "drop")["per_prompt"][0]
    assert dropped["leak_at_k"][0] == judged


def test_ragged_prompts_are_bounded_each_and_not_pooled(tmp_path):
    got = result(write(tmp_path, [0, 1, 0], ["a", "a", "b"]), "--alpha", 0.05)
    assert [row["n"] for row in got["per_prompt"]] == [2, 1]
    assert got["pooled"] is None


@pytest.mark.parametrize(
    ("name", "text", "prompts"),
    [
        ("s.csv", "prompt_id,score\n007,1\n7,0\n7.0,0\n7,0\n", {"007": 1, "7": 2, "7.0": 1}),
        (
            "s.jsonl",
            '{"prompt_id": 7, "score": 1}\n{"prompt_id": "7", "score": 0}\n{"prompt_id": "007", "score": 0}\n',
            {"7": 2, "007": 1},
        ),
    ],
)
def test_prompt_ids_are_text(tmp_path, name, text, prompts):
    """007 and 7 are two prompts."""
    (tmp_path / name).write_text(text)
    assert {row["prompt_id"]: row["n"] for row in result(tmp_path / name)["per_prompt"]} == prompts


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_the_greedy_answer_is_no_draw(tmp_path, suffix):
    """A table of Lethe's own has sample -1 for it."""
    table = pd.DataFrame({"prompt_id": [*"aaabbb"], "sample": [-1, 0, 1] * 2, "score": [1.0, 0, 0, 1, 1, 0]})
    path = tmp_path / f"s{suffix}"
    table.to_json(path, orient="records", lines=True) if suffix == ".jsonl" else None
    table.to_csv(path, index=False) if suffix == ".csv" else None
    table.to_parquet(path) if suffix == ".parquet" else None
    got = result(path)["per_prompt"]
    assert [(row["n"], row["mean"]) for row in got] == [(2, 0), (2, 0.5)]
    assert lethe.bounds(path).to_frame()["n"].tolist() == [2, 2]


def test_a_row_is_named_by_its_line_though_the_greedy_rows_are_left_out(tmp_path):
    (tmp_path / "s.csv").write_text("sample,score\n-1,\n0,0\n-1,2\n1,7\n")
    assert "line 5: score: got 7" in command.refused(tmp_path / "s.csv")
    (tmp_path / "s.csv").write_text("sample,score\n-1,0\n-1,1\n")
    assert "sample -1" in command.refused(tmp_path / "s.csv")


def test_the_rows_are_the_json(tmp_path):
    path = write(tmp_path, [0, 1, 0, 0, 0.5, 0], ["a", "a", "a", "b", "b", "b"])
    options = ("--alpha", 0.05, "--threshold", 0.25, "--table", tmp_path / "t.parquet")
    got = result(path, *options)
    results = Results({"s": tuple(read_rows(tmp_path / "t.parquet"))})
    for row in got["per_prompt"]:
        values = results.questions("s")[row["prompt_id"]].values
        shared = ("n", "mean", "sd", "max", "ed_score", "m_mu", "m_mu_lower", "m_sigma")
        assert [values[key] for key in shared] == [row[key] for key in shared]
        assert values.get("m_bin") == row["m_bin"]
        assert values["tighter_mean_upper"] == row["tighter"]["mean_upper"]
        (tail,) = results.questions("s")[row["prompt_id"]].series("exceedance")
        assert (tail.at, tail.lower, tail.upper) == tuple(row["m_gen"][0][key] for key in ("x", "lower", "bound"))
    worst = results.model("s").bounds["m_mu_worst"]
    assert (worst.value, worst.alpha) == (got["worst_prompt"]["bound"], 0.05)
    found = lethe.bounds(path, alpha=0.05, threshold=[0.25]).to_results()
    assert found.drop(columns="model").equals(read_table(tmp_path / "t.parquet").drop(columns="model"))


def test_a_table_that_is_no_parquet_is_refused_before_work(tmp_path):
    assert "--table: got 't.csv'" in command.refused(tmp_path / "nothing.csv", "--table", "t.csv")


def test_the_order_of_rows_is_the_order_of_the_bets(tmp_path):
    scores = [0.0] * 30 + [1.0] * 10
    one = result(write(tmp_path, scores))["per_prompt"][0]["tighter"]["mean_upper"]
    other = result(write(tmp_path, scores[::-1]))["per_prompt"][0]["tighter"]["mean_upper"]
    assert one != other


def test_missing_scores(tmp_path):
    path = write(tmp_path, [0.0, math.nan, 1.0, 0.0])
    refused = call(path)
    assert refused.exit_code == 2
    assert "line 3: score is missing" in refused.output
    assert "--missing" in refused.output
    worst = result(path, "--missing", "worst", "--alpha", 0.05)["per_prompt"][0]
    assert (worst["n"], worst["missing"], worst["mean"]) == (4, 1, pytest.approx(1 / 3))
    assert worst["m_bin"] == pytest.approx(float(binary_upper(2, 4, 0.05)))
    assert worst["m_bin_lower"] == pytest.approx(1 - 0.95 ** (1 / 4))
    drop = result(path, "--missing", "drop", "--alpha", 0.05)["per_prompt"][0]
    assert (drop["n"], drop["missing"]) == (3, 1)
    assert drop["m_bin"] == pytest.approx(float(binary_upper(1, 3, 0.05)))
    whole = result(write(tmp_path, [0.0, 1.0, 0.0]), "--alpha", 0.05)["per_prompt"][0]
    assert worst["judged"] == {key: value for key, value in whole.items() if key != "prompt_id"}


def test_a_prompt_of_missing_scores_only_says_nothing_at_its_worst(tmp_path):
    path = write(tmp_path, [0.5, 0.25, math.nan], ["a", "a", "b"])
    got = result(path, "--missing", "worst")["per_prompt"]
    assert (got[0]["judged"]["mean"], got[0]["missing"]) == (0.375, 0)
    assert (got[1]["judged"], got[1]["mean"], got[1]["m_mu"], got[1]["m_mu_lower"]) == (None, None, 1, 0)


def test_a_file_of_missing_scores_only(tmp_path):
    """Each counts as 1 for an upper bound and as 0 for a lower one; over the judged there is nothing to say."""
    path = write(tmp_path, [math.nan] * 4, ["a", "a", "b", "b"])
    got = result(path, "--missing", "worst", "--alpha", 0.05)
    for row in got["per_prompt"]:
        assert (row["missing"], row["judged"], row["mean"]) == (2, None, None)
        assert (row["m_mu"], row["m_mu_lower"], row["m_bin"], row["m_bin_lower"]) == (1, 0, 1, 0)
    assert got["worst_prompt"]["bound"] == 1
    assert got["pooled"] == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("score\n0.1\n\n0.2\n", "line 3: score is missing"),
        ("score\n0.5\n1.5\n", "line 3: score: got 1.5; must be a number in [0, 1]"),
        ("score\n-0.1\n", "got -0.1"),
        ("score\n1.0000000001\n", "got 1.0000000001; must be"),
        ("0.5\n0.2\n", "Add a first line with 'score'"),
        ("score\nhalf\n", "line 2: column score: got 'half'"),
        ("value\n1\n", "no column 'score'"),
        ("score\n", "holds no rows"),
        ("", "is empty"),
        ("prompt_id,score\n,1\n", "prompt_id is missing"),
    ],
)
def test_a_bad_file_is_a_sentence_and_status_2(tmp_path, text, sentence):
    path = tmp_path / "s.csv"
    path.write_text(text)
    done = call(path)
    assert done.exit_code == 2
    assert sentence in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (f'{{"score": {"9" * 400}}}', "line 2: score: got inf; must be"),
        ('{"score": 1, "prompt_id": [1]}', "line 2: column prompt_id: got [1]"),
    ],
)
def test_a_broken_json_line_is_a_sentence_and_status_2(tmp_path, row, sentence):
    (tmp_path / "s.jsonl").write_text('{"score": 1, "prompt_id": "a"}\n' + row)
    done = call(tmp_path / "s.jsonl")
    assert done.exit_code == 2
    assert sentence in done.output


@pytest.mark.parametrize(
    ("option", "value"), [("--alpha", 0), ("--alpha", 1e-200), ("--alpha", 0.6), ("--threshold", 1.5)]
)
def test_a_bad_option_is_refused(tmp_path, option, value):
    done = call(write(tmp_path, [0.5]), option, value)
    assert done.exit_code == 2
    assert done.output.startswith(f"lethe: {option}: got {float(value)!r}; must be")


def test_a_prompt_of_missing_scores_only_cannot_be_dropped(tmp_path):
    done = call(write(tmp_path, [0.5, math.nan], ["a", "b"]), "--missing", "drop")
    assert done.exit_code == 2
    assert "prompt 'b'" in done.output


def words(done) -> str:
    return " ".join(done.output.split())


def test_the_table_for_people_shows_names_as_they_are(tmp_path):
    done = call(write(tmp_path, [0, 1, 0, 0], ["a", "a", "b", "[red]b"]))
    assert done.exit_code == 0
    assert "[red]b" in done.output


def test_no_printed_bound_is_below_the_bound(tmp_path):
    """3 leaks of 100 at 0.05: the bound is 0.0757107937."""
    path = write(tmp_path, [1.0] * 3 + [0.0] * 97)
    told = words(call(path, "--alpha", 0.05))
    bound = result(path, "--alpha", 0.05)["worst_prompt"]["bound"]
    assert "0.07571" not in told
    assert told.count("0.07572") >= 3  # the table, the worst prompt, the average
    assert bound == pytest.approx(0.0757107937)


def test_one_prompt_is_one_prompt_and_no_lower_bound_is_certainty(tmp_path):
    told = words(call(write(tmp_path, [1.0] * 90 + [0.0] * 10)))
    assert "1 prompts" not in told
    assert "0.9999 to 1.0" in told


def test_bonferroni_bounds_hold_together(tmp_path):
    path = write(tmp_path, [0.0] * 500 + [1.0] * 40 + [0.0] * 460, ["a"] * 500 + ["b"] * 500)
    alone, got = result(path), result(path, "--together", "bonferroni")
    together = got.pop("together")
    assert got == alone
    assert [row["prompt_id"] for row in together["bounds"]] == ["a", "b"]
    expected = binary_upper(np.array([0, 40]), 500, 0.01 / 2).tolist()
    assert [row["bound"] for row in together["bounds"]] == pytest.approx(expected)
    assert (together["correction"], together["metric"], together["alpha"]) == ("bonferroni", "m_bin", 0.01)
    assert (together["certified"], together["threshold"], together["every_prompt_under"]) == (["a"], 0.1, False)


def test_holm_certifies_more_than_bonferroni(tmp_path):
    """50 clean draws have the p-value .9^50 = .00515: above .05 / 10, at most .05 / 9 once the first is certified."""
    sizes = [200] + [50] * 9
    scores = np.concatenate([np.zeros(200 + 8 * 50), np.ones(50)])
    path = write(tmp_path, scores, np.repeat([f"p{number}" for number in range(10)], sizes))
    options = ("--alpha", 0.05, "--together")
    assert result(path, *options, "bonferroni")["together"]["certified"] == ["p0"]
    holm = result(path, *options, "holm")["together"]
    assert holm["certified"] == [f"p{number}" for number in range(9)]
    assert (holm["metric"], holm["bounds"], holm["covers"]) == ("m_bin", [], Covers.CERTIFIED)


def test_graded_prompts_are_certified_by_their_mean(tmp_path):
    rng = np.random.default_rng(3)
    scores = np.concatenate([rng.random(300) * 0.05, rng.random(300)])
    path = write(tmp_path, scores, ["low"] * 300 + ["high"] * 300)
    for correction in ("bonferroni", "holm"):
        together = result(path, "--together", correction)["together"]
        assert (together["metric"], together["certified"]) == ("mean_upper", ["low"])


def test_a_missing_score_counts_as_a_leak_in_a_certificate(tmp_path):
    clean = write(tmp_path, [0.0] * 100)
    assert result(clean, "--together", "holm")["together"]["certified"] == ["all"]
    path = write(tmp_path, [0.0] * 90 + [math.nan] * 10)
    assert result(path, "--together", "holm", "--missing", "worst")["together"]["certified"] == []


@pytest.mark.slow
def test_two_million_rows(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"prompt_id": np.repeat(np.arange(2000), 1000), "score": rng.random(2_000_000) < 0.1})
    table.to_parquet(tmp_path / "s.parquet")
    got = result(tmp_path / "s.parquet")
    assert got["n_prompts"] == 2000
    assert got["pooled"] == pytest.approx(0.1, abs=0.002)
    pd.DataFrame({"score": rng.random(2_000_000)}).to_parquet(tmp_path / "one.parquet")
    one = result(tmp_path / "one.parquet")["per_prompt"][0]
    assert one["n"] == 2_000_000
    assert one["tighter"]["exceedance"][0]["method"] == "dkw"
    assert 0.5 < one["tighter"]["mean_upper"] < 0.502


def test_published_forms_that_say_nothing_stay_in_the_json_and_not_before_a_person(tmp_path):
    """M_mu's lower side and M_sigma of few 0/1 scores: the keys keep their values, help and table say what they are."""
    path = write(tmp_path, [0.0, 1.0] * 4)
    (row,) = result(path)["per_prompt"]
    assert row["m_mu_lower"] == 0 < row["m_bin_lower"]
    assert row["m_sigma"] > 0.5
    shown = call(path).output
    heads = next(line for line in shown.splitlines() if "M_mu" in line)
    assert heads.index("mean <= (betting)") < heads.index("M_mu")
    assert "M_sigma" not in shown
    sd = next(line for line in shown.splitlines() if line.startswith("│ all")).split("│")[-2]
    assert float(sd) == 0.5
