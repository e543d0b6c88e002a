"""What the params.yaml beside a run says of its scores, as plain values: another version of Lethe may have written it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.config.measuring import JudgeEntry, columns_of, is_binary, scorer_params
from lethe.errors import BadFile
from lethe.io.files import Json
from lethe.io.yaml import read_yaml
from lethe.registry import JUDGES, SCORERS

if TYPE_CHECKING:
    pass

PARAMS = "params.yaml"
PREFERRED = "keyword_leak"  # the 0/1 scorer, where the params do not name one


def read_params(path: Path) -> dict[str, Json]:
    """The content of params.yaml; empty for a folder of `lethe eval`, which has none."""
    if not path.is_file():
        return {}
    return read_yaml(path)


def section_of(params: Mapping[str, Json], name: str) -> dict[str, Json]:
    """A section of params.yaml; empty where there is none."""
    section = params.get(name)
    if not isinstance(section, dict):
        return {}
    return section


def first_metric(params: Mapping[str, Json], scorers: Sequence[str], name: str) -> str:
    """The score to compare by where none is named: that of leaks, else the first of the folder."""
    wanted = section_of(params, "metrics").get("binary", PREFERRED)
    if wanted in scorers:
        return str(wanted)
    if not scorers:
        raise BadFile(name, "its about.json lists no scorers", "Name the score with --score.")
    return scorers[0]


def template_of(params: Mapping[str, Json], root: Path) -> str | None:
    """Return the content of the prompt template, or its name if it is not a file (the tokenizer's chat template)."""
    named = section_of(params, "sample").get("prompt")
    if not isinstance(named, str):
        return None
    path = root / named
    if not path.is_file():
        return named
    return path.read_text(encoding="utf-8")


def scorer_of(params: Mapping[str, Json], metric: str) -> dict[str, object]:
    """The parameters of the scorer, and the parts of an answer that it reads."""
    section = section_of(params, "score")
    if not section:
        return {}
    entries = []
    for entry in section.get("scorers", []):
        if entry == metric or (isinstance(entry, dict) and metric in entry):
            entries.append(entry)
    marks = section.get("thinking") or (section.get("parts") or {}).get("thinking")
    keyword_match = section.get("keyword_match", "word")
    return {"scorer": entries, "keyword_match": keyword_match, "thinking": marks}


def declared_binary(params: Mapping[str, Json], metric: str) -> bool | None:
    """Whether the scorer or judge of a column gives only 0 and 1; None for a column that this release does not know."""
    try:
        columns = set(SCORERS)
        judges = {}
        for name, entry in section_of(params, "judges").items():
            judges[name] = JudgeEntry.model_validate(entry)
            columns.update(name + ending for ending in judges[name].endings)
        for name in JUDGES:
            columns.update(columns_of(name))
        if metric not in columns:
            return None
        parameters = {}
        for entry in section_of(params, "score").get("scorers", []):
            has_parameters = isinstance(entry, dict) and metric in entry
            if has_parameters:
                parameters[metric] = scorer_params(metric, entry[metric])
                break
        return is_binary(metric, parameters, judges)
    except ValueError:  # params of another release
        return None
