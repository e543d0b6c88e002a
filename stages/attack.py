"""Stage `attack@NAME`: one model under one attack, asked the forget questions after every budget; or under a population of
attacks (`lethe.steps.population`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lethe.attacks.protocol import Knowledge
from lethe.config import Params
from lethe.config.schema import Attack, Population
from lethe.io.artifacts import read_split
from lethe.io.files import SCHEMA_VERSION, Json, atomic_folder, flat_numbers, write_json
from lethe.io.tables import write_parquet
from lethe.measure.attack_counts import counts_of
from lethe.models import checkpoints
from lethe.models.checkpoints import InMemory, prepare_torch
from lethe.models.encoding import Encoder
from lethe.registry import MODEL_ATTACKS
from lethe.results import table
from lethe.sampling.engine import Options, Prompt, Settings, open_engine
from lethe.sampling.tasks import table_of
from lethe.scoring.table import score_answers
from lethe.statistics.many_prompts import Point, band
from lethe.statistics.streams import stream
from lethe.steps import population
from stages import entry, named

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def run(settings: Params, root: Path, name: str) -> None:
    """Run one entry of ``attacks`` with each seed, new draws for every budget; write ``root/attacks/name``."""
    attack = named("attacks", settings.attacks, name)
    if isinstance(attack, Population):
        population.run(name, attack, settings, root)
        return
    prepare_torch()
    tables: list[pd.DataFrame] = []
    for seed in attack.seeds:
        for budget, scored in _asked(settings, attack, root, seed):
            tables.append(scored.assign(seed=seed, budget=budget))
    answers = pd.concat(tables, ignore_index=True)
    sampled = answers[answers["sample"] >= 0]
    means = sampled.groupby(["seed", "budget"])["score"].mean()  # a missing score is left out

    counts = counts_of(answers)
    curve = band(counts, attack.alpha)
    before = curve[0]
    worst = max(curve, key=lambda point: point.mean)

    headline = {
        "kind": attack.after.kind,
        "scorer": attack.scorer,
        "leak_before": before.mean,
        "leak_most": worst.mean,
        "leak_most_upper": max(point.upper.value for point in curve),
        "budget_most": worst.budget,
        "alpha": attack.alpha,
    }
    result = {
        **headline,
        "path": attack.path,
        "after": attack.after.model_dump(),
        "budget": MODEL_ATTACKS[attack.after.kind].budget,
        "n": attack.n,
        "seeds": attack.seeds,
        "counts": [dataclasses.asdict(count) for count in counts],
        "by_seed": means.reset_index(name="mean").to_dict("records"),
    }

    with atomic_folder(root / "attacks" / name) as folder:
        write_parquet(folder / "answers.parquet", answers)
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **result})
    write_json(root / "attacks" / f"{name}.json", {"schema": SCHEMA_VERSION, **headline})
    _write_rows(name, headline, result, curve, root)
    print(
        f"{name}: leaks {before.mean:.1%} before the attack and {worst.mean:.1%} after budget {worst.budget:g}"
    )


def _write_rows(
    name: str,
    headline: Mapping[str, object],
    result: Mapping[str, Json],
    curve: Sequence[Point],
    root: Path,
) -> None:
    """Write the results: a row for each number of the headline, one for each budget, and the record of the attack."""
    rows = table.Rows(name)
    for key, value in flat_numbers(headline).items():
        rows.add("audit", "number", "run", value, item=key)
    add = partial(rows.add, "audit", "attacked", "run")
    for point, counted in zip(curve, result["counts"], strict=True):
        add(point.mean, point.lower, point.upper, at=point.budget, evidence=counted)
    rows.add("audit", "record", "run", evidence=result)
    table.write(table.place(root, "attack", name), rows.rows)


def _asked(
    settings: Params, attack: Attack, root: Path, seed: int
) -> Iterator[tuple[float, pd.DataFrame]]:
    """Ask the model as it is, and after each budget of the attack.

    Yields
    ------
    tuple
        The budget, 0 at first, and the scores of the answers to the questions that the attack itself did not learn.
    """
    import torch

    sample = settings.sample
    params_of_scorer = {}
    if attack.scorer in settings.score.params:
        params_of_scorer[attack.scorer] = settings.score.params[attack.scorer]

    torch.manual_seed(seed)
    model, tokenizer = checkpoints.load(attack.path, "float32")
    encoder = Encoder(tokenizer, sample.prompt)
    forget = read_split("forget", root / "dataset")
    retain = read_split("retain", root / "dataset")
    knowledge = Knowledge(forget, retain, encoder, tokenizer.pad_token_id or 0)
    member = MODEL_ATTACKS[attack.after.kind](attack.after)
    learned = {row["id"] for row in member.learned(knowledge, seed)}
    rows = {row["id"]: row for row in forget if row["id"] not in learned}
    prompts = [Prompt(key, encoder.prompt(row)) for key, row in rows.items()]

    # The answers of two training seeds are pooled, so their draws must not share a stream.
    seed_of_draws = int(stream(sample.seed, "attack", seed).generate_state(1, np.uint64)[0])
    drawing = Settings(
        temperature=sample.temperature,
        top_p=sample.top_p,
        top_k=sample.top_k,
        max_new_tokens=sample.max_new_tokens,
        n=attack.n,
        seed=seed_of_draws,
    )
    options = Options(max_rows=sample.max_rows)

    def scores(changed: PreTrainedModel) -> pd.DataFrame:
        """The scores of new answers of a model."""
        engine = open_engine("auto", InMemory(changed, tokenizer), options)
        drawn = {answer.prompt_id: answer for answer in engine.answer(prompts, drawing)}
        answers = table_of(drawn[prompt.prompt_id] for prompt in prompts)
        scored = score_answers(answers, rows, [attack.scorer], params_of_scorer)
        return scored.rename(columns={attack.scorer: "score"})

    yield 0.0, scores(model)
    for budget, changed in member.attacked(model, knowledge, seed):
        yield float(budget), scores(changed)


main = entry(run, __name__)
