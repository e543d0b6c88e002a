"""A default is written once: where params.yaml differs from the defaults of Python and the command line, here is why."""

import inspect

import pytest

import lethe
from lethe import config
from lethe.config.evaluating import EXACT, METRICS, SAMPLE
from tests.small import ROOT

DEFAULTS = {"sample": SAMPLE, "metrics": METRICS, "exact": EXACT}
DIFFERENT = {
    "sample.prompt": "the demonstration's models have no chat template; a user's default depends on the tokenizer",
    "sample.n": "the demonstration's small model draws four times as many answers in the time of one run",
    "sample.utility_questions": "ten models are asked in one run; `lethe eval` asks one",
    "sample.seed": "each stage of the pipeline has a stream of its own",
    "exact.rows": "ten models are bounded in one run; `lethe exact` bounds one",
    "exact.seed": "each stage of the pipeline has a stream of its own",
}


def test_params_differ_from_the_defaults_only_where_a_reason_is_given():
    params = config.load(ROOT / "params.yaml")
    differing = {
        f"{name}.{key}"
        for name, defaults in DEFAULTS.items()
        for key in type(defaults).model_fields
        if getattr(getattr(params, name), key) != getattr(defaults, key)
    }
    assert differing == set(DIFFERENT)


@pytest.mark.parametrize(
    ("function", "sections"),
    [
        (lethe.sample, [SAMPLE]),
        (lethe.evaluate, [SAMPLE, METRICS]),
        (lethe.exact, [EXACT, SAMPLE]),
        (lethe.certify, [SAMPLE]),
        (lethe.bounds, [METRICS]),
    ],
)
def test_functions_take_their_defaults_from_the_settings(function, sections):
    shared = 0
    for name, parameter in inspect.signature(function).parameters.items():
        section = next((one for one in sections if name in type(one).model_fields), None)
        if section is None or name in ("prompt", "labels"):  # params.yaml has a file and a section
            continue
        shared += 1
        assert parameter.default == getattr(section, name), name
    assert shared
