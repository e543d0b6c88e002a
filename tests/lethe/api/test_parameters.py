"""Arguments that several public functions share."""

import inspect

import pytest

import lethe
from lethe.api.logs import read_log, score_log
from lethe.io.logs import FORMATS


@pytest.mark.parametrize("name", ["judge_modell", "paraphrase_with"])
def test_a_name_beside_the_shared_arguments_is_refused(name):
    with pytest.raises(TypeError, match=name):
        lethe.evaluate("no-model", [], **{name: "m"})


def test_a_log_has_no_server_that_paraphrases():
    with pytest.raises(TypeError, match="paraphrase"):
        score_log("log.csv", data=[], paraphrase="endpoint")


@pytest.mark.parametrize("name", ["judge_choice", "paraphrases"])
def test_the_shared_arguments_are_shown_among_the_parameters(name):
    parameter = inspect.signature(lethe.evaluate).parameters[name]

    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("function", [lethe.exact, lethe.extract])
def test_a_command_that_takes_no_engine_says_nothing_of_an_engine_at_memory(function):
    lines = function.__doc__.splitlines()

    memory = next(line for line in lines if line.strip().startswith("memory"))

    assert "engine" not in inspect.signature(function).parameters
    assert "vLLM" not in memory


@pytest.mark.parametrize("form", [form.name for form in FORMATS])
def test_a_log_of_every_tool_is_named_where_the_file_of_a_log_is_explained(form):
    explained = " ".join(read_log.__doc__.split()).replace("-", " ").casefold()
    # A format without a tool of its own is called by what it holds.
    name = {"completions": "responses of a server", "responses": "list of answers"}.get(form, form)

    assert name.replace("-", " ") in explained
