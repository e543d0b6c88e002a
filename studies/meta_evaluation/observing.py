"""What is observed of one model: greedy answers, draws, likelihoods and exact leak probabilities, each kept by itself.

A part is a folder under the hash of model, settings and code, so that a change of one part repeats no other. The work of a
part is measured where it is done: processor seconds, and rows, which are tokens put through the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.cache import cache_key, module_of, versions
from lethe.io.json_files import read_artifact, write_json
from lethe.io.tables import read_table, write_parquet
from lethe.registry import JUDGES, LIKELIHOODS, SCORERS
from lethe.sampling.store import LIBRARIES
from lethe.steps.costs import processor_seconds
from studies.meta_evaluation.numbers import (
    ANSWER_PART,
    GREEDY_PART,
    HELDOUT_PART,
    OTHERS_PART,
    TREE_PART,
    Seen,
    Work,
    answers_part,
)
from studies.meta_evaluation.pool import seed_of

if TYPE_CHECKING:
    import pandas as pd

    from lethe.io.artifacts import Row
    from lethe.models.in_memory import Source
    from lethe.sampling.engine import Engine
    from lethe.statistics.leak_trees import Certificates
    from studies.meta_evaluation.workshop import Workshop

ABOUT, TREES = "about.json", "trees.json"
DRAWN = "studies.meta_evaluation.observing"


@dataclass(frozen=True)
class Observed:
    """A model's observations, and its utility: the mean greedy score on rows that it had to keep."""

    seen: Seen
    utility: float


