"""The digest of what answers: every file that is read of a model folder, and of an adapter's base."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from lethe.certificates.hashes import CertificateSettings, facts
from lethe.config.measuring import Endpoint
from lethe.config.schema import Compute
from lethe.errors import BadFile, ParamsClash
from lethe.identity import library
from lethe.models import checkpoints
from lethe.sampling.engine import AnswerStore, Options
from tests.lethe.small_checkpoint import ROWS, save_small_checkpoint

BASE_WEIGHTS = ("model.safetensors", "config.json", "generation_config.json")
BASE_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
ADAPTER = ("adapter_model.safetensors", "adapter_config.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A base model, and an adapter of it as peft saves one: it has no tokenizer and no record of Lethe's."""
    place = tmp_path_factory.mktemp("models")
    base = save_small_checkpoint(place / "base")
    (base / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    lora = Compute.model_validate({"lora": {"rank": 2}}).lora
    model = checkpoints.adapted(checkpoints.load(base)[0], lora, 0)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name:
                weights.normal_(generator=torch.Generator().manual_seed(1))
    model.save_pretrained(place / "adapter")
    return place


@pytest.fixture
def models(made, tmp_path, monkeypatch) -> Path:
    """Copies of both, in the folder of this process."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    point_to("base")
    return tmp_path


def point_to(base: str) -> None:
    change(Path("adapter/adapter_config.json"), "base_model_name_or_path", base)


def change(file: Path, key: str, value: object) -> None:
    settings = json.loads(file.read_text())
    settings[key] = value
    file.write_text(json.dumps(settings))


def edit(file: Path) -> None:
    if file.suffix == ".json":
        change(file, "edited", 1)
    else:
        file.write_bytes(file.read_bytes() + b" ")


@pytest.mark.parametrize(
    "file",
    [
        *(f"base/{name}" for name in (*BASE_WEIGHTS, *BASE_TOKENIZER)),
        *(f"adapter/{name}" for name in ADAPTER),
    ],
)
def test_an_edit_of_any_file_that_is_read_makes_another_model(models, file):
    adapter = Path("adapter")
    before = checkpoints.content(adapter)
    claimed = facts(adapter, ROWS, CertificateSettings(prompt="qa"))

    edit(models / file)

    assert checkpoints.content(adapter) != before
    assert facts(adapter, ROWS, CertificateSettings(prompt="qa")) != claimed


@pytest.mark.parametrize("name", ["source.spm", "bpe.codes", "prophetnet.tokenizer"])
def test_a_vocabulary_of_any_tokenizer_makes_another_model(models, name):
    """The endings that tokenizers of transformers name beside .json, .txt and .model."""
    before = checkpoints.content(Path("base"))

    Path("base", name).write_text("a")

    assert checkpoints.content(Path("base")) != before


def test_an_adapter_beside_the_config_of_its_base_stands_on_the_base_that_it_names(models):
    shutil.copy("base/config.json", "adapter/config.json")
    before = checkpoints.content(Path("adapter"))
    answering, _ = checkpoints.load(Path("adapter"))

    edit(models / "base/generation_config.json")

    assert checkpoints.content(Path("adapter")) != before
    assert "lora" not in " ".join(answering.state_dict())  # merged, as any adapter


def test_a_whole_model_with_an_adapter_beside_its_weights_is_refused(models):
    for name in ADAPTER:
        shutil.copy(f"adapter/{name}", f"base/{name}")

    for call in (checkpoints.check, checkpoints.load):
        with pytest.raises(BadFile, match="a whole model and adapter_config"):
            call(Path("base"))


@pytest.mark.parametrize("file", ["below/shard.safetensors", "../shard.safetensors"])
@pytest.mark.parametrize("settings", ["model.safetensors.index.json", "config.json"])
def test_weights_outside_the_folder_itself_are_refused_by_their_name(models, file, settings):
    weights = models / "base/model.safetensors"
    (models / "base" / file).parent.mkdir(exist_ok=True)
    shutil.copy(weights, models / "base" / file)
    if settings == "config.json":
        change(models / "base/config.json", "transformers_weights", file)
    else:
        weights.rename(models / "base/another.safetensors")
        index = {
            "metadata": {},
            "weight_map": dict.fromkeys(load_file(models / "base" / file), file),
        }
        (models / "base" / settings).write_text(json.dumps(index))

    with pytest.raises(BadFile, match=re.escape(file)):
        checkpoints.load(Path("base"))


def test_a_server_a_format_and_a_language_of_prompts_make_another_answerer_and_no_path_does(
    models, tmp_path
):
    served = Endpoint(endpoint="http://127.0.0.1:1/v1", name="a")
    other = Endpoint(endpoint="http://127.0.0.1:1/v1", name="b")
    language = tmp_path / "language.yaml"
    language.write_text("wording: ['{question}']")
    moved = shutil.copy(language, tmp_path / "moved.yaml")

    assert checkpoints.content(served) != checkpoints.content(other)
    for answering in (Path("base"), Path("adapter"), served):
        alone = checkpoints.content(answering)
        in_float32 = checkpoints.content(answering, dtype="float32")
        asked = checkpoints.content(answering, language=language)
        assert len({alone, in_float32, asked}) == 3
        assert checkpoints.content(answering, dtype="bfloat16") != in_float32
        assert checkpoints.content(answering, language=moved) == asked

    before = checkpoints.content(Path("base"), language=language)
    language.write_text("wording: ['{question} Answer briefly.']")
    assert checkpoints.content(Path("base"), language=language) != before


def test_the_answers_of_another_format_are_others(models):
    engine = SimpleNamespace(name="prefix")

    def place(dtype: str) -> Path:
        store = AnswerStore.of(Path("base"), engine, Options(device="cpu", dtype=dtype))
        return store.place("a prompt")

    assert place("float32") == place("auto")  # on a CPU
    assert place("bfloat16") != place("float32")


@pytest.mark.parametrize("file", ["base/README.md", "base/training.json", "adapter/README.md"])
def test_a_file_that_nobody_reads_makes_no_other_model(models, file):
    before = checkpoints.content(Path("adapter"))

    (models / file).write_text("{}")

    assert checkpoints.content(Path("adapter")) == before


def test_a_model_that_was_moved_is_the_same(models):
    before = checkpoints.content(Path("adapter"))

    Path("base").rename("elsewhere")
    point_to("elsewhere")

    assert checkpoints.content(Path("adapter")) == before


def test_a_changed_config_of_the_base_makes_the_merged_copy_anew(models):
    def answer() -> torch.Tensor:
        model, _ = checkpoints.load("adapter")
        with torch.no_grad():
            return model(torch.tensor([[5, 6, 7]])).logits

    merged = checkpoints.whole(Path("adapter"))
    logits = answer()

    change(Path("base/config.json"), "rms_norm_eps", 0.5)

    assert checkpoints.whole(Path("adapter")) != merged
    assert not torch.allclose(answer(), logits)


def test_a_changed_tokenizer_of_the_base_makes_the_merged_copy_anew(models):
    merged = checkpoints.whole(Path("adapter"))

    change(Path("base/tokenizer_config.json"), "model_max_length", 77)

    again = checkpoints.whole(Path("adapter"))
    assert again != merged
    assert checkpoints.load_tokenizer(again).model_max_length == 77


def test_an_adapter_states_the_content_of_its_base_so_that_dvc_sees_another_base(models):
    def stated() -> str:
        model, tokenizer = checkpoints.load("base")
        lora = Compute.model_validate({"lora": {}}).lora
        checkpoints.save(Path("trained"), checkpoints.adapted(model, lora, 0), tokenizer)
        return json.loads(Path("trained/base.json").read_text())["content"]

    before = stated()
    change(Path("base/generation_config.json"), "edited", 1)

    assert stated() != before


def test_an_adapter_whose_base_dvc_does_not_track_is_refused_with_what_to_write(models):
    with pytest.raises(ParamsClash, match="adapter/base") as refused:
        checkpoints.check_tracked(Path("adapter"), "models.mine.path")
    assert '"base_model_name_or_path": "base"' in str(refused.value)

    shutil.move("base", "adapter/base")
    point_to("base")

    checkpoints.check_tracked(Path("adapter"), "models.mine.path")
    checkpoints.check_tracked(Path("adapter/base"), "models.other.path")


def test_a_base_that_two_folders_could_be_is_refused(models):
    shutil.copytree("base", "adapter/base")

    with pytest.raises(BadFile, match=r"stands in \S*/base and in \S*/adapter/base"):
        checkpoints.content(Path("adapter"))


def test_a_base_that_a_link_within_the_adapter_names_too_is_one_base(models):
    Path("adapter/base").symlink_to(Path("base").resolve())

    assert checkpoints.base_of(Path("adapter")) == Path("base")


def test_a_tokenizer_in_a_file_outside_the_folder_is_refused(models):
    Path("elsewhere").mkdir()
    shutil.copy("base/tokenizer.json", "elsewhere/tokenizer.4.0.0.json")
    change(
        Path("base/tokenizer_config.json"),
        "fast_tokenizer_files",
        ["tokenizer.json", "../elsewhere/tokenizer.4.0.0.json"],
    )

    with pytest.raises(BadFile, match="model's folder itself"):
        checkpoints.load_tokenizer(Path("base"))


@pytest.mark.parametrize("settings", [{"temperature": 0.6}, {"top_p": 0.9, "do_sample": False}])
def test_an_adapter_of_a_base_with_settings_that_contradict_is_merged_with_its_ends(
    models, settings
):
    path = Path("base/generation_config.json")
    path.write_text(json.dumps({"eos_token_id": [1, 5], **settings}))

    merged = checkpoints.whole(Path("adapter"))

    kept = json.loads((merged / path.name).read_text())
    assert kept["eos_token_id"] == [1, 5]
    assert {name: kept.get(name, False) for name in settings} == settings


def test_the_merged_copy_is_made_anew_by_other_code(models, monkeypatch):
    before = checkpoints.whole(Path("adapter"))

    monkeypatch.setitem(library().codes, (checkpoints.__name__,), "other code")

    assert checkpoints.whole(Path("adapter")) != before


def test_a_second_copy_of_all_weights_is_not_counted(models):
    before = checkpoints.Stored.of(Path("base"))

    shutil.copy("base/model.safetensors", "base/consolidated.safetensors")

    assert checkpoints.Stored.of(Path("base")) == before


@pytest.mark.parametrize(
    ("place", "written", "prompt"),
    [
        ("chat_template.jinja", "{{ messages }}", "chat"),
        ("additional_chat_templates/default.jinja", "{{ messages }}", "chat"),
        ("additional_chat_templates/tool_use.jinja", "{{ messages }}", str(checkpoints.QA_PROMPT)),
    ],
)
def test_a_chat_template_is_found_wherever_transformers_reads_it(models, place, written, prompt):
    Path("base/chat_template.jinja").unlink()
    file = Path("base", place)
    file.parent.mkdir(exist_ok=True)
    file.write_text(written)

    assert checkpoints.default_prompt(Path("base")) == prompt


def test_answers_of_a_folder_that_changes_meanwhile_are_refused(models):
    before = checkpoints.content(Path("adapter"))
    checkpoints.check_unchanged(Path("adapter"), before)

    change(Path("base/config.json"), "rms_norm_eps", 0.5)

    with pytest.raises(BadFile, match="changed while it"):
        checkpoints.check_unchanged(Path("adapter"), before)


def test_the_weights_in_two_shards_are_refused_by_name(models):
    weights = load_file("base/model.safetensors")
    first, *others = sorted(weights)
    Path("base/model.safetensors").unlink()
    save_file({first: weights[first]}, "base/model-1.safetensors")
    save_file({name: weights[name] for name in others}, "base/model-2.safetensors")
    places = {name: "model-2.safetensors" for name in others} | {first: "model-1.safetensors"}
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    Path("base/model.safetensors.index.json").write_text(json.dumps(index))
    checkpoints.check("base")

    save_file(weights, "base/model-2.safetensors")

    with pytest.raises(BadFile, match=re.escape(first)) as refused:
        checkpoints.check("adapter")
    assert "model-1.safetensors" in str(refused.value)
