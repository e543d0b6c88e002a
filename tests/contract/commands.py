"""The commands of the contract on fixed inputs, how a case is run, and how two results of it are compared."""

from __future__ import annotations

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
SEARCHED = 1e-4  # of a bound of DP-SGD: the width of the bracket that the recorded search ended with
FITTED = 1e-6  # of a mixture fitted by iteration, and of an accountant's grid
OF_A_MODEL = 1e-4  # float32: another processor's kernels, or a sum in another order, change the sixth digit
# `exact` adds to its upper bounds an allowance for rounding, which it measures on the machine.
WITH_ALLOWANCE, ALLOWED = 1e-2, ("upper", "leak_at")
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


EVAL = "eval --model letters --data forget.jsonl --prompt letters.txt --max-new-tokens 4 --n 32 --json"
EXACT = "exact --model letters --data forget.jsonl --prompt letters.txt --max-new-tokens 4 --rows 300 --json"
# Nearly greedy draws: the fresh seed of each audit changes no answer.
CERTIFY = "certify --model letters --data forget.jsonl --prompt letters.txt --max-new-tokens 4 --temperature 0.001 --tau 0.2"
LABEL = "label answers.csv --verdicts verdicts.csv --mass 0.5 --rest 30 --alpha 0.05 --json"
EVALUATED = (
    "data/eval/letters/generations/letters/forget.parquet",
    "data/eval/letters/scores/letters/forget.parquet",
    "data/eval/letters/report/index.html",
)

