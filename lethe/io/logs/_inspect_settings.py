"""The header of an Inspect log: task, model, sampling settings, epochs, early stopping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lethe.errors import BadFile, shortened
from lethe.io.logs import _sampling

SETTINGS = (
    *("temperature", "top_p", "top_k", "max_tokens", "seed", "stop_seqs", "frequency_penalty", "presence_penalty"),
    *(
        "repetition_penalty",
        "logit_bias",
        "num_choices",
        "best_of",
        "reasoning_effort",
        "reasoning_tokens",
        "cache",
    ),
)
SEEDED_ONCE = ("hf", "transformer_lens", "nnterp")  # providers that set the seed when they load the model


class Run:
    """The header of a log; each part may be missing or have a wrong type."""

    def __init__(self, path: Path, header: Mapping[str, Any]):
        self.path = path
        spec = header.get("eval")
        if not isinstance(spec, dict):
            raise BadFile(path, "has no object `eval`, so the file is not a log of Inspect")
        self.spec = spec
        self.plan = _object(header.get("plan"))
        self.results = _object(header.get("results"))
        self.task, self.model = _text(spec.get("task")), _text(spec.get("model"))
        version = _object(spec.get("packages")).get("inspect_ai")
        self.tool = f"inspect_ai {version}" if isinstance(version, str) else "inspect_ai"
        self.epochs = self._epochs()
        ids = _object(spec.get("dataset")).get("sample_ids")
        self.sample_ids = [one for one in ids if _is_id(one)] if isinstance(ids, list) else []
        scorers = spec.get("scorers")
        named = [_object(one).get("name") for one in scorers] if isinstance(scorers, list) else []
        self.scorers = [name for name in named if isinstance(name, str)]
        self.sampling = self._sampling()
        stopping = self.results.get("early_stopping")
        self.early_manager = str(_object(stopping).get("manager"))[:80] if stopping else None

    def _epochs(self) -> int:
        epochs = _object(self.spec.get("config")).get("epochs", 1)
        if epochs is None:
            return 1
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
            raise BadFile(
                self.path, f"`eval.config.epochs` must be an integer of at least 1, got {shortened(epochs, 40)}"
            )
        return epochs

    def _sampling(self) -> dict[str, Any]:
        """Merge the settings of the model, the plan and the generating step; later settings win."""
        found: dict[str, Any] = {}
        for source in (self.spec.get("model_generate_config"), self.plan.get("config"), *self._steps()):
            for name in SETTINGS:
                if _object(source).get(name) is not None:
                    found[name] = _object(source)[name]
        return found

    def _steps(self) -> Iterator[Any]:
        steps = self.plan.get("steps")
        for step in steps if isinstance(steps, list) else []:
            if _object(step).get("solver") == "generate":
                yield step.get("params")

    @property
    def stated(self) -> dict[str, object]:
        """Return the totals of the run and the metrics of each scorer and reducer, over questions, not epochs."""
        found: dict[str, Any] = {
            name: self.results[name] for name in ("total_samples", "completed_samples") if name in self.results
        }
        scores = self.results.get("scores")
        for score in scores if isinstance(scores, list) else []:
            metrics = _object(_object(score).get("metrics"))
            name = f"{_object(score).get('name')}/{_object(score).get('reducer')}"
            found[name] = {key: _object(metric).get("value") for key, metric in metrics.items()}
        return found

    def greedy(self) -> str | None:
        """Return the setting that makes the decoding greedy, or None."""
        return _sampling.greedy(self.sampling)

    def early_stops(self) -> list[tuple[str | int, int]]:
        """Return (id, epoch) of every answer that the early-stopping manager skipped."""
        stopping = _object(self.results.get("early_stopping"))
        stops = stopping.get("early_stops") or stopping.get("stopped_samples")
        found: list[tuple[str | int, int]] = []
        for stop in stops if isinstance(stops, list) else []:
            identity, epoch = _object(stop).get("id"), _object(stop).get("epoch")
            if isinstance(identity, (int, str)) and isinstance(epoch, int):
                found.append((identity, epoch))
        return found

    def warnings(self) -> list[str]:
        """Return the settings, by name, under which epochs may be dependent draws."""
        found = _sampling.chosen(self.sampling)
        provider = (self.model or "").split("/")[0]
        if "seed" in self.sampling and self.epochs > 1 and provider not in SEEDED_ONCE:
            found.append(
                f"seed {self.sampling['seed']}: each request carries the seed, so a server that obeys the seed gives "
                "every epoch the same answer"
            )
        cache = self.sampling.get("cache")
        if isinstance(cache, dict) and cache.get("per_epoch") is False:
            found.append("cache per_epoch false: later epochs may be copies from the cache")
        if provider == "mockllm":
            found.append("model mockllm: its answers come from a script, not from a model")
        return found

    def notes(self) -> list[str]:
        """Return other useful facts about the run."""
        found = []
        if "temperature" not in self.sampling:
            found.append("temperature is not stated: the provider's default applied")
        if self.early_manager is not None:
            left = len(self.early_stops())
            found.append(
                f"early stopping by {self.early_manager}, which left out {left} epochs: only values that hold at any "
                "time are valid"
            )
        return found


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _is_id(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool)
