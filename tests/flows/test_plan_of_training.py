"""`lethe plan --preset`: training, unlearning, the memory of reference values, attacks."""

from __future__ import annotations

import copy
import json

import pytest
from typer.testing import CliRunner

from lethe import config
from lethe.cli.app import app
from lethe.cli.plan import _costs
from lethe.models import checkpoints
from lethe.registry import METHODS
from lethe.steps import training_costs
from lethe.steps.costs import PROMPT_TOKENS
from lethe.unlearning import loop
from lethe.unlearning.protocol import Before
from lethe.unlearning.reference import Values
from lethe.unlearning.second_answers import second_answers
from tests.small import ROOT, small_params

ENTRIES = {
    "kl": {"retain_weight": 1.0},
    "undial": {},
    "rmu": {"block": 0},
    "npo": {"beta": 0.1, "retain_weight": 1.0},
    "altpo": {"max_new_tokens": 3},
}


@pytest.fixture(scope="module")
def bench():
    value = small_params()
    value["unlearn"]["methods"] = {
        name: {"loss": name, "lr": 1e-4, "epochs": 2, **own} for name, own in ENTRIES.items()
    }
    value["attacks"] = {
        "a": {
            "path": "data/models/base",
            "after": {"kind": "noise", "sizes": [0.1, 0.2]},
            "n": 7,
            "seeds": [0, 1, 2],
        }
    }
    found = training_costs.bench_of(config.validate(value))
    assert found is not None
    return found


def test_trained_tokens_and_answers_are_counted(bench):
    costs = {
        one.name: one for one in training_costs.stage_costs(bench.params, bench, 100.0, {"x": 1.0}, timed=False)
    }
    rows = bench.examples

    def tokens(examples):
        return sum(len(one.prompt) + len(one.answer) for one in examples)

    recipe = bench.params.train.recipe
    assert costs["base"].tokens == recipe.epochs * tokens([*rows["forget"], *rows["retain"], *rows["world"]])
    assert costs["retrain"].tokens == recipe.epochs * tokens([*rows["retain"], *rows["world"]])
    own, size = bench.params.unlearn.recipe, len(rows["forget"])
    steps = 2 * -(-size // own.forget_batch)
    drawn = steps * own.retain_batch * tokens(rows["retain"]) / len(rows["retain"])
    assert costs["npo"].tokens == pytest.approx(2 * tokens(rows["forget"]) + drawn, abs=1)
    attack = costs["a"]
    assert attack.answers == 3 * 3 * size * 8
    assert attack.seconds == pytest.approx(attack.answers * bench.params.sample.max_new_tokens / 100.0)
    assert costs["base"].seconds is None


@pytest.mark.parametrize("loss", ENTRIES)
def test_the_memory_is_what_the_loop_keeps(bench, loss, monkeypatch):
    """The bytes of the tensors that a run with ``reference: cached`` keeps, and of a second model."""
    method = bench.params.unlearn.methods[loss]
    found = training_costs.reference_memory(bench.params, method, bench)
    kept: list[Values] = []
    original = Values.__init__
    monkeypatch.setattr(Values, "__init__", lambda self, *given: (kept.append(self), original(self, *given))[1])
    recipe = bench.params.unlearn.recipe.model_copy(update={"reference": "cached"})
    model = copy.deepcopy(bench.start.model)
    second = second_answers(method, bench.splits["forget"], Before(model, bench.encoder, 0))
    few = method.model_copy(update={"epochs": 1})
    loop.unlearn(model, bench.examples["forget"], bench.examples["retain"], recipe, few, 0, "t", second)
    if found.needs == "nothing":
        assert (found.frozen_bytes, found.cached_bytes, kept) == (0, 0, [])
        return
    assert found.cached_bytes == sum(one.nbytes for one in kept[0].kept.values())
    assert found.frozen_bytes == sum(one.nbytes for one in model.parameters())
    assert (found.needs == "states") == (loss == "rmu")


def test_the_size_of_a_model_that_a_stage_will_make_is_that_of_its_start(bench, tmp_path, monkeypatch):
    """The plan gives memory before anything is trained, and the same once the model is in its folder."""
    monkeypatch.chdir(tmp_path)
    planned, _ = _costs(bench.params, bench, 100.0, None, None)
    base = next(one for one in planned.models if one.model == "base")
    config_of = bench.start.model.config
    assert base.parameters == sum(one.numel() for one in bench.start.model.parameters())
    assert base.weight_bytes == 4 * base.parameters
    numbers = 2 * config_of.num_hidden_layers * config_of.num_key_value_heads * config_of.head_dim
    sample = bench.params.sample
    rows = min(sample.max_rows, len(bench.splits["forget"]) * (sample.most + 1))
    assert base.cache_bytes_at_most == 4 * numbers * rows * (PROMPT_TOKENS + sample.max_new_tokens)
    checkpoints.save(tmp_path / "data/models/base", bench.start.model, bench.start.tokenizer)
    again, _ = _costs(bench.params, bench, 100.0, None, None)
    assert next(one for one in again.models if one.model == "base") == base
    value = small_params()
    value["models"]["own"] = {"path": "elsewhere/model"}
    other, _ = _costs(config.validate(value), bench, 100.0, None, None)
    assert next(one for one in other.models if one.model == "own").weight_bytes is None


def test_a_step_is_timed_once_per_setting(bench):
    one = bench.params.unlearn.methods["npo"]
    first = bench.seconds_per_token(one)
    assert first > 0
    assert bench.seconds_per_token(one.model_copy(update={"seed": 9, "lr": 1.0, "epochs": 77})) == first
    assert set(METHODS) >= set(ENTRIES)


@pytest.mark.slow
def test_the_command_lists_stages_and_memory(monkeypatch, tmp_path):
    import yaml

    value = small_params()
    value["attacks"] = {}
    value["unlearn"]["methods"] = {"kl": {"loss": "kl", "lr": 1e-4, "epochs": 1, "retain_weight": 1.0}}
    value["models"] = {"base": {"path": "data/models/base"}, "retrain": {"path": "data/models/retrain"}}
    (tmp_path / "flows").symlink_to(ROOT / "flows")
    (tmp_path / "lethe").symlink_to(ROOT / "lethe")
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(value))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["plan", "--preset", "default", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [stage["stage"] for stage in found["stages"]] == ["train", "train", "unlearn"]
    assert found["stages"][2]["reference"]["cached_bytes"] > 0
    assert all(stage["seconds"] > 0 for stage in found["stages"])
    shown = CliRunner().invoke(app, ["plan", "--preset", "default", "--rate", "100"])
    assert "MiB" in shown.output
    assert "frozen" in shown.output
