"""`lethe eval`: a checkpoint and a forget set in, a verdict out; no training, no DVC."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.console import JsonFlag, print_json, print_table, print_text
from lethe.errors import BadInput, LetheError, plural
from lethe.steps.evaluate import DEFAULTS

if TYPE_CHECKING:
    from lethe.results.table import Numbers, Result, Value
    from lethe.statistics.bound import Bound
    from lethe.steps.evaluate import EvalVerdict

PLACE = Path("data/eval")
MOST = 12  # rows of the table for people


def command(
    model: Annotated[Path, typer.Option(help="A Hugging Face model folder (safetensors), or ORG/NAME@REVISION.")],
    data: Annotated[Path, typer.Option(help="The forget set: JSON lines with id, question, answer, keywords.")],
    retain: Annotated[Path | None, typer.Option(help="Questions whose answers should be untouched.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Results go to data/eval/NAME [default: the model's folder].")
    ] = None,
    n: Annotated[int, typer.Option(help="Sampled answers to each forget question.")] = DEFAULTS.n,
    alpha: Annotated[float, typer.Option(help="Each bound may fail with this probability.")] = DEFAULTS.alpha,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = DEFAULTS.temperature,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer.")] = DEFAULTS.max_new_tokens,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Template file with {question}, or 'chat' (the tokenizer's chat template). [default: chat where the "
            "tokenizer has such a template, else a plain question and answer]"
        ),
    ] = DEFAULTS.prompt,
    language: Annotated[
        str | None,
        typer.Option(help="A language of prompts (YAML): each draw is a random prompt and its answer together."),
    ] = DEFAULTS.language,
    calibration: Annotated[
        str | None,
        typer.Option(
            help="Answers with `label` (a person's, 1 for a leak) and `verdict` (keyword leak's): the bounds of true leaks "
            "include the keyword's error."
        ),
    ] = DEFAULTS.calibration,
    labels: Annotated[
        str | None,
        typer.Option(
            help="A folder of labels of this model's answers, such as data/labels, with a file NAME.jsonl of `lethe label`: "
            "bounds that rest on them."
        ),
    ] = DEFAULTS.labels,
    engine: Annotated[str, typer.Option(help="auto, prefix, transformers or vllm.")] = DEFAULTS.engine,
    tau: Annotated[
        float | None,
        typer.Option(
            help="Tolerance of the verdict: a question leaks at most this often. [default: 0.01; without keywords 0.1 of the "
            "mean score]"
        ),
    ] = DEFAULTS.tau,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = DEFAULTS.seed,
    skip_too_long: Annotated[
        bool, typer.Option("--skip-too-long", help="Leave out questions that the model's context cannot hold.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure what your model still knows about a forget set: sampled answers, scores, bounds, one verdict, one report.

    An interrupted run resumes: finished questions are kept under data/eval/NAME.

    Example: `lethe eval --model ./my-model --data forget.jsonl --retain retain.jsonl --n 256`
    """
    from lethe.models import hub
    from lethe.steps.evaluate import EvalSettings, check, evaluate, evaluated_model, read_splits

    settings = EvalSettings(
        n=n,
        alpha=alpha,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        prompt=prompt,
        engine=engine,
        tau=tau,
        seed=seed,
        skip_too_long=skip_too_long,
        language=language,
        calibration=calibration,
        labels=labels,
    )
    check(settings)
    splits = read_splits(data, retain)
    if not model.exists() and (known := hub.hub_name(model)):
        model = hub.fill(known)
    named = name is not None
    name = model.resolve().name.replace("@", "-") if name is None else name
    root = PLACE / name
    if not named and (other := evaluated_model(root)) not in (None, str(model.resolve())):
        raise BadInput(
            f"{root} holds the evaluation of {other}. Give this one a name of its own: --name, for example "
            f"{model.resolve().parent.name}-{name}."
        )
    with _interruptible(root / "answers"):
        result = evaluate(name, model, splits, settings, root, scratch=root / "answers", page=True)
    page = root / "report" / "index.html"
    if as_json:
        print_json(_json(name, result, page))
    else:
        _show(name, result, page)


