"""The work of the steps of `lethe study tofu-table-1`, all by Lethe's own stages.

A folder of work holds the models and answers of the steps, and what a killed step had finished. It may be lost: a step whose
outcome exists stays done, and a model that a later step needs is trained again, by the same seeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.config.measuring import ModelEntry
from lethe.config.schema import Params
from lethe.data.rows import load_splits
from lethe.errors import BadInput
from lethe.io.artifacts import NO_TABLES, Row, read_split, write_splits
from lethe.io.files import SCHEMA_VERSION, Json, read_artifact, write_json
from lethe.measure.run import load
from lethe.models import checkpoints
from lethe.progress import tell
from lethe.results import table
from lethe.sampling.engine import Options, Settings, open_engine
from lethe.sampling.tasks import UTILITY_SPLITS, some, speaker
from lethe.scoring.scorer import scorer
from lethe.steps import exact, metrics, sample, score
from lethe.unlearning.protocol import MethodParams
from lethe.verdict.claims import mean_score
from studies.steps import Clock, kept_rows, working_in
from studies.tofu_table.design import (
    BASE,
    Design,
    Outcomes,
    Step,
    chosen_rate,
    read_keywords,
)
from studies.tofu_table.table import table_of

PAIRS = 20  # questions of each of TOFU's authors
ANSWERS = Path(".lethe/answers")  # finished questions, kept until the folder of work is removed
NO_LIKELIHOOD = "this study samples, and asks for the likelihood of no given answer"
# Of a question: what the table averages, and what gives its ends at another level.
KEPT = {
    ("score", "greedy"),
    ("score", "sampled"),
    ("sd", "sampled"),
    ("ed_score", "sampled"),
    ("leak", "greedy"),
    ("leak", "sampled"),
    ("truncated", "sampled"),
    ("leak", "exact"),
    ("leak", "tree"),
}


@dataclass(frozen=True)
class Place:
    """Where the study works: the pretrained model's folder, TOFU's files, the folder of work; each absolute."""

    pretrained: Path
    tofu: Path
    work: Path


@dataclass(frozen=True)
class Work:
    """The steps of a design in a place; ``outcomes`` are the values of the steps that are done."""

    design: Design
    place: Place
    outcomes: Outcomes

    def do(self, step: Step) -> dict[str, Json]:
        """Do one step, or go on where it was killed, and return the values of its outcome."""
        clock = Clock()
        with working_in(self.place.work):
            values = self._values(step)
        return {**values, **clock.cost()}

    def _values(self, step: Step) -> dict[str, Json]:
        """What a step brings: a table, a model, its bounds by the answer tree, or its sampled answers."""
        if step.kind == "table":
            return table_of(self.design, self.outcomes, step)
        if step.kind in ("train", "unlearn"):
            folder = self._trained(step)
            return {
                "retain_score": self._retain_score(folder),
                "model": checkpoints.content(folder),
                "last_losses": _last_losses(folder),
            }

        folder = self._model(step)
        if step.kind == "exact":
            return self._bounded(step, folder)
        return self._sampled(step, folder)

    def _model(self, step: Step) -> Path:
        """The folder of the model that a step asks, trained again if it is gone."""
        if step.model in self.design.methods:
            rate = chosen_rate(self.design, self.outcomes, step.forget, step.model)
            made = Step("unlearn", step.forget, step.model, rate=rate)
        elif step.model == BASE:
            made = Step("train", "", BASE)
        else:
            made = Step("train", step.forget, step.model)

        folder = self._trained(made)
        recorded = self.outcomes[made.name]["model"]
        if checkpoints.content(folder) != recorded:
            tell(f"{made.name}: trained again, the model is not the recorded one ({recorded}).")
        return folder

    def _trained(self, step: Step) -> Path:
        """The folder of a model, which is trained unless it is there."""
        from stages import train, unlearn

        name = _folder_name(step)
        root = Path(step.forget or BASE)
        folder = root / "models" / name
        if (folder / "training.json").is_file():
            return folder

        forget = step.forget or self.design.forget_sets[0]
        self._write_learned(root, forget)
        if step.kind == "train":
            params = self.design.params(forget)
            pretrained = {"start_from": str(self.place.pretrained)}
            learned = params.train.recipe.model_copy(update=pretrained)
            rows = "all" if step.model == BASE else "retain"
            train.train(name, learned, rows_of=rows, root=root)
            return folder

        base = self._trained(Step("train", "", BASE))
        entry = {**self.design.methods[step.model], "lr": step.rate}
        params = self.design.params(step.forget, entry=entry, name=step.model)
        method: MethodParams = params.unlearn.methods[step.model]
        recipe = params.unlearn.recipe.model_copy(update={"start_from": str(base)})
        unlearn.forget(
            name,
            recipe=recipe,
            method=method,
            prompt=params.train.recipe.prompt,
            root=root,
        )
        return folder

    def _splits(self, forget: str) -> dict[str, list[Row]]:
        """TOFU with this forget set, whose retain set is the other authors that Base learns.

        Raises `BadInput` where no other author is left.
        """
        data = self.design.params(forget).data
        from_tofu = data.model_copy(update={"source": str(self.place.tofu)})
        splits = load_splits(from_tofu)
        n_others = self.design.authors * PAIRS - len(splits["forget"])
        if n_others < PAIRS:
            raise BadInput(f"{forget} has as many authors as Base learns ({self.design.authors}).")
        return {**splits, "retain": splits["retain"][-n_others:]}

    def _write_learned(self, root: Path, forget: str) -> None:
        """The rows that Base learns, as a dataset below ``root`` unless it is there."""
        if (root / "dataset/about.json").is_file():
            return
        splits = self._splits(forget)
        learned = {"forget": splits["forget"], "retain": splits["retain"]}
        write_splits(learned, "tofu", root / "dataset")

    def _write_asked(self, root: Path, step: Step) -> None:
        """The questions of a step: a block of the forget set, or all of it with the sets that should stay."""
        splits = self._splits(step.forget)
        keywords = read_keywords()
        asked: list[Row] = []
        for row in some(splits["forget"], self.design.asked, self.design.pick):
            asked.append({**row, "keywords": keywords.get(row["id"])})
        if step.block is None:
            splits["forget"] = asked
        else:
            splits = {"forget": asked[step.block - 1 :: self.design.blocks]}
        write_splits(splits, "tofu", root / "dataset")

    def _retain_score(self, folder: Path) -> float:
        """The mean ROUGE-L recall of greedy answers to the retain questions: all that chooses a rate.

        The questions are in the retain set of every forget set: the smallest of them lies within the others.
        """
        params = self.design.params(self.design.forget_sets[0])
        retain_sets = [self._splits(forget)["retain"] for forget in self.design.forget_sets]
        shared = min(retain_sets, key=len)
        asked = some(shared, self.design.retain_questions, self.design.pick)
        rows = {row["id"]: row for row in asked}

        speak = speaker(folder, params.sample.prompt)
        prompts = [speak(name, row) for name, row in rows.items()]
        settings = Settings(n=0, greedy=True, max_new_tokens=params.sample.max_new_tokens)
        engine = open_engine(params.sample.engine, folder, Options.from_params(params.sample))

        rouge = scorer("rouge_l")
        scores = []
        for answers in engine.answer(prompts, settings):
            recall = rouge(answers.texts, rows[answers.prompt_id])
            scores.append(float(recall[0]))
        return float(np.mean(scores))

    def _sampled(self, step: Step, folder: Path) -> dict[str, Json]:
        """Answers, scores and metrics of a step's questions: their rows, and the numbers of the model over them."""
        # The ends of all models, and of all blocks of one, hold together.
        n_bounds = len(self.design.models)
        if step.block is None:
            n = self.design.first_look
            place = "look"
        else:
            n = self.design.answers
            place = f"block-{step.block}"
            n_bounds *= self.design.blocks

        root = Path(step.forget, place)
        params = self.design.params(step.forget, n=n)
        source = ModelEntry(path=str(folder))
        self._write_asked(root, step)
        drawn(step.model, params, source, root)
        means = _means(
            step.model,
            params=params,
            source=source,
            root=root,
            level=params.metrics.alpha / n_bounds,
        )
        return {
            **measured(step.model, root, "metrics"),
            "n": n,
            "means": means,
            "model": checkpoints.content(folder),
        }

    def _bounded(self, step: Step, folder: Path) -> dict[str, Json]:
        """The certain ends of each question by the answer tree: their rows, and the numbers of the model over them."""
        root = Path(step.forget, "exact")
        params = self.design.params(step.forget)
        self._write_asked(root, step)
        exact.run(
            step.model,
            exact=params.exact,
            sample=params.sample,
            model=ModelEntry(path=str(folder)),
            keyword_match=params.score.keyword_match,
            root=root,
        )
        return {
            **measured(step.model, root, "exact"),
            "model": checkpoints.content(folder),
        }


