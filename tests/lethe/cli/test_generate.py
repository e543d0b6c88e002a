"""Commands are made from public functions: every option has a help text and a type, and every example is legal."""

import shlex
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.cli.commands import COMMANDS, GROUPS
from lethe.cli.generate import PYTHON, Command, built, texts_of


def commands() -> Iterator[tuple[str, Command]]:
    for rows in COMMANDS.values():
        yield from rows.items()
    for name, (_, rows) in GROUPS.items():
        yield from ((f"{name} {own}", command) for own, command in rows.items())


ALL = dict(commands())


@pytest.mark.parametrize("name", ALL)
def test_every_option_says_what_it_is(name):
    for one in built(name, ALL[name]).params:
        assert getattr(one, "help", ""), one.name


@pytest.mark.parametrize("name", ALL)
def test_every_parameter_of_the_function_is_an_option_or_of_python_alone(name):
    documented = set(texts_of(ALL[name].load()[0]))
    options = {one.name for one in built(name, ALL[name]).params}
    assert documented <= options | set(PYTHON)


@pytest.mark.parametrize("name", ALL)
def test_every_example_is_legal(name):
    assert ALL[name].examples
    for example in ALL[name].examples:
        arguments = shlex.split(example)[len(name.split()) :]
        if name == "score log":  # read as `score log LOG`
            arguments = shlex.split(example)[1:]
        built(name, ALL[name]).make_context(name, arguments)


def test_the_help_has_four_groups_in_the_order_of_a_users_needs():
    shown = CliRunner().invoke(app, ["--help"]).output
    places = [shown.index(group) for group in ("Your model", "Your numbers", "The pipeline", "Studies")]
    assert places == sorted(places)
    assert shown.index("│ bounds") > places[1]
