"""Language models: Hugging Face folders with safetensors, LoRA adapters, which are merged before use, and models in memory.

Code in a checkpoint is never run.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from lethe.config.measuring import Endpoint
from lethe.config.schema import Lora, TrainRecipe
from lethe.errors import BadFile, ParamsClash, shortened
from lethe.identity import cache_key, content_digest, digest, versions
from lethe.io.files import SCHEMA_VERSION, atomic_folder, read_json, write_json
from lethe.models.refusals import MODEST, limited_memory, refusals, refusals_of_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

# step, epoch and lr (whole numbers the first two), then the method's scalars by name
StepRecord = dict[str, float]
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)
SAVED_TOKENIZER = "tokenizer.save_pretrained(folder)"
SAVE_TOKENIZER = f"Save the tokenizer again: {SAVED_TOKENIZER}."
PAD, END = "<pad>", "<eos>"
CONFIG, WEIGHTS, PROVENANCE = "adapter_config.json", "adapter_model.safetensors", "base.json"
MOST_PACKED = 16  # weights that a quantised format packs into a stored number: four bits in 64
MOST_ADAPTERS = 8  # upon one another: each is merged into a copy of the whole model
MOST_SHARED_LAYERS = 200  # layers of a model whose layers share their tensors
NAMES_WEIGHTS = "transformers_weights"  # a key of config.json
NAMES_TOKENIZERS = (
    "fast_tokenizer_files"  # a key of tokenizer_config.json: a file for each release of the library
)
# The start of the name of a weight of a layer: model.layers.0.
LAYER = re.compile(r"((?:[a-z_0-9]+\.)*?(?:layers|h|blocks)\.)\d+\.")
PLACES = ("base_model_name_or_path", "revision")  # keys of CONFIG that locate the base model
NO_ADAPTER = "is not an adapter that peft can merge into its base model"
# The matrices with a row per token, as architectures name them; an adapter that added tokens holds them whole.
OF_VOCABULARY = (
    "embed_tokens.weight",
    "lm_head.weight",
    "wte.weight",
    "embed_in.weight",
    "embed_out.weight",
)
SHARE_OF_MEMORY = 0.8  # that a second copy of a model may take, for whole passes
MERGED = Path(".lethe/scratch/merged")
SUFFIXES_READ = (
    *(".safetensors", ".json", ".txt", ".model", ".jinja"),
    *(".tiktoken", ".spm", ".codes", ".tokenizer"),  # vocabularies of single tokenizers
)
NOT_READ = (PROVENANCE, "training.json", "README.txt", "LICENSE.txt")


def cache_name(model: torch.nn.Module) -> str:
    """What a model calls the cache of its earlier tokens: transformers 5.24 renames ``past_key_values`` to ``cache``."""
    accepts = inspect.signature(model.forward).parameters
    return "cache" if "cache" in accepts else "past_key_values"


def default_device() -> str:
    """The type of the device that models are loaded on; the keys of kept results contain it."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def prepare_torch() -> None:
    """Make runs on the CPU bit-identical: fix the number of threads and use deterministic kernels."""
    import torch
    from transformers.utils import logging

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    # The mode "warn", since a few GPU kernels have no deterministic version. `use_deterministic_algorithms` sets the same,
    # but imports torch's compiler, which takes seconds.
    torch.set_deterministic_debug_mode("warn")
    # No computation here reads uninitialised memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # made at import
    logging.set_verbosity_error()
    logging.disable_progress_bar()


# Never execute code from a checkpoint, and never prompt the user to allow it.
TRUSTED = {"trust_remote_code": False}


