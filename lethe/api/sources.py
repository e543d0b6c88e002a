"""The library's own types from a caller's folder or objects in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lethe.config.evaluating import Endpoint
from lethe.errors import BadInput, BadValue

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.io.artifacts import Row
    from lethe.models.in_memory import Origin, Source

Rows: TypeAlias = "str | os.PathLike[str] | Sequence[Mapping[str, Any]] | pd.DataFrame"


def source_of(
    model: str | os.PathLike[str] | PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> Source:
    """Return the source of a model folder, or of a model in memory with its tokenizer."""
    from lethe.models.in_memory import InMemory

    if isinstance(model, (str, os.PathLike)):
        if tokenizer is not None:
            raise BadInput("tokenizer: a model folder contains its own tokenizer; leave the argument out.")
        return folder_of(model)
    if not hasattr(model, "generate"):
        raise BadValue("model", type(model).__name__, "a model folder, or a causal language model of transformers")
    if tokenizer is None:
        raise BadInput("tokenizer: got none; a model in memory needs its tokenizer.")
    return InMemory(model, tokenizer)


def served_by(values: Mapping[str, Any], model: str) -> Endpoint:
    """Return the endpoint of ``model`` from the arguments of a public function."""
    from pydantic import ValidationError

    if "endpoint" not in values:
        raise BadInput(
            f"{', '.join(values)}: only a served model has such an option; add the address of the server (endpoint)."
        )
    try:
        return Endpoint(**{**values, "name": model})
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        legal = {"endpoint": "an address such as http://127.0.0.1:8000/v1, without a key or a password in it"}
        legal["key_env"] = "the name of an environment variable, not the key itself"
        got = "an address or a name that is not shown" if key in legal else values.get(key)
        raise BadValue(key, got, legal.get(key, error.errors()[0]["msg"])) from None


def default_name(source: Origin) -> str | None:
    """Return the name under which the results of a model are kept."""
    if isinstance(source, Endpoint):
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", source.name).strip("-.") or None
    return source.resolve().name if isinstance(source, Path) else None


def folder_of(model: str | os.PathLike[str]) -> Path:
    """Return the folder of a model; a model of the hub is fetched into one."""
    path = Path(model)
    if not path.exists():
        from lethe.models import hub

        return hub.fill(name) if (name := hub.hub_name(path)) else path
    return path


def rows_of(rows: Rows, name: str, prefix: str = "") -> list[Row]:
    """Return the rows of a dataset, checked; an error calls rows that are no file ``name``.

    ``prefix`` starts the id of a row without one; the row's number follows, from 1.
    """
    from lethe.data.rows import checked_rows, read_rows, with_id

    if isinstance(rows, (str, os.PathLike)):
        return read_rows(Path(rows), prefix)
    given = rows.to_dict("records") if hasattr(rows, "to_dict") else rows
    return checked_rows(
        [(number, with_id(dict(row), number, prefix)) for number, row in enumerate(given, start=1)], Path(name)
    )
