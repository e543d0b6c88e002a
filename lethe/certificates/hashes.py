"""The hashes of what a certificate is about: a model, its questions, their scorer, and how answers are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.config.fields import Count, Direct
from lethe.config.measuring import SAMPLE, Drawing, Endpoint, scorer_params
from lethe.errors import BadFile, BadInput, BadValue
from lethe.identity import cache_key, digest, module_of
from lethe.io.files import read_text
from lethe.registry import SCORERS

if TYPE_CHECKING:
    from lethe.io.artifacts import Row

ASKED = ("question", "context")  # the keys of a row that make its prompt
PLAIN = "qa"  # the package's own template, whose place is another on every machine


class CertificateSettings(Direct, Drawing):
    """How answers are drawn and scored; ``prompt`` is a template file, "chat", or "qa", a plain question and answer."""

    prompt: str
    scorer: str = "keyword_leak"
    engine: str = SAMPLE.engine
    dtype: str = "float32"  # of a certificate that names none
    endpoint: str | None = None
    served: str | None = None  # the server's name of the model
    batch: Count = SAMPLE.batch  # answers that share a stream

    def drawing(self) -> dict[str, object]:
        """What a certificate states of the engine and its answers."""
        names = ["engine", *Drawing.model_fields, "batch"]
        if self.endpoint:
            names += ["endpoint", "served"]
        elif self.dtype != "float32":
            names.append("dtype")
        return {name: getattr(self, name) for name in names}


def facts(model: Path | Endpoint, rows: Sequence[Row], how: CertificateSettings) -> dict[str, str]:
    """The hash of each fact that a certificate is about; an adapter's cover its base model, a served model's its address."""
    from lethe.models.checkpoints import content
    from lethe.scoring.typography import RULE

    binary = [name for name in SCORERS if getattr(SCORERS[name], "BINARY", False)]
    if how.scorer not in binary:
        raise BadValue("scorer", how.scorer, f"a scorer of 0 and 1: {', '.join(binary)}")
    if isinstance(model, Path):
        _check_folder(model)
    if not rows:
        raise BadInput("The rows hold no question.")
    references, asked = [], []
    for row in rows:
        references.append({key: value for key, value in row.items() if key not in ASKED})
        asked.append({key: row.get(key) for key in ("id", *ASKED)})
    # The hash of the tokenizer covers its chat template.
    template = "chat" if how.prompt == "chat" else read_text(place_of_prompt(how.prompt))
    settings = {"name": how.scorer, "params": scorer_params(how.scorer), "text": RULE}
    return {
        "weights": content(model, "weights"),
        "tokenizer": content(model, "tokenizer"),
        "prompts": digest(asked, template),
        "scorer": cache_key(
            module_of(SCORERS[how.scorer]), settings=settings, references=digest(references)
        ),
        "engine": digest(how.drawing()),
    }


def weights_of(retrain: Path) -> str:
    """The digest of Retrain's weights and tokenizer."""
    from lethe.models.checkpoints import content

    _check_folder(retrain)
    return digest(content(retrain, "weights"), content(retrain, "tokenizer"))


def _check_folder(model: Path) -> None:
    if not model.is_dir() or not list(model.glob("*.safetensors")):
        problem = "is no model folder with safetensors"
        raise BadFile(model, problem, "Name a Hugging Face model folder.")


def place_of_prompt(prompt: str) -> str:
    from lethe.models.checkpoints import QA_PROMPT

    return str(QA_PROMPT) if prompt == PLAIN else prompt
