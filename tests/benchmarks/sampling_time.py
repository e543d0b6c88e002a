"""The seconds of stage sample until the word, beside a fixed 4,096 answers to each question.

A copy of the demonstration with a part of its models, in a folder that is removed; both ways in one run on one machine.
Seconds are those of processors, so a busy machine counts little. Retrain is among the models of both ways.
"""

import resource
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import small
from tests.benchmarks import marks

FIXED = 4096
METHODS = ("grad_ascent", "grad_diff", "npo")
HEAD = ("model", "answers, word", "answers, fixed", "seconds, word", "seconds, fixed")


@dataclass(frozen=True)
class Sampled:
    """The answers to forget questions that stage sample drew for a model, of the model and of Retrain beside it."""

    answers: int
    seconds: float


def params_of(methods: Sequence[str]) -> dict[str, Any]:
    """The committed settings with Base, Retrain and these methods alone, and nothing that is measured later."""
    params = yaml.safe_load((small.ROOT / "params.yaml").read_text())
    kept = params["unlearn"]["methods"]
    params["unlearn"]["methods"] = {name: kept[name] for name in methods}
    names = ("base", "retrain", *methods)
    params["models"] = {name: params["models"][name] for name in names}
    return params


def stage(folder: Path, name: str, *model: str) -> float:
    """Run a stage, and return its processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    small.python(folder, "-m", f"stages.{name}", *model, timeout=7200)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def sampled(folder: Path, params: dict[str, Any], **sample: object) -> dict[str, Sampled]:
    """What stage sample takes of each model with these settings."""
    changed = params | {"sample": params["sample"] | sample}
    small.write_params(folder, changed)
    stage(folder, "sources")
    stage(folder, "references")
    found = {}
    for name in params["models"]:
        seconds = stage(folder, "sample", name)
        found[name] = Sampled(answers_in(folder / "data/generations" / name), seconds)
    return found


def answers_in(generations: Path) -> int:
    import pandas as pd

    answers = 0
    for table in (generations / "forget.parquet", *generations.glob("beside/*.parquet")):
        samples = pd.read_parquet(table, columns=["sample"])["sample"]
        answers += int((samples >= 0).sum())
    return answers


def rows_of(word: Mapping[str, Sampled], fixed: Mapping[str, Sampled]) -> list[list[str]]:
    rows = []
    for name in word:
        answers = [f"{way[name].answers:,}" for way in (word, fixed)]
        rows.append([name, *answers, *(f"{way[name].seconds:,.1f}" for way in (word, fixed))])
    answers = [f"{sum(of.answers for of in way.values()):,}" for way in (word, fixed)]
    seconds = [f"{seconds_of(way):,.1f}" for way in (word, fixed)]
    return [*rows, ["all", *answers, *seconds]]


def seconds_of(way: Mapping[str, Sampled]) -> float:
    return sum(found.seconds for found in way.values())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = marks.parser_of(__doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="of params.yaml")
    parser.add_argument("--fixed", type=int, default=FIXED, help="answers to each question")
    chosen = parser.parse_args(arguments)
    params = params_of(chosen.methods)
    with tempfile.TemporaryDirectory() as place:
        folder = small.make_repository(Path(place) / "copy", params, git=False)
        stage(folder, "sources")
        stage(folder, "prepare")
        for name in params["train"]["models"]:
            stage(folder, "train", name)
        for name in chosen.methods:
            stage(folder, "unlearn", name)
        word = sampled(folder, params)
        # Another seed: no answer of the first way is in the store of the second.
        seed = params["sample"]["seed"] + 1
        fixed = sampled(folder, params, stop="fixed", n=chosen.fixed, seed=seed)
    table = marks.markdown(HEAD, rows_of(word, fixed))
    ratio = seconds_of(word) / seconds_of(fixed)
    marks.put(
        chosen.write, "sampling-time", f"{table}\n\nThe word takes {ratio:.2f} times the seconds."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
