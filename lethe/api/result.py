"""What the public functions take and give: models and rows, and results with tables, sentences, and HTML for a notebook."""

from __future__ import annotations

import inspect
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar

from lethe.errors import BadArguments, BadInput, BadValue, plural, visible
from lethe.io.files import Json

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.config.evaluating import Endpoint
    from lethe.io.artifacts import Row
    from lethe.models.checkpoints import Origin, Source
    from lethe.results.table import Result

Place: TypeAlias = "str | os.PathLike[str]"
Rows: TypeAlias = "str | os.PathLike[str] | Sequence[Mapping[str, object]] | pd.DataFrame"
F = TypeVar("F", bound=Callable[..., object])
NAME = "model"  # the name of a model in memory
LINE = 200  # characters of a `repr`; `str` has all sentences
SHOWN = 20  # rows of a table for people; `to_frame` has all rows
CELL = 60  # characters of a model's text in a table for people

# The parameters that several public functions share, each with its text.
PARAMETERS = {
    "model": "A Hugging Face model folder (safetensors). In Python also a causal language model in memory.",
    "data": "The forget set: JSON lines with id, question, answer, and optional keywords and followups. "
    "In Python also such rows.",
    "tokenizer": "The tokenizer of a model in memory. A folder contains its own tokenizer.",
    "alpha": "The probability with which each bound may fail, above 0 and at most 0.5.",
    "temperature": "The sampling temperature.",
    "top_p": "Keep the most likely tokens of this mass; 1 keeps all.",
    "top_k": "Keep the K most likely tokens; 0 keeps all.",
    "adaptive_threshold": "Adaptive temperature: greedy while the mean top probability exceeds this, in (0, 1].",
    "max_new_tokens": "The number of tokens after which an answer is cut.",
    "max_thinking_tokens": "The number of tokens after which the thinking before an answer is cut, beside max_new_tokens.",
    "prompt": "A template file or a text with {question}, or 'chat' (the tokenizer's chat template). "
    "[default: chat where the tokenizer has such a template, else a plain question and answer]",
    "engine": "The engine that draws: auto, prefix, transformers or vllm. vLLM needs a model folder.",
    "dtype": "auto (float32 on a CPU, the checkpoint's format on a GPU), float32, bfloat16 or float16.",
    "memory": "MiB for the rows in flight. The engine vLLM manages its own memory.",
    "above": "The score above which an answer leaks, for a scorer whose scores are not only 0 and 1.",
    "seed": "The seed of all draws.",
    "filter": "One filter of an lm-eval log.",
    "leak_is": "high or low: the end of the score that is a leak, where the file does not say. With low, all numbers are of "
    "1 - score.",
    "auditor": "The name of the person or machine that draws.",
    "scratch": "A folder that keeps finished work, so that an interrupted call resumes. The command has one.",
    "fail_above": "Exit with status 1 unless the bound certifies that every question leaks at most this.",
}


def documented(function: F) -> F:
    """Add the shared parameters to the section Parameters of a docstring that leaves them out."""
    head, line, rest = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")
    own, blank, further = rest.partition("\n\n")
    texts = {entry.partition(" : ")[0]: entry for entry in re.split(r"\n(?=\S)", own)}
    texts = {name: f"{name} : {text}" for name, text in PARAMETERS.items()} | texts
    entries = [texts[name] for name in inspect.signature(function).parameters if name in texts]
    function.__doc__ = head + line + "\n".join(entries) + blank + further
    return function


@dataclass(frozen=True)
class View:
    """A table for people, with the sentences below it; without columns it is text."""

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    notes: Sequence[str] = ()


def cell(value: object) -> str:
    """A value in a table for people: a bound is rounded outward, a text is escaped and on one line."""
    from lethe.statistics.bound import Bound

    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, Bound):
        return value.significant()
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value)).replace("\n", "\\n")


def short(text: str, most: int = CELL) -> str:
    """A model's text for a cell of at most ``most`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def frame(
    rows: object, columns: Sequence[str] | None = None, index: Sequence[str] | None = None
) -> pd.DataFrame:
    """A table for notebooks; pandas is imported once there is one."""
    import pandas as pd

    return pd.DataFrame(rows, index, columns)


class TableWithSentences(ABC):
    """A table with sentences that explain its numbers."""

    @abstractmethod
    def views(self) -> list[View]:
        """Return what a terminal and a notebook show."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a table."""

    @abstractmethod
    def sentences(self) -> list[str]:
        """Return the meaning and the guarantees of the numbers in sentences."""

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {shorten(' '.join(self.sentences()), LINE, placeholder=' ...')}>"

    def _repr_html_(self) -> str:
        parts = []
        for view in self.views():
            rows = [[cell(value) for value in row] for row in view.rows[:SHOWN]]
            # pandas escapes the content of the cells: a model's answer is never markup.
            table = frame(rows, columns=list(view.columns)).to_html(escape=True, index=False)
            more = len(view.rows) - SHOWN
            notes = [
                *view.notes,
                *([f"{plural(more, 'more row')}: see to_frame()."] if more > 0 else []),
            ]
            title, *lines = (
                f"<p>{escape(text)}</p>" if text else "" for text in (view.title, *notes)
            )
            parts += [title, table if view.columns else "", *lines]
        return f"<div>{''.join(parts)}</div>"


