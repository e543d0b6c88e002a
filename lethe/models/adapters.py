"""LoRA adapters: trained instead of the weights, saved as the artifact, merged into the base model before use."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lethe.errors import BadFile
from lethe.io.atomic import atomic_folder
from lethe.io.cache import digest, versions
from lethe.io.json_files import read_json, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lethe.config.schema import Lora

CONFIG, WEIGHTS, PROVENANCE = "adapter_config.json", "adapter_model.safetensors", "base.json"
PLACES = ("base_model_name_or_path", "revision")  # keys of CONFIG that locate the base model
MERGED = Path(".lethe/scratch/merged")


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, not a whole model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def adapted(model: PreTrainedModel, lora: Lora | None, seed: int) -> PreTrainedModel:
    """The model with a new adapter, whose weights alone are trained."""
    if lora is None:
        return model
    import torch
    from peft import LoraConfig, TaskType, get_peft_model

    torch.manual_seed(seed)
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=lora.rank,
        lora_alpha=cast("int", lora.alpha),
        lora_dropout=lora.dropout,
        target_modules=lora.targets,
    )
    return cast("PreTrainedModel", get_peft_model(model, config))


def write_provenance(folder: Path) -> None:
    """Record the hash of the base model's weights, which later uses of the adapter compare."""
    if is_adapter(folder):
        base = base_of(folder)
        write_json(folder / PROVENANCE, {"base": str(base), "sha256": content_hash(base, weights_hash)})
        (folder / "README.md").unlink(missing_ok=True)


def base_of(folder: Path) -> Path:
    """The folder of an adapter's base model; raises `BadFile` if this machine has none."""
    config = read_json(folder / CONFIG)
    name, revision = config.get("base_model_name_or_path"), config.get("revision")
    if not isinstance(name, str) or not name:
        raise BadFile(folder / CONFIG, "names no base_model_name_or_path", "Write the base model's folder there.")
    if not (folder / WEIGHTS).is_file():
        raise BadFile(
            folder, f"holds no {WEIGHTS}", "Save the adapter as safetensors, the only format that is loaded."
        )
    for place in (Path(name), folder / name):
        if (place / "config.json").is_file() or is_adapter(place):
            return place
    from transformers.utils import cached_file

    try:
        cached = cached_file(name, "config.json", revision=revision, local_files_only=True)
    except (OSError, ValueError):
        cached = None
    if cached is None:
        raise BadFile(
            folder / CONFIG,
            f"names the model {name!r}, which is neither a folder here nor in the hub's cache",
            "Put the model there, or write its folder into base_model_name_or_path.",
        )
    return Path(cached).parent


def whole(folder: Path) -> Path:
    """The folder of the whole model: ``folder`` itself, or a cached copy of the adapter merged in float32.

    Raises `BadFile` if the base model is missing, or its weights are not those that the adapter was trained on.
    """
    if not is_adapter(folder):
        return folder
    base = base_of(folder)
    base_hash = content_hash(base, weights_hash)
    if (folder / PROVENANCE).is_file() and read_json(folder / PROVENANCE).get("sha256") != base_hash:
        raise BadFile(
            folder,
            f"was trained on other weights than {base} holds now",
            "Train the adapter again, or restore its base model.",
        )
    place = MERGED / digest(base_hash, weights_hash(folder), read_json(folder / CONFIG), versions("peft", "torch"))
    if not (place / "config.json").is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        _merge(base, folder, place)
    return place


def _merge(base: Path, folder: Path, place: Path) -> None:
    from peft import PeftModel

    from lethe.models import checkpoints

    model, tokenizer = checkpoints.load(base, "float32")
    if checkpoints.has_tokenizer(folder):
        tokenizer = checkpoints.load_tokenizer(folder)
    with checkpoints.refusals(folder):
        joined: Any = PeftModel.from_pretrained(model.cpu(), str(folder))
        merged = joined.merge_and_unload(safe_merge=True)
    with atomic_folder(place) as temporary:
        checkpoints.save(temporary, merged, tokenizer)


def content_hash(folder: Path, own: Callable[[Path], str]) -> str:
    """The hash ``own`` of a model folder; an adapter's hash covers its settings and its base model, but no path."""
    if not is_adapter(folder):
        return own(folder)
    settings = {key: value for key, value in read_json(folder / CONFIG).items() if key not in PLACES}
    return digest(own(folder), settings, content_hash(base_of(folder), own))


def weights_hash(folder: Path) -> str:
    """A hash of a folder's safetensors files: names and content."""
    state = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        state.update(os.fsencode(path.name))
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                state.update(block)
    return state.hexdigest()
