import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app
from lethe.io.json_files import plain
from lethe.io.tables import read_losses, read_table
from lethe.results.table import read_rows

EMPIRICAL = ("--method", "empirical")


def call(*arguments):
    return CliRunner().invoke(app, ["audit", "epsilon-star", *map(str, arguments)])


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    train, population = rng.gamma(2, 5, 300), rng.gamma(4, 5, 200)
    (tmp_path / "train.csv").write_text("loss\n" + "\n".join(map(repr, train.tolist())) + "\n")
    (tmp_path / "population.txt").write_text("\n".join(map(repr, population.tolist())))
    return ["--train", tmp_path / "train.csv", "--population", tmp_path / "population.txt"], train, population


def test_the_row_is_the_json(files, tmp_path):
    arguments, train, population = files
    options = ("--delta", 1e-4, "--cut", 0.001, *EMPIRICAL, "--table", tmp_path / "t.parquet", "--json")
    got = json.loads(call(*arguments, *options).stdout)
    (row,) = read_rows(tmp_path / "t.parquet")
    assert (row.estimate, row.lower, row.alpha_lower) == (got["epsilon_star"], got["epsilon_lower"], got["alpha"])
    assert row.names()[:2] == ("epsilon_star", "epsilon_lower")
    assert plain(row.evidence) == got
    found = lethe.audit.epsilon_star(train, population, delta=1e-4, cut=0.001, method="empirical")
    assert found.to_results().equals(read_table(tmp_path / "t.parquet"))


def test_a_cut_that_leaves_no_threshold_is_no_number(tmp_path):
    (tmp_path / "train.txt").write_text("0\n0\n0\n")
    (tmp_path / "population.txt").write_text("1\n1\n1\n")
    files = ["--train", tmp_path / "train.txt", "--population", tmp_path / "population.txt"]
    for method in ("empirical", "parametric"):
        options = ["--delta", 1e-4, "--cut", 0.1, "--method", method]
        got = json.loads(call(*files, *options, "--json").stdout)
        assert (got["epsilon_star"], got["infinite"]) == (None, False)
        assert "no threshold" in got["note"]
        assert "undefined" in call(*files, *options).output


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=20))
def test_any_finite_losses_survive_each_form(tmp_path, losses):
    forms = {"a.txt": "\n".join(map(repr, losses)), "b.csv": "loss\n" + "\n".join(map(repr, losses)) + "\n"}
    forms["c.csv"] = forms["a.txt"]
    forms["marked.txt"] = forms["marked.csv"] = "\ufeff" + forms["a.txt"] + "\n\n"
    forms["d.jsonl"] = "\n".join(json.dumps({"loss": loss}) for loss in losses)
    for name, text in forms.items():
        (tmp_path / name).write_text(text)
        assert read_losses(tmp_path / name).tolist() == losses


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("x.txt", "1\nabc\n", "line 2: got 'abc'"),
        ("x.txt", "1\nnan\n", "line 2: loss: got nan"),
        ("x.csv", "loss\n1\ninf\n", "line 3: loss: got inf"),
        ("x.csv", "score\n1\n", "no column 'loss'"),
        ("x.txt", "1\n1_0\n", "line 2: got '1_0'"),
        ("x.csv", "loss\n1\n\n2\n", "line 3: loss: got nan"),
        ("x.txt", "", "holds no losses"),
        ("x.txt", "1\n", "x.txt: holds a single loss. Give at least 2"),
    ],
)
def test_a_bad_file_is_a_sentence_and_status_2(files, tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    done = call("--train", tmp_path / name, *files[0][2:], "--delta", 1e-4)
    assert done.exit_code == 2
    assert sentence in done.output
    assert "Traceback" not in done.output


def test_a_missing_file_and_bad_options(files, tmp_path):
    assert "no such file" in call("--train", tmp_path / "none.txt", *files[0][2:], "--delta", 1e-4).output
    for options in (["--delta", 1.5], ["--delta", 1e-4, "--cut", 0.7], ["--delta", 1e-4, "--alpha", 0]):
        done = call(*files[0], *options)
        assert done.exit_code == 2
        assert "must be" in done.output