class Measurement(TableWithSentences):
    """Numbers with guarantees, which are also rows of the table of results."""

    VIEW: ClassVar[str]  # the function of `lethe.results.views` that makes JSON of the rows

    @abstractmethod
    def rows(self) -> list[Result]:
        """Return the rows of `lethe.results.table`."""

    def to_results(self) -> pd.DataFrame:
        """Return one row per quantity, as in ``data/results``: estimate, both ends with their guarantee, evidence."""
        from lethe.results.table import frame_of

        return frame_of(self.rows())

    def as_json(self) -> dict[str, Json]:
        """Return the keys of `--json`, a view of the rows."""
        from lethe.results import views

        return getattr(views, self.VIEW)(self.rows())


def source_of(model: Place | PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> Source:
    """Return the source of a model folder, or of a model in memory with its tokenizer."""
    from lethe.models.checkpoints import InMemory

    if isinstance(model, (str, os.PathLike)):
        if tokenizer is not None:
            raise BadInput(
                "tokenizer: a model folder contains its own tokenizer; leave the argument out."
            )
        return folder_of(model)
    if not hasattr(model, "generate"):
        raise BadValue(
            "model",
            type(model).__name__,
            "a model folder, or a causal language model of transformers",
        )
    if tokenizer is None:
        raise BadInput("tokenizer: got none; a model in memory needs its tokenizer.")
    return InMemory(model, tokenizer)


SERVERLESS = {
    "name",
    "concurrency",
    "timeout",
}  # arguments of an endpoint that have a value also without a server
OF_A_SERVER = "only a model behind a server has these; give the server's address too."


def origin_of(
    model: Place | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    served: Mapping[str, object],
) -> Origin:
    """Return the endpoint of a model where one of its arguments is given, else `source_of`."""
    given = {
        key: value for key, value in served.items() if value is not None and value is not False
    }
    return (
        served_by(given, str(model)) if given.keys() - SERVERLESS else source_of(model, tokenizer)
    )


def served_by(values: Mapping[str, object], model: str) -> Endpoint:
    """Return the endpoint of ``model`` from the arguments of a public function."""
    from pydantic import ValidationError

    from lethe.config.evaluating import Endpoint

    if "endpoint" not in values:
        raise BadArguments((*sorted(values.keys() - SERVERLESS), "endpoint"), OF_A_SERVER)
    try:
        return Endpoint.model_validate({**values, "name": model})
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        legal = {
            "endpoint": "an address such as http://127.0.0.1:8000/v1, without a key or a password in it"
        }
        legal["key_env"] = "the name of an environment variable, not the key itself"
        got = "an address or a name that is not shown" if key in legal else values.get(key)
        raise BadValue(key, got, legal.get(key, error.errors()[0]["msg"])) from None


def name_of(source: Origin) -> str:
    """Return the name under which the results of a model are kept."""
    from lethe.config.evaluating import Endpoint

    if isinstance(source, Endpoint):
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", source.name).strip("-.") or NAME
    return source.resolve().name if isinstance(source, Path) else NAME


def folder_of(model: Place) -> Path:
    """Return the folder of a model; a model of the hub is fetched into one."""
    path = Path(model)
    if not path.exists():
        from lethe.models import hub

        return hub.fill(name) if (name := hub.hub_name(path)) else path
    return path


def rows_of(rows: Rows, name: str, prefix: str = "") -> list[Row]:
    """Return the rows of a dataset, checked, called ``name`` in errors; ``prefix`` and a number from 1 are the id of a row
    without.
    """
    from lethe.data.rows import checked_rows, read_rows, with_id

    if isinstance(rows, (str, os.PathLike)):
        return read_rows(Path(rows), prefix)
    given = rows.to_dict("records") if hasattr(rows, "to_dict") else rows
    numbered = [
        (number, with_id(dict(row), number, prefix)) for number, row in enumerate(given, start=1)
    ]
    return checked_rows(numbered, Path(name))
