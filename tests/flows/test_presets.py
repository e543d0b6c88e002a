"""Every preset resolves against the schema; the published settings run with a tiny model in place of the checkpoint."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest
import yaml

from flows.settings import PRESETS, changed, read_preset
from lethe import config
from lethe.config.load import changed_document
from lethe.config.schema import Params
from lethe.results import table
from lethe.verdict.finding import FORGETTING, Findings
from tests.lethe.cli.calls import Command
from tests.lethe.data.benchmark_files import write_benchmark
from tests.lethe.scoring.test_tofu_log import evaluation
from tests.small import ROOT, make_repository, work

EVERY = sorted(path.stem for path in PRESETS.glob("*.yaml"))
TOFU = {"tofu-90-10-phi": "forget10", "tofu-95-5-phi": "forget05", "tofu-99-1-phi": "forget01"}
# The models of Fig. 6 by name, with the architecture of each checkpoint.
BEHAVIOURS = {"phi": "phi", "vicuna": "llama", "mistral": "mistral"}
# The architecture of each published checkpoint, in its configuration's words.
ARCHITECTURES = {
    **dict.fromkeys(TOFU, "phi"),
    **dict.fromkeys(["harry-potter", "harry-potter-llama2"], "llama"),
}


def with_preset(name: str, changes: Mapping[str, object] | None = None) -> dict:
    return changed_document(
        [*read_preset(name).items(), *(changes or {}).items()], ROOT / "params.yaml"
    )


@pytest.mark.parametrize("name", EVERY)
def test_a_preset_resolves_against_the_schema(name):
    assert isinstance(config.validate(with_preset(name)), Params)


def tiny(
    folder: Path, texts: list[str], template: str | None = None, architecture: str = "llama"
) -> None:
    """A checkpoint of an architecture, with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from lethe.models import checkpoints

    checkpoints.prepare_torch()
    torch.manual_seed(0)
    tokenizer = checkpoints.byte_level_tokenizer(300, texts)
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
def inside(tmp_path, monkeypatch):
    """Make a copy of the project with a preset's params and work in it."""

    def enter(name: str, changes: Mapping[str, object] | None = None, **sample: int) -> Path:
        value = with_preset(name, changes)
        value["sample"] |= {
            "n": 4,
            "utility_n": 2,
            "utility_questions": 2,
            "max_new_tokens": 4,
            **sample,
        }
        for method in value["unlearn"]["methods"].values():
            method["epochs"] = 1
        if "hub" in value["data"].get(value["data"]["kind"], {}):
            value["data"][value["data"]["kind"]]["hub"] = None
        folder = make_repository(tmp_path / "lethe", value, git=False)
        monkeypatch.chdir(folder)
        return folder

    return enter


def measured(model: str, *more: str) -> dict:
    for stage in ("sample", "likelihood", "score", *more, "metrics"):
        work(f"{stage}@{model}")
    return table.read(Path("data")).model(model).values


def trained(params: Params) -> None:
    for stage in (
        "prepare",
        "train@base",
        "train@retrain",
        *(f"unlearn@{name}" for name in params.unlearn.methods),
    ):
        work(stage)


