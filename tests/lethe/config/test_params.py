"""params.yaml is refused whole, by key, before anything runs."""

import copy
import inspect
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lethe
from lethe import config
from lethe.config.load import changed_document, read_preset
from lethe.config.measuring import EXACT, METRICS, SAMPLE
from lethe.errors import BadFile, BadInput, BadParam, BadRow, BadValue, ParamsClash
from tests.cases import cases, merged
from tests.small import ROOT

GOOD = config.read_yaml(ROOT / "params.yaml")


@cases
def test_a_wrong_value_is_named_with_what_is_legal(change, parts):
    with pytest.raises(BadInput) as caught:
        config.validate(merged(GOOD, change))
    assert caught.value.exit_status == 2
    for part in parts:
        assert part in str(caught.value)


def test_a_model_is_asked_with_its_own_prompt_and_limit_in_place_of_those_of_sample():
    entries = {"npo": {"prompt": "{question}", "max_new_tokens": 7}, "base": {"chat": True}}
    params = config.validate(merged(GOOD, {"models": entries, "sample": {"stop": "fixed"}}))

    assert (params.asked("npo").prompt, params.asked("npo").max_new_tokens) == ("{question}", 7)
    assert params.asked("base").prompt == "chat"
    assert params.asked("base").max_new_tokens == params.sample.max_new_tokens
    assert params.asked("retrain") == params.sample


def test_a_pipeline_needs_no_reference():
    without = merged(GOOD, {"models": {}, "unlearn": {"methods": {}}})
    without |= {"models": {"mine": {"path": "my-model"}}, "report": {"base": None, "retrain": None}}
    assert config.validate(without).report.retrain is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [1\nb: 2\n", "not valid YAML at line"),
        (b"- 1\n", "holds list"),
        (b"a: 1\nb: \xff\n", "line 2: not valid UTF-8"),
        (b"a: 1\nb: {c: 1,\n c: 2}\n", 'at line 3: duplicate key "c"'),
        (b"a: 2020-13-45\n", "not valid YAML: month must be in 1..12"),
        (b"a: " + b"9" * 5001, "not valid YAML: Exceeds the limit"),
        (b"a: " + b"[" * 3000 + b"]" * 3000, "nested too deeply"),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, said):
    from flows import settings

    place = tmp_path / "params.yaml"
    (tmp_path / "params.yml").touch()
    with pytest.raises(BadFile, match=r"no such file.*'params.yml'"):
        config.load(place)
    place.write_bytes(content)
    for read in (config.load, lambda path: settings.change(path, [("a", 1)])):
        with pytest.raises((BadFile, BadRow), match=said):
            read(place)


def test_an_evaluation_without_training_is_checked_as_params_are():
    sections = {key: GOOD[key] for key in ("sample", "score", "metrics")}
    sections["sample"] = {**sections["sample"], "stop": "fixed"}
    made = config.evaluation_params(models={"mine": {"path": "x"}}, **sections)
    assert made.models["mine"].path == "x"
    assert config.evaluation_params(models={"llama-3.1": {"path": "x"}}, **sections), (
        "DVC has no part in it"
    )
    assert isinstance(made, config.EvaluationParams)
    with pytest.raises(BadInput, match=r"lethe eval, key sample\.n"):
        config.evaluation_params(
            models={"m": {"path": "x"}}, **{**sections, "sample": {**GOOD["sample"], "n": -1}}
        )


GAME = config.read_yaml(ROOT / "flows/presets/game-authors.yaml")["games"]["authors"]
HARM = {"judge": "harmbench", "model": "m", "labelled": "answers.jsonl"}
GUESSES = {
    "kind": "guesses",
    "source": "guesses.csv",
    "mechanism": "gaussian",
    "claimed_epsilon": 1.0,
    "r": [200],
}
GUESSES |= {"delta": 1e-5, "alpha": 0.05, "method": "all", "seed": 0}
AFTER = {"kind": "relearn", "rows": "forget", "count": 2, "steps": [1, 3], "lr": 1e-3}
ATTACK = {"path": "data/models/base", "after": AFTER, "n": 8}


def test_the_entries_below_are_right_without_their_mistakes():
    assert (
        config.validate(GOOD | {name: {"mine": entry} for name, entry in RIGHT.items()})
        .judges["mine"]
        .params.batch
    )


RIGHT = {"games": GAME, "judges": HARM, "audits": GUESSES, "attacks": ATTACK}


