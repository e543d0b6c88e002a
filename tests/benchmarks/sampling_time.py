"""The seconds of stage sample until the word, beside a fixed 4,096 answers to each question.

A copy of the demonstration with a part of its models; both ways in one run on one machine. ``--keep`` keeps the copy with
its models, and a later call goes on with it. Seconds are those of processors, so a busy machine counts little. Retrain is
among the models of both ways. A stage that is repeated finds all answers and draws none: its seconds are the process's start
and end, which both ways pay alike. Retrain's stage keeps no answers, and counts with the mean of the others.
"""

import resource
import shutil
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
HEAD = (
    *("model", "answers, word", "answers, fixed"),
    *("seconds, word", "seconds, fixed", "seconds, nothing to draw"),
)


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


def rows_of(
    word: Mapping[str, Sampled], fixed: Mapping[str, Sampled], again: Mapping[str, float]
) -> list[list[str]]:
    rows = []
    for name in word:
        answers = [f"{way[name].answers:,}" for way in (word, fixed)]
        seconds = [f"{way[name].seconds:,.1f}" for way in (word, fixed)]
        repeated = f"{again[name]:,.1f}" if name in again else "-"
        rows.append([name, *answers, *seconds, repeated])
    answers = [f"{sum(of.answers for of in way.values()):,}" for way in (word, fixed)]
    totals = [seconds_of(word), seconds_of(fixed), start_of(word, again)]
    return [*rows, ["all", *answers, *(f"{value:,.1f}" for value in totals)]]


def start_of(models: Mapping[str, Sampled], again: Mapping[str, float]) -> float:
    """The seconds of all models' processes without a draw; those that were not repeated take the mean of the others."""
    return len(models) * sum(again.values()) / len(again)


def made(folder: Path, params: dict[str, Any], methods: Sequence[str]) -> Path:
    """The copy of the demonstration with its models; those that are there are not trained again."""
    if not folder.exists():
        small.make_repository(folder, params, git=False)
    small.write_params(folder, params)
    stage(folder, "sources")
    if not (folder / "data/dataset").exists():
        stage(folder, "prepare")
    for kind, names in (("train", params["train"]["models"]), ("unlearn", methods)):
        for name in names:
            if not (folder / "data/models" / name).exists():
                stage(folder, kind, name)
    shutil.rmtree(folder / ".lethe/scratch", ignore_errors=True)  # answers of an earlier call
    return folder


def seconds_of(way: Mapping[str, Sampled]) -> float:
    return sum(found.seconds for found in way.values())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = marks.parser_of(__doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="of params.yaml")
    parser.add_argument("--fixed", type=int, default=FIXED, help="answers to each question")
    parser.add_argument("--keep", type=Path, help="keep the copy here, and go on with it")
    chosen = parser.parse_args(arguments)
    params = params_of(chosen.methods)
    with tempfile.TemporaryDirectory() as place:
        folder = made(chosen.keep or Path(place) / "copy", params, chosen.methods)
        word = sampled(folder, params)
        repeated = [name for name in params["models"] if name != params["report"]["retrain"]]
        again = {name: stage(folder, "sample", name) for name in repeated}
        # Another seed: no answer of the first way is in the store of the second.
        seed = params["sample"]["seed"] + 1
        fixed = sampled(folder, params, stop="fixed", n=chosen.fixed, seed=seed)
    table = marks.markdown(HEAD, rows_of(word, fixed, again))
    ratio = seconds_of(word) / seconds_of(fixed)
    start = start_of(word, again)
    of_draws = (seconds_of(word) - start) / (seconds_of(fixed) - start)
    said = f"The word takes {ratio:.2f} times the seconds; without the processes' start and end, {of_draws:.2f} times."
    marks.put(chosen.write, "sampling-time", f"{table}\n\n{said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
