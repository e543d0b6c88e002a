import json

from typer.testing import CliRunner

from flows.cli import app


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


def test_many_prompts_take_more_and_it_says_why():
    one = json.loads(call("--tau", 0.05, "--json").stdout)
    many = json.loads(call("--tau", 0.05, "--prompts", 40, "--json").stdout)
    assert many["certify_fixed"] > one["certify_fixed"]
    assert many["correction"] == "Bonferroni"
    assert "Bonferroni: all 40" in call("--width", 0.1, "--prompts", 40).output


def test_what_is_refused():
    for arguments, sentence in [((), "--width"), (("--tau", 2), "legal is"), (("--width", 0), "legal is")]:
        done = call(*arguments)
        assert done.exit_code == 2
        assert sentence in done.output
