"""Arguments that several public functions share."""

import inspect

import pytest

import lethe
from lethe.api.logs import score_log


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
