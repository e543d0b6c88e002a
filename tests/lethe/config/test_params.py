"""params.yaml is refused whole, by key, before anything runs."""

import copy

import pytest

from lethe import config
from lethe.errors import BadFile, BadInput
from tests.small import ROOT

GOOD = config.read_yaml(ROOT / "params.yaml")


def refused(change) -> str:
    value = copy.deepcopy(GOOD)
    change(value)
    with pytest.raises(BadInput) as caught:
        config.validate(value)
    assert caught.value.exit_status == 2
    return str(caught.value)


def test_the_default_is_valid():
    assert config.load(ROOT / "params.yaml").sample.n == 4096


@pytest.mark.parametrize(
    ("change", "key", "legal"),
    [
        (lambda p: p["metrics"].update(alpha=0.7), "metrics.alpha", "above 0 and at most 0.5"),
        (lambda p: p["sample"].update(n=0), "sample.n", "at least 1 and at most 1000000"),
        (lambda p: p["sample"].update(n="many"), "sample.n", "an integer at least 1"),
        (lambda p: p["sample"].update(N=3), "sample.N", "one of the keys temperature"),
        (lambda p: p["sample"].update(engine="gpt"), "sample.engine", "'prefix'"),
        (lambda p: p["data"].update(forget="forget50"), "data.forget", "'forget05'"),
        (lambda p: p["data"].pop("forget"), "data.forget", "the key is missing"),
        (lambda p: p["unlearn"]["methods"]["npo"].update(loss="nope"), "unlearn.methods.npo.loss", "grad_ascent"),
        (lambda p: p["unlearn"]["methods"]["npo"].update(betta=1), "unlearn.methods.npo.betta", "beta"),
        (lambda p: p["unlearn"]["methods"]["npo"].pop("beta"), "unlearn.methods.npo", "needs beta"),
        (lambda p: p["score"].update(scorers=["bleurt"]), "score.scorers", "rouge_l"),
        (lambda p: p["models"].update({"a b": {"path": "x"}}), "models.a b", "a name of at most 80 letters"),
        (lambda p: p.update(models={}), "models", "at least 1 entry"),
        (lambda p: p.update(sample=3), "sample", "the keys temperature"),
        (lambda p: p["train"]["recipe"].update(heads=3), "train.recipe", "multiple of heads"),
        (lambda p: p.update(extra=1), "extra", "one of the keys data"),
        (lambda p: p["train"]["recipe"].update(hidden=12), "train.recipe", "even multiple of heads"),
        (
            lambda p: p["train"]["models"].update({"my.model": {"rows": "all"}}),
            "train.models.my.model",
            "'_' and '-'",
        ),
        (lambda p: p["models"].update(mine={"path": ""}), "models.mine.path", "not empty"),
        (lambda p: p.update(models=None), "models", "a dictionary of names, each with the keys path"),
        (lambda p: p["score"].update(scorers=[]), "score.scorers", "at least 1 entry"),
        (lambda p: p["score"].update(scorers=["rouge_l", "rouge_l"]), "score.scorers", "rouge_l is listed twice"),
        (lambda p: p["sample"].update(n=True), "sample.n", "a number, not true or false"),
        (lambda p: p["sample"].update(temperature=float("inf")), "sample.temperature", "a finite number above 0"),
        (lambda p: p["metrics"].update(rho=float("nan")), "metrics.rho", "a finite number at least 0"),
        (lambda p: p["data"].update(seed=2**64), "data.seed", "at least 0 and at most 4294967295"),
        (lambda p: p["games"].update(mine=1), "games.mine", "must be a section of keys"),
        (lambda p: p["train"]["recipe"].update(betas=[0.9, 2]), "train.recipe.betas.1", "at least 0 and below 1"),
    ],
)
def test_a_wrong_key_is_named_with_what_is_legal(change, key, legal):
    sentence = refused(change)
    assert f"key {key}:" in sentence
    assert legal in sentence


