"""The commands of the contract on fixed inputs, how a case is run, and how two results of it are compared."""

import contextlib
import json
import math
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from click.testing import Result
from typer.testing import CliRunner

from tests.small import fresh_copy

HERE = Path(__file__).parent
INPUTS, RECORDED = HERE / "inputs", HERE / "recorded.json"
LETTERS = "letters"  # the folder of the tiny model

EXACTLY = 1e-9  # relative
SEARCHED = (
    1e-4  # of a bound of DP-SGD: the width of the bracket that the recorded search ended with
)
FITTED = 1e-6  # of a mixture fitted by iteration, and of an accountant's grid
OF_A_MODEL = (
    1e-4  # float32: another processor's kernels, or a sum in another order, change the sixth digit
)
# `exact` adds to its upper bounds an allowance for rounding, which it measures on the machine.
WITH_ALLOWANCE = 1e-2
ALLOWED = ("upper", "leak_at")
ZERO = 1e-14  # absolute: what is 0 but for rounding


@dataclass(frozen=True)
class Case:
    """One call of `lethe` in a folder with a copy of the inputs.

    ``before`` are calls that make what the case reads, and ``wrote`` are files whose content belongs to the contract.
    ``in_repository`` runs the call in a copy of the repository, whose presets it reads.
    """

    name: str
    call: str
    before: tuple[str, ...] = ()
    wrote: tuple[str, ...] = ()
    tolerance: float = EXACTLY
    in_repository: bool = False


def _cases() -> tuple[Case, ...]:
    """The calls of cases.json, each with its tolerance by name."""
    tolerances = {"searched": SEARCHED, "fitted": FITTED, "of a model": OF_A_MODEL}
    cases = []
    for name, case in json.loads((HERE / "cases.json").read_text(encoding="utf-8")).items():
        tolerance = tolerances.get(case.pop("tolerance", ""), EXACTLY)
        lists = {key: tuple(case.pop(key, ())) for key in ("before", "wrote")}
        cases.append(Case(name, **case, **lists, tolerance=tolerance))
    return tuple(cases)


CASES = _cases()


def make_model(folder: Path) -> Path:
    """The tiny model of the cases: the same weights at every call."""
    from tests.lethe.sampling.sampling_models import build_llama

    return build_llama(folder, letters="abcde", scale=1.0, seed=3)


def result_of(case: Case, folder: Path, model: Path, more: str = "") -> dict[str, Any]:
    """Run a case in ``folder``, an empty one, and return its exit status, its JSON and the files it wrote, normalised.

    ``more`` are options that change none of these.
    """
    lay_out(folder, model)
    with contextlib.chdir(fresh_copy(folder / "copy") if case.in_repository else folder):
        for call in case.before:
            made = called(call)
            assert made.exit_code == 0, made.output
        done = called(case.call + more)
    found: dict[str, Any] = {
        "status": done.exit_code,
        "output": json.loads(done.stdout) if done.stdout else None,
    }
    if case.wrote:
        found["wrote"] = {name: content(folder / name) for name in case.wrote}
    return normalised(found, folder)


def called(call: str) -> Result:
    """The result of `lethe` with these arguments, in this process; what no user may see is raised."""
    from lethe.cli.app import app

    done = CliRunner().invoke(app, shlex.split(call))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def lay_out(folder: Path, model: Path) -> None:
    """Copy inputs and model; a table named ``*.parquet.csv`` becomes a Parquet file."""
    shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
    shutil.copytree(model, folder / LETTERS)
    for table in folder.rglob("*.parquet.csv"):
        pd.read_csv(table).to_parquet(table.with_suffix(""))


def content(path: Path) -> Any:
    """What a file holds: JSON as it is, a table as its columns, of a page only that it is there."""
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    if path.suffix in (".csv", ".parquet"):
        words = {"prompt_id": str, "text": str}
        table = pd.read_csv(path, dtype=words) if path.suffix == ".csv" else pd.read_parquet(path)
        return {name: [_cell(cell) for cell in table[name].tolist()] for name in table}
    return path.is_file()


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


PROSE = "<prose>"
# Their values are sentences, or words that a sentence is made of.
SAID = (
    *(
        "assumes",
        "method",
        "note",
        "notes",
        "reason",
        "rule",
        "said",
        "sentence",
        "sentences",
        "warnings",
    ),
    *("covers", "combined", "statement", "explanation", "fixed_bounds"),
)
WORDS = 4  # a longer text is a sentence
CHANGES = (
    "seed",
    "time",
    "seconds",
    "logit_allowance",
)  # of a run or a machine; a stated seed is an input
HASH = re.compile(r"\b[0-9a-f]{32,}\b")
DATE = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d(\.\d+)?Z?")


def normalised(value: Any, folder: Path) -> Any:
    """The value with placeholders for what differs from run to run, and for sentences."""
    if isinstance(value, dict):
        return {
            key: _under(key, entry, folder)
            for key, entry in value.items()
            if not _old_name(key, value)
        }
    if isinstance(value, list):
        return [normalised(entry, folder) for entry in value]
    if isinstance(value, str):
        if len(value.split()) > WORDS:
            return PROSE
        return DATE.sub("<date>", HASH.sub("<hash>", value.replace(str(folder), "<folder>")))
    return value


def _under(key: str, value: Any, folder: Path) -> Any:
    if key in CHANGES:
        return f"<{key}>"
    if key == "schema" and isinstance(value, int):
        return "<version>"  # of artifacts; a certificate's is a word
    if key in SAID and not _is_a_word(value):
        return PROSE
    return normalised(value, folder)


def _is_a_word(value: Any) -> bool:
    """Whether the value is a name, such as the method `exact` or a flag, and not a sentence."""
    if isinstance(value, list):
        return bool(value) and all(map(_is_a_word, value))
    return isinstance(value, str) and len(value.split()) == 1


def _old_name(key: str, beside: dict[str, Any]) -> bool:
    """Whether the key is the earlier name of another key of the object: these may go."""
    return key.startswith("keyword_") and f"binary_{key.removeprefix('keyword_')}" in beside


def differences(recorded: Any, found: Any, tolerance: float, place: str = "") -> Iterator[str]:
    """Where ``found`` breaks what was recorded. Further keys of an object break nothing; further items of a list do."""
    if recorded == PROSE:
        return
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key, value in recorded.items():
            if key in found:
                yield from differences(value, found[key], tolerance, f"{place}/{key}")
            else:
                yield f"{place}/{key}: is gone"
    elif isinstance(recorded, list) and isinstance(found, list):
        if len(recorded) != len(found):
            yield f"{place}: has {len(found)} items, had {len(recorded)}"
            return
        for at, (before, now) in enumerate(zip(recorded, found, strict=True)):
            yield from differences(before, now, tolerance, f"{place}/{at}")
    elif not _equal(recorded, found, _tolerance(tolerance, place)):
        yield f"{place}: is {found!r}, was {recorded!r}"


def _tolerance(tolerance: float, place: str) -> float:
    allowed = tolerance == OF_A_MODEL and any(part in place for part in ALLOWED)
    return WITH_ALLOWANCE if allowed else tolerance


def _equal(recorded: Any, found: Any, tolerance: float) -> bool:
    numbers = [
        isinstance(side, int | float) and not isinstance(side, bool) for side in (recorded, found)
    ]
    if all(numbers):
        return math.isclose(recorded, found, rel_tol=tolerance, abs_tol=ZERO)
    return type(recorded) is type(found) and recorded == found
