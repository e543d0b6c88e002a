"""params.yaml: its schema, its messages, its YAML."""

from lethe.config.load import evaluation_params, load, validate
from lethe.config.schema import FILE, EvaluationParams, Params
from lethe.io.yaml import parse_yaml, read_yaml

__all__ = [
    "FILE",
    "EvaluationParams",
    "Params",
    "evaluation_params",
    "load",
    "parse_yaml",
    "read_yaml",
    "validate",
]
