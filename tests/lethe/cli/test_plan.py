import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from lethe.cli.app import app


def call(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_fixed_and_sequential_samples():
    got = json.loads(call("--tau", 0.05, "--width", 0.05, "--json").stdout)
    assert got["width_one_sided"] == 922
    assert got["width_two_sided"] == 1060
    assert got["certify_fixed"] == 90
    by_leak = {row["p"]: row["samples"] for row in got["sequential"]}
    assert by_leak[0.0] == 109
    assert by_leak[0.5] < by_leak[0.2] < by_leak[0.02]


def test_each_verdict_has_its_chance():
    got = json.loads(call("--tau", 0.05, "--json").stdout)["sequential"]
    for row in got:
        assert row["certified"] + row["leaks"] + row["undecided"] == pytest.approx(1)
        # At or beyond the other threshold a verdict is false.
        assert row["p"] < 0.05 or row["certified"] <= 0.01
        assert row["p"] > 0.10 or row["leaks"] <= 0.01
    assert next(row for row in got if row["p"] == pytest.approx(0.075))["undecided"] > 0.9
    assert "undecided" in call("--tau", 0.05).output


def test_a_large_tau_has_room_for_a_larger_leak():
    assert json.loads(call("--tau", 0.6, "--json").stdout)["tau_leak"] == pytest.approx(0.8)


def test_bands_of_many_prompts_take_more_and_certificates_do_not():
    one = json.loads(call("--tau", 0.05, "--json").stdout)
    many = json.loads(call("--tau", 0.05, "--prompts", 40, "--json").stdout)
    assert many == one | {"prompts": 40}  # an intersection of claims needs no correction
    bands = json.loads(call("--width", 0.1, "--prompts", 40, "--json").stdout)
    assert (bands["correction"], bands["alpha_each"]) == ("Bonferroni", pytest.approx(0.01 / 40))


def test_labels_for_a_width_and_what_limits_a_judge(tmp_path):
    wide, narrow = (
        json.loads(call("--labels", "--width", width, "--json").stdout)["labels"] for width in (0.2, 0.1)
    )
    assert wide < narrow
    labels = [1] * 50 + [0] * 50
    for wrong, times, limit in ((10, 1, "judge"), (0, 40, "answers")):
        verdicts = [1] * (50 - wrong) + [0] * (50 + wrong)
        pd.DataFrame({"label": labels * times, "verdict": verdicts * times}).to_csv(
            tmp_path / "c.csv", index=False
        )
        got = json.loads(call("--labels", "--width", 0.05, "--calibration", tmp_path / "c.csv", "--json").stdout)
        assert got["limit"] == limit
    assert call("--labels", "--width", 2).exit_code == 2


def test_what_is_refused():
    for arguments, sentence in [
        ((), "--width"),
        (("--tau", 2), "must be"),
        (("--width", 0), "must be"),
        (("--tau", 0.1, "--alpha", 0.9, "--prompts", 40), "alpha"),
        (("--tau", 0.1, "--rate", 5), "--rate"),
        (("--tau", 0.1, "--parameters", 7e9), "--parameters"),
        (("--width", 0.1, "--questions", 4), "--questions"),
        (("--width", 0.1, "--tau-leak", 0.3), "--tau-leak"),
        (("--width", 0.1, "--cap", 64), "--cap"),
        *((("--preset", "harry-potter", name, 0.1), name) for name in ("--tau", "--alpha", "--width")),
        *((("--preset", "harry-potter", name, 2), name) for name in ("--prompts", "--cap")),
    ]:
        done = call(*arguments)
        assert done.exit_code == 2
        assert sentence in done.output


def test_answers_that_a_comparison_takes():
    got = json.loads(call("--compare", "--difference", 0.2, "--json").stdout)
    assert 20 < got["answers_apart"] < got["answers_unknown"]
    assert call("--compare", "--difference", 2).exit_code == 2
    assert call("--difference", 0.2).exit_code == 2
