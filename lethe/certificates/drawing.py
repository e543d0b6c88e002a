"""Answers of a model from seeds, scored as leaves of a certificate, and how many of them are drawn."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.certificates.draws import Draws, of_leaves
from lethe.certificates.hashes import CertificateSettings, place_of_prompt
from lethe.certificates.merkle import Leaf
from lethe.config.measuring import Endpoint
from lethe.errors import BadInput
from lethe.instruction_set import kernels_in_use
from lethe.io.files import Json
from lethe.progress import progress
from lethe.results.licence import of_drawing, refusals

if TYPE_CHECKING:
    from lethe.io.artifacts import Row
    from lethe.sampling.engine import Engine, Prompt, Settings

BATCH = 64  # answers to a question between two looks at its e-value
RETRAIN = "retrain"  # the stream of Retrain's answers, independent of the model's
Done = Callable[[int, int, int], bool]


class SeededDraws:
    """Answers of a model from seeds, in batches of `BATCH` answers to each question; ``role`` names its stream."""

    engine: Engine

    def __init__(
        self, model: Path | Endpoint, rows: Sequence[Row], how: CertificateSettings, role: str = ""
    ) -> None:
        from lethe.models.checkpoints import prepare_torch
        from lethe.sampling.engine import Options, open_engine
        from lethe.sampling.tasks import speaker
        from lethe.scoring.scorer import open_scorer

        speak = speaker(model, place_of_prompt(how.prompt))
        self.rows, self.how = rows, how
        self.role = role
        self.prompts = [speak(row["id"], row) for row in rows]
        self.scorer = open_scorer(how.scorer)
        self.keep = False
        self.leaves: dict[str, list[Leaf]] = {}
        if not isinstance(model, Endpoint):
            prepare_torch()
            self.engine = open_engine(how.engine, model, Options(dtype=how.dtype))
            return
        from lethe.sampling.endpoint import EndpointEngine

        # It holds the answers, which counts replace.
        self.folder = tempfile.TemporaryDirectory(prefix="lethe-")
        self.engine = engine = EndpointEngine(model, Path(self.folder.name), how.prompt == "chat")
        engine.law = how.model_dump(
            include={"temperature", "top_p", "top_k"}
        )  # its cuts are probed
        self._refuse({"probes": list(map(asdict, engine.probes.tried))})

    def check_drawn(self) -> None:
        """Refuse the draws of a server that changed while it drew, or that drew the last answers otherwise than the first."""
        from lethe.sampling.endpoint import EndpointEngine

        if isinstance(self.engine, EndpointEngine):
            self._refuse(self.engine.served())

    def _refuse(self, served: Mapping[str, Json]) -> None:
        """Refuse the answers of a server of which nothing may be claimed (`lethe.results.licence`)."""
        reasons = refusals(of_drawing({"served": served}, ()))
        if not reasons:
            return
        failed = []
        for probe in served["probes"]:
            if probe["needed"] and probe["passed"] is False:
                failed.append(f"{probe['name']}: {probe['sentence']}")
        raise BadInput(f"No certificate: {' '.join(reasons)} ({'; '.join(failed)}.)")

    def leaks(
        self,
        seed: int,
        draws: Sequence[int],
        done: Done = lambda place, leaks, n: False,
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """`counted` for the answers of a seed."""
        from lethe.sampling.forecast import announce

        most = max(draws)
        if not most:
            return tuple(draws), tuple(draws)
        announce(self.engine, self.prompts, self._settings(most, seed))
        leaks_in = partial(self._leaks, seed)
        if self.how.endpoint:  # a server's engine shows its own progress
            return counted(leaks_in, draws, done)
        unit = f"rounds of {BATCH} answers"
        watched = partial(progress, label="draw", unit=unit, total=math.ceil(most / BATCH))
        return counted(leaks_in, draws, done, watched)

    def _settings(self, n: int, seed: int, first: int = 0) -> Settings:
        from lethe.sampling.engine import Settings

        how = self.how
        return Settings(
            temperature=how.temperature,
            top_p=how.top_p,
            top_k=how.top_k,
            max_new_tokens=how.max_new_tokens,
            n=n,
            greedy=False,
            seed=seed,
            first_sample=first,
            batch=how.batch,
            stream_of=self.role,
        )

    def _leaks(
        self,
        seed: int,
        places: Sequence[int],
        first: int,
        size: int,
    ) -> list[int]:
        asked = [self.prompts[place] for place in places]
        leaves_of = self._leaves(asked, self._settings(size, seed, first))
        leaks = []
        for place in places:
            question = self.rows[place]["id"]
            leaks.append(sum(leaf.score for leaf in leaves_of[question]))
            if self.keep:
                self.leaves.setdefault(question, []).extend(leaves_of[question])
        return leaks

    def again(
        self, seed: int, numbers_of: Mapping[str, Sequence[int]]
    ) -> Mapping[str, Sequence[Leaf]]:
        """Single answers of a seed, by question: those with these numbers."""
        asked = []
        for prompt in self.prompts:
            asked.append(replace(prompt, only=tuple(numbers_of[prompt.prompt_id])))
        return self._leaves(asked, self._settings(1, seed))

    def _leaves(self, asked: Sequence[Prompt], settings: Settings) -> dict[str, list[Leaf]]:
        """The answers to prompts with their scores. An answer that the scorer cannot judge counts against the claim: as a
        leak of the model, and as none of Retrain.
        """
        from lethe.scoring.verdicts import AnsweredRow

        row_of = {row["id"]: row for row in self.rows}
        drawn = list(self.engine.answer(asked, settings))
        questions = []
        for answers in drawn:
            questions.append(AnsweredRow(list(answers.texts), row_of[answers.prompt_id]))
        leaves_of: dict[str, list[Leaf]] = {}
        unjudged = 0.0 if self.role == RETRAIN else 1.0
        for answers, scores in zip(drawn, self.scorer.score(questions), strict=True):
            leaves = leaves_of[answers.prompt_id] = []
            for place, score in enumerate(np.nan_to_num(scores, nan=unjudged)):
                leaf = Leaf(
                    question=answers.prompt_id,
                    sample=answers.samples[place],
                    text=answers.texts[place],
                    tokens=answers.tokens[place],
                    finish_reason=answers.finish_reasons[place],
                    score=int(score),
                )
                leaves.append(leaf)
        return leaves_of

    @property
    def repeatable(self) -> bool:
        """Whether a single answer can be drawn again, bit for bit; an engine of another package need not say so."""
        return getattr(self.engine, "repeatable", False)

    @property
    def kernels(self) -> str:
        """What computes the answers: other kernels or libraries round other last bits, and draw a few other answers."""
        libraries = [f"{name} {version(name)}" for name in ("torch", "transformers")]
        return ", ".join([kernels_in_use(), *libraries])

    def committed(self, seed: int) -> Draws:
        """All kept draws of a seed, in the order of the questions."""
        leaves_of = {row["id"]: self.leaves[row["id"]] for row in self.rows}
        return replace(of_leaves(leaves_of, seed), kernels=self.kernels)


def counted(
    leaks_in: Callable[[list[int], int, int], list[int]],
    draws: Sequence[int],
    done: Done,
    watched: Callable[[Iterator[int]], Iterable[int]] = iter,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The answers and the leaks among them, by question, in rounds of `BATCH`; each ends at its draws, or where ``done`` at
    its place, leaks and answers.

    ``leaks_in`` counts the leaks of the questions at some places, in so many answers from a first one; ``watched`` shows the
    rounds.
    """
    counts = [0] * len(draws)
    leaks = [0] * len(draws)
    open_places = [place for place, most in enumerate(draws) if most]

    def rounds() -> Iterator[int]:
        while open_places:
            yield counts[open_places[0]]  # all that are open have equally many answers

    for start in watched(rounds()):
        places_of_size: dict[int, list[int]] = {}
        for place in open_places:
            size = min(BATCH, draws[place] - start)
            places_of_size.setdefault(size, []).append(place)
        for size, places in sorted(places_of_size.items()):
            for place, more in zip(places, leaks_in(places, start, size), strict=True):
                counts[place] = start + size
                leaks[place] += more
        still_open = []
        for place in open_places:
            is_done = done(place, leaks[place], counts[place])
            if counts[place] < draws[place] and not is_done:
                still_open.append(place)
        open_places[:] = still_open
    return tuple(counts), tuple(leaks)