CASES = (
    Case("bounds-leaks", "bounds leaks.csv --json"),
    Case("bounds-leaks-parquet", "bounds leaks.parquet --alpha 0.05 --threshold 0.5 --json"),
    Case("bounds-graded", "bounds graded.csv --json"),
    Case("bounds-column", "bounds graded.csv --score rouge_l --threshold 0.3 --threshold 0.6 --json"),
    Case("bounds-mixed", "bounds mixed.jsonl --json"),
    Case("bounds-one-prompt", "bounds single.csv --json"),
    Case("bounds-missing-worst", "bounds missing.csv --missing worst --json"),
    Case("bounds-missing-drop", "bounds missing.csv --missing drop --json"),
    Case("bounds-missing-refused", "bounds missing.csv --json"),
    Case("bounds-missing-graded", "bounds missing_graded.csv --missing worst --json"),
    Case("bounds-calibration", "bounds leaks.csv --calibration calibration.csv --alpha 0.03 --json"),
    Case(
        "bounds-calibration-missing",
        "bounds missing.csv --calibration calibration.csv --alpha 0.03 --missing worst --json",
    ),
    Case("bounds-bonferroni", "bounds leaks.csv --together bonferroni --json"),
    Case("bounds-holm", "bounds graded.csv --together holm --json"),
    Case("bounds-out-of-range", "bounds bad.csv --json"),
    Case("bounds-no-file", "bounds nowhere.csv --json"),
    Case("bounds-unknown-option", "bounds leaks.csv --wrong --json"),
    Case("bounds-inspect", "bounds inspect.json --json"),
    Case("bounds-inspect-score", "bounds inspect.json --score overlap --missing drop --alpha 0.05 --json"),
    Case("bounds-inspect-archive", "bounds inspect.eval --to inspect --out to.json --json", wrote=("to.json",)),
    Case("bounds-stopped", "bounds stopped.json --alpha 0.05 --json"),
    Case("bounds-greedy-refused", "bounds greedy.json --json"),
    Case("bounds-lm-eval", "bounds lm_eval/samples_some_task_2026-01-01T00-00-00.5.jsonl --filter first --json"),
    Case("bounds-leak-k", "bounds leak_k.json --json"),
    Case("bounds-open-unlearning", "bounds open_unlearning.json --json"),
    Case("bounds-harmbench", "bounds harmbench.json --json"),
    Case("one-run", "audit one-run --n 1000 --r 200 --errors 26 --delta 1e-5 --null 1.0 --json"),
    Case("one-run-claim", "audit one-run --n 1000 --r 200 --errors 26 --claimed-epsilon 2 --curve --json"),
    Case("one-run-pure", "audit one-run --n 1000 --r 200 --errors 26 --delta 0 --json"),
    Case("one-run-laplace", "audit one-run --n 1000 --r 200 --errors 60 --mechanism laplace --delta 0 --json"),
    Case(
        "one-run-approx-dp",
        "audit one-run --n 1000 --r 200 --errors 60 --mechanism approx-dp --delta0 0.01 --delta 0.01 --json",
    ),
    Case(
        "one-run-dp-sgd",
        "audit one-run --n 1000 --r 200 --errors 60 --mechanism dp-sgd --q 0.1 --steps 5 --method exact --null 0.8 --json",
        tolerance=SEARCHED,
    ),
    Case(
        "one-run-subsampled",
        "audit one-run --n 1000 --r 100 --errors 0 --mechanism subsampled-gaussian --q 0.1 --json",
    ),
    Case(
        "one-run-tradeoff",
        "audit one-run --n 1000 --r 200 --errors 5 --mechanism tradeoff --tradeoff tradeoff.csv --json",
    ),
    Case("one-run-guesses", "audit one-run --guesses guesses.csv --r 50 --r 100 --null 1.0 --json"),
    Case("one-run-all-guesses", "audit one-run --guesses guesses.csv --r 200 --claimed-epsilon 4 --json"),
    Case("one-run-refused", "audit one-run --n 10 --r 11 --errors 0 --json"),
    Case("epsilon-star", "audit epsilon-star --train train.csv --population population.txt --delta 1e-4 --json"),
    Case(
        "epsilon-star-empirical",
        "audit epsilon-star --train train.csv --population population.txt --delta 1e-4 --method empirical --cut 0.01 "
        "--json",
    ),
    Case(
        "epsilon-star-infinite",
        "audit epsilon-star --train train.csv --population population.txt --delta 1e-4 --method empirical --json",
    ),
    Case(
        "epsilon-star-band",
        "audit epsilon-star --train train.csv --population population.txt --delta 0.01 --lower band --json",
    ),
    Case(
        "epsilon-star-mixture",
        "audit epsilon-star --train train.csv --population population.txt --delta 1e-4 --components 2 --json",
        tolerance=FITTED,
    ),
    Case(
        "epsilon-star-complete",
        "audit epsilon-star --train apart_train.txt --population apart_population.txt --delta 1e-4 --train-complete "
        "--json",
    ),
    Case("swap", "audit swap --predictions swap.csv --json"),
    Case("swap-seeds", "audit swap --predictions swap_seeds.csv --alpha 0.1 --json"),
    Case("compare-tables", "compare before.csv after.csv --score match --json"),
    Case("compare-graded", "compare before.csv after.csv --score overlap --alpha 0.01 --json"),
    Case("compare-gate-closed", "compare before.csv after.csv --score match --fail-on worse --json"),
    Case("compare-gate-open", "compare before.csv before.csv --score match --fail-on worse --json"),
    Case("compare-nothing-in-common", "compare before.csv stranger.csv --score match --fail-on worse --json"),
    Case("compare-log-and-table", "compare inspect.json table.csv --score match --json"),
    Case("compare-stopped", "compare stopped.json inspect.json --score match --json"),
    Case(
        "compare-pipelines",
        "compare pipelines/a/data pipelines/b/data --page change.html --json",
        wrote=("change.html",),
    ),
    Case(
        "compare-evaluations",
        "compare data/eval/letters data/eval/hotter --json",
        before=(EVAL, f"{EVAL} --temperature 3 --name hotter"),
        tolerance=OF_A_MODEL,
    ),
    Case("tofu-log", "score tofu-log tofu.json --retain tofu_retain.json --json"),
    Case("tofu-log-alone", "score tofu-log tofu.json --json"),
    Case(
        "score-log",
        "score log inspect.json --data rows.jsonl --scorer rouge_l --scorer keyword_leak --table scores.csv --json",
        wrote=("scores.csv",),
    ),
    Case(
        "score-log-by-question",
        "score lm_eval/samples_some_task_2026-01-01T00-00-00.5.jsonl --data rows.jsonl --filter last --json",
        wrote=("samples_some_task_2026-01-01T00-00-00.5.jsonl.scores.parquet",),
    ),
    Case(
        "score-log-records",
        "score inspect.json --data rows.jsonl --scorer keyword_leak --to inspect --out records.json --json",
        wrote=("records.json",),
    ),
    Case("log-inspect", "log inspect.json --table answers_of.csv --json", wrote=("answers_of.csv",)),
    Case("log-inspect-archive", "log inspect.eval --table answers_of.csv --json", wrote=("answers_of.csv",)),
    Case("log-stopped", "log stopped.json --json"),
    Case(
        "log-lm-eval",
        "log lm_eval/samples_some_task_2026-01-01T00-00-00.5.jsonl --table answers_of.csv --json",
        wrote=("answers_of.csv",),
    ),
    Case("log-leak-k", "log leak_k.json --table answers_of.csv --json", wrote=("answers_of.csv",)),
    Case(
        "log-open-unlearning", "log open_unlearning.json --table answers_of.csv --json", wrote=("answers_of.csv",)
    ),
    Case("log-harmbench", "log harmbench.json --table answers_of.csv --json", wrote=("answers_of.csv",)),
    Case("log-jailbreakbench", "log jailbreakbench.json --table answers_of.csv --json", wrote=("answers_of.csv",)),
    Case("log-table-is-no-log", "log leaks.csv --json"),
    Case("plan", "plan --tau 0.05 --width 0.05 --prompts 40 --json"),
    Case("plan-width", "plan --width 0.1 --json"),
    Case("plan-tau", "plan --tau 0.6 --tau-leak 0.7 --cap 256 --alpha 0.05 --json"),
    Case("plan-refused", "plan --tau 2 --json"),
    Case(
        "plan-preset",
        "plan --preset jailbreakbench-vicuna --rate 1000 --parameters 7e9 --judge-rate 50 --judge-parameters 13e9 --json",
        in_repository=True,
    ),
    Case("label-nothing", "label answers.csv --labels no_labels.jsonl --json"),
    Case("label-some", "label answers.csv --labels some_labels.jsonl --mass 0.9 --json"),
    Case("label-judged", f"{LABEL} --labels all_labels.jsonl"),
    Case("label-another-target", f"{LABEL} --labels all_labels.jsonl --mass 0.8"),
    Case("label-no-file", "label answers.csv --labels nowhere.jsonl --json"),
    Case("exact", EXACT, tolerance=OF_A_MODEL),
    Case("exact-only", f"{EXACT} --exact-only --temperature 0.8 --top-p 0.9", tolerance=OF_A_MODEL),
    Case("exact-match", f"{EXACT} --scorer exact_match --top-k 3 --alpha 0.05 --tau 0.01", tolerance=OF_A_MODEL),
    Case(
        "exact-skipped",
        f"{EXACT} --data bare.jsonl --rows 20 --target 0.4 --adaptive-threshold 0.5",
        tolerance=OF_A_MODEL,
    ),
    Case("exact-refused", f"{EXACT} --rows 0"),
    Case("eval", f"{EVAL} --retain retain.jsonl", wrote=EVALUATED, tolerance=OF_A_MODEL),
    # No answer hangs on a random number here.
    Case("eval-greedy", f"{EVAL} --temperature 0.001 --n 16 --alpha 0.05", tolerance=OF_A_MODEL),
    Case("eval-without-keywords", f"{EVAL} --data retain.jsonl --name other --seed 5", tolerance=OF_A_MODEL),
    Case(
        "eval-calibration-labels",
        f"{EVAL} --temperature 0.3 --calibration calibration.csv --labels labels",
        tolerance=OF_A_MODEL,
    ),
    Case("eval-language", f"{EVAL} --language language.yaml", tolerance=OF_A_MODEL),
    Case("eval-refused", f"{EVAL} --alpha 0.7"),
    Case("certify", f"{CERTIFY} --draws 20 --json", wrote=("certificate.json",)),
    Case(
        "verify",
        "verify certificate.json --draws 30 --auditor another --out grown.json --json",
        before=(f"{CERTIFY} --draws 20",),
        wrote=("grown.json",),
    ),
    Case(
        "verify-certified",
        "verify certificate.json --draws 0 --add other.json --json",
        before=(
            f"{CERTIFY} --data clean.jsonl --draws 20",
            "verify certificate.json --draws 30 --auditor another --out other.json",
        ),
    ),
    Case("verify-changed", "verify certificate.json --data bare.jsonl", before=(f"{CERTIFY} --draws 5",)),
)


