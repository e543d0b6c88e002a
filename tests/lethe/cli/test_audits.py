"""`lethe audit`: Epsilon* of losses, the unlearning game of predictions, and one run of guesses."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lethe
from lethe.errors import BadFile
from lethe.io.records import read_losses
from tests.cases import cases
from tests.lethe.audits.test_one_run import write
from tests.lethe.cli.calls import Command

command = Command("audit", "epsilon-star")
call = command.call
result = command.result
refused = command.refused


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    train, population = rng.gamma(2, 5, 300), rng.gamma(4, 5, 200)
    (tmp_path / "train.csv").write_text("loss\n" + "\n".join(map(repr, train.tolist())) + "\n")
    (tmp_path / "population.txt").write_text("\n".join(map(repr, population.tolist())))
    return (
        ["--train", tmp_path / "train.csv", "--population", tmp_path / "population.txt"],
        train,
        population,
    )


def test_a_cut_that_leaves_no_threshold_is_no_number(tmp_path):
    (tmp_path / "train.txt").write_text("0\n0\n0\n")
    (tmp_path / "population.txt").write_text("1\n1\n1\n")
    files = ["--train", tmp_path / "train.txt", "--population", tmp_path / "population.txt"]
    for method in ("empirical", "parametric"):
        options = ["--delta", 1e-4, "--cut", 0.1, "--method", method]
        got = result(*files, *options)
        assert (got["epsilon_star"], got["infinite"]) == (None, False)
        assert "no threshold" in got["note"]
        assert "undefined" in call(*files, *options).output


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=20)
)
def test_any_finite_losses_survive_each_form(tmp_path, losses):
    forms = {
        "a.txt": "\n".join(map(repr, losses)),
        "b.csv": "loss\n" + "\n".join(map(repr, losses)) + "\n",
    }
    forms["c.csv"] = forms["a.txt"]
    forms["marked.txt"] = forms["marked.csv"] = "\ufeff" + forms["a.txt"] + "\n\n"
    forms["d.jsonl"] = "\n".join(json.dumps({"loss": loss}) for loss in losses)
    for name, text in forms.items():
        (tmp_path / name).write_text(text)
        assert read_losses(tmp_path / name).values.tolist() == losses


@cases
def test_a_bad_file_is_a_sentence_and_status_2(files, tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    assert sentence in refused("--train", tmp_path / name, *files[0][2:], "--delta", 1e-4)


def test_a_missing_file_and_bad_options(files, tmp_path):
    assert (
        "no such file"
        in call("--train", tmp_path / "none.txt", *files[0][2:], "--delta", 1e-4).output
    )
    for options in (
        ["--delta", 1.5],
        ["--delta", 1e-4, "--cut", 0.7],
        ["--delta", 1e-4, "--alpha", 0],
    ):
        assert "must be" in refused(*files[0], *options)


HEADER = "split,member,attack,accept"
# Four points a set: a_original = 3/4 - 1/4, a_swapped = 2/4 - 1/4.
CASE = {
    ("original", "forget"): "1110",
    ("original", "test"): "0010",
    ("swapped", "forget"): "1100",
    ("swapped", "test"): "0100",
}
HALVED = {key: bits[:2] for key, bits in CASE.items()}


def rows(case=CASE, attack="confidence", suffix=""):
    return [
        f"{half},{member},{attack},{bit}{suffix}"
        for (half, member), bits in case.items()
        for bit in bits
    ]


swap = Command("audit", "swap", "--predictions")


@pytest.fixture
def predictions(tmp_path):
    def write(*lines):
        file = tmp_path / "predictions.csv"
        file.write_text("\n".join(lines) + "\n")
        return file

    return write


def test_a_perfect_attack_leaves_no_quality_at_all(predictions):
    """To the last bit, although the weights are no sums of powers of two."""
    lines = [HEADER + ",weight"]
    for half in ("original", "swapped"):
        for member, accept in (("forget", 1), ("test", 0)):
            lines += [f"{half},{member},a,{accept},{weight}" for weight in (0.1, 0.2, 0.3, 0.7)]
    got = swap.result(predictions(*lines))
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
        ([HEADER + ",seed", *rows(suffix=",0"), *rows(HALVED, suffix=",1")], "one size"),
    ],
)
def test_a_broken_file_is_told_in_one_sentence(predictions, lines, said):
    assert said in swap.refused(predictions(*lines))


BROKEN = {  # column: what breaks it, and what the sentence says is legal
    "split": (
        st.sampled_from(["", "originel", "Original", 3, None, [1], {"a": 1}]),
        "original or swapped",
    ),
    "member": (st.sampled_from(["", "retain", "FORGET", 0, None, ["forget"]]), "forget or test"),
    "attack": (st.sampled_from([None, "", ["a"], {}]), "a label"),
    "seed": (st.sampled_from([None, "", [0]]), "a label"),
    "weight": (st.sampled_from([-1, None, "much", "inf", [1]]), "number"),
    "accept": (
        st.floats().filter(lambda value: not 0 <= value <= 1)
        | st.sampled_from(["maybe", None, "", [0.5], "0,5"]),
        "number",
    ),
}


@settings(max_examples=50)
@given(data=st.data(), ending=st.sampled_from(["csv", "jsonl"]))
def test_one_broken_cell_is_told_with_its_file_line_and_what_is_legal(
    tmp_path_factory, data, ending
):
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
    lines = write(file, table)
    sentence = swap.refused(file)
    for part in (file.name, f"line {lines[row]}", f"column {column}", legal):
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
    file.write_text(
        "\n".join([HEADER + ",weight,seed", *(",".join(map(str, row)) for row in order)])
    )
    got = swap.result(file)

    def mean(*where):
        chosen = [(row[3], row[4]) for row in rows if (*row[:3], row[5]) == where]
        return sum(accept * weight for accept, weight in chosen) / sum(
            weight for _, weight in chosen
        )

    for attack in "ab":
        signed = [
            mean(half, "forget", attack, seed) - mean(half, "test", attack, seed)
            for half in ("original", "swapped")
            for seed in range(seeds)
        ]
        assert got["by_attack"][attack]["advantage"] == pytest.approx(
            abs(sum(signed) / len(signed)), abs=1e-12
        )
    assert got["quality"] == pytest.approx(
        1 - max(measured["advantage"] for measured in got["by_attack"].values())
    )


def test_weights_whose_sum_is_beyond_doubles(predictions):
    lines = [HEADER + ",weight", *rows(suffix=",1e308")]
    assert swap.result(predictions(*lines))["quality"] == 0.625
    assert "got 0.0; must be finite" in swap.refused(
        predictions(HEADER + ",weight", *rows(suffix=",0"))
    )


def test_attacks_with_and_without_an_interval_are_told_apart(predictions):
    lines = [
        HEADER + ",seed",
        *rows(suffix=",0"),
        *rows({**CASE, ("original", "forget"): "1100"}, suffix=",1"),
        *rows(attack="loss", suffix=",0"),
    ]
    said = " ".join(swap.call(predictions(*lines)).stdout.split())
    assert "over 2 seeds" in said
    assert "No intervals for loss" in said


COUNTS = ("--n", 1000, "--r", 200, "--errors", 26)


one_run = Command("audit", "one-run")


def by_method(whole):
    return {row["method"]: row for row in whole["results"]}


def test_dp_sgd_of_one_full_step_is_the_gaussian():
    """With q = 1 and one step, sigma is 1 / mu: the accountant's distributions must give the same audit."""
    gaussian = one_run.result(*COUNTS, "--method", "exact", "--null", 1.0)["results"][0]
    sgd = one_run.result(
        *COUNTS, "--method", "exact", "--null", 1.0, "--mechanism", "dp-sgd", "--q", 1, "--steps", 1
    )
    assert sgd["results"][0]["p_value"] == pytest.approx(gaussian["p_value"], rel=0.01)
    assert sgd["results"][0]["epsilon_lower"] == pytest.approx(gaussian["epsilon_lower"], rel=0.01)