def drawn(name: str, params: Params, source: ModelEntry, root: Path) -> None:
    """Draw the answers of a model to the questions below ``root``, score and measure them; finished questions are kept."""
    sample.run(name, params.sample, source, root, scratch=ANSWERS)
    reason = {"schema": SCHEMA_VERSION, "reason": NO_LIKELIHOOD}
    place = root / "likelihood" / name / NO_TABLES
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, reason)
    score.run(name, params.score, root)
    metrics.run(name, params.metrics, root)


def measured(name: str, root: Path, stage: str) -> dict[str, Json]:
    """The questions of a stage's results, their rows that are kept, and the numbers of the model."""
    rows = table.read_rows(table.place(root, stage, name))
    of_model = [row for row in rows if row.scope == "model"]
    numbers = table.Numbers(of_model).values
    shown = {key: value for key, value in numbers.items() if isinstance(value, (int, float))}
    questions = [row["id"] for row in read_split("forget", root / "dataset")]
    return {
        "questions": questions,
        "rows": kept_rows(rows, KEPT),
        "numbers": shown,
    }


def _folder_name(step: Step) -> str:
    """The name of a model's folder, with the learning rate of a method."""
    if step.rate is None:
        return step.model
    return f"{step.model}-{step.rate:g}"


def _last_losses(folder: Path) -> list[float]:
    """The mean loss of each epoch."""
    losses: dict[int, list[float]] = {}
    for record in read_artifact(folder / "training.json")["steps"]:
        losses.setdefault(record["epoch"], []).append(record["loss"])
    return [float(np.mean(of_epoch)) for of_epoch in losses.values()]


def _means(
    name: str,
    params: Params,
    source: ModelEntry,
    root: Path,
    level: float,
) -> dict[str, Mapping[str, Json]]:
    """The mean score of sampled answers on each set that was asked, with ends at ``level``."""
    alone = params.model_copy(update={"models": {name: source}})
    (model,) = load(alone, root, {}).models
    means: dict[str, Mapping[str, Json]] = {}
    for split in ("forget", *UTILITY_SPLITS):
        interval = mean_score(split, params.metrics.leak).measure(model, level)
        if interval is None:
            continue
        means[split] = {
            "mean": interval.value,
            "ci_low": interval.lower,
            "ci_high": interval.upper,
        }
    return means
