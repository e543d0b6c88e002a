"""params.yaml is refused whole, by key, before anything runs."""

import copy

import pytest

from stages import params
from stages.errors import BadFile, BadInput

GOOD = params.read_yaml("params.yaml")


def refused(change) -> str:
    value = copy.deepcopy(GOOD)
    change(value)
    with pytest.raises(BadInput) as caught:
        params.validate(value)
    assert caught.value.exit_status == 2
    return str(caught.value)


def test_the_default_is_valid():
    assert params.load().sample.n == 1024


@pytest.mark.parametrize(
    ("change", "key", "legal"),
    [
        (lambda p: p["metrics"].update(alpha=0.7), "metrics.alpha", "less than or equal to 0.5"),
        (lambda p: p["metrics"].update(alpha=0), "metrics.alpha", "greater than 0"),
        (lambda p: p["sample"].update(n=0), "sample.n", "greater than or equal to 1"),
        (lambda p: p["sample"].update(n="many"), "sample.n", "a valid integer"),
        (lambda p: p["sample"].update(N=3), "sample.N", "one of the keys engine"),
        (lambda p: p["sample"].update(engine="gpt"), "sample.engine", "'prefix'"),
        (lambda p: p["data"].update(forget="forget50"), "data.forget", "'forget05'"),
        (lambda p: p["data"].pop("forget"), "data.forget", "the key is missing"),
        (lambda p: p["unlearn"]["methods"]["npo"].update(loss="nope"), "unlearn.methods.npo.loss", "grad_ascent"),
        (lambda p: p["unlearn"]["methods"]["npo"].update(betta=1), "unlearn.methods.npo.betta", "beta"),
        (lambda p: p["unlearn"]["methods"]["npo"].pop("beta"), "unlearn.methods.npo", "needs beta"),
        (lambda p: p["score"].update(scorers=["bleurt"]), "score.scorers", "rouge_l"),
        (lambda p: p["models"].update({"a b": {"path": "x"}}), "models.a b", "a name of letters"),
        (lambda p: p.update(models={}), "models", "at least 1"),
        (lambda p: p.update(sample=3), "sample", "the keys engine"),
        (lambda p: p["train"]["recipe"].update(heads=3), "train.recipe", "multiple of heads"),
        (lambda p: p["train"]["recipe"].update(kv_heads=3), "train.recipe", "multiple of kv_heads"),
        (lambda p: p.update(extra=1), "extra", "one of the keys data"),
    ],
)
def test_a_wrong_key_is_named_with_what_is_legal(change, key, legal):
    sentence = refused(change)
    assert f"key {key}:" in sentence
    assert legal in sentence


def test_keys_that_do_not_fit_together_are_refused():
    assert "score.scorers does not list" in refused(lambda p: p["metrics"].update(leak="bleu"))
    assert "rename one" in refused(lambda p: p["train"]["models"].update(npo={"rows": "all"}))
    assert "empty forget set" in refused(
        lambda p: (p["data"].update(forget="forget01"), p["data"]["authors"].update(count=30))
    )


def test_several_wrong_keys_are_counted():
    def change(value):
        value["sample"].update(n=0, temperature=-1)

    assert "1 more keys are wrong" in refused(change)


def test_a_broken_file_is_named(tmp_path):
    with pytest.raises(BadFile, match="no such file"):
        params.load(tmp_path / "params.yaml")
    place = tmp_path / "params.yaml"
    place.write_text("a: [1\nb: 2\n")
    with pytest.raises(BadFile, match="not valid YAML at line"):
        params.load(place)
    place.write_text("- 1\n")
    with pytest.raises(BadFile, match="holds list"):
        params.load(place)


def test_an_evaluation_without_training_is_checked_as_params_are():
    sections = {key: GOOD[key] for key in ("sample", "score", "metrics")}
    made = params.evaluation_params(models={"mine": {"path": "x"}}, **sections)
    assert made.models["mine"].path == "x"
    assert not made.train.models
    with pytest.raises(BadInput, match=r"lethe eval, key sample\.n"):
        params.evaluation_params(
            models={"m": {"path": "x"}}, **{**sections, "sample": {**GOOD["sample"], "n": -1}}
        )