@cases
def test_a_broken_trade_off_file_is_named_with_its_line(tmp_path, text, sentence):
    (tmp_path / "f.csv").write_text(text)
    done = one_run.refused(*COUNTS, "--mechanism", "tradeoff", "--tradeoff", tmp_path / "f.csv")
    assert "f.csv" in done
    assert sentence in done


@cases
def test_what_is_refused(options, sentence):
    assert sentence in one_run.refused(*options)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--mechanism", "laplace"), ("--mechanism", "approx-dp")])
def test_the_p_value_curve_crosses_alpha_at_the_bound(options):
    whole = one_run.result(*COUNTS, "--curve", *options)
    for row in whole["results"]:
        for point in whole["curve"]:
            rejected = point[row["method"]] <= whole["alpha"]
            assert rejected == (point["epsilon"] <= row["epsilon_lower"]), (row["method"], point)
    assert "p-values by epsilon" in one_run.call(*COUNTS, "--curve").output


@pytest.mark.slow
def test_several_declared_r_share_alpha(guesses):
    """Each r at its share: no bound is better than the best of single audits at that share, and none worse."""
    path, _ = guesses
    several = one_run.result("--guesses", path, "--r", 100, "--r", 200, "--r", 500, "--null", 1.0)
    single = [
        one_run.result("--guesses", path, "--r", r, "--alpha", 0.05 / 3, "--null", 1.0)
        for r in (100, 200, 500)
    ]
    assert several["r"] == [100, 200, 500]
    assert several["errors"] == [audit["errors"] for audit in single]
    for method, row in by_method(several).items():
        found = [by_method(audit)[method] for audit in single if method in by_method(audit)]
        assert row["epsilon_lower"] == max(audit["epsilon_lower"] for audit in found)
        assert row["p_value"] == pytest.approx(min(1, 3 * min(audit["p_value"] for audit in found)))
        assert "alpha / 3" in row["note"]