def test_keys_that_do_not_fit_together_are_refused():
    assert "score.scorers does not list" in refused(lambda p: p["metrics"].update(leak="bleu"))
    assert "rename one" in refused(lambda p: p["train"]["models"].update(npo={"rows": "all"}))
    assert "keyword_leak or null" in refused(lambda p: p["metrics"].update(binary="rouge_l"))
    assert "(base, retrain" in refused(lambda p: p["report"].update(base="nowhere"))
    assert "(base, retrain" in refused(lambda p: p["report"].update(retrain="nowhere"))
    assert "must be two models" in refused(lambda p: p["report"].update(base="npo", retrain="npo"))
    never = {"stop": "sequential", "n": 16}
    assert "chunk must be" in refused(lambda p: p["sample"].update(never))
    without = config.read_yaml(ROOT / "params.yaml")
    without["models"], without["unlearn"]["methods"] = {"mine": {"path": "my-model"}}, {}
    without["report"] = {"base": None, "retrain": None}
    assert config.validate(without).report.retrain is None
    assert "empty forget set" in refused(
        lambda p: (p["data"].update(forget="forget01"), p["data"]["authors"].update(count=30))
    )


@pytest.mark.parametrize("name", ["_rouge", "rouge_w"])
def test_a_scorer_outside_the_registry_is_refused(name):
    assert "must be one of rouge_l," in refused(lambda p: p["score"].update(scorers=[name]))


def test_a_member_takes_its_own_keys_and_no_others():
    said = refused(lambda p: p["unlearn"]["methods"]["grad_diff"].update(beta=1.0))
    assert "key unlearn.methods.grad_diff.beta: got 1.0" in said
    said = refused(lambda p: p["unlearn"]["methods"]["npo"].update(beta=0.0))
    assert "unlearn.methods.npo.beta: got 0.0; must be above 0" in said
    assert "key unlearn.methods.npo.loss" in refused(lambda p: p["unlearn"]["methods"]["npo"].pop("loss"))
    assert "key data.authors.count: got 3" in refused(lambda p: p["data"]["authors"].update(count=3))
    said = refused(lambda p: p["data"].update(author=1))
    assert "key data.author: got 1" in said
    assert "jailbreakbench, muse, passages" in said
    assert "key data.authors: got nothing:" in refused(lambda p: p["data"].pop("authors"))
    assert "key score.scorers.rouge_l.x" in refused(lambda p: p["score"].update(scorers=[{"rouge_l": {"x": 1}}]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [1\nb: 2\n", "not valid YAML at line"),
        (b"- 1\n", "holds list"),
        (b"a: 1\nb: \xff\n", "not UTF-8 at line 2"),
        (b"a: 1\nb: {c: 1,\n c: 2}\n", 'at line 3: duplicate key "c"'),
        (b"a: 2020-13-45\n", "not valid YAML: month must be in 1..12"),
        (b"a: " + b"9" * 5001, "not valid YAML: Exceeds the limit"),
        (b"a: " + b"[" * 3000 + b"]" * 3000, "nested too deeply"),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, said):
    from flows import settings

    place = tmp_path / "params.yaml"
    with pytest.raises(BadFile, match="no such file"):
        config.load(place)
    place.write_bytes(content)
    with pytest.raises(BadFile, match=said):
        config.load(place)
    with pytest.raises(BadFile, match=said):
        settings.change(place, [("a", 1)])


def test_an_evaluation_without_training_is_checked_as_params_are():
    sections = {key: GOOD[key] for key in ("sample", "score", "metrics")}
    made = config.evaluation_params(models={"mine": {"path": "x"}}, **sections)
    assert made.models["mine"].path == "x"
    assert config.evaluation_params(models={"llama-3.1": {"path": "x"}}, **sections), "DVC has no part in it"
    assert isinstance(made, config.EvaluationParams)
    with pytest.raises(BadInput, match=r"lethe eval, key sample\.n"):
        config.evaluation_params(
            models={"m": {"path": "x"}}, **{**sections, "sample": {**GOOD["sample"], "n": -1}}
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"portion": 1.5}, r"portion: got 1.5; must be above 0 and below 1"),
        ({"kind": "sounds"}, r".*a key kind, one of text"),
        ({"pears": 3}, r"pears: .*one of the keys kind, portion, pairs"),
        ({"shadow_models": 5}, r"shadow_models: got 5; must be at least 4 and a multiple of 2"),
        ({"attacks": ["guess"]}, r"attacks.0: got .*guess.*reference"),
    ],
)
def test_a_mistake_in_a_game_is_named_by_its_key(change, said):
    games = config.read_yaml(ROOT / "flows/presets/game-authors.yaml")["games"]
    with pytest.raises(BadInput, match=f"key games.authors.*{said}"):
        config.validate(GOOD | {"games": {"authors": games["authors"] | change}})