class Observer:
    """Observes one model in one state."""

    def __init__(self, workshop: Workshop, key: str, source: Callable[[], Source], seed: int):
        self.workshop, self.key, self._open, self.seed = workshop, key, source, seed
        self._opened: Source | None = None
        self._engine: Engine | None = None
        self.forget = {row["id"]: row for row in workshop.splits["forget"]}

    @property
    def source(self) -> Source:
        """The model, made or attacked at the first use."""
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def observe(self, name: str) -> Observed:
        """Return all parts, each made where it is missing."""
        greedy, drawn = self._greedy(), self._answers()
        self._engine = None  # the other parts load the model again, which may fill a GPU
        given, trees = self._likelihood(), self._trees()
        work = {GREEDY_PART: _work(greedy), **_split(given)}
        whole, rows = _work(drawn), read_artifact(drawn / ABOUT)["rows_of"]
        for n in self.workshop.meta.answers:
            share = rows[str(n)] / max(1.0, rows[str(self.workshop.meta.n)])
            work[answers_part(n)] = Work(whole.seconds * share, rows[str(n)])
        certificates = _certificates(trees)
        if trees is not None and certificates is not None:
            work[TREE_PART] = _work(trees)
        tables = [
            [read_table(part / f"{what}.parquet") for part in (greedy, drawn)] for what in ("answers", "scores")
        ]
        import pandas as pd

        generations, scores = (pd.concat(pair, ignore_index=True) for pair in tables)
        likelihoods = {path.stem: read_table(path) for path in sorted(given.glob("*.parquet"))}
        seen = Seen(name, self.forget, generations, scores, likelihoods, certificates, work)
        utility = read_artifact(greedy / ABOUT)["utility"]
        return Observed(seen, float("nan") if utility is None else float(utility))

    def _place(self, part: str, *modules: str, settings: object) -> Path:
        key = cache_key(*modules, settings=settings, part=part, model=self.key, libraries=versions(*LIBRARIES))
        return self.workshop.folder / "seen" / part / key

    def _scoring(self) -> list[str]:
        names = self.workshop.params.score.names
        return [module_of(JUDGES[name] if name in JUDGES else SCORERS[name]) for name in names]

    def _sampling(self) -> dict[str, object]:
        """The settings that decide an answer; how many rows are decoded at once does not."""
        sample = self.workshop.sample
        kept = ("temperature", "top_p", "top_k", "max_new_tokens", "engine", "dtype")
        settings = {name: getattr(sample, name) for name in kept}
        return settings | {"prompt": self.workshop.text_of(sample.prompt), "seed": self.seed}

    def _greedy(self) -> Path:
        meta = self.workshop.meta
        settings = [meta.utility_questions, meta.utility_scorer]
        return self._asked("greedy", settings, 0, lambda _: {"utility": self._utility()})

    def _answers(self) -> Path:
        meta = self.workshop.meta

        def rows(table: pd.DataFrame) -> dict[str, object]:
            of = {str(n): self._rows_of(table[table["sample"] < n]) for n in meta.answers}
            return {"rows": of[str(meta.n)], "rows_of": of}

        return self._asked("answers", [meta.answers], meta.n, rows)

    def _asked(self, part: str, settings: list, n: int, more: Callable[[pd.DataFrame], dict[str, object]]) -> Path:
        """Answers to the forget questions with their scores and work; ``more`` gives further facts about them."""
        settings = [self._sampling(), *settings, self.workshop.params.score]
        place = self._place(part, DRAWN, "lethe.sampling.prefix_engine", *self._scoring(), settings=settings)
        if place.is_dir():
            return place
        self.source  # noqa: B018  # made or attacked before the clock starts
        table, work = self._drawn(list(self.forget.values()), n)
        began = processor_seconds()
        scores = self._scored(table, self.forget)
        work += Work(processor_seconds() - began, 0.0)
        facts = more(table)
        with atomic_folder(place) as folder:
            write_parquet(folder / "answers.parquet", table)
            write_parquet(folder / "scores.parquet", scores)
            _about(folder, work, **facts)
        return place

    def _utility(self) -> float:
        """The mean greedy score on some retain questions."""
        meta = self.workshop.meta
        retain = _some(self.workshop.splits["retain"], meta.utility_questions, meta.seed)
        table, _ = self._drawn(retain, 0)
        scores = self._scored(table, {row["id"]: row for row in retain}, [meta.utility_scorer])
        return float(scores[meta.utility_scorer].mean())

    def _drawn(self, rows: Sequence[Row], n: int) -> tuple[pd.DataFrame, Work]:
        """``n`` answers to each row, or the greedy one where ``n`` is 0, and their work."""
        from lethe.models.encoding import Encoder
        from lethe.models.in_memory import tokenizer_of
        from lethe.sampling.engine import Prompt, Settings
        from lethe.sampling.tasks import table_of

        sample, engine = self.workshop.sample, self._open_engine()
        encoder = Encoder(tokenizer_of(self.source), sample.prompt)
        prompts = [Prompt(row["id"], encoder.prompt(row)) for row in rows]
        settings = Settings(
            n=n,
            max_new_tokens=sample.max_new_tokens,
            temperature=sample.temperature,
            top_p=sample.top_p,
            top_k=sample.top_k,
            greedy=n == 0,
            seed=self.seed,
        )
        began = processor_seconds()
        answers = {one.prompt_id: one for one in engine.answer(prompts, settings)}
        seconds = processor_seconds() - began
        table = table_of(answers[prompt.prompt_id] for prompt in prompts)
        asked = sum(len(prompt.token_ids) for prompt in prompts)
        return table, Work(seconds, float(asked + table["tokens"].sum()))

    def _open_engine(self) -> Engine:
        """The engine of all draws: one, because it loads the model and tests its rows when it is opened."""
        from lethe.models.checkpoints import prepare_torch
        from lethe.models.in_memory import InMemory
        from lethe.sampling.engine import Options, open_engine

        if self._engine is None:
            prepare_torch()
            sample = self.workshop.sample
            options = Options.from_params(sample)
            if isinstance(self.source, InMemory):  # which has its place and dtype already
                options = replace(options, device="auto", dtype="auto")
            self._engine = open_engine(sample.engine, self.source, options)
        return self._engine

    def _scored(
        self, table: pd.DataFrame, rows: Mapping[str, Row], scorers: Sequence[str] | None = None
    ) -> pd.DataFrame:
        from lethe.scoring._tables import score_answers

        score = self.workshop.params.score
        names = list(score.names if scorers is None else scorers)
        return score_answers(
            table, rows, names, {name: one for name, one in score.params.items() if name in names}
        )

    def _rows_of(self, table: pd.DataFrame) -> float:
        """The rows of an engine that puts equal beginnings through the model once: distinct prefixes of the texts' tokens.

        The prompt's tokens are added once per question. Tokens are as the tokenizer writes the texts.
        """
        from lethe.models.encoding import Encoder
        from lethe.models.in_memory import tokenizer_of

        tokenizer = tokenizer_of(self.source)
        encoder = Encoder(tokenizer, self.workshop.sample.prompt)
        total = 0
        for prompt_id, texts in table.groupby("prompt_id", sort=False)["text"]:
            total += len(encoder.prompt(self.forget[str(prompt_id)]))
            distinct = list(dict.fromkeys(text or "" for text in texts))
            ids = tokenizer(distinct, add_special_tokens=False)["input_ids"]
            total += distinct_prefixes(ids)
        return float(total)

    def _likelihood(self) -> Path:
        measures = [module_of(LIKELIHOODS[name]) for name in LIKELIHOODS if name not in LIKELIHOODS.registered]
        prompt = self.workshop.text_of(self.workshop.sample.prompt)
        settings = [prompt, list(LIKELIHOODS), sorted(self.workshop.splits)]
        place = self._place("likelihood", DRAWN, "lethe.models.likelihood", *measures, settings=settings)
        if place.is_dir() and not LIKELIHOODS.registered:
            return place
        from lethe.models.checkpoints import prepare_torch
        from lethe.models.encoding import Encoder
        from lethe.models.in_memory import tokenizer_of
        from lethe.models.likelihood import given_answers
        from lethe.scoring.likelihood import score_likelihoods

        source = self.source
        prepare_torch()
        splits = {"forget": self.workshop.splits["forget"]}
        if heldout := self.workshop.splits.get("heldout"):
            splits["heldout"] = [_answer_only(row) for row in heldout]
        began = processor_seconds()
        tables = given_answers(source, splits, self.workshop.sample.prompt, "likelihood")
        seconds = processor_seconds() - began
        scored = {
            split: score_likelihoods(table, {row["id"]: row for row in splits[split]})
            for split, table in tables.items()
        }
        encoder = Encoder(tokenizer_of(source), self.workshop.sample.prompt)
        asked = {row["id"]: len(encoder.prompt(row)) for rows in splits.values() for row in rows}
        parts = dict.fromkeys((ANSWER_PART, OTHERS_PART, HELDOUT_PART), 0.0)
        for split, table in tables.items():
            for row in table.itertuples():
                part = HELDOUT_PART if split != "forget" else ANSWER_PART if row.kind == "answer" else OTHERS_PART
                parts[part] += asked[row.prompt_id] + len(row.log_probs)
        with atomic_folder(place) as folder:
            for split, table in scored.items():
                write_parquet(folder / f"{split}.parquet", table)
            _about(folder, Work(seconds, sum(parts.values())), parts=parts)
        return place

    def _trees(self) -> Path | None:
        from lethe.config.evaluating import Model
        from lethe.sampling.predictor import NoKeys
        from lethe.steps.exact import NothingToJudge, certify, of_params

        exact = self.workshop.params.exact
        if exact is None:
            return None
        exact = exact.model_copy(update={"seed": seed_of(self.seed, "answer trees") % (1 << 31)})
        how = of_params(exact, self.workshop.sample, Model(path="-"), self.workshop.params.score.keyword_match)
        modules = ("lethe.steps.exact", "lethe.sampling.answer_tree", "lethe.sampling.predictor")
        prompt = self.workshop.text_of(self.workshop.sample.prompt)
        place = self._place("trees", DRAWN, *modules, module_of(SCORERS[how.scorer]), settings=[how, prompt])
        if not place.is_dir():
            source, found = self.source, None
            began = processor_seconds()
            try:
                found = certify("model", source, list(self.forget.values()), how)
            except (NothingToJudge, NoKeys):
                found = None
            work = Work(
                processor_seconds() - began, float(sum(tree.rows for tree in found.trees)) if found else 0.0
            )
            with atomic_folder(place) as folder:
                write_json(
                    folder / TREES, {"schema": SCHEMA_VERSION, **(found.as_json() if found else {"model": None})}
                )
                _about(folder, work)
        return place

    def comes_back(self, without: Iterable[str], n: int, scorers: Sequence[str]) -> dict[str, float]:
        """The mean sampled scores of the forget questions: the leakage of an attacked model, by scorer."""
        left_out = set(without)
        rows = [row for row in self.forget.values() if row["id"] not in left_out]
        table, _ = self._drawn(rows, n)
        scores = self._scored(table, {row["id"]: row for row in rows}, scorers)
        means = scores.groupby("prompt_id")[list(scorers)].mean().mean()
        return {scorer: float(means[scorer]) for scorer in scorers}