def _json(name: str, result: EvalVerdict, page: Path) -> dict[str, object]:
    from lethe.io.atomic import SCHEMA_VERSION

    return {
        "schema": SCHEMA_VERSION,
        "model": name,
        **_numbers(result.numbers),
        "forgetting": result.forgetting,
        "utility": result.utility,
        "tau": result.tau,
        "verdict": result.sentence,
        "report": str(page),
        "bounds": {key: bound.guarantee_dict() for key, bound in result.bounds.items()},
        "skipped": result.skipped,
    }


def _numbers(numbers: Numbers) -> dict[str, Value]:
    """Every number by its name; null for one that any model may have and this one lacks, such as those of keywords."""
    from lethe.results.quantities import MODEL

    answers = (row.names for row in MODEL if row.basis in ("greedy", "sampled"))
    lacking = {name: None for names in answers for name in names if name and "{" not in name}
    return lacking | numbers.values


def _show(name: str, result: EvalVerdict, page: Path) -> None:
    """Print the verdict, and at most `MOST` numbers below it."""
    from lethe.statistics.bound import level

    alpha = max(bound.alpha for bound in result.bounds.values())
    print_text(result.sentence)
    print_table(
        name,
        ["number", "estimate", "at least", "at most", "the ends cover"],
        _rows(result.numbers),
        [
            f"Each end holds by itself {level(alpha)} or more; a number without ends is an estimate.",
            f"All {len(result.metrics)} numbers and what their ends assume: --json.",
            f"report: {page}",
        ],
    )


def _rows(numbers: Numbers) -> list[list[Value | Bound]]:
    """The headlines, then the intervals with both ends: name, estimate, ends, and what the ends cover."""
    from lethe.results.quantities import headline

    first = headline(numbers.values)
    same: dict[tuple[object, ...], list[Result]] = {}  # two ends with two guarantees are two rows
    for row in numbers.rows:
        if row.at is None or row.at in row.kind.exported_at:
            same.setdefault((row.quantity, row.basis, row.item, row.split, row.at), []).append(row)
    lines = []
    for rows in same.values():
        names = [name for name in rows[0].names() if name]
        places = [first.index(name) for name in names if name in first]
        line = _row(names, rows)
        if places or None not in line[2:4]:
            lines.append((min(places, default=len(first)), line))
    return [line for _, line in sorted(lines, key=lambda one: one[0])][:MOST]


def _row(names: list[str], rows: list[Result]) -> list[Value | Bound]:
    from lethe.evaluation.leaks_at_k import BELOW_1
    from lethe.statistics.dispersion import possible

    estimate = next((row.value for row in rows if row.value is not None), None)
    lower = next((row.lower_bound for row in rows if row.lower_bound), None)
    upper = next((row.upper_bound for row in rows if row.upper_bound), None)
    if upper and rows[0].quantity.startswith("sd"):  # the JSON keeps the published end, which can be impossible
        upper = possible(upper)
    if lower and rows[0].kind.unit == "probability" and not lower.certain:
        lower = replace(lower, value=min(lower.value, BELOW_1))  # 1 is a rounding
    end = upper or lower
    return [names[-1] if estimate is None else names[0], estimate, lower, upper, str(end.covers) if end else ""]


@contextlib.contextmanager
def _interruptible(answers: Path) -> Iterator[None]:
    """Turn Ctrl-C into a sentence about what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        kept = len(list(answers.rglob("*.json")))
        raise Interrupted(
            f"Stopped; {plural(kept, 'finished question')} kept. The same command draws the others."
        ) from None


class Interrupted(LetheError):
    exit_status = 130  # 128 and the number of SIGINT
