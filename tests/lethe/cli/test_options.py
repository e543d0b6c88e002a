"""The options that a command makes of the parameters of its function."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer

import lethe
from lethe.api.parameters import InPython, Place, Rows, Tokenizer, Typed
from lethe.cli.generate import Command, options_of, typed
from lethe.config.evaluation import EvaluationSettings
from lethe.errors import BadValue


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (int, int),
        (float | None, float),
        (str | int, str),
        (str | Sequence[str], list[str]),
        (Sequence[str | int], list[str]),
        (Literal["a", "b"] | None, Literal["a", "b"]),
        (Place | None, Path),
        (Rows, Path),
        (Annotated[dict[str, str] | None, Typed(list[str])], list[str]),
    ],
)
def test_an_option_has_the_first_type_of_a_union_a_list_or_the_type_that_is_named(annotation, kind):
    assert typed(annotation) == kind


def test_no_option_is_made_of_what_only_python_can_give():
    def function(
        model: Place, tokenizer: Tokenizer = None, ask: Annotated[bool, InPython()] = False
    ) -> None: ...

    # As every file of the library postpones its annotations.
    function.__annotations__ = {
        "model": "Place",
        "tokenizer": "Tokenizer",
        "ask": "Annotated[bool, InPython()]",
    }

    options = options_of(function, Command("evaluating:evaluate"))

    assert list(options) == ["model"]


def test_a_setting_of_an_evaluation_is_a_parameter_with_the_same_default():
    parameters = inspect.signature(lethe.evaluate).parameters

    defaults = {name: parameters[name].default for name in EvaluationSettings.model_fields}

    assert defaults == EvaluationSettings().model_dump()


@pytest.mark.parametrize("marks", [("<think>",), ("<think>", ""), ("a", "b", "c")])
def test_thinking_has_two_marks_or_one_empty_text(marks):
    with pytest.raises(BadValue) as refused:
        EvaluationSettings(thinking=marks)

    assert refused.value.name == "thinking"


def test_a_command_parses_no_source_for_the_summaries_of_the_others(monkeypatch):
    from lethe.cli import generate
    from lethe.cli.app import COMMANDS, app

    read = []
    monkeypatch.setattr(generate.ast, "parse", lambda source: read.append(source))

    group = typer.main.get_command(app)

    assert set().union(*COMMANDS.values()) <= set(group.commands)
    assert read == []