def _certificates(place: Path | None) -> Certificates | None:
    from lethe.statistics.leak_trees import Certificates

    values = read_artifact(place / TREES) if place else {"model": None}
    return Certificates.of_json(values) if values["model"] else None


def distinct_prefixes(sequences: Sequence[Sequence[int]]) -> int:
    """The number of different non-empty beginnings of some sequences: the nodes of their tree.

    Examples
    --------
    >>> distinct_prefixes([(1, 2, 3), (1, 2, 4), (5,)])
    5
    """
    ordered = sorted(tuple(one) for one in sequences)
    found = 0
    before: tuple[int, ...] = ()
    for one in ordered:
        shared = next(
            (i for i, (a, b) in enumerate(zip(one, before, strict=False)) if a != b), min(len(one), len(before))
        )
        found += len(one) - shared
        before = one
    return found


def _answer_only(row: Row) -> Row:
    """A held-out row without its other answers, which no number reads."""
    return {key: value for key, value in row.items() if key not in ("paraphrased_answer", "perturbed_answer")}  # type: ignore[return-value]  # a row with fewer optional keys


def _some(rows: Sequence[Row], count: int, seed: int) -> list[Row]:
    chosen = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [rows[place] for place in sorted(chosen)]


def _about(folder: Path, work: Work, **others: object) -> None:
    """Write the work of a part, and further facts about it."""
    write_json(folder / ABOUT, {"schema": SCHEMA_VERSION, "seconds": work.seconds, "rows": work.rows, **others})


def _split(place: Path) -> dict[str, Work]:
    """The work of the likelihoods by part: seconds of the one pass are in proportion to the rows."""
    whole, parts = _work(place), read_artifact(place / ABOUT)["parts"]
    return {part: Work(whole.seconds * rows / max(1.0, whole.rows), float(rows)) for part, rows in parts.items()}


def _work(place: Path) -> Work:
    known = read_artifact(place / ABOUT)
    return Work(float(known["seconds"]), float(known["rows"]))