def test_bits_that_are_no_fair_coins_contradict_no_claim(tmp_path):
    rows = [{"bit": 1, "guess": 1, "score": n} for n in range(1000)]
    write(tmp_path / "g.csv", rows)

    said = one_run.refused("--guesses", tmp_path / "g.csv", "--r", 200, "--claimed-epsilon", 0.5)

    assert "1,000 of its 1,000 bits are 1" in said


@pytest.mark.parametrize("name", ["id", "canary", "UUID"])
def test_a_canary_that_stands_twice_is_refused(tmp_path, name):
    rows = [{name: n % 50, "bit": n % 2, "guess": n % 2, "score": n} for n in range(100)]
    write(tmp_path / "g.csv", rows)

    assert f"line 52: {name} repeats" in one_run.refused("--guesses", tmp_path / "g.csv", "--r", 20)


LOSSES = pd.DataFrame({"loss": [0.01 * number for number in range(60)]})


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (LOSSES.assign(id=[n // 2 for n in range(60)]), "line 3: id repeats"),
        (LOSSES.assign(seed=[n % 3 for n in range(60)]), "3 values of seed"),
        (LOSSES.assign(checkpoint=["a", "b"] * 30), "2 values of checkpoint"),
        (pd.concat([LOSSES] * 3), "180 rows are 60"),
        (pd.concat([LOSSES, LOSSES[10:40]]), "lines 12 to 41 stand again"),
        (LOSSES.assign(is_member=[0, 1] * 30), "2 values of is_member"),
        (LOSSES.assign(seed=1), "is of seed"),
        (LOSSES.assign(checkpoint="b"), "is of checkpoint"),
    ],
)
def test_losses_of_a_record_twice_or_of_several_models_bound_nothing(tmp_path, rows, said):
    once, broken = tmp_path / "once.csv", tmp_path / "broken.csv"
    LOSSES.assign(id=range(60), seed=0, checkpoint="a").to_csv(once, index=False)
    rows.to_csv(broken, index=False)
    audit = Command("audit", "epsilon-star", "--delta", 1e-5)

    assert audit.result("--train", once, "--population", once)["epsilon_lower"] == 0
    assert said in audit.refused("--train", once, "--population", broken)
    assert said in audit.refused("--train", broken, "--population", once)


def test_losses_in_memory_that_stand_equally_often_are_refused():
    losses = LOSSES["loss"].tolist()

    with pytest.raises(BadFile, match="120 rows are 60"):
        lethe.audit.epsilon_star(losses * 2, losses, delta=1e-5)


def test_guesses_that_were_written_twice_are_no_further_canaries(tmp_path):
    bits = [0, 1] * 30
    guesses = pd.DataFrame({"bit": bits, "guess": bits, "score": LOSSES["loss"]})
    pd.concat([guesses] * 2).to_csv(tmp_path / "twice.csv", index=False)
    audit = Command("audit", "one-run", "--r", 20)

    assert "120 rows are 60" in audit.refused("--guesses", tmp_path / "twice.csv")


def test_guesses_of_which_some_were_written_twice_are_no_further_canaries(tmp_path):
    bits = [0, 1] * 30
    guesses = pd.DataFrame({"bit": bits, "guess": bits, "score": LOSSES["loss"]})
    pd.concat([guesses, guesses[20:50]]).to_csv(tmp_path / "some.csv", index=False)
    audit = Command("audit", "one-run", "--r", 20)

    said = audit.refused("--guesses", tmp_path / "some.csv")

    assert "22 to 51 stand again" in said


def test_equal_losses_that_stand_side_by_side_are_no_copy():
    losses = [0.25] * 50 + LOSSES["loss"].tolist() + [0.25] * 50

    assert lethe.audit.epsilon_star(losses, losses, delta=1e-5).epsilon_lower == 0


def played(seeds):
    """Predictions on 20 points of each set, in both halves, by models of these seeds; equal seeds predict alike."""
    tables = []
    for name, seed in enumerate(seeds):
        for half, split in enumerate(("original", "swapped")):
            rng = np.random.default_rng([seed, half])
            table = pd.DataFrame({"split": split, "member": ["forget", "test"] * 20})
            tables.append(table.assign(attack="loss", accept=rng.random(40), seed=name))
    return pd.concat(tables)


def test_seeds_whose_predictions_are_copies_give_no_interval(tmp_path):
    played([1, 2, 1, 2]).to_csv(tmp_path / "copies.csv", index=False)
    played([1, 2, 3, 4]).to_csv(tmp_path / "seeds.csv", index=False)

    said = swap.refused(tmp_path / "copies.csv")

    assert "seed 2 has" in said
    assert swap.result(tmp_path / "seeds.csv")["by_attack"]["loss"]["ci_low"] is not None


def test_a_half_that_is_a_copy_of_the_other_was_not_learned_afresh(tmp_path):
    table = played([1, 2, 3])
    original = table[table["split"] == "original"]
    copied = pd.concat([original, original.assign(split="swapped")])
    copied.to_csv(tmp_path / "p.csv", index=False)

    assert "has the predictions" in swap.refused(tmp_path / "p.csv")


@pytest.mark.parametrize("column", ["seed", "attack"])
def test_names_that_only_look_different_are_no_further_seeds_or_attacks(tmp_path, column):
    names = {0: "a", 1: "a ", 2: "b", 3: "b\u200b"}
    table = played([1, 2, 3, 4])
    table[column] = table["seed"].map(names)
    table.to_csv(tmp_path / "p.csv", index=False)

    assert f"{column} 'a' and" in swap.refused(tmp_path / "p.csv")


def test_seeds_with_one_value_give_no_interval(tmp_path):
    rows = []
    for seed in range(4):
        for split in ("original", "swapped"):
            rows += [(split, "forget", "loss", 0.9, seed), (split, "test", "loss", 0.4, seed)]
    table = pd.DataFrame(rows, columns=["split", "member", "attack", "accept", "seed"])
    table.to_csv(tmp_path / "p.csv", index=False)
    audit = Command("audit", "swap", "--predictions", tmp_path / "p.csv")

    found = audit.result()["by_attack"]["loss"]

    assert (found["ci_low"], found["ci_high"]) == (None, None)
    assert "have one value" in " ".join(audit.call().output.split())


@pytest.mark.parametrize("cell", [b"\xff", [1, 2]])
@pytest.mark.parametrize("column", ["note", "model"])
def test_a_column_of_any_cells_beside_losses_is_no_traceback(tmp_path, cell, column):
    table = pd.DataFrame({"loss": np.linspace(0.1, 2.0, 40), column: [cell] * 40})
    table.to_parquet(tmp_path / "train.parquet")
    population = tmp_path / "population.csv"
    population.write_text("loss\n" + "\n".join(map(str, np.linspace(0.5, 3.0, 40))))

    audit = Command("audit", "epsilon-star", "--delta", 1e-5)
    audit.result("--train", tmp_path / "train.parquet", "--population", population)