def check(folder: str | os.PathLike) -> Path:
    """Return ``folder`` as a path; raises `BadFile` unless it is a model folder, or an adapter's, with safetensors.

    Nothing outside the folder, or below it, may take part in the answers: `content` would not see it.
    """
    folder = Path(folder)
    if is_adapter(folder):
        check(base_of(folder))
        return folder
    if not (folder / "config.json").is_file():
        problem = (
            "is not a model folder: it has no config.json" if folder.is_dir() else "no such folder"
        )
        raise BadFile(folder, problem, "Name a Hugging Face model folder.")
    if not any(folder.glob("*.safetensors")):
        raise BadFile(
            folder,
            "holds no .safetensors file",
            "Save the weights as safetensors, the only format that is loaded.",
        )
    if (folder / CONFIG).is_file():
        problem = f"holds a whole model and {CONFIG}, an adapter that transformers would add to it"
        raise BadFile(
            folder, problem, f"Keep the model and its adapter in two folders, or delete {CONFIG}."
        )
    _check_names_of_weights(folder)
    _check_places_of_tensors(folder)
    return folder


def _check_places_of_tensors(folder: Path) -> None:
    """Refuse a tensor in two files of weights: which of them answers depends on the order in which a library reads them."""
    files = _read_as_weights(folder)
    if len(files) < 2:
        return
    place_of_tensor: dict[str, Path] = {}
    for file in files:
        for name in _shapes(file):
            earlier = place_of_tensor.setdefault(name, file)
            if earlier != file:
                places = f"{earlier.name} and in {file.name}"
                problem = (
                    f"holds the weights {shortened(name)} in {places}, of which either may load"
                )
                raise BadFile(folder, problem, "Save the whole model again.")


