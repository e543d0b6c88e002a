"""Model folders and hub names: what is loaded, from a hub's cache made here, and what is refused."""

import json
import re
import shutil

import huggingface_hub.constants
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from flows import settings
from lethe import config
from lethe.errors import BadFile, BadInput
from lethe.io.files import read_json
from lethe.models import checkpoints, hub
from tests.lethe.small_checkpoint import save_small_checkpoint, small_model
from tests.small import ROOT

COMMITS = {"main": "a" * 40, "v2": "b" * 40}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The hub's cache with two revisions of one repository, and no way to the hub."""
    folder = tmp_path / "hub"
    repository = folder / "models--org--tiny"
    for revision, commit in COMMITS.items():
        snapshot = save_small_checkpoint(repository / "snapshots" / commit)
        (snapshot / "modeling.py").write_text("raise SystemExit('code of a checkpoint ran')")
        (snapshot / "note.txt").write_text(revision)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / revision).write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return folder


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}/[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True),
    st.sampled_from(["", "@main", "@v1.0"]),
)
def test_a_name_and_its_folder_are_one_to_one(repository, revision):
    name = hub.hub_name(repository + revision)
    assert name is not None
    assert name.repository == repository
    assert hub.named_by(name.folder) == name
    assert hub.named_by(f"{name.folder}/") == name


def test_a_revision_is_the_files_of_its_commit(cache):
    for revision, commit in COMMITS.items():
        folder = hub.fill(hub.HubName("org/tiny", revision))
        assert (folder / "note.txt").read_text() == revision
        assert read_json(folder / hub.SOURCE) == {
            "repository": "org/tiny",
            "revision": revision,
            "commit": commit,
        }
        assert not list(folder.glob("*.py"))  # never code
        model, _ = checkpoints.load(folder)
        assert sum(weights.numel() for weights in model.parameters()) > 0
    assert hub.HubName("org/tiny", "main").folder.name == "tiny"
    # A branch that moves on changes no folder that is there.
    shutil.rmtree(cache)
    assert hub.fill(hub.HubName("org/tiny", "v2")).is_dir()


def test_params_name_a_checkpoint_of_the_hub(cache, tmp_path):
    value = config.read_yaml(ROOT / "params.yaml")
    value["models"]["mine"] = {"path": "data/models/hub/org/tiny@v2"}
    value["train"]["recipe"]["start_from"] = "data/models/hub/org/tiny"
    (tmp_path / "data/source").mkdir(parents=True)
    (tmp_path / "lethe").symlink_to(ROOT / "lethe")
    settings.check(config.validate(value), tmp_path)
    assert (tmp_path / "data/models/hub/org/tiny@v2/model.safetensors").is_file()
    assert (tmp_path / "data/models/hub/org/tiny/model.safetensors").is_file()
    value["models"]["mine"]["path"] = "data/models/hub/org/tiny@v3"
    with pytest.raises(
        BadInput, match=r"models\.mine\.path.*org/tiny@v3.*neither in the hub's cache"
    ):
        settings.check(config.validate(value), tmp_path)


def test_a_model_survives_its_folder_as_safetensors(tiny, tmp_path):
    model, tokenizer = tiny
    checkpoints.save(tmp_path / "m", model, tokenizer)
    assert (tmp_path / "m" / "model.safetensors").is_file()
    again, words = checkpoints.load(tmp_path / "m")
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )
    text = "Ada is a painter. \u00fc \U0001f600"
    assert words.decode(words(text)["input_ids"]) == text


def test_what_is_no_model_is_named(tmp_path, tiny):
    with pytest.raises(BadFile, match="no such folder"):
        checkpoints.load(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadFile, match=r"no config\.json"):
        checkpoints.load(tmp_path / "empty")
    tiny[0].config.save_pretrained(tmp_path / "pickled")
    torch.save(tiny[0].state_dict(), tmp_path / "pickled" / "pytorch_model.bin")
    with pytest.raises(BadFile, match=r"no \.safetensors file"):
        checkpoints.load(tmp_path / "pickled")


@pytest.mark.parametrize("lost", ["one", "all"])
def test_weights_that_are_not_there_are_refused_not_made_up(tiny, tmp_path, lost):
    checkpoints.save(tmp_path / "m", *tiny)
    place = tmp_path / "m" / "model.safetensors"
    weights = load_file(place)
    if lost == "one":
        del weights["model.norm.weight"]
    else:  # as a training framework names them
        weights = {f"module.{name}": values for name, values in weights.items()}
    save_file(weights, place, metadata={"format": "pt"})
    with pytest.raises(BadFile, match="its safetensors lack"):
        checkpoints.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({}, "layers.1.extra_proj.weight"),
        ({"num_hidden_layers": 1}, "layers.1.input_layernorm.weight"),
        ({"num_hidden_layers": 0}, "layers.0.input_layernorm.weight"),
    ],
)
def test_weights_of_a_layer_that_the_settings_leave_out_are_refused(tmp_path, changed, named):
    checkpoints.save(tmp_path, *small_model(["Ada"], layers=2))
    place = tmp_path / "model.safetensors"
    weights = load_file(place)
    if not changed:
        weights["model.layers.1.extra_proj.weight"] = torch.ones(2)
    save_file(weights, place, metadata={"format": "pt"})
    settings_of_model = read_json(tmp_path / "config.json") | changed
    (tmp_path / "config.json").write_text(json.dumps(settings_of_model))

    with pytest.raises(BadFile, match=re.escape(named)):
        checkpoints.load(tmp_path)


def test_weights_beside_the_layers_are_no_fault(tiny, tmp_path):
    checkpoints.save(tmp_path, *tiny)
    place = tmp_path / "model.safetensors"
    names = ("vision_tower.layers.0.q_proj.weight", "model.layers.0.self_attn.rotary_emb.inv_freq")
    beside = {name: torch.ones(2) for name in names}
    save_file(load_file(place) | beside, place, metadata={"format": "pt"})

    assert checkpoints.load(tmp_path)[0].config.num_hidden_layers


def test_settings_of_no_model_are_not_the_fault_of_the_tokenizer(tiny, tmp_path):
    checkpoints.save(tmp_path, *tiny)
    settings_of_model = read_json(tmp_path / "config.json") | {"hidden_size": "16"}
    (tmp_path / "config.json").write_text(json.dumps(settings_of_model))

    with pytest.raises(BadFile, match="causal language model"):
        checkpoints.load_tokenizer(tmp_path)


def test_a_library_that_a_checkpoint_needs_and_a_long_reason_are_told(tmp_path):
    for error in (ImportError("needs bitsandbytes"), ValueError("one of " + "x" * 10_000)):
        with pytest.raises(BadFile) as caught, checkpoints.refusals(tmp_path):
            raise error
        assert str(error)[:10] in str(caught.value)
        assert len(str(caught.value)) < 500
