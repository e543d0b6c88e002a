"""`lethe.audit`: the numbers are the commands', from values in memory as from files."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app
from lethe.errors import BadInput
from lethe.io.json_files import plain, restored


def command(*arguments):
    done = CliRunner().invoke(app, ["audit", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def html_cells(result) -> list[list[str]]:
    """The table of a result in a notebook, as text."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", result._repr_html_().split("<tbody>")[1], re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


@pytest.mark.parametrize("seed", range(4))
def test_a_notebook_shows_no_bound_inside_its_value(seed):
    rng = np.random.default_rng(seed)
    epsilon = lethe.audit.epsilon_star(rng.normal(0, 1, 300), rng.normal(3, 1, 300), delta=1e-3)
    assert 0 < float(html_cells(epsilon)[0][1]) <= epsilon.epsilon_lower
    run = lethe.audit.one_run(n=1000, r=100 + seed, errors=3)
    for row, one in zip(html_cells(run), run.results, strict=True):
        assert float(row[1]) <= one.epsilon_lower
    halves = [("original", "forget"), ("original", "test"), ("swapped", "forget"), ("swapped", "test")]
    rows = [
        {"split": split, "member": member, "attack": "a", "accept": rng.random(), "seed": model}
        for split, member in halves
        for model in range(4)
    ]
    swap = lethe.audit.swap(pd.DataFrame(rows))
    (row,) = html_cells(swap)
    ends = swap.quality.by_attack["a"]
    assert float(row[4]) <= ends.ci_low <= ends.ci_high <= float(row[5])


@pytest.fixture
def guesses(tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 300)
    outputs = rng.normal(size=300) + bits
    table = pd.DataFrame({"bit": bits, "guess": (outputs > 0.5).astype(int), "score": np.abs(outputs - 0.5)})
    table.to_csv(tmp_path / "g.csv", index=False)
    return tmp_path / "g.csv", table


def test_one_run_is_the_command(guesses):
    path, table = guesses
    told = command("one-run", "--guesses", path, "--r", 100, "--claimed-epsilon", 0.5)
    for given in (path, str(path), table):
        found = lethe.audit.one_run(guesses=given, r=100, claimed_epsilon=0.5)
        assert (found.n, found.r, found.errors) == (told["n"], told["r"], told["errors"])
        for row in told["results"]:
            assert found[row["method"]].epsilon_lower == row["epsilon_lower"]
            assert found[row["method"]].p_value == row["p_value"]
        assert list(found.to_frame().index) == [row["method"] for row in told["results"]]
        assert found.verdict.contradicted == told["verdict"]["contradicted"]
        assert plain(found.as_json()) == told
        assert restored(type(found), told) == found
    counts = {"n": 20, "r": 10, "errors": 1, "method": "exact"}
    told = command("one-run", *(f"--{key}={value}" for key, value in counts.items()), "--curve")
    assert [dict(row) for row in lethe.audit.one_run(**counts, curve=True).curve] == told["curve"]
    several = lethe.audit.one_run(guesses=table, r=[100, 200])
    assert several.r == [100, 200]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"r": 5}, "n, errors: give both"),
        ({"r": [], "n": 10, "errors": 1}, "n, r, errors: "),
        ({"r": 5, "n": 10, "errors": 1, "guesses": "g.csv"}, "n, errors: the guesses"),
        (
            {"r": 5, "n": 10, "errors": 1, "tradeoff": ([0, 1], [1, 0])},
            "tradeoff: the mechanism gaussian takes no trade-off function",
        ),
        (
            {"r": 5, "n": 10, "errors": 1, "mechanism": "tradeoff", "tradeoff": ([0, 1], [1, 0]), "q": 0.1},
            "null, curve, q, steps, delta0: ",
        ),
        ({"r": 5, "n": 10, "errors": 1, "mechanism": "cauchy"}, "mechanism: got 'cauchy'"),
        ({"r": 5, "n": 10, "errors": 1, "method": "best"}, "method: got 'best'"),
    ],
)
def test_what_does_not_go_together_is_told(arguments, words):
    with pytest.raises(BadInput, match=words):
        lethe.audit.one_run(**arguments)
