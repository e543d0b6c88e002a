"""What is observed of one model in one state, by the functions of the pipeline's stages.

An observation is a data folder of the pipeline: a dataset, generations, likelihoods, scores and exact bounds of one model.
Its name hashes model, settings and code, so a finished observation is never made again. The work is measured where it is
done: processor seconds, and rows, which are tokens put through the model.
"""

import contextlib
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from lethe.config.evaluating import Model, Sample, Score
from lethe.io.artifacts import KEYS, NO_TABLES, Row, read_items, write_splits
from lethe.io.cache import cache_key, module_of, versions
from lethe.io.files import SCHEMA_VERSION, atomic_folder, read_artifact, write_json
from lethe.io.tables import read_table
from lethe.models.checkpoints import Source, tokenizer_of
from lethe.models.encoding import Encoder
from lethe.process import processor_seconds
from lethe.registry import JUDGES, LIKELIHOODS, SCORERS
from lethe.results import table
from lethe.results.exact_bounds import certificates_of, rows_of
from lethe.sampling.engine import LIBRARIES, NoKeys
from lethe.sampling.tasks import HELDOUT, some
from lethe.statistics.leak_trees import Certificates
from lethe.steps import likelihood, sample, score
from lethe.steps.exact import NoBounds, certify, of_params
from studies.meta_evaluation.workshop import PoolModel, State, Workshop, seed_for, seed_of, text_of

GREEDY_PART, TREE_PART = "greedy", "tree"
# The likelihoods of a model in three parts: forget answers, their paraphrased and wrong answers, and held-out answers.
ANSWER_PART, OTHERS_PART, HELDOUT_PART = (
    "forget answers",
    "other forget answers",
    "held-out answers",
)
UTILITY = "utility"  # the part of the work that measures utility and belongs to no number
WORK = "work.json"
ATTACKS = ("lethe.attacks.kinds.weights",)
STEPS = ("lethe.steps.sample", "lethe.steps.likelihood", "lethe.steps.score", "lethe.steps.exact")
OTHER_ANSWERS = ("paraphrased_answer", "perturbed_answer")  # of rows of which no number reads them


def answers_part(n: int) -> str:
    return f"answers@{n}"


@dataclass(frozen=True)
class Cost:
    """Processor seconds, and rows (tokens put through the model), of one observation of a model; NaN if unknown."""

    seconds: float
    rows: float


@dataclass(frozen=True)
class Seen:
    """The observations of one model on the forget set; ``trees`` is None where no question can be judged.

    ``scores`` has ``prompt_id``, ``sample`` (-1: greedy) and a column per scorer; ``likelihoods`` a table per split.
    ``utility`` is the mean greedy score on rows that the model had to keep.
    """

    name: str
    rows: Mapping[str, Row]
    generations: pd.DataFrame
    scores: pd.DataFrame
    likelihoods: Mapping[str, pd.DataFrame]
    trees: Certificates | None = None
    work: Mapping[str, Cost] = field(default_factory=dict)
    utility: float = np.nan


