"""`lethe exact`: bounds of P(leak) from next-token probabilities, the lower ones certain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.console import JsonFlag, TableOption, print_json, print_table, write_table
from lethe.errors import BadFile, BadValue
from lethe.steps.exact import DEFAULTS
from lethe.text import queries

SCRATCH = Path(".lethe/scratch")
SHOWN = 60  # characters of a leaking text in the table


def command(
    model: Annotated[Path, typer.Option(help="A Hugging Face model folder (safetensors).")],
    data: Annotated[Path, typer.Option(help="The forget set: JSON lines with id, question, answer, keywords.")],
    rows: Annotated[int, typer.Option(help="Tokens put through the model per question, about.")] = DEFAULTS.rows,
    alpha: Annotated[
        float, typer.Option(help="Each upper bound may fail with this probability; lower bounds cannot.")
    ] = DEFAULTS.alpha,
    target: Annotated[
        float | None,
        typer.Option(help="Sample until a question without a sampled leak is bounded by this, whatever the rows."),
    ] = DEFAULTS.target,
    exact_only: Annotated[
        bool, typer.Option("--exact-only", help="Draw no sample: both ends certain, the upper one wide.")
    ] = DEFAULTS.exact_only,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = DEFAULTS.temperature,
    top_k: Annotated[int, typer.Option(help="Keep the K most likely tokens; 0 keeps all.")] = DEFAULTS.top_k,
    top_p: Annotated[float, typer.Option(help="Keep the most likely tokens of this mass.")] = DEFAULTS.top_p,
    adaptive_threshold: Annotated[
        float | None, typer.Option(help="Adaptive temperature: greedy while the mean confidence exceeds this.")
    ] = DEFAULTS.adaptive_threshold,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer.")] = DEFAULTS.max_new_tokens,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Template file with {question}, or 'chat' (the tokenizer's chat template). [default: chat where the "
            "tokenizer has such a template, else a plain question and answer]"
        ),
    ] = DEFAULTS.prompt,
    scorer: Annotated[
        str, typer.Option(help="What a leak is: keyword_leak, exact_match, or a text scorer with --above.")
    ] = DEFAULTS.scorer,
    above: Annotated[
        float, typer.Option(help="The score above which an answer leaks, where scores are not 0 or 1.")
    ] = DEFAULTS.above,
    tau: Annotated[
        float, typer.Option(help="The probability at which a question is proved to leak, or bounded.")
    ] = DEFAULTS.tau,
    seed: Annotated[int, typer.Option(help="Seed of the sampled rest.")] = DEFAULTS.seed,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = DEFAULTS.dtype,
    memory: Annotated[int, typer.Option(help="MiB for the rows in flight.")] = DEFAULTS.memory,
    table: TableOption = None,
    as_json: JsonFlag = False,
) -> None:
    """How likely a model is to leak, from its next-token probabilities: proved from below, bounded from above.

    A guided tree of answers proves leaks down to one in a million million; what is left is sampled. An interrupted run
    resumes at the question where it stopped.

    Example: `lethe exact --model ./my-model --data forget.jsonl --temperature 0.7 --top-p 0.9`
    """
    from lethe.data.rows import read_rows
    from lethe.results.exact_bounds import rows_of
    from lethe.steps.exact import certify

    if exact_only and target is not None:
        raise BadValue("--target", target, "left out with --exact-only, which draws no sample")
    asked = read_rows(data)
    if not asked:
        raise BadFile(data, "holds no question", "Give one row per question of the forget set.")
    settings = replace(
        DEFAULTS,
        rows=rows,
        alpha=alpha,
        target=target,
        exact_only=exact_only,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        adaptive_threshold=adaptive_threshold,
        max_new_tokens=max_new_tokens,
        prompt=prompt,
        scorer=scorer,
        above=above,
        tau=tau,
        seed=seed,
        dtype=dtype,
        memory=memory,
    )
    found = certify(model.resolve().name, model, asked, settings, SCRATCH)
    write_table(table, rows_of(found))
    if as_json:
        print_json(found.as_json(whole=False))
        return
    words = found.verdicts
    shown = [
        [
            tree.id,
            tree.bounds["lower"],
            tree.bounds["upper"],
            words[tree.id],
            queries(tree.queries_until_half),
            _short(tree.heaviest_leaks[0].text) if tree.heaviest_leaks else None,
        ]
        for tree in found.trees
    ]
    head = ["question", "P(leak) >=", "P(leak) <=", "verdict", "queries until an even chance", "likeliest leak"]
    print_table(f"{found.name}: {found.how.leak}", head, shown, found.sentences())


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