def _shapes(file: Path) -> dict[str, list[int]]:
    """The shape of each tensor by the header of a file of weights."""
    from safetensors import safe_open

    with refusals(file, "is not a safetensors file"), safe_open(file, "np") as weights:
        return {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118  # the file is no mapping


def _check_names_of_weights(folder: Path) -> None:
    """Refuse settings that name a file of weights elsewhere than among the files of the folder."""
    named = [(folder / "config.json", read_settings(folder / "config.json").get(NAMES_WEIGHTS))]
    for index in sorted(folder.glob("*.index.json")):
        files = read_settings(index).get("weight_map")
        if isinstance(files, dict):
            named += [(index, file) for file in dict.fromkeys(map(str, files.values()))]
    for place, file in named:
        if file is not None:
            _check_inside(place, "weights", file)


def _check_inside(settings: Path, of: str, file: object) -> None:
    """Refuse a file that ``settings`` name elsewhere than among the files of their folder."""
    if Path(str(file)).name != file:
        problem = (
            f"names the file of {of} {shortened(file)}, which is not in the model's folder itself"
        )
        remedy = f"Put all files of the {of} into the folder, and name them there."
        raise BadFile(settings, problem, remedy)


def load(
    folder: str | os.PathLike, dtype: str = "auto"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model of a folder on the default device, and its tokenizer; raises `BadFile` where one cannot be loaded."""
    folder = whole(check(folder))
    device = default_device()
    tokenizer = load_tokenizer(folder)
    if dtype == "auto" and device == "cpu":
        dtype = "float32"
    model = load_weights(folder, dtype)
    return model.to(device), tokenizer  # type: ignore[arg-type]  # transformers wraps it without its signature


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer that transformers reads."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def load_tokenizer(folder: str | os.PathLike) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder, or of the base of an adapter without one; raises `BadFile` where it does not work."""
    from transformers import AutoTokenizer

    folder = Path(folder)
    if is_adapter(folder) and not has_tokenizer(folder):
        folder = whole(folder)
    if not has_tokenizer(folder):
        if not (folder / "config.json").is_file():
            check(folder)
        raise BadFile(
            folder,
            f"holds no tokenizer (none of {', '.join(TOKENIZER_FILES)})",
            f"Save the model's tokenizer there too: {SAVED_TOKENIZER}.",
        )
    _check_names_of_tokenizer(folder)
    unloadable = refusals_of_tokenizer(folder, "its tokenizer cannot be loaded", SAVE_TOKENIZER)
    try:
        with limited_memory(folder), unloadable:
            tokenizer = AutoTokenizer.from_pretrained(folder, **TRUSTED)
    except BadFile:
        if (folder / "config.json").is_file():
            load_config(folder)  # which transformers reads, too: an error of it is told as such
        raise
    with refusals_of_tokenizer(
        folder, "its tokenizer cannot encode and decode a text", SAVE_TOKENIZER
    ):
        tokenizer.decode(tokenizer("Who is Ada?\n")["input_ids"])
        has_words = not set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens)
    if not has_words:
        raise BadFile(
            folder,
            "its tokenizer knows special tokens alone, so that every question is the same to the model",
            SAVE_TOKENIZER,
        )
    return tokenizer


def _check_names_of_tokenizer(folder: Path) -> None:
    """Refuse settings by which transformers reads the tokenizer from a file elsewhere, which `content` would not see."""
    place = folder / "tokenizer_config.json"
    named = read_settings(place).get(NAMES_TOKENIZERS) if place.is_file() else None
    for file in named if isinstance(named, list) else ():
        _check_inside(place, "tokenizer", file)


def load_config(folder: Path) -> PretrainedConfig:
    """The model's settings in config.json, as transformers reads them."""
    from transformers import AutoConfig, PretrainedConfig

    with limited_memory(folder), refusals(folder):
        config = AutoConfig.from_pretrained(folder, **TRUSTED)
        text = config.get_text_config()
    if not isinstance(text, PretrainedConfig):
        problem = f"its settings of the text model are {type(text).__name__}, expected an object with model_type"
        raise BadFile(
            folder / "config.json", problem, "Save the model again: model.save_pretrained(folder)."
        )
    return config


def load_weights(folder: Path, dtype: str) -> PreTrainedModel:
    """The causal language model, in evaluation mode on the CPU, with every weight from the folder."""
    from transformers import AutoModelForCausalLM

    # With output_loading_info the function returns a pair, which the library's annotation omits.
    load_pair = cast(
        "Callable[..., tuple[PreTrainedModel, dict[str, list[str]]]]",
        AutoModelForCausalLM.from_pretrained,
    )
    config = load_config(folder)
    stored = Stored.of(folder)
    check_size(folder, config, stored)
    with limited_memory(folder, MODEST + 4 * MOST_PACKED * stored.numbers), refusals(folder):
        model, loading = load_pair(
            folder, dtype=dtype, use_safetensors=True, output_loading_info=True, **TRUSTED
        )
    # transformers initialises missing weights at random, and a random model remembers nothing.
    if lacking := sorted(loading["missing_keys"]):
        raise BadFile(
            folder,
            f"its safetensors lack {len(lacking)} weights of the model that its config.json describes, the first "
            f"{lacking[0]}",
            "Save the whole model, under the names that transformers gives its weights.",
        )
    if surplus := _left_out(model, loading["unexpected_keys"]):
        raise BadFile(
            folder,
            f"its safetensors hold {len(surplus)} weights of layers that its config.json does not describe, the first "
            f"{surplus[0]}",
            "Write the config.json of these weights: without them another model answers.",
        )
    return model.eval()


def _left_out(model: PreTrainedModel, unexpected: Iterable[str]) -> list[str]:
    """The weights of the model's own layers that it does not take, sorted; those of other parts, as of images, are no layers.

    A buffer, such as the frequencies of positions, is computed and no weight.
    """
    starts = {f"{model.base_model_prefix}.layers.", "layers."}
    for name in model.state_dict():
        if layer := LAYER.match(name):
            starts.add(layer[1])
    left_out = []
    for name in unexpected:
        layer = LAYER.match(name)
        module, _, kind = name.rpartition(".")
        is_mask = module.endswith(("attn", "attention"))
        if layer and layer[1] in starts and kind in ("weight", "bias") and not is_mask:
            left_out.append(name)
    return sorted(left_out)


def second_copy(folder: Path, dtype: str) -> PreTrainedModel | None:
    """The model by transformers, on the CPU, beside another library's; None where it does not fit into the free memory."""
    folder = whole(folder)
    size = 2 if dtype.endswith("float16") else 4
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if Stored.of(folder).numbers * size > SHARE_OF_MEMORY * free:
        return None
    return load_weights(folder, dtype)


def check_size(folder: Path, config: PretrainedConfig, stored: Stored) -> None:
    """Refuse a config.json of a larger model than the weights are of: transformers would fill memory with the rest."""
    import torch
    from transformers import AutoModelForCausalLM

    layers = getattr(config.get_text_config(), "num_hidden_layers", None)
    if isinstance(layers, int) and layers > max(MOST_SHARED_LAYERS, stored.tensors):
        raise _too_small(folder, f"{layers:,} layers", f"{stored.tensors:,} tensors")
    described = 0
    # What cannot be made here is refused where it is loaded, with the reason.
    with contextlib.suppress(Exception), torch.device("meta"):
        made = AutoModelForCausalLM.from_config(config, dtype=torch.float32, **TRUSTED)
        described = sum(weights.numel() for weights in made.parameters())
    if described > MOST_PACKED * stored.numbers:
        raise _too_small(folder, f"{described:,} weights", f"{stored.numbers:,} numbers")


def _too_small(folder: Path, described: str, held: str) -> BadFile:
    problem = f"its config.json describes {described}, and its safetensors hold {held}"
    return BadFile(folder, problem, "Save the whole model, with the config.json of its weights.")


@dataclass(frozen=True)
class Stored:
    """How many tensors, and how many numbers in them, the weights of a folder have by the headers of their files."""

    tensors: int
    numbers: int

    @classmethod
    def of(cls, folder: Path) -> Stored:
        """What the files hold that transformers loads of a folder."""
        shapes = [shape for file in _read_as_weights(folder) for shape in _shapes(file).values()]
        return cls(len(shapes), sum(map(math.prod, shapes)))


def _read_as_weights(folder: Path) -> list[Path]:
    """The files whose weights transformers loads: some publishers put a second copy of all weights beside them."""
    whole_model = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if whole_model.is_file():
        return [whole_model]
    shards = read_settings(index).get("weight_map") if index.is_file() else None
    if isinstance(shards, dict):
        return [folder / name for name in sorted(set(map(str, shards.values())))]
    return sorted(folder.glob("*.safetensors"))


def save(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write model and tokenizer, with the weights as safetensors; an adapted model's adapter only."""
    from transformers import GenerationConfig

    # transformers reads settings that contradict one another, as a temperature without sampling, and refuses to write them.
    habits = getattr(model, "generation_config", None)  # a classifier has none
    if habits is not None:
        model.generation_config = GenerationConfig()
    model.save_pretrained(folder)  # transformers and peft write safetensors
    tokenizer.save_pretrained(folder)
    if habits is not None:
        model.generation_config = habits
    if habits is not None and (folder / "generation_config.json").is_file():
        habits.to_json_file(folder / "generation_config.json")
    if is_adapter(folder):  # later uses of the adapter compare the hash of the base model's weights
        base = base_of(folder)
        # DVC tracks the adapter's folder: with the content of the base in it, another base makes another artifact.
        provenance = {"base": str(base), "sha256": _weights_hash(base), "content": content(base)}
        write_json(folder / PROVENANCE, provenance)
        (folder / "README.md").unlink(missing_ok=True)


def save_trained(
    root: Path,
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    history: Sequence[StepRecord],
    more: Mapping[str, object] | None = None,
) -> None:
    """Write a trained model with the record of its training: its steps, and ``more``."""
    record: dict[str, object] = {"schema": SCHEMA_VERSION, "name": name, "steps": history}
    record.update(more or {})
    with atomic_folder(root / "models" / name) as folder:
        save(folder, model, tokenizer)
        write_json(folder / "training.json", record)


def byte_level_tokenizer(vocabulary: int, texts: Iterable[str]) -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer of ``vocabulary`` tokens, trained on ``texts``; it can encode any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=PAD, eos_token=END)


def fresh(recipe: TrainRecipe, texts: list[str]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A small Llama with weights from torch's global generator, and a tokenizer trained on ``texts``."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = byte_level_tokenizer(recipe.vocabulary, texts)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        intermediate_size=recipe.feed_forward,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config), tokenizer


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter in place of a whole model; some trainers write the base's config.json beside it."""
    if not (folder / CONFIG).is_file():
        return False
    if not (folder / "config.json").is_file():
        return True
    return {file.name for file in folder.glob("*.safetensors")} == {WEIGHTS}


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


def base_of(folder: Path) -> Path:
    """The folder of an adapter's base model, which may be an adapter too; raises `BadFile` if this machine has none."""
    base = _named_base(folder)
    known = {folder.resolve()}
    place = base
    while is_adapter(place):
        if place.resolve() in known:
            raise BadFile(
                folder / CONFIG,
                "names a base model that is an adapter, and these adapters name each other in a circle",
                "Write the folder of a whole model into base_model_name_or_path.",
            )
        known.add(place.resolve())
        if len(known) > MOST_ADAPTERS:
            raise BadFile(
                folder / CONFIG,
                f"names a base model that stands on more than {MOST_ADAPTERS} adapters",
                "Merge some of them into their base model.",
            )
        place = _named_base(place)
    return base


def _named_base(folder: Path) -> Path:
    config = read_settings(folder / CONFIG)
    name, revision = config.get("base_model_name_or_path"), config.get("revision")
    if not isinstance(name, str) or not name:
        raise BadFile(
            folder / CONFIG,
            "names no base_model_name_or_path",
            "Write the base model's folder there.",
        )
    if revision is not None and not isinstance(revision, str):
        raise BadFile(
            folder / CONFIG,
            f"key revision: got {shortened(revision)}; must be a text or null",
            "Write the base model's revision there.",
        )
    if not (folder / WEIGHTS).is_file():
        raise BadFile(
            folder,
            f"holds no {WEIGHTS}",
            "Save the adapter as safetensors, the only format that is loaded.",
        )
    found: dict[Path, Path] = {}
    for place in (Path(name), folder / name):
        with contextlib.suppress(OSError, ValueError):  # a name that no file can have
            if (place / "config.json").is_file() or is_adapter(place):
                found.setdefault(place.resolve(), place)
    if len(found) > 1:
        raise BadFile(
            folder / CONFIG,
            f"names the base model {shortened(name)}, which stands in {' and in '.join(map(str, found))}",
            "Write the whole path of the right one into base_model_name_or_path.",
        )
    for place in found.values():
        return place
    from transformers.utils import cached_file

    cached = None
    with contextlib.suppress(OSError, ValueError):
        cached = cached_file(name, "config.json", revision=revision, local_files_only=True)
    if cached is None:
        raise BadFile(
            folder / CONFIG,
            f"names the model {shortened(name)}, which is neither a folder here nor in the hub's cache",
            "Put the model there, or write its folder into base_model_name_or_path.",
        )
    return Path(cached).parent


def whole_number(place: object, name: str, value: object) -> int:
    """A size that a model's settings state: 0 where they state none, the largest where each layer has its own."""
    if value is None:
        return 0
    numbers = value if isinstance(value, (list, tuple)) and value else [value]
    for number in numbers:
        if type(number) is not int or number < 0:
            problem = f"key {name}: got {shortened(value)}; must be a whole number"
            raise BadFile(
                str(place), problem, "Save the model again: model.save_pretrained(folder)."
            )
    return max(numbers)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a JSON file of a model folder; raises `BadFile` where the file is no object."""
    settings = read_json(path)
    if not isinstance(settings, dict):
        problem = f"holds {type(settings).__name__}, expected an object"
        raise BadFile(
            path, problem, "Save the model or the adapter again: save_pretrained(folder)."
        )
    return settings


def whole(folder: Path) -> Path:
    """The folder of the whole model: ``folder`` itself, or a cached copy of the adapter merged in float32; raises
    `BadFile` if the base model is missing or other than the one that the adapter was trained on."""
    if not is_adapter(folder):
        return folder
    base = base_of(folder)
    trained = folder / PROVENANCE
    if trained.is_file() and read_settings(trained).get("sha256") != _weights_hash(base):
        raise BadFile(
            folder,
            f"was trained on other weights than {base} holds now",
            "Train the adapter again, or restore its base model.",
        )
    libraries = versions("peft", "torch", "transformers")
    place = MERGED / cache_key(__name__, model=content(folder), libraries=libraries)
    if not (place / "config.json").is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        _merge(base, folder, place)
    return place


def _merge(base: Path, folder: Path, place: Path) -> None:
    from peft import PeftModel

    model, tokenizer = load(base, "float32")
    if has_tokenizer(folder):
        tokenizer = load_tokenizer(folder)
    _check_rank(folder)
    _fit_vocabulary(model, folder)
    with refusals(folder, NO_ADAPTER):
        joined = PeftModel.from_pretrained(model.cpu(), str(folder))
        merged = joined.merge_and_unload(safe_merge=True)
    with atomic_folder(place) as temporary, refusals(folder, NO_ADAPTER):
        save(temporary, merged, tokenizer)


def _fit_vocabulary(model: PreTrainedModel, folder: Path) -> None:
    """Give the base as many tokens as the adapter was trained with, where the adapter holds the rows of all of them."""
    from safetensors import safe_open

    rows = set()
    with refusals(folder, NO_ADAPTER), safe_open(folder / WEIGHTS, framework="np") as weights:
        for key in weights.keys():  # noqa: SIM118
            if key.endswith(OF_VOCABULARY):
                rows.add(weights.get_slice(key).get_shape()[0])
    embedded = model.get_input_embeddings().num_embeddings
    if len(rows) == 1 and max(rows) != embedded:
        model.resize_token_embeddings(max(rows), mean_resizing=False)


def _check_rank(folder: Path) -> None:
    """Refuse a rank that the adapter's weights cannot have: peft would fill memory with new ones."""
    settings = read_settings(folder / CONFIG)
    ranks = [settings.get("r")]
    if isinstance(settings.get("rank_pattern"), dict):
        ranks += settings["rank_pattern"].values()
    numbers = Stored.of(folder).numbers
    for rank in ranks:
        if isinstance(rank, int) and not 0 <= rank <= numbers:
            problem = f"has the rank {shortened(rank)}, and the adapter's weights have {numbers:,} numbers"
            remedy = "Write the rank that the adapter was trained with."
            raise BadFile(folder / CONFIG, problem, remedy)


def content(
    answering: Origin,
    part: Literal["weights", "tokenizer"] | None = None,
    *,
    dtype: str | None = None,
    language: Path | None = None,
) -> str:
    """The digest of what answers, where no path counts: of a folder every file that is read of it, and of an adapter's base;
    of a server its address and name; a model in memory gets a new one at each call.

    ``part`` limits it to the weights with their settings, or to the tokenizer with its chat template; a server has no parts.
    ``dtype`` is the format that the model computes in, and ``language`` the file of a language of prompts in which it is
    asked; without them the digest is of the model alone.
    """
    if isinstance(answering, Endpoint):
        model = digest(answering.identity)
    elif isinstance(answering, InMemory):
        model = secrets.token_hex(16)
    elif part is None:
        model = digest(_content(answering, "weights"), _content(answering, "tokenizer"))
    else:
        model = _content(answering, part)
    if dtype is not None:
        model = digest(model, "dtype", dtype)
    if language is not None:
        model = digest(model, "language", content_digest(language))
    return model


def check_unchanged(answering: Origin, before: str) -> None:
    """Refuse a folder whose `content` was ``before`` and is another one now: nobody knows which of its files answered."""
    if isinstance(answering, Path) and content(answering) != before:
        raise BadFile(
            answering,
            "was changed while it was read, so that its files are of no one model",
            "Run the command again on a folder that nobody writes to.",
        )


def weights_of(answering: Origin) -> str:
    """The digest of the weights, with their settings, that is the same at each call also for a model in memory; of a server
    its address and name."""
    if isinstance(answering, Endpoint):
        return content(answering)
    if isinstance(answering, InMemory):
        return _in_memory(answering.model)
    return content(answering, "weights")


def _in_memory(model: PreTrainedModel) -> str:
    import torch

    state = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        state.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        numbers = tensor.detach().cpu().contiguous().reshape(-1)
        state.update(numbers.view(torch.uint8).numpy().data)
    return state.hexdigest()


def _content(folder: Path, part: Literal["weights", "tokenizer"]) -> str:
    if part == "tokenizer":
        while is_adapter(folder) and not has_tokenizer(folder):  # then the base's is read
            folder = base_of(folder)
    files = [file for file in files_read(folder) if _is_of_weights(file) == (part == "weights")]
    digests = [[file.relative_to(folder).as_posix(), content_digest(file)] for file in files]
    if part == "tokenizer" or not is_adapter(folder):
        return digest(digests)
    settings = read_settings(folder / CONFIG)
    elsewhere = {key: value for key, value in settings.items() if key not in PLACES}
    return digest(digests, elsewhere, _content(base_of(folder), "weights"))


def files_read(folder: Path) -> list[Path]:
    """The files that decide what a model folder answers. A library may read any settings, so those that none reads are
    named; the settings of an adapter hold paths, and count without them."""
    inside = [*folder.iterdir(), *folder.glob("additional_chat_templates/*")]
    files = [file for file in inside if file.is_file() and file.suffix in SUFFIXES_READ]
    return sorted(file for file in files if file.name not in NOT_READ and file.name != CONFIG)


def _is_of_weights(file: Path) -> bool:
    stems = ("config.json", "generation_config.json", "model.safetensors.index.json")
    return file.suffix == ".safetensors" or file.name in stems


def _weights_hash(folder: Path) -> str:
    """The hash of the numbers that an adapter was trained on, whatever the settings and the tokenizer beside them."""
    weights = [[file.name, content_digest(file)] for file in sorted(folder.glob("*.safetensors"))]
    if not is_adapter(folder):
        return digest(weights)
    return digest(weights, _weights_hash(base_of(folder)))


def check_tracked(folder: Path, key: str) -> None:
    """Refuse an adapter whose base model is not inside its folder: DVC would not see when the base changes."""
    if not is_adapter(folder):
        return
    base = base_of(folder)
    if base.resolve().is_relative_to(folder.resolve()):
        check_tracked(base, key)
        return
    problem = f"is the adapter {folder}, whose base model {base} DVC does not track with it"
    remedy = f'put the base model into {folder}/base and write "base_model_name_or_path": "base" into {folder / CONFIG}'
    raise ParamsClash(key, f"{problem}; {remedy}")


@dataclass(frozen=True)
class InMemory:
    """A causal language model and its tokenizer; the model stays on its device and keeps its number format."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    def __str__(self) -> str:
        return str(getattr(self.model, "name_or_path", "")) or "the model in memory"


Source = Path | InMemory  # the origin of a model
Origin = Source | Endpoint  # also of a model without weights here
QA_PROMPT = Path(__file__).parent / "prompts/qa.txt"


def tokenizer_of(source: Source) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or of a model in memory."""
    return source.tokenizer if isinstance(source, InMemory) else load_tokenizer(source)


def opened(source: Source) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model, in evaluation mode, and its tokenizer."""
    if isinstance(source, InMemory):
        return source.model.eval(), source.tokenizer
    return load(source)


def default_prompt(source: Origin) -> str:
    """Return "chat" for a server and where the tokenizer has a chat template, else the template of a plain question."""
    if isinstance(source, Endpoint):
        return "chat"
    return "chat" if _has_chat_template(source) else str(QA_PROMPT)


def _has_chat_template(source: Source) -> bool:
    template = tokenizer_of(source).chat_template  # wherever in the folder it stands
    return bool(template.get("default") if isinstance(template, dict) else template)


@contextlib.contextmanager
def lent(source: Origin) -> Iterator[None]:
    """Restore on exit torch's global settings, which `prepare_torch` changes, and a model in memory: its
    training modes and its generation settings."""
    import torch

    model = source.model if isinstance(source, InMemory) else None
    modes = [(module, module.training) for module in model.modules()] if model else []
    habits = model.generation_config if model else None
    memory: Any = torch.utils.deterministic  # a module whose one attribute is a property
    threads, fills = torch.get_num_threads(), memory.fill_uninitialized_memory
    determinism = torch.get_deterministic_debug_mode()
    try:
        yield
    finally:
        if model:
            model.generation_config = habits  # type: ignore[assignment]  # a model may have none
        for module, training in modes:
            module.training = training
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(determinism)
        memory.fill_uninitialized_memory = fills
