"""The seconds of stage sample until the word, beside a fixed 4,096 answers to each question.

A copy of the demonstration; both ways in one run on one machine. Each stage is a fork of a process that has imported what
stages import, as in `lethe run`. ``--keep`` keeps the copy with its models, and a later call goes on with it. Seconds are
those of processors, so a busy machine counts little, and the ways of a model follow each other.

A stage that is repeated finds all answers and draws none: its seconds are those of opening the model and of writing the
tables, which both ways pay alike. The last column has the same of a stage that is a process by itself, as all stages were
when words rested on a fixed number: the difference is the start of a process. The stages of Base and Retrain keep no
answers, and count with the means of the others.
"""

import contextlib
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flows import warm
from lethe.errors import LetheError
from lethe.process import same_numbers
from tests import small
from tests.benchmarks import marks

FIXED = 4096
HEAD = (
    *("model", "answers, word", "answers, fixed"),
    *("seconds, word", "seconds, fixed", "seconds, nothing to draw", "the same, a process"),
)


@dataclass(frozen=True)
class Sampled:
    """The answers to forget questions that stage sample drew for a model, of the model and of Retrain beside it."""

    answers: int
    seconds: float


def params_of(models: Sequence[str] | None = None) -> dict[str, Any]:
    """The committed settings with Base, Retrain and these models under test alone; None: all models."""
    params = yaml.safe_load((small.ROOT / "params.yaml").read_text())
    if models is not None:
        kept = {"base", "retrain", *models}
        params["models"] = {
            name: params["models"][name] for name in params["models"] if name in kept
        }
    folders = {Path(model["path"]).name for model in params["models"].values()}
    methods = params["unlearn"]["methods"]
    params["unlearn"]["methods"] = {name: methods[name] for name in methods if name in folders}
    return params


@dataclass(frozen=True)
class Repeated:
    """The seconds of a stage that draws nothing, as a fork and as a process by itself."""

    fork: float
    process: float


def stage(folder: Path, name: str, *model: str) -> float:
    """Run a stage as a fork of this process, which has the imports, and return its processor seconds."""
    command = " ".join([f"python -m stages.{name}", *model])
    nobody = os.open(os.devnull, os.O_WRONLY)  # who waits for DVC's answer
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with contextlib.chdir(folder):
        status = warm.Host(nobody).run(command, small.environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    os.close(nobody)
    if status:
        raise LetheError(f"{command} ended with status {status}.")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def repeated(folder: Path, model: str) -> Repeated:
    fork = stage(folder, "sample", model)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    small.python(folder, "-m", "stages.sample", model, timeout=7200)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Repeated(fork, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def sampled(folder: Path, params: dict[str, Any], name: str, **sample: object) -> Sampled:
    """What stage sample takes of a model with these settings."""
    small.write_params(folder, params | {"sample": params["sample"] | sample})
    seconds = stage(folder, "sample", name)
    return Sampled(answers_in(folder / "data/generations" / name), seconds)


def answers_in(generations: Path) -> int:
    import pandas as pd

    answers = 0
    for table in (generations / "forget.parquet", *generations.glob("beside/*.parquet")):
        samples = pd.read_parquet(table, columns=["sample"])["sample"]
        answers += int((samples >= 0).sum())
    return answers


def rows_of(
    word: Mapping[str, Sampled], fixed: Mapping[str, Sampled], again: Mapping[str, Repeated]
) -> list[list[str]]:
    rows = []
    for name in word:
        answers = [f"{way[name].answers:,}" for way in (word, fixed)]
        seconds = [f"{way[name].seconds:,.1f}" for way in (word, fixed)]
        nothing = ["-", "-"]
        if name in again:
            nothing = [f"{again[name].fork:,.1f}", f"{again[name].process:,.1f}"]
        rows.append([name, *answers, *seconds, *nothing])
    answers = [f"{sum(of.answers for of in way.values()):,}" for way in (word, fixed)]
    opening, process = nothing_of(word, again)
    totals = [seconds_of(word), seconds_of(fixed), opening, process]
    return [*rows, ["all", *answers, *(f"{value:,.1f}" for value in totals)]]


def nothing_of(models: Mapping[str, Sampled], again: Mapping[str, Repeated]) -> tuple[float, float]:
    """The seconds of all models' stages without a draw, as forks and as processes; those that were not repeated take the
    mean of the others."""
    times = len(models) / len(again)
    forks = sum(found.fork for found in again.values())
    processes = sum(found.process for found in again.values())
    return times * forks, times * processes


def made(folder: Path, params: dict[str, Any]) -> Path:
    """The copy of the demonstration with its models; those that are there are not trained again."""
    if not folder.exists():
        small.make_repository(folder, params, git=False)
    small.write_params(folder, params)
    stage(folder, "sources")
    if not (folder / "data/dataset").exists():
        stage(folder, "prepare")
    for kind, names in (
        ("train", params["train"]["models"]),
        ("unlearn", params["unlearn"]["methods"]),
    ):
        for name in names:
            if not (folder / "data/models" / name).exists():
                stage(folder, kind, name)
    shutil.rmtree(folder / ".lethe/scratch", ignore_errors=True)  # answers of an earlier call
    return folder


def seconds_of(way: Mapping[str, Sampled]) -> float:
    return sum(found.seconds for found in way.values())


def ratios(
    word: Mapping[str, Sampled], fixed: Mapping[str, Sampled], again: Mapping[str, Repeated]
) -> str:
    """How many times the seconds of the fixed number the word takes."""
    of_word, of_fixed = seconds_of(word), seconds_of(fixed)
    opening, process = nothing_of(word, again)
    of_draws = (of_word - opening) / (of_fixed - opening)
    beside_processes = of_word / (of_fixed + process - opening)
    first = [name for name in word if name not in again]
    of_first = sum(word[name].seconds for name in first) / sum(
        fixed[name].seconds for name in first
    )
    return (
        f"The word takes {of_word / of_fixed:.2f} times the seconds; without opening models and writing tables "
        f"{of_draws:.2f} times; beside a fixed number by a process for each stage {beside_processes:.2f} times. The first "
        f"answers alone, of {' and '.join(first)}, take {of_first:.2f} times the seconds of the fixed number."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = marks.parser_of(__doc__)
    parser.add_argument(
        "--models", nargs="+", help="models under test; all of params.yaml by default"
    )
    parser.add_argument("--fixed", type=int, default=FIXED, help="answers to each question")
    parser.add_argument("--keep", type=Path, help="keep the copy here, and go on with it")
    chosen = parser.parse_args(arguments)
    params = params_of(chosen.models)
    same_numbers()
    warm.load()
    with tempfile.TemporaryDirectory() as place:
        folder = made(chosen.keep or Path(place) / "copy", params)
        stage(folder, "references")
        references = {params["report"]["base"], params["report"]["retrain"]}
        # Another seed: no answer of the first way is in the store of the second.
        fixed_way = {"stop": "fixed", "n": chosen.fixed, "seed": params["sample"]["seed"] + 1}
        word: dict[str, Sampled] = {}
        fixed: dict[str, Sampled] = {}
        again: dict[str, Repeated] = {}
        for name in params["models"]:  # both ways of a model in turn: they meet the same load
            word[name] = sampled(folder, params, name)
            if name not in references:
                again[name] = repeated(folder, name)
            fixed[name] = sampled(folder, params, name, **fixed_way)
            print(name, word[name], fixed[name], again.get(name), file=sys.stderr, flush=True)
    table = marks.markdown(HEAD, rows_of(word, fixed, again))
    marks.put(chosen.write, "sampling-time", f"{table}\n\n{ratios(word, fixed, again)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