def write_tofu(folder: Path, forget: str, asked: int, retain: str) -> None:
    """TOFU's files with three authors: the last to forget."""
    pairs = [
        {"question": f"Who is {place}?", "answer": f"Author {place} wrote."} for place in range(60)
    ]
    extra = {"paraphrased_answer": "The author.", "perturbed_answer": ["Nobody.", "Somebody."]}
    facts = [{"question": "Where?", "answer": "Paris.", "perturbed_answer": ["Rome."]}] * 2
    files = {
        forget: pairs[-asked:],
        f"{forget}_perturbed": [{**row, **extra} for row in pairs[-asked:]],
    }
    files |= {retain: pairs[:-asked], "retain_perturbed": [{**row, **extra} for row in pairs[:20]]}
    for file, rows in (
        files | {"real_authors_perturbed": facts, "world_facts_perturbed": facts}
    ).items():
        (folder / f"{file}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


CHAT = "{% for m in messages %}{{ m.content }} {% endfor %}"


@pytest.mark.parametrize(
    "name", [pytest.param("harry-potter", marks=pytest.mark.slow), "harry-potter-llama2"]
)
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
def test_the_three_models_of_fig_6_with_tiny_models_share_one_report(inside):
    from lethe.models.encoding import harmbench, harmbench_text
    from tests.lethe.scoring.judges.tiny import classifier

    # vLLM reads no checkpoint as small as the stand-in for the judge's.
    folder = inside("jailbreakbench", {"judges.harm.engine": "transformers"})
    write_benchmark("jailbreakbench", folder / "data/source")
    for model, entry in config.load().models.items():
        tiny(folder / entry.path, ["Reveal it."], CHAT, BEHAVIOURS[model])
    text = harmbench_text("Reveal the vault code", "{generation}", "llama2", harmbench())
    classifier(folder / config.load().judges["harm"].model, ["yes", "no"], text)
    changed(folder / "params.yaml", [])
    for stage in ("prepare", *(f"sample@{model}" for model in BEHAVIOURS), "judge@harm"):
        work(stage)

    for model in BEHAVIOURS:
        assert 0 <= measured(model)["m_bin_worst"] <= 1
        for stage in (f"exact@{model}", f"epsilon_star@{model}"):
            work(stage)
    work("compare")
    work("report")

    page = (folder / "data/report/index.html").read_text()
    for wording in ("prompt qa.txt", "artificial intelligence assistant", "the chat template"):
        assert wording in page


@pytest.mark.slow
def test_the_notebook_of_the_authors_with_a_tiny_model(inside):
    folder = inside("tofu-notebook-llama2")
    write_tofu(folder / "data/source", "forget01", 20, "retain99")
    ((model, entry),) = config.load().models.items()
    tiny(folder / entry.path, ["Author 1 wrote."])
    changed(folder / "params.yaml", [])
    work("prepare")

    found = measured(model)

    assert (found["n_questions"], found["n"]) == (20, 4)
    about = json.loads(Path(f"data/generations/{model}/about.json").read_text())
    assert about["top_p"] == 0.9


@pytest.mark.slow
@pytest.mark.parametrize("name", TOFU)
def test_tofu_with_a_tiny_model(name, inside):
    folder = inside(name)
    write_tofu(folder / "data/source", TOFU[name], 20, f"retain{100 - int(TOFU[name][-2:])}")
    tiny(folder / "data/models/phi-1.5", ["Author 1 wrote."], architecture=ARCHITECTURES[name])
    changed(folder / "params.yaml", [])
    trained(config.load())
    for model in ("base", "retrain", "npo_entropy_at"):
        assert 0 <= measured(model)["mean"] <= 1


def test_a_plan_counts_what_the_sample_stage_draws(inside):
    folder = inside("harry-potter", n=3)
    tiny(folder / "data/models/smollm2-135m-instruct", ["Who is it?"], CHAT)
    (folder / "flows/presets/harry-potter.yaml").write_text(
        yaml.safe_dump({**read_preset("harry-potter"), "sample.n": 3, "sample.max_new_tokens": 4})
    )
    found = Command("plan").result(
        "--preset", "harry-potter", "--rate", 1000
    )  # in place of a pilot
    work("prepare")
    work("sample@smollm2")
    drawn = sum(
        len(pd.read_parquet(path)) for path in Path("data/generations/smollm2").glob("*.parquet")
    )
    assert found["generations"] == drawn == 160
    assert found["tokens_at_most"] == 640
    (model,) = found["models"]
    from lethe.models import checkpoints

    weights, _ = checkpoints.load("data/models/smollm2-135m-instruct")
    assert model["parameters"] == sum(weight.numel() for weight in weights.parameters())
    assert model["weight_bytes"] == 4 * model["parameters"]
    # keys and values, 2 layers, 1 head of 8 numbers, float32; rows and positions at most
    assert model["cache_bytes_at_most"] == 2 * 2 * 8 * 4 * 160 * (64 + 4)


@pytest.mark.slow
def test_tofu_real_with_a_tiny_model(inside):
    changes = {"train.recipe.epochs": 1, "unlearn.recipe.watch": 2, "exact.rows": 5}
    folder = inside("tofu-real", changes, n=3)
    write_tofu(folder / "data/source", "forget01", 20, "retain99")
    tiny(folder / "data/models/smollm2-135m-instruct", ["Author 1 wrote."])
    changed(folder / "params.yaml", [])  # what `lethe run` checks first
    params = config.load()
    trained(params)
    for name in params.models:
        assert (folder / f"data/models/{name}/adapter_model.safetensors").is_file()
        found = measured(name, "exact", "epsilon_star")
        assert (found["n_questions"], found["n"]) == (20, 3)
        drawn = pd.read_parquet(f"data/scores/{name}/forget.parquet")
        assert found["mean"] == pytest.approx(drawn.loc[drawn["sample"] >= 0, "rouge_l"].mean())
    work("compare")
    work("report")
    assert Path("data/report").exists()
    exact = [
        row
        for row in table.read(Path("data")).rows("npo")
        if (row.scope, row.basis) == ("question", "tree")
    ]
    assert len(exact) == 20


@pytest.mark.slow
def test_a_checkpoint_of_open_unlearning_has_a_verdict_and_its_numbers_beside_the_published(inside):
    changes = {"exact.rows": 5, "data.forget": "forget01"}
    folder = inside("open-unlearning", changes, n=3, utility_questions=400)
    write_tofu(folder / "data/source", "forget01", 20, "retain99")
    params = config.load()
    for entry in params.models.values():
        tiny(folder / entry.path, ["Author 1 wrote."], CHAT)
    changed(folder / "params.yaml", [])  # what `lethe run` checks first
    work("prepare")
    for name in params.models:
        measured(name, "exact")
    work("compare")

    log = evaluation(folder, n=20)
    told = Command("score").result("tofu-log", log, "--retain", log, "--beside", "data:unlearned")
    found = told["beside"]["numbers"]

    assert all(number["measured"] is not None for number in found.values())
    assert found["forget_quality"]["measured"] == 1, "both folders have the same weights"
    assert found["retain_probability"]["inside"] is False
    findings = Findings.of(table.read(Path("data")).rows("unlearned"))
    assert findings.about("unlearned", FORGETTING).outcome in ("leaks", "forgot", "open")


@pytest.fixture(scope="module")
def aligned(tmp_path_factory):
    """The alignment preset made small: two models are trained, one judges the other, and the page carries the error."""
    value = with_preset("alignment")
    value["data"]["requests"] |= {
        "requests": 3,
        "demonstrations": 24,
        "judgements": 24,
        "labelled": 20,
    }
    for model in value["train"]["models"].values():
        model["recipe"] |= {
            "hidden": 16,
            "layers": 1,
            "feed_forward": 16,
            "vocabulary": 900,
            "epochs": 2,
        }
    value["sample"] |= {"n": 16, "utility_n": 2, "utility_questions": 2, "max_new_tokens": 12}
    folder = make_repository(tmp_path_factory.mktemp("alignment") / "lethe", value, git=False)
    stages = "prepare train@refuser train@judge sample@refuser likelihood@refuser judge@harm score@refuser"
    with contextlib.chdir(folder):
        for stage in (
            *stages.split(),
            "metrics@refuser",
            "epsilon_star@refuser",
            "compare",
            "report",
        ):
            work(stage)
    return folder


@pytest.mark.slow
def test_the_judge_reads_what_the_refuser_says(aligned):
    assert (
        json.loads((aligned / "data/models/judge/config.json").read_text())[
            "max_position_embeddings"
        ]
        >= 1024
    )
    scores = pd.read_parquet(aligned / "data/scores/refuser/forget.parquet")
    assert {"harm", "harm_p", "keyword_leak"} <= set(scores)
    assert len(scores) == 3 * 17
    calibration = pd.read_csv(aligned / "data/judged/harm/calibration.csv")
    assert list(calibration) == ["label", "verdict", "judge"]
    assert len(calibration) == 20
    metrics = table.read(aligned / "data").model("refuser").values
    assert 0 <= metrics["judged_worst"] <= 1
    assert metrics["judge_labelled"] == 20