@dataclass(frozen=True)
class Observation:
    """One model in one state; draw number ``draw`` of the state few relearns rows of its own."""

    shop: Workshop
    model: PoolModel
    state: State = "plain"
    draw: int = 0

    @property
    def name(self) -> str:
        return f"{self.model.name}-{self.state}-{self.draw}"

    @property
    def seed(self) -> int:
        purpose = f"few {self.draw}" if self.state == "few" else self.state
        name = f"{self.model.seed} {self.model.name} {purpose}"
        return seed_of(self.shop.params.sample.seed, name) % (1 << 31)

    @cached_property
    def root(self) -> Path:
        place = self.shop.folder / "observed" / self.key
        if not place.is_dir():
            with contextlib.redirect_stdout(sys.stderr), atomic_folder(place) as folder:
                self._make(folder)
        return place

    @property
    def key(self) -> str:
        """The hash of everything that decides the observation; how many rows are decoded at once does not."""
        shop, plain = self.shop, self.state == "plain"
        scorers = [JUDGES[name] if name in JUDGES else SCORERS[name] for name in self._score.names]
        measures = [LIKELIHOODS[name] for name in LIKELIHOODS if name not in LIKELIHOODS.registered]
        sample = self._sample(0).model_dump(exclude={"max_rows", "prompt"})
        attack = [shop.attack(self.state).params, seed_for(self.model, self.draw), shop.taught]
        return cache_key(
            *(
                __name__,
                *STEPS,
                "lethe.sampling.prefix_engine",
                *map(module_of, (*scorers, *measures)),
            ),
            *(() if plain else ATTACKS),
            settings=[sample, self._score, shop.params.exact, list(LIKELIHOODS)],
            prompt=text_of(shop.params.sample.prompt),
            model=shop.key(self.model),
            attack=None if plain else attack,
            answers=shop.meta.answers,
            utility=[shop.meta.utility_questions, shop.meta.utility_scorer, shop.meta.seed],
            name=self.name,
            libraries=versions(*LIBRARIES),
        )

    @cached_property
    def seen(self) -> Seen:
        generations = read_table(self.root / "generations" / self.name / "forget.parquet")
        scores, retain = (self._scores(split) for split in ("forget", "retain"))
        measured = sorted((self.root / "scores" / self.name / "likelihood").glob("*.parquet"))
        likelihoods = {path.stem: read_table(path) for path in measured if path.stem != "retain"}
        utility = float(retain.loc[retain["sample"] < 0, self.shop.meta.utility_scorer].mean())
        return Seen(
            self.name,
            read_items("forget", self.root),
            generations,
            scores[[*KEYS, *self.shop.params.score.names]],
            likelihoods,
            certificates_of(table.read(self.root, [self.name]), self.name),
            {part: Cost(**cost) for part, cost in read_artifact(self.root / WORK)["parts"].items()},
            utility,
        )

    def comes_back(self, scorers: Sequence[str]) -> dict[str, float]:
        scores = self._scores("forget")
        means = scores[scores["sample"] >= 0].groupby("prompt_id")[list(scorers)].mean().mean()
        return {scorer: float(means[scorer]) for scorer in scorers}

    def _scores(self, split: str) -> pd.DataFrame:
        return read_table(self.root / "scores" / self.name / f"{split}.parquet")

    @property
    def _score(self) -> Score:
        score, own = self.shop.params.score, self.shop.meta.utility_scorer
        return (
            score
            if own in score.names
            else score.model_copy(update={"scorers": [*score.scorers, own]})
        )

    def _sample(self, questions: int) -> Sample:
        """The sampling of the state; an attacked model in memory has its dtype already."""
        meta, sample = self.shop.meta, self.shop.params.sample
        n = meta.predict.n if self.state == "few" else meta.n
        changes: dict[str, object] = {"n": n, "seed": self.seed, "stop": "fixed", "language": None}
        changes |= {"utility_n": 1, "utility_questions": max(1, questions)}
        return sample.model_copy(
            update=changes | ({} if self.state == "plain" else {"dtype": "auto"})
        )

    def _asked(self, learned: Iterable[str]) -> dict[str, list[Row]]:
        splits, meta = self.shop.splits, self.shop.meta
        if self.state == "few":
            relearned = set(learned)
            return {"forget": [row for row in splits["forget"] if row["id"] not in relearned]}

        def bare(rows: Iterable[Row]) -> list[Row]:
            without = (
                {key: value for key, value in row.items() if key not in OTHER_ANSWERS}
                for row in rows
            )
            return cast("list[Row]", list(without))

        retain = some(splits["retain"], meta.utility_questions, meta.seed)
        return {
            "forget": splits["forget"],
            "retain": bare(retain),
            HELDOUT: bare(splits.get(HELDOUT, [])),
        }

    def _make(self, root: Path) -> None:
        shop, learned, few = self.shop, list[str](), self.state == "few"
        source: Source
        if self.state == "plain":
            source = shop.make(self.model)
        else:
            source, learned = shop.attacked(self.model, self.state, self.draw)
        splits = self._asked(learned)
        write_splits(splits, shop.data.kind, root / "dataset")
        settings, model = self._sample(len(splits.get("retain", []))), Model(path="-")
        began = [processor_seconds()]
        if few:
            given = root / "likelihood" / self.name / NO_TABLES
            write_json(
                given, {"schema": SCHEMA_VERSION, "reason": "what comes back is asked alone"}
            )
        else:
            likelihood.run(self.name, settings, model, root, source)
        began.append(processor_seconds())
        answers = shop.folder / "answers" / self.name  # finished prompts, should the run be killed
        sample.run(self.name, settings, model, root, answers, source)
        shutil.rmtree(answers, ignore_errors=True)
        score.run(self.name, self._score, root)
        began.append(processor_seconds())
        if few:
            return
        encoder = Encoder(tokenizer_of(source), settings.prompt)
        asked = {row["id"]: len(encoder.prompt(row)) for own in splits.values() for row in own}
        costs = _shares(began[1] - began[0], self._likelihood_rows(root, asked))
        costs |= _shares(
            began[2] - began[1], self._answer_rows(root, asked, encoder), answers_part(shop.meta.n)
        )
        del costs[UTILITY]
        trees = self._certified(source, settings)
        if trees is not None:
            table.write(table.place(root, "exact", self.name), rows_of(trees))
            seconds = processor_seconds() - began[2]
            costs[TREE_PART] = {
                "seconds": seconds,
                "rows": float(sum(tree.rows for tree in trees.trees)),
            }
        write_json(root / WORK, {"schema": SCHEMA_VERSION, "parts": costs})

    def _certified(self, source: Source, sample: Sample) -> Certificates | None:
        params = self.shop.params
        if params.exact is None:
            return None
        exact = params.exact.model_copy(
            update={"seed": seed_of(self.seed, "answer trees") % (1 << 31)}
        )
        settings = of_params(exact, sample, Model(path="-"), params.score.keyword_match)
        try:
            return certify(self.name, source, self.shop.splits["forget"], settings)
        except (NoBounds, NoKeys):
            return None

    def _answer_rows(
        self, root: Path, asked: Mapping[str, int], encoder: Encoder
    ) -> dict[str, float]:
        """The rows of greedy answers, and of each number of answers: the distinct prefixes, as an engine shares them."""
        answers, retain = (
            read_table(root / "generations" / self.name / f"{split}.parquet")
            for split in ("forget", "retain")
        )
        whole = {GREEDY_PART: answers[answers["sample"] < 0], UTILITY: retain}
        rows = {
            part: float(own["prompt_id"].map(asked).sum() + own["tokens"].sum())
            for part, own in whole.items()
        }
        for n in self.shop.meta.answers:
            first = answers[(answers["sample"] >= 0) & (answers["sample"] < n)]
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


def _shares(
    seconds: float, rows: Mapping[str, float], whole: str | None = None
) -> dict[str, dict[str, float]]:
    """The cost of each part: seconds of one pass in proportion to rows; ``whole`` contains the other numbers of answers."""
    total = rows[whole] + rows[GREEDY_PART] + rows[UTILITY] if whole else sum(rows.values())
    return {
        part: {"seconds": seconds * own / max(1.0, total), "rows": own}
        for part, own in rows.items()
    }


def distinct_prefixes(sequences: Sequence[Sequence[int]]) -> int:
    """The number of different non-empty beginnings of some sequences: the nodes of their tree."""
    ordered = [(), *sorted(map(tuple, sequences))]
    total = sum(map(len, ordered))
    for before, one in pairwise(ordered):
        total -= sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, one, strict=False))
        )
    return total
