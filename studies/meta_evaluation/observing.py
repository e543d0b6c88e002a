"""What is observed of one model in one state, by the functions of the pipeline's stages.

An observation is a data folder of the pipeline: a dataset, generations, likelihoods, scores and exact bounds of one model.
Its name hashes model, settings and code, so a finished observation is never made again. The work is measured where it is
done: processor seconds, and rows, which are tokens put through the model.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lethe.config.evaluating import Model, Score
from lethe.io.artifacts import NO_TABLES, Row, read_items, write_splits
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.cache import cache_key, module_of, versions
from lethe.io.json_files import read_artifact, write_json
from lethe.io.parts import KEYS
from lethe.io.tables import read_table
from lethe.registry import JUDGES, LIKELIHOODS, SCORERS
from lethe.sampling.store import LIBRARIES
from lethe.sampling.tasks import HELDOUT, some
from studies.meta_evaluation.numbers import (
    ANSWER_PART,
    GREEDY_PART,
    HELDOUT_PART,
    OTHERS_PART,
    TREE_PART,
    Cost,
    Seen,
    answers_part,
)
from studies.meta_evaluation.workshop import PoolModel, State, Workshop, seed_of, text_of

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import Sample
    from lethe.models.encoding import Encoder
    from lethe.models.in_memory import Source
    from lethe.statistics.leak_trees import Certificates

TREES, WORK = "trees.json", "work.json"
UTILITY = "utility"  # the part of the work that measures utility and belongs to no number
STEPS = ("lethe.steps.sample", "lethe.steps.likelihood", "lethe.steps.score", "lethe.steps.exact")
OTHER_ANSWERS = ("paraphrased_answer", "perturbed_answer")  # of rows of which no number reads them


class Observation:
    """One model in one state; draw number ``draw`` of the state few relearns rows of its own."""

    def __init__(self, workshop: Workshop, model: PoolModel, state: State, draw: int = 0):
        self.workshop, self.model, self.state, self.draw = workshop, model, state, draw
        self.name = f"{model.name}-{state}-{draw}"
        purpose = f"few {draw}" if state == "few" else state
        self.seed = seed_of(workshop.params.sample.seed, f"{model.seed} {model.name} {purpose}") % (1 << 31)

    @cached_property
    def root(self) -> Path:
        """The data folder, made where it is missing."""
        place = self.workshop.folder / "observed" / self._key()
        if not place.is_dir():
            with contextlib.redirect_stdout(sys.stderr), atomic_folder(place) as folder:
                self._make(folder)
        return place

    def seen(self) -> tuple[Seen, float]:
        """All tables, and the utility: the mean greedy score on rows that the model had to keep."""
        of = self.workshop.params.score.names
        generations = read_table(self.root / "generations" / self.name / "forget.parquet")
        scores, kept = (self._scores(split) for split in ("forget", "retain"))
        likelihoods = {
            path.stem: read_table(path)
            for path in sorted((self.root / "scores" / self.name / "likelihood").glob("*.parquet"))
            if path.stem != "retain"
        }
        work = {part: Cost(**cost) for part, cost in read_artifact(self.root / WORK)["parts"].items()}
        rows = read_items("forget", self.root)
        seen = Seen(self.name, rows, generations, scores[[*KEYS, *of]], likelihoods, self._trees(), work)
        greedy = kept[kept["sample"] < 0]
        return seen, float(greedy[self.workshop.meta.utility_scorer].mean())

    def comes_back(self, scorers: Sequence[str]) -> dict[str, float]:
        """The mean sampled scores of the forget questions that were not relearned, by scorer."""
        scores = self._scores("forget")
        means = scores[scores["sample"] >= 0].groupby("prompt_id")[list(scorers)].mean().mean()
        return {scorer: float(means[scorer]) for scorer in scorers}

    def _scores(self, split: str) -> pd.DataFrame:
        return read_table(self.root / "scores" / self.name / f"{split}.parquet")

    def _trees(self) -> Certificates | None:
        from lethe.results.exact_bounds import certificates_from

        place = self.root / TREES
        return certificates_from(read_artifact(place)) if place.is_file() else None

    def _key(self) -> str:
        """The hash of everything that decides the observation; how many rows are decoded at once does not."""
        shop = self.workshop
        members = [JUDGES[name] if name in JUDGES else SCORERS[name] for name in self._score.names]
        measures = [LIKELIHOODS[name] for name in LIKELIHOODS if name not in LIKELIHOODS.registered]
        sample = self._sample(0).model_dump(exclude={"max_rows", "prompt"})
        return cache_key(
            *(__name__, *STEPS, "lethe.sampling.prefix_engine", *map(module_of, (*members, *measures))),
            settings=[sample, self._score, shop.params.exact, list(LIKELIHOODS)],
            prompt=text_of(shop.params.sample.prompt),
            model=shop.attack_key(self.model, self.state, self.draw),
            answers=shop.meta.answers,
            utility=[shop.meta.utility_questions, shop.meta.utility_scorer, shop.meta.seed],
            name=self.name,
            libraries=versions(*LIBRARIES),
        )

    @property
    def _score(self) -> Score:
        score, own = self.workshop.params.score, self.workshop.meta.utility_scorer
        return score if own in score.names else score.model_copy(update={"scorers": [*score.scorers, own]})

    def _sample(self, questions: int) -> Sample:
        """The sampling of the state; an attacked model in memory has its dtype already."""
        meta, sample = self.workshop.meta, self.workshop.params.sample
        n = meta.predict.n if self.state == "few" else meta.n
        changes: dict[str, object] = {"n": n, "seed": self.seed, "stop": "fixed", "language": None}
        changes |= {"utility_n": 1, "utility_questions": max(1, questions)}
        return sample.model_copy(update=changes | ({} if self.state == "plain" else {"dtype": "auto"}))

    def _asked(self, learned: Iterable[str]) -> dict[str, list[Row]]:
        """The rows of the data folder: the forget set, some retain rows for the utility, and held-out rows."""
        splits, meta = self.workshop.splits, self.workshop.meta
        if self.state == "few":
            relearned = set(learned)
            return {"forget": [row for row in splits["forget"] if row["id"] not in relearned]}
        others = {"retain": some(splits["retain"], meta.utility_questions, meta.seed)}
        others[HELDOUT] = splits.get(HELDOUT, [])
        return {"forget": splits["forget"]} | {
            split: list(map(_answer_only, own)) for split, own in others.items()
        }

    def _make(self, root: Path) -> None:
        from lethe.models.encoding import Encoder
        from lethe.models.in_memory import tokenizer_of
        from lethe.process import processor_seconds
        from lethe.steps import likelihood, sample, score

        shop, learned = self.workshop, list[str]()
        source: Source
        if self.state == "plain":
            source = shop.make(self.model)
        else:
            source, learned = shop.attacked(self.model, self.state, self.draw)
        splits = self._asked(learned)
        write_splits(splits, shop.data.kind, root / "dataset")
        settings, model = self._sample(len(splits.get("retain", []))), Model(path="-")
        began = [processor_seconds()]
        if self.state == "few":
            given = root / "likelihood" / self.name / NO_TABLES
            write_json(given, {"schema": SCHEMA_VERSION, "reason": "what comes back is asked alone"})
        else:
            likelihood.run(self.name, settings, model, root, source)
        began.append(processor_seconds())
        answers = shop.folder / "answers" / self.name  # finished prompts, should the run be killed
        sample.run(self.name, settings, model, root, answers, source)
        shutil.rmtree(answers, ignore_errors=True)
        score.run(self.name, self._score, root)
        began.append(processor_seconds())
        if self.state == "few":
            return
        encoder = Encoder(tokenizer_of(source), settings.prompt)
        asked = {row["id"]: len(encoder.prompt(row)) for own in splits.values() for row in own}
        costs = _shares(began[1] - began[0], self._likelihood_rows(root, asked))
        costs |= _shares(began[2] - began[1], self._answer_rows(root, asked, encoder), answers_part(shop.meta.n))
        del costs[UTILITY]
        trees = self._certified(source, settings)
        if trees is not None:
            write_json(root / TREES, {"schema": SCHEMA_VERSION, **trees.as_json()})
            seconds = processor_seconds() - began[2]
            costs[TREE_PART] = {"seconds": seconds, "rows": float(sum(tree.rows for tree in trees.trees))}
        write_json(root / WORK, {"schema": SCHEMA_VERSION, "parts": costs})

    def _certified(self, source: Source, sample: Sample) -> Certificates | None:
        from lethe.sampling.predictor import NoKeys
        from lethe.steps.exact import NothingToJudge, ThinksAloud, certify, of_params

        params = self.workshop.params
        if params.exact is None:
            return None
        exact = params.exact.model_copy(update={"seed": seed_of(self.seed, "answer trees") % (1 << 31)})
        settings = of_params(exact, sample, Model(path="-"), params.score.keyword_match)
        try:
            return certify("model", source, self.workshop.splits["forget"], settings)
        except (NothingToJudge, NoKeys, ThinksAloud):
            return None

    def _answer_rows(self, root: Path, asked: Mapping[str, int], encoder: Encoder) -> dict[str, float]:
        """The rows of the greedy answers, and of each number of answers.

        An engine puts equal beginnings of answers through the model once: the distinct prefixes of the texts' tokens.
        """
        table = read_table(root / "generations" / self.name / "forget.parquet")
        greedy = table[table["sample"] < 0]
        prompts = sum(asked[str(key)] for key in greedy["prompt_id"])
        kept = read_table(root / "generations" / self.name / "retain.parquet")
        of_utility = sum(asked[str(key)] for key in kept["prompt_id"]) + kept["tokens"].sum()
        rows = {GREEDY_PART: float(prompts + greedy["tokens"].sum()), UTILITY: float(of_utility)}
        for n in self.workshop.meta.answers:
            first = table[(table["sample"] >= 0) & (table["sample"] < n)]
            total = 0
            for key, texts in first.groupby("prompt_id", sort=False)["text"]:
                distinct = list(dict.fromkeys(text or "" for text in texts))
                ids = encoder.tokenizer(distinct, add_special_tokens=False)["input_ids"]
                total += asked[str(key)] + distinct_prefixes(ids)
            rows[answers_part(n)] = float(total)
        return rows

    def _likelihood_rows(self, root: Path, asked: Mapping[str, int]) -> dict[str, float]:
        rows = dict.fromkeys((ANSWER_PART, OTHERS_PART, HELDOUT_PART, UTILITY), 0.0)
        for split, whole in {"forget": None, HELDOUT: HELDOUT_PART, "retain": UTILITY}.items():
            place = root / "likelihood" / self.name / f"{split}.parquet"
            for row in read_table(place).itertuples() if place.is_file() else ():
                part = whole or (ANSWER_PART if row.kind == "answer" else OTHERS_PART)
                rows[part] += asked[row.prompt_id] + len(row.log_probs)
        return rows


def _shares(seconds: float, rows: Mapping[str, float], whole: str | None = None) -> dict[str, dict[str, float]]:
    """The cost of each part: seconds of one pass in proportion to rows; ``whole`` contains the other numbers of answers."""
    total = rows[whole] + rows[GREEDY_PART] + rows[UTILITY] if whole else sum(rows.values())
    return {part: {"seconds": seconds * own / max(1.0, total), "rows": own} for part, own in rows.items()}


def _answer_only(row: Row) -> Row:
    return cast("Row", {key: value for key, value in row.items() if key not in OTHER_ANSWERS})


def distinct_prefixes(sequences: Sequence[Sequence[int]]) -> int:
    """The number of different non-empty beginnings of some sequences: the nodes of their tree.

    >>> distinct_prefixes([(1, 2, 3), (1, 2, 4), (5,)])
    5
    """
    ordered = [(), *sorted(map(tuple, sequences))]
    total = sum(map(len, ordered))
    for before, one in pairwise(ordered):
        total -= sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, one, strict=False)))
    return total