@cases
def test_a_mistake_in_an_entry_is_named_by_its_key(section, change, said):
    changed = {key: value for key, value in (RIGHT[section] | change).items() if value is not None}
    with pytest.raises(BadInput, match=rf"key {section}\.mine.*{said}"):
        config.validate(GOOD | {section: {"mine": changed}})


def test_a_preset_is_read_by_name_or_refused_with_the_names(tmp_path):
    (tmp_path / "two.yaml").write_text("sample.n: 7\nmodels: {mine: {path: m}}\n")
    assert list(read_preset(tmp_path, "two").items()) == [
        ("sample.n", 7),
        ("models", {"mine": {"path": "m"}}),
    ]
    with pytest.raises(BadValue, match=r"^landscape: got 'one'.*two"):
        read_preset(tmp_path, "one", "landscape")
    with pytest.raises(BadValue, match="--preset"):
        read_preset(tmp_path, "../two")


def test_keys_are_set_in_order_and_the_file_stays(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("sample: {n: 1, seed: 0}\n")
    before = path.read_bytes()
    changes = [
        ("sample.n", 5),
        ("sample.new", None),
        ("sample", {"n": 6}),
        ("sample.seed", 2),
        ("other", [1]),
    ]
    assert changed_document(changes, path) == {"sample": {"n": 6, "seed": 2}, "other": [1]}
    assert path.read_bytes() == before
    with pytest.raises(BadParam, match=r"^mine\.yaml, key metrics\.alpha"):
        changed_document([("metrics.alpha", 0.1)], path, "mine.yaml")


DEFAULTS = {"sample": SAMPLE, "metrics": METRICS, "exact": EXACT}
DIFFERENT = {
    "sample.prompt": "the demonstration's models have no chat template; a user's default depends on the tokenizer",
    "sample.stop": "the word follows from the tolerance, the models and the Retrains of a pipeline",
    "sample.n": "with stop: word the cap",
    "sample.utility_questions": "ten models are asked in one run; `lethe eval` asks one",
    "sample.seed": "each stage of the pipeline has a stream of its own",
    "metrics.calibration": "DVC tracks a place for it, which counts once somebody put labels there",
    "metrics.labels": "DVC tracks a place for them, which counts once somebody put labels there",
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
        section = next((part for part in sections if name in type(part).model_fields), None)
        if section is None or name in ("prompt", "labels"):  # params.yaml has a file and a section
            continue
        if parameter.default is None and name == "n":  # then the word says when the draws end
            continue
        shared += 1
        assert parameter.default == getattr(section, name), name
    assert shared


ENTRIES = {
    "models": {"path": "x"},
    "attacks": {"path": "x", "after": "relearn"},
    "audits": {},
    "games": {},
    "judges": {},
    "unlearn.methods": {"loss": "npo", "lr": 1e-4, "epochs": 1, "beta": 0.1, "retain_weight": 1.0},
    "train.models": {"rows": "all"},
}
TRICKS = [
    *("..", ".", "../x", "a/b", "/etc/passwd", "a\\b", "C:x", "~", "~root", "-rf", ".hidden", ""),
    *("a\0b", "a\nb", "a b", "%2e%2e", "\uff0e\uff0e"),
]


def name_refused(section: str, name: str) -> bool:
    value = copy.deepcopy(GOOD)
    place = value
    for part in section.split("."):
        place = place[part]
    place[name] = ENTRIES[section]
    try:
        config.validate(value)
    except BadInput as error:
        return "the first a letter or digit" in str(error)
    return False


@pytest.mark.parametrize("section", ENTRIES)
def test_tricks_with_names_are_refused(section):
    assert [name for name in TRICKS if not name_refused(section, name)] == []


@settings(max_examples=50)
@given(st.text(min_size=1, max_size=12), st.sampled_from(sorted(ENTRIES)))
def test_every_name_that_is_taken_is_one_part_of_a_path(name, section):
    if name_refused(section, name):
        return
    assert PurePosixPath("data", name).parts == ("data", name)
    assert name not in (".", "..")
    assert name.isprintable()


def test_a_method_without_an_entry_among_the_models_is_an_error_with_the_line():
    document = config.read_yaml(ROOT / "params.yaml")
    del document["models"]["grad_diff"]
    with pytest.raises(ParamsClash, match=r"`grad_diff: \{path: data/models/grad_diff\}`"):
        config.validate(document)
