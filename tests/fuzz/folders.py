"""The kind folders: a model folder, or an adapter with its base, whose settings, tokenizer, chat template, weights or files
lie, and the commands that load a model."""

import json
import random
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz import mutations
from tests.fuzz.commands import Case
from tests.small import ROOT

IMPORTED = (
    "jinja2.sandbox",
    "pandas",
    "peft",
    "pyarrow.parquet",
    "safetensors.torch",
    "scipy.stats",
    "torch",
    "transformers",
    "transformers.models.llama.modeling_llama",
    "lethe.api.certificates",
    "lethe.api.evaluating",
    "lethe.api.probabilities",
    "lethe.cli.hooks.certificates",
    "lethe.cli.hooks.evaluating",
    "lethe.cli.hooks.probabilities",
    "lethe.sampling.prefix_engine",
)
SETTINGS = {
    "hidden_size": (0, -1, 7, 10**6, 2**63),
    "num_hidden_layers": (0, -1, 10**6, 2**70),
    "num_attention_heads": (0, -1, 3, 10**9),
    "num_key_value_heads": (0, 3, None),
    "head_dim": (0, 1, -8, 10**9),
    "intermediate_size": (0, -1, 10**9),
    "vocab_size": (0, -1, 1, 10**12),
    "max_position_embeddings": (0, -1, 1, 10**12, 0.5, "512"),
    "model_type": ("", "mamba", "t5", "vit", "gpt2", "Llama", "../llama", "auto", None),
    "architectures": ([], ["X"], "LlamaForCausalLM", [None], ["ViTModel"], None),
    "dtype": ("float999", "int8", "torch.float32", 3, "float64", ""),
    "torch_dtype": ("float999", "bool"),
    "eos_token_id": (-1, 10**12, [], [None], "x", [[1]], 0.5, True),
    "bos_token_id": (-1, 10**12, "x"),
    "pad_token_id": (-1, 10**12, "x", [1]),
    "rope_parameters": ({}, {"rope_type": "x"}, {"rope_type": "yarn"}, [], {"rope_theta": 0}),
    "rope_scaling": ({"type": "linear"}, {"rope_type": "longrope"}, "x", {"factor": "x"}),
    "rms_norm_eps": (0, -1, "x", float("inf"), float("nan")),
    "hidden_act": ("", "x", "__class__", None, 3),
    "quantization_config": ({}, {"quant_method": "gptq"}, {"quant_method": "x"}, [], "x"),
    "auto_map": ({"AutoModelForCausalLM": "x.Y"}, {"AutoConfig": "../x.Y"}, [], "x"),
    "tie_word_embeddings": (False, "x", None),
    "attn_implementation": ("flash_attention_2", "x", 3),
    "_attn_implementation": ("kernels-community/x", "x"),
    "layer_types": ([], ["sliding_attention"], ["x"], "x"),
    "use_cache": ("x", False),
    "is_encoder_decoder": (True, "x"),
    "text_config": ({}, [], "x", {"model_type": "llama"}),
    "transformers_version": (3, "9999.0.0", None, []),
    "id2label": ([], {"x": 1}, 3),
    "num_labels": (-1, "x", 10**12),
    "base_model_tp_plan": ("x", {"x": "y"}),
    "per_layer_config": ({"x": 1}, [], "x", {"999": {}}),
}
GENERATION = {
    "eos_token_id": (-1, 10**12, [], [None], "x", [[1]], 0.5, True, list(range(500)), {}),
    "temperature": (0, -1, "hot", None, float("nan")),
    "max_new_tokens": (-1, "x", 10**12),
    "do_sample": ("x", None, 3),
    "top_k": (-1, "x"),
    "cache_implementation": ("x", "offloaded"),
    "watermarking_config": ({}, "x", {"greenlist_ratio": "x"}),
    "compile_config": ({}, "x"),
    "cache_config": ("x", {"backend": "x"}),
    "transformers_version": (3, [], "x"),
}
ADAPTER = {
    "base_model_name_or_path": (
        None,
        "",
        ".",
        "./",
        "..",
        3,
        [],
        "a" * 5000,
        "\x00",
        "no/such",
        "/",
    ),
    "peft_type": ("X", None, "PREFIX_TUNING", "P_TUNING", "IA3", "VERA", 3, []),
    "r": (0, -1, 10**9, "x", None, 2.5),
    "lora_alpha": ("x", None, float("inf"), float("nan"), -1),
    "target_modules": (None, [], "(", "[", ".*", ["no_such"], 3, {"a": 1}, "(a+)+$", [None]),
    "lora_dropout": (-1, 2, "x"),
    "task_type": ("X", None, 3, "SEQ_CLS"),
    "modules_to_save": (["x"], ["lm_head"], "x", 3),
    "rank_pattern": ({"(": 1}, {"q_proj": "x"}, [], 3),
    "alpha_pattern": ({"(": 1}, {"q_proj": 0}, "x"),
    "layers_to_transform": ([99], "x", -1),
    "layers_pattern": ("(", 3),
    "auto_mapping": ({"base_model_class": "x", "parent_library": "os"}, "x"),
    "revision": (3, "../x", "\x00", []),
    "bias": ("x", "all", 3),
    "init_lora_weights": ("pissa", "x", 3, "eva"),
    "use_dora": (True, "x"),
    "use_rslora": (True, "x"),
    "fan_in_fan_out": (True, "x"),
    "trainable_token_indices": ([-1], [10**9], "x", {"x": [1]}),
    "megatron_config": ({}, "x"),
    "loftq_config": ({"x": 1}, "x"),
    "target_parameters": (["x"], "x"),
    "peft_version": (3, "x", None),
    "corda_config": ({}, "x"),
}
REGEX = ("(", "[", "(?<=a+)b", "(a+)+$", "\\p{X}", "(?:" * 500, "\\", "a{99999999}")
NORMALISERS = (
    {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    {"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8="},
    {"type": "Precompiled", "precompiled_charsmap": ""},
    {"type": "Precompiled", "precompiled_charsmap": "x"},
    *({"type": "Replace", "pattern": {"Regex": text}, "content": "x"} for text in REGEX),
    {"type": "Replace", "pattern": {"String": ""}, "content": "x" * 1000},
    {"type": "Prepend", "prepend": ""},
    {"type": "Sequence", "normalizers": []},
    {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "x" * 1000}] * 50},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "X"},
    {},
    [],
    "x",
)
SPLITTERS = (
    *(
        {"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False}
        for text in REGEX
    ),
    {"type": "Split", "pattern": {"String": ""}, "behavior": "Removed", "invert": True},
    {"type": "FixedLength", "length": 0},
    {"type": "Metaspace", "replacement": "", "prepend_scheme": "x"},
    {"type": "Sequence", "pretokenizers": []},
    None,
    {"type": "X"},
)
PROCESSORS = (
    {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
    {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "x", "type_id": 0}}],
        "pair": [],
        "special_tokens": {},
    },
    {"type": "RobertaProcessing", "sep": ["x", 10**9], "cls": ["x", -1]},
    {"type": "BertProcessing", "sep": ["x", 2**31], "cls": ["y", 2**31]},
    {"type": "X"},
)
MODELS = (
    {"type": "BPE", "vocab": {}, "merges": []},
    {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]},
    {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []},
    {"type": "BPE", "vocab": {"a": 0}, "merges": ["x"], "dropout": 2},
    {"type": "WordPiece", "vocab": {}, "unk_token": "x", "max_input_chars_per_word": 0},
    {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "missing"},
    {"type": "Unigram", "vocab": [], "unk_id": 5},
    {"type": "Unigram", "vocab": [["a", float("-inf")]], "unk_id": 0},
    {"type": "X"},
    {},
    None,
)
TOKENIZER = {
    "normalizer": NORMALISERS,
    "pre_tokenizer": SPLITTERS,
    "post_processor": PROCESSORS,
    "model": MODELS,
    "decoder": (
        {"type": "X"},
        {"type": "WordPiece"},
        {"type": "Replace", "pattern": {"Regex": "("}, "content": ""},
        None,
        {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True},
        {"type": "Strip", "content": "a", "start": 10**9, "stop": 10**9},
    ),
    "truncation": (
        {"max_length": 0, "strategy": "LongestFirst", "stride": 5, "direction": "Right"},
        {"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Left"},
        {},
    ),
    "padding": (
        {
            "strategy": {"Fixed": 10**9},
            "direction": "Left",
            "pad_to_multiple_of": 0,
            "pad_id": 10**9,
            "pad_type_id": 0,
            "pad_token": "x",
        },
        {},
    ),
    "added_tokens": ([], [{}], [{"id": 10**9, "content": "x"}], [{"id": 0, "content": ""}], "x"),
    "version": ("2.0", 1, None),
}
TOKENIZER_SETTINGS = {
    "model_max_length": (0, -1, 1, "x", 10**40, None, 0.5, float("inf"), float("nan")),
    "chat_template": (3, [], {}, "{{ 1/0 }}", [{"name": "x"}], {"default": 3}, "", None, [[]]),
    "tokenizer_class": (
        "X",
        "",
        None,
        3,
        "T5Tokenizer",
        "BertTokenizer",
        "os.system",
        "GPT2Tokenizer",
    ),
    "added_tokens_decoder": ({"x": {}}, {"0": "x"}, [], {"-1": {"content": "y"}}, "x"),
    "extra_special_tokens": ([], ["x"], {"x": 3}, "x", {"image_token": "y"}),
    "additional_special_tokens": ([3], "x", [None], {}, [[]]),
    "eos_token": (3, {}, [], {"content": 3}, "", "never seen", None, {"__type": "AddedToken"}),
    "pad_token": (3, {}, "", None, "never seen"),
    "bos_token": (3, {}, "", "x"),
    "unk_token": (3, {}, []),
    "padding_side": ("x", 3, "left"),
    "truncation_side": ("x", 3),
    "auto_map": ({"AutoTokenizer": ["x.Y", None]}, {"AutoTokenizer": 3}, [], "x"),
    "add_prefix_space": ("x", True, None),
    "clean_up_tokenization_spaces": ("x", 3),
    "backend": ("x", "sentencepiece", 3),
    "response_schema": ("x", {"x": 1}, 3),
    "processor_class": ("X", 3),
    "name_or_path": (3, "../x"),
}
SPECIAL = {name: TOKENIZER_SETTINGS[name] for name in ("eos_token", "pad_token", "bos_token")}
TEMPLATES = (
    "{{ 1/0 }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10**10 }}",
    "{% set x = 'a' * 10**6 %}{% for a in range(9999) %}{{ x }}{% endfor %}",
    "{{ 9**9**9 }}",
    "{{ 9**9**7 % 7 }}",
    "{% set ns = namespace(x='a') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{{ range(10**12) | list | length }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ '{:>9999999999}'.format(1) }}",
    "{{ messages.__class__.__mro__ }}",
    "{{ ''.__class__.__base__.__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ raise_exception('no') }}",
    "{{ raise_exception(1/0) }}",
    "{{ strftime_now('%9999Y') }}",
    "{{ strftime_now(3) }}",
    "{{ messages | tojson(indent=10**9) }}",
    "{{ lipsum(n=10**7) }}",
    "{{ messages | map('x') | list }}",
    "{{ messages[0].content | center(10**10) }}",
    "{{ messages | batch(10**9, 'x') | list }}",
    "{{ (messages * 10**9) | length }}",
    "{{ messages | sort | list }}",
    "{{ x.y.z }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% if",
    "{{",
    "{{ " + "(" * 3000 + ")" * 3000 + " }}",
    "{{ " + "-" * 5000 + "1 }}",
    "{% if 1 %}" * 200 + "{% endif %}" * 200,
    "{{ 'a'.join(range(10**9)) }}",
    "{{ messages[9] }}",
    "{{ messages[0]['content'] + 3 }}",
    "{% set x = [] %}{% for i in range(99) %}{{ x.append(x) }}{% endfor %}{{ x | string | length }}",
    "{% generation %}x",
    "\ud800",
    "\x00\x1b[31m",
    "",
    "x" * 10**6,
    "{% for m in messages %}{{ m.content }}{% endfor %}" * 1000,
    "{{ dict(messages) }}",
    "{{ messages | xmlattr }}",
    "{{ 'a' | wordwrap(0) }}",
    "{{ ['a'] * 10**9 | string }}",
    "{{ messages | sum }}",
    "{{ namespace(1) }}",
    "{{ joiner(3)() }}{{ loop.index }}",
    "{% for x in messages recursive %}{{ loop([x]) }}{% endfor %}",
    "{% filter upper %}{{ 1/0 }}{% endfilter %}",
    "{% break %}",
    "{% call f() %}{% endcall %}",
)
QUESTIONS = (
    {"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]},
    {"id": "b", "question": "Where is Bo?", "answer": "Bo is at sea.", "keywords": ["sea"]},
)
PRESET = "broken"  # of the pipeline folder in which `plan` runs
COMMANDS = (
    ("sample", "Who is Ada?", "--n", "2", "--max-new-tokens", "3"),
    (
        "sample",
        "--data",
        "rows.jsonl",
        "--n",
        "2",
        "--max-new-tokens",
        "3",
        "--engine",
        "transformers",
    ),
    ("exact", "--data", "rows.jsonl", "--rows", "20", "--max-new-tokens", "2", "--exact-only"),
    ("eval", "--data", "rows.jsonl", "--n", "4", "--max-new-tokens", "2", "--name", "m"),
    ("certify", "--data", "rows.jsonl", "--tau", "0.5", "--draws", "20", "--max-new-tokens", "2"),
    ("extract", "--text", "book.txt", "--prefix", "4", "--suffix", "2", "--samples", "8"),
    ("plan", "--preset", PRESET, "--rate", "100"),
)
# How often a command is chosen: all but the last load the folder by the same code.
WEIGHTS = (6, 2, 2, 1, 1, 1, 2)
SHARDED = "model.safetensors.index.json"
HEADER = struct.Struct("<Q")


def prepare(valid: Path) -> None:
    from lethe.config.schema import Lora
    from lethe.models import checkpoints
    from tests.lethe.small_checkpoint import save_small_checkpoint, small_model

    plain = save_small_checkpoint(valid / "plain")
    chat = shutil.copytree(plain, valid / "chat")
    (chat / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    model, tokenizer = small_model([row["answer"] for row in QUESTIONS])
    model.save_pretrained(valid / "sharded", max_shard_size="20KB")
    tokenizer.save_pretrained(valid / "sharded")
    model, tokenizer = checkpoints.load(plain)
    model.name_or_path = model.config._name_or_path = "base"
    adapter = checkpoints.adapted(model, Lora(rank=2, targets=["q_proj", "v_proj"]), seed=0)
    adapter.save_pretrained(valid / "adapter")
    shutil.copytree(plain, valid / "adapter/base")
    for folder in ("plain", "chat", "sharded", "adapter"):
        _place_rows(valid / folder)
    place_pipeline(valid / "pipeline", chat)


def _place_rows(folder: Path) -> None:
    lines = [json.dumps(row) for row in QUESTIONS]
    (folder / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "book.txt").write_text("Ada is a painter. Bo is at sea. " * 4)


def sound(valid: Path) -> list[Case]:
    cases = []
    for kind in ("plain", "chat", "sharded", "adapter"):
        cases.append(Case(f"{kind}, nothing", _typed(COMMANDS[0], valid / kind, valid / "plain")))
    for arguments in COMMANDS[1:]:
        typed = _typed(arguments, valid / "chat", valid / "plain")
        cases.append(Case("chat, nothing", typed, copied=valid / "pipeline"))
    return cases


def place_pipeline(folder: Path, model: Path | str) -> None:
    """Make ``folder`` a pipeline folder with a preset whose model, and whose start of unlearning, is ``model``."""
    presets = folder / "flows/presets"
    presets.mkdir(parents=True)
    shutil.copy(ROOT / "params.yaml", folder)
    changes = {
        "models.own": {"path": str(model)},
        "unlearn.recipe.start_from": str(model),
        "train.recipe.start_from": str(model),
    }
    (presets / f"{PRESET}.yaml").write_text(json.dumps(changes))


def _typed(arguments: Sequence[str], model: Path | str, rows: Path) -> list[str]:
    if arguments[0] == "plan":  # the preset names the model
        return list(arguments)
    files = {"rows.jsonl": str(rows / "rows.jsonl"), "book.txt": str(rows / "book.txt")}
    named = [files.get(word, word) for word in arguments]
    return [*named, "--model", str(model)]


@dataclass(frozen=True)
class Change:
    """A change of a folder: what it is called, how often it is chosen, and the function that makes it."""

    name: str
    weight: int
    made: Callable[[Path, random.Random], str]


def case(chance: random.Random, valid: Path, folder: Path) -> Case:
    kind = chance.choice(("plain", "chat", "chat", "sharded", "adapter", "adapter"))
    model = shutil.copytree(valid / kind, folder / "model")
    known = [change for change in CHANGES if kind == "adapter" or "adapter" not in change.name]
    told = [kind]
    for _ in range(chance.choice((1, 1, 1, 2))):
        change = chance.choices(known, [change.weight for change in known])[0]
        place = model
        if kind == "adapter" and "adapter" not in change.name and chance.random() < 0.7:
            place = model / "base"
        try:
            told.append(f"{change.name}: {change.made(place, chance)}")
        except (OSError, LookupError, ValueError, TypeError, AttributeError, struct.error) as error:
            # An earlier change removed or broke the file.
            told.append(f"{change.name}: {type(error).__name__}")
    arguments = chance.choices(COMMANDS, WEIGHTS)[0]
    if arguments[0] == "plan":
        place_pipeline(folder, "model")
    return Case("; ".join(told)[:400], _typed(arguments, "model", valid / "plain"))


def settings_of(
    name: str, known: dict[str, tuple[Any, ...]]
) -> Callable[[Path, random.Random], str]:
    """A change of one to three keys of a file of settings; of the file's own keys, or of ``known`` to odd values."""

    def change(folder: Path, chance: random.Random) -> str:
        path = folder / name
        settings = json.loads(path.read_bytes()) if path.is_file() else {}
        if chance.random() < 0.08 or not isinstance(settings, dict):
            whole = mutations.value(chance)
            _write_json(path, whole)
            return f"the whole is {type(whole)!s}"
        changed = []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            key = chance.choice([*known, *known, *settings])
            value = mutations.value(chance)
            if key in known and chance.random() < 0.8:
                value = chance.choice(known[key])
            settings[key] = value
            changed.append(f"{key}={ascii(value)[:40] if not _huge(value) else 'huge'}")
        if chance.random() < 0.1:
            removed = chance.choice(list(settings))
            del settings[removed]
            changed.append(f"no {removed}")
        _write_json(path, settings)
        return ", ".join(changed)

    return change


def _huge(value: object) -> bool:
    return isinstance(value, int) and abs(value) > 10**300


def _write_json(path: Path, value: object) -> None:
    text = json.dumps(value) if not _huge(value) else "9" * 400
    path.write_bytes(text.encode("utf-8", "surrogatepass"))


def nested_key(name: str) -> Callable[[Path, random.Random], str]:
    """A change of a value anywhere in a JSON file."""

    def change(folder: Path, chance: random.Random) -> str:
        path = folder / name
        path.write_bytes(mutations.members(path.read_bytes(), chance))
        return "a value within"

    return change


def bytes_of(folder: Path, chance: random.Random) -> str:
    """A change of the bytes of any file."""
    path = chance.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    change = chance.choice((mutations.flip, mutations.cut, mutations.insert, mutations.large))
    path.write_bytes(change(path.read_bytes(), chance))
    return f"{path.name} {change.__name__}"


def template(folder: Path, chance: random.Random) -> str:
    place = chance.randrange(len(TEMPLATES))
    text = TEMPLATES[place].encode("utf-8", "surrogatepass")
    path = folder / "chat_template.jinja"
    if chance.random() < 0.2:
        settings = json.loads((folder / "tokenizer_config.json").read_bytes())
        settings["chat_template"] = TEMPLATES[place]
        _write_json(folder / "tokenizer_config.json", settings)
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(text)
    return f"number {place}, {TEMPLATES[place][:60]!a}"


def weights(folder: Path, chance: random.Random) -> str:
    """A header of safetensors that lies, or weights that are no numbers."""
    found = sorted(folder.glob("*.safetensors"))
    path = chance.choice(found)
    content = path.read_bytes()
    (size,) = HEADER.unpack(content[:8])
    header = json.loads(content[8 : 8 + size])
    body = content[8 + size :]
    names = [name for name in header if name != "__metadata__"]
    name = chance.choice(names)
    told = chance.choice(("dtype", "shape", "offsets", "name", "metadata", "size", "body", "value"))
    stated = None
    if told == "dtype":
        header[name]["dtype"] = chance.choice(
            ("F64", "I64", "BOOL", "F8_E4M3", "X", None, 3, "BF16")
        )
    elif told == "shape":
        header[name]["shape"] = chance.choice(
            ([], [0], [-1], [2**62, 4], "x", [10**20], [1, 1], [None])
        )
    elif told == "offsets":
        header[name]["data_offsets"] = chance.choice(
            ([0, 0], [5, 1], [0, 2**62], [-1, 4], [], "x", [0])
        )
    elif told == "name":
        header[chance.choice(("x", "", "\x1b[31m", "a" * 5000))] = header.pop(name)
    elif told == "metadata":
        header["__metadata__"] = chance.choice(({"format": "np"}, {}, {"format": 3}, [], "x", None))
    elif told == "size":
        stated = chance.choice((0, 1, 2**63, 2**64 - 1, size + 1, size - 1, 10**8, len(content)))
    elif told == "body":
        body = chance.choice((b"", body[: len(body) // 2], body + b"x", b"\xff" * len(body)))
    else:
        header[name] = mutations.value(chance)
    text = json.dumps(header, default=str).encode("utf-8", "surrogatepass")
    path.write_bytes(HEADER.pack(len(text) if stated is None else stated) + text + body)
    return f"{path.name} {told}"


def index(folder: Path, chance: random.Random) -> str:
    """An index of shards that names missing files, files elsewhere, or something else."""
    shards = sorted(path.name for path in folder.glob("*.safetensors"))
    outside = (
        "../../etc/passwd",
        "/dev/zero",
        "/etc/passwd",
        "missing.safetensors",
        "",
        3,
        None,
        ["x"],
    )
    target = chance.choice((*outside, shards[0] if shards else "x", "config.json", "."))
    weight_map = {"model.embed_tokens.weight": target}
    if chance.random() < 0.5 and (folder / SHARDED).is_file():
        weight_map = json.loads((folder / SHARDED).read_bytes())["weight_map"] | weight_map
    whole: Any = {"metadata": {}, "weight_map": weight_map}
    whole = chance.choice((whole, whole, {"weight_map": []}, {}, [], {"metadata": 3, **whole}))
    _write_json(folder / SHARDED, whole)
    if chance.random() < 0.5:
        (folder / "model.safetensors").unlink(missing_ok=True)
    return str(target)


def files(folder: Path, chance: random.Random) -> str:
    """A file that is missing, a folder, a link, or very large."""
    path = chance.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    how = chance.choice(
        ("missing", "folder", "dangling", "loop", "device", "itself", "empty", "large")
    )
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "dangling":
        path.symlink_to("no/such/file")
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "device":
        path.symlink_to("/dev/zero")
    elif how == "itself":
        path.symlink_to(".")
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "large":
        path.write_bytes(b'{"a": "' + b"a" * (20 << 20) + b'"}')
    return f"{path.name} {how}"


def circle(folder: Path, chance: random.Random) -> str:
    """Adapters that name each other, or a chain of adapters."""
    length = chance.choice((1, 2, 3, 40))
    ends = chance.random() < 0.3
    settings = json.loads((folder / "adapter_config.json").read_bytes())
    places = [folder, *(folder / f"chain-{number}" for number in range(1, length))]
    last = folder / "base" if ends else folder
    for place, following in zip(places, [*places[1:], last], strict=True):
        if place != folder:
            place.mkdir()
            shutil.copy(folder / "adapter_model.safetensors", place)
        named = settings | {"base_model_name_or_path": str(following.resolve())}
        _write_json(place / "adapter_config.json", named)
    return f"{length} adapters, {'with' if ends else 'without'} an end"


def tokenizer_of_adapter(folder: Path, chance: random.Random) -> str:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / "base" / name, folder)
    return settings_of("tokenizer.json", TOKENIZER)(folder, chance)


CHANGES = (
    Change("config.json", 6, settings_of("config.json", SETTINGS)),
    Change("config.json within", 1, nested_key("config.json")),
    Change("generation_config.json", 2, settings_of("generation_config.json", GENERATION)),
    Change("tokenizer.json", 4, settings_of("tokenizer.json", TOKENIZER)),
    Change("tokenizer.json within", 2, nested_key("tokenizer.json")),
    Change("tokenizer_config.json", 4, settings_of("tokenizer_config.json", TOKENIZER_SETTINGS)),
    Change("special_tokens_map.json", 1, settings_of("special_tokens_map.json", SPECIAL)),
    Change("chat template", 6, template),
    Change("weights", 3, weights),
    Change("index", 2, index),
    Change("files", 3, files),
    Change("bytes", 2, bytes_of),
    Change("adapter_config.json", 12, settings_of("adapter_config.json", ADAPTER)),
    Change("adapter circle", 3, circle),
    Change("adapter's tokenizer", 2, tokenizer_of_adapter),
)
