"""params.yaml: its schema, its messages, its YAML."""

from lethe.config.load import evaluation_params, load, parse_yaml, read_yaml, validate
from lethe.config.schema import FILE, EvaluationParams, Params

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