def make_model(folder: Path) -> Path:
    """The tiny model of the cases: the same weights at every call."""
    from tests.lethe.sampling.sampling_models import build_llama

    return build_llama(folder, letters="abcde", scale=1.0, seed=3)


def result_of(case: Case, folder: Path, model: Path) -> dict[str, Any]:
    """Run a case in ``folder``, an empty one, and return its exit status, its JSON and the files it wrote, normalised."""
    lay_out(folder, model)
    with contextlib.chdir(fresh_copy(folder / "copy") if case.in_repository else folder):
        for call in case.before:
            made = called(call)
            assert made.exit_code == 0, made.output
        done = called(case.call)
    found: dict[str, Any] = {"status": done.exit_code, "output": json.loads(done.stdout) if done.stdout else None}
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
        return {name: [_cell(one) for one in table[name].tolist()] for name in table}
    return path.is_file()


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


PROSE = "<prose>"
# Their values are sentences, or words that a sentence is made of.
SAID = (
    *("assumes", "method", "note", "notes", "reason", "rule", "said", "sentence", "sentences", "warnings"),
    *("covers", "combined", "statement", "explanation", "fixed_bounds"),
)
WORDS = 4  # a longer text is a sentence
CHANGES = ("seed", "time", "seconds", "logit_allowance")  # of a run or a machine; a stated seed is an input
HASH = re.compile(r"\b[0-9a-f]{32,}\b")
DATE = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d(\.\d+)?Z?")


def normalised(value: Any, folder: Path) -> Any:
    """The value with placeholders for what differs from run to run, and for sentences."""
    if isinstance(value, dict):
        return {key: _under(key, one, folder) for key, one in value.items() if not _old_name(key, value)}
    if isinstance(value, list):
        return [normalised(one, folder) for one in value]
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
    numbers = [isinstance(one, int | float) and not isinstance(one, bool) for one in (recorded, found)]
    if all(numbers):
        return math.isclose(recorded, found, rel_tol=tolerance, abs_tol=ZERO)
    return type(recorded) is type(found) and recorded == found
