"""params.yaml, validated before anything runs.

`load` returns one frozen `Params`. An unknown, wrongly typed or impossible key raises a `BadParam`, which names the key,
the value and the legal values.
"""

from __future__ import annotations

import os
from typing import TypeVar, overload

from pydantic import BaseModel, ValidationError

from lethe.config.messages import bad_param
from lethe.config.schema import FILE, EvaluationParams, Params
from lethe.config.yaml import read_yaml
from lethe.process import PARAMS

M = TypeVar("M", bound=BaseModel)


def load(path: str | os.PathLike = FILE) -> Params:
    """Read and validate ``path``; raise `BadFile` or `BadParam`.

    A stage of `lethe run` reads the copy of params.yaml that the run made when it began.
    """
    return validate(read_yaml(os.environ.get(PARAMS, path) if path == FILE else path), str(path))


@overload
def validate(value: dict[str, object], source: str = FILE) -> Params: ...
@overload
def validate(value: dict[str, object], source: str, model: type[M]) -> M: ...
def validate(value: dict[str, object], source: str = FILE, model: type[BaseModel] = Params) -> BaseModel:
    """Return ``value`` as checked params of the model; errors name ``source``."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise bad_param(error, value, source, model) from None


def evaluation_params(**sections: object) -> EvaluationParams:
    """Return the params of a run that trains nothing: ``models, sample, score, metrics``."""
    try:
        return EvaluationParams.model_validate(sections)
    except ValidationError as error:
        raise bad_param(error, sections, "lethe eval") from None
