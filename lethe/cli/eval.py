"""`lethe eval`: a checkpoint and a forget set in, a verdict out; no training, no DVC."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import BadInput, LetheError, plural
from lethe.statistics.bound import Bound
from lethe.steps.evaluate import DEFAULTS

PLACE = Path("data/eval")


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
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = DEFAULTS.seed,
    skip_too_long: Annotated[
        bool, typer.Option("--skip-too-long", help="Leave out questions that the model's context cannot hold.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """What a model of your own still knows of a forget set: sampled answers, scores, bounds, one report.

    An interrupted run resumes: finished questions are kept under data/eval/NAME.

    Example: `lethe eval --model ./my-model --data forget.jsonl --retain retain.jsonl --n 256`
    """
    from lethe.models import hub
    from lethe.steps.evaluate import EvalSettings, evaluate, evaluated_model, read_splits

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
        result = evaluate(
            name,
            model,
            read_splits(data, retain),
            EvalSettings(
                n=n,
                alpha=alpha,
                temperature=temperature,
                max_new_tokens=max_new_tokens,
                prompt=prompt,
                engine=engine,
                seed=seed,
                skip_too_long=skip_too_long,
                language=language,
                calibration=calibration,
                labels=labels,
            ),
            root,
            scratch=root / "answers",
            page=True,
        )
    page = root / "report" / "index.html"
    if as_json:
        bounds = {key: bound.guarantee_dict() for key, bound in result.bounds.items()}
        print_json(
            {
                **result.metrics,
                "verdict": result.sentence,
                "report": str(page),
                "bounds": bounds,
                "skipped": result.skipped,
            }
        )
        return
    shown = [
        [
            key,
            _shown(key, result.bounds[key]) if key in result.bounds else value,
            result.bounds[key].brief() if key in result.bounds else "",
        ]
        for key, value in result.metrics.items()
        if key not in ("schema", "model")
    ]
    notes = [
        result.sentence,
        *(f"{bound.brief()}: holds {bound.level()}, assuming {bound.assumes}." for bound in _kinds(result.bounds)),
        "The others are estimates and counts, without a guarantee.",
        "binary_*, keyword_*, m_bin_*, share_m_bin_above and leak_at_* are of keyword leak; greedy_mean, mean, sd, ed_score, "
        "max, m_mu_*, m_sigma_*, tighter_*, retain_greedy and retain_mean of ROUGE-L recall.",
        f"report: {page}",
    ]
    print_table(f"{result.metrics['model']}", ["metric", "value", "guarantee"], shown, notes)


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


def _shown(key: str, bound: Bound) -> Bound:
    """A bound on a standard deviation as a reader sees it; the JSON keeps the published value."""
    from lethe.statistics.dispersion import possible

    return possible(bound) if key.startswith(("m_sigma", "tighter_sd", "anytime_sd")) else bound


def _kinds(bounds: Mapping[str, Bound]) -> list[Bound]:
    """One bound of each side, alpha, cover and assumption."""
    return list({(bound.brief(), bound.assumes): bound for bound in bounds.values()}.values())
