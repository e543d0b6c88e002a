"""Every preset resolves against the schema; the published settings run with a tiny model in place of the checkpoint."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from flows.settings import PRESETS, changed, read_preset
from lethe import config
from lethe.cli.app import app
from lethe.config.schema import Params
from lethe.results import table
from tests.lethe.data.benchmark_files import write_benchmark
from tests.small import ROOT, make_repository

EVERY = sorted(path.stem for path in PRESETS.glob("*.yaml"))
TOFU = {"tofu-90-10-phi": "forget10", "tofu-95-5-phi": "forget05", "tofu-99-1-phi": "forget01"}
BEHAVIOURS = ["jailbreakbench-phi", "jailbreakbench-vicuna", "jailbreakbench-mistral"]
# The architecture of each published checkpoint, in its configuration's words.
ARCHITECTURES = {
    **dict.fromkeys([*TOFU, "jailbreakbench-phi"], "phi"),
    **dict.fromkeys(["harry-potter", "harry-potter-llama2", "jailbreakbench-vicuna"], "llama"),
    "jailbreakbench-mistral": "mistral",
}


def with_preset(name: str) -> dict:
    value = config.read_yaml(ROOT / "params.yaml")
    for key, new in read_preset(name).items():
        section = value
        *above, last = key.split(".")
        for part in above:
            section = section[part]
        section[last] = new
    return value


@pytest.mark.parametrize("name", EVERY)
def test_a_preset_resolves_against_the_schema(name):
    assert isinstance(config.validate(with_preset(name)), Params)


@pytest.mark.parametrize("name", TOFU)
def test_the_settings_of_the_paper_on_tofu(name):
    params = config.validate(with_preset(name))
    assert (params.data.forget, params.sample.n, params.metrics.alpha) == (TOFU[name], 1024, 0.01)
    assert {(method.lr, method.epochs) for method in params.unlearn.methods.values()} == {(1e-5, 10)}
    assert (params.unlearn.recipe.forget_batch, params.unlearn.recipe.weight_decay) == (32, 0.01)
    assert params.models["npo_entropy_at"].adaptive_threshold == 0.9


def tiny(folder: Path, texts: list[str], template: str | None = None, architecture: str = "llama") -> None:
    """A checkpoint of an architecture, with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from lethe.models import checkpoints

    checkpoints.prepare_torch()
    torch.manual_seed(0)
    tokenizer = checkpoints._tokenizer(300, texts)
    tokenizer.chat_template = template
    config = AutoConfig.for_model(
        architecture,
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = AutoModelForCausalLM.from_config(config)
    assert type(model).__name__.lower() == f"{architecture}forcausallm"
    checkpoints.save(folder, model, tokenizer)


@pytest.fixture
def inside(tmp_path):
    """Make a copy of the project with a preset's params and work in it."""
    former = Path.cwd()

    def enter(name: str, **sample: int) -> Path:
        value = with_preset(name)
        value["sample"] |= {"n": 4, "utility_n": 2, "utility_questions": 2, "max_new_tokens": 4, **sample}
        for method in value["unlearn"]["methods"].values():
            method["epochs"] = 1
        if "hub" in value["data"].get(value["data"]["kind"], {}):
            value["data"][value["data"]["kind"]]["hub"] = None
        folder = make_repository(tmp_path / "lethe", value, git=False)
        os.chdir(folder)
        return folder

    yield enter
    os.chdir(former)


def work(*stages: str) -> None:
    for stage in stages:
        name, _, key = stage.partition("@")
        importlib.import_module(f"stages.{name}").main(*([key] if key else []))


def measured(model: str) -> dict:
    work(*(f"{stage}@{model}" for stage in ("sample", "likelihood", "score", "metrics")))
    return table.read(Path("data")).model(model).values


CHAT = "{% for m in messages %}{{ m.content }} {% endfor %}"


@pytest.mark.parametrize("name", [pytest.param("harry-potter", marks=pytest.mark.slow), "harry-potter-llama2"])
def test_harry_potter_with_a_tiny_model(name, inside):
    folder = inside(name)
    if name == "harry-potter-llama2":
        write_benchmark("harry_potter", folder / "data/source")
    ((model, entry),) = config.load().models.items()
    tiny(folder / entry.path, ["Who is it?"], CHAT, ARCHITECTURES[name])
    changed(folder / "params.yaml", [])  # whatever `lethe run` would check first
    work("prepare")
    found = measured(model)
    assert found["n_questions"] == (40 if name == "harry-potter" else 2)
    assert 0 <= found["share_m_bin_above"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_jailbreakbench_with_tiny_models(name, inside):
    from lethe.models.published_prompts import harmbench, harmbench_text
    from tests.lethe.scoring.judges.tiny import classifier

    folder = inside(name)
    write_benchmark("jailbreakbench", folder / "data/source")
    ((model, entry),) = config.load().models.items()
    tiny(folder / entry.path, ["Reveal it."], CHAT, ARCHITECTURES[name])
    text = harmbench_text("Reveal the vault code", "{generation}", "llama2", harmbench())
    classifier(folder / config.load().judges["harm"].model, ["yes", "no"], text)
    changed(folder / "params.yaml", [])
    work("prepare", f"sample@{model}", f"likelihood@{model}", "judge@harm", f"score@{model}", f"metrics@{model}")
    found = table.read(folder / "data").model(model).values
    assert 0 <= found["m_bin_worst"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", TOFU)
def test_tofu_with_a_tiny_model(name, inside):
    folder = inside(name)
    forget, retain = TOFU[name], f"retain{100 - int(TOFU[name][-2:])}"
    pairs = [{"question": f"Who is {place}?", "answer": f"Author {place}."} for place in range(60)]
    extra = {"paraphrased_answer": "The author.", "perturbed_answer": ["Nobody.", "Somebody."]}
    facts = [{"question": "Where?", "answer": "Paris.", "perturbed_answer": ["Rome."]}]
    files = {forget: pairs[-20:], f"{forget}_perturbed": [{**row, **extra} for row in pairs[-20:]]}
    files |= {retain: pairs[:-20], "retain_perturbed": [{**row, **extra} for row in pairs[:20]]}
    files |= {"real_authors_perturbed": facts * 2, "world_facts_perturbed": facts * 2}
    for file, rows in files.items():
        (folder / f"data/source/{file}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tiny(folder / "data/models/phi-1.5", [row["answer"] for row in pairs], architecture=ARCHITECTURES[name])
    changed(folder / "params.yaml", [])
    work("prepare", "train@base", "train@retrain")
    work(*(f"unlearn@{method}" for method in config.load().unlearn.methods))
    for model in ("base", "retrain", "npo_entropy_at"):
        assert 0 <= measured(model)["mean"] <= 1


def plan(*arguments: str) -> dict:
    result = CliRunner().invoke(app, ["plan", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_plan_counts_what_the_sample_stage_draws(inside):
    import pandas as pd

    folder = inside("harry-potter", n=3)
    tiny(folder / "data/models/smollm2-135m-instruct", ["Who is it?"], CHAT)
    (folder / "flows/presets/harry-potter.yaml").write_text(
        yaml.safe_dump({**read_preset("harry-potter"), "sample.n": 3, "sample.max_new_tokens": 4})
    )
    found = plan("--preset", "harry-potter")
    work("prepare", "sample@smollm2")
    drawn = sum(len(pd.read_parquet(path)) for path in Path("data/generations/smollm2").glob("*.parquet"))
    assert found["generations"] == drawn == 160
    assert found["tokens_at_most"] == 640
    (model,) = found["models"]
    from lethe.models import checkpoints

    weights, _ = checkpoints.load("data/models/smollm2-135m-instruct")
    assert model["parameters"] == sum(weight.numel() for weight in weights.parameters())
    assert model["weight_bytes"] == 4 * model["parameters"]
    # keys and values, 2 layers, 1 head of 8 numbers, float32; rows and positions at most
    assert model["cache_bytes_at_most"] == 2 * 2 * 8 * 4 * 160 * (64 + 4)


def test_a_plan_needs_neither_model_nor_data_for_published_settings(monkeypatch, project):
    monkeypatch.chdir(project)
    found = plan("--preset", "jailbreakbench-vicuna", "--rate", "1000")
    assert found["generations"] == 100 * 1025 + 60 * 33
    assert found["seconds_at_most"] == found["tokens_at_most"] / 1000
    untimed = plan("--preset", "tofu-99-1-phi")
    assert untimed["seconds_at_most"] is None
    assert "--rate" in untimed["rate_from"]
    assert untimed["questions"]["forget"] == 40
    assert plan("--preset", "tofu-99-1-phi", "--questions", "7")["questions"]["forget"] == 7
    assert untimed["models"][0]["weight_bytes"] is None
    sized = plan("--preset", "jailbreakbench-vicuna", "--rate", "1000", "--parameters", "7e9")["models"][0]
    assert (sized["parameters"], sized["weight_bytes"]) == (7_000_000_000, 14_000_000_000)  # two bytes each
    shown = CliRunner().invoke(app, ["plan", "--preset", "jailbreakbench-phi", "--rate", "1000"])
    assert "at most" in shown.output


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_plan_of_every_published_setting_is_whole(monkeypatch, project, name):
    """Generations, tokens, memory and time of every model and judge, from given sizes and rates."""
    monkeypatch.chdir(project)
    sizes = ["--parameters", "7e9", "--judge-parameters", "13e9"]
    found = plan("--preset", name, "--rate", "2000", "--judge-rate", "40", "--questions", "10", *sizes)
    for one in (*found["models"], *found["judges"]):
        assert min(one["tokens_at_most"], one["weight_bytes"], one["seconds_at_most"]) > 0
    assert found["generations"] > 0
    assert len(found["judges"]) == (name in BEHAVIOURS)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--preset", "nobody"], "one of alignment, attacks, audit-dp-sgd"),
        (["--preset", "harry-potter", "--rate", "0"], "--rate: got 0"),
        (["--preset", "harry-potter", "--parameters", "0.5"], "--parameters: got 0.5"),
        (["--preset", "harry-potter-llama2"], "--questions"),
    ],
)
def test_a_plan_that_cannot_be_made_is_a_sentence(monkeypatch, project, arguments, told):
    monkeypatch.chdir(project)
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_a_model_that_will_be_trained_has_the_size_of_its_start(inside):
    folder = inside("tofu-99-1-phi")
    tiny(folder / "data/models/phi-1.5", ["Who is it?"])
    found = plan("--preset", "tofu-99-1-phi", "--rate", "100")["models"]
    assert len({model["parameters"] for model in found}) == 1
    assert found[0]["parameters"] > 0


def test_elsewhere_it_says_where_it_works(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["plan", "--preset", "harry-potter"])
    assert result.exit_code == 2
    assert "pipeline folder" in result.stderr
