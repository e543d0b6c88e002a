"""The results file of an lm-eval run: its task, model, filters and sampling settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lethe.errors import BadFile
from lethe.io.logs import _sampling
from lethe.io.logs._json import document
from lethe.io.logs._lm_eval_line import DEFAULT_FILTER

# Filters that treat each answer separately and keep the order. A vote or an unknown filter creates a new answer.
AN_ANSWER_EACH = frozenset(
    "take_first take_first_k regex regex_pos multi_choice_regex remove_whitespace lowercase uppercase map format_span".split()
)
# Backends that send one seed with every request, so that the repeats of a prompt are identical requests.
SEND_A_SEED = ("local-completions", "local-chat-completions", "openai-completions", "openai-chat-completions")
DEFAULT_SEED = 1234


@dataclass(frozen=True)
class Run:
    """The content of the results file of a run; without such a file only the lines are known."""

    tool: str = "lm_eval"
    task: str | None = None
    model: str | None = None
    repeats: int | None = None
    documents: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    stated: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def takes_first(self, name: str) -> bool:
        """Whether the score of this filter belongs to answer 1; the default filter takes the first answer."""
        steps = self.filters.get(name, ("take_first",) if name == DEFAULT_FILTER else ())
        return "take_first" in steps and set(steps) <= AN_ANSWER_EACH

    def greedy(self, sampling: Mapping[str, object]) -> str | None:
        """Return why decoding was greedy, or None: lm-eval is greedy unless the settings name a temperature or sampling."""
        if "temperature" not in sampling and sampling.get("do_sample") is not True:
            return "temperature not set, so 0"
        return _sampling.greedy(sampling)

    def warnings(self, sampling: Mapping[str, object]) -> list[str]:
        """Return the settings under which repeats may be dependent draws."""
        backend, found = self.config.get("model"), []
        seed = sampling.get("seed")
        if seed is None and backend in SEND_A_SEED:
            arguments = self.config.get("model_args")
            seed = arguments.get("seed", DEFAULT_SEED) if isinstance(arguments, dict) else DEFAULT_SEED
        if seed is not None:
            found.append(
                f"seed {str(seed)[:20]}: each request has the seed, so a server that obeys the seed gives every repeat the "
                "same answer"
            )
        if self.config.get("use_cache") and sampling.get("do_sample") is not True:
            found.append("use_cache: a rerun gives every repeat the one cached answer unless do_sample is true")
        return found


def find(samples: Path) -> Run:
    """Find the run that wrote ``samples``: the results file in its folder with the same time, or the only results file.

    The name of the task may contain underscores, so the search uses the file's name without the time.
    """
    try:
        beside = sorted(samples.absolute().parent.glob("results_*.json"))
    except OSError:
        beside = []
    for path in beside:
        time = path.stem.removeprefix("results_")
        if samples.stem.endswith(f"_{time}"):
            return _run(path, samples.stem.removeprefix("samples_").removesuffix(f"_{time}"))
    if len(beside) == 1:
        return _run(beside[0], None)
    reason = "no results_*.json" if not beside else "several results_*.json, none with the same time,"
    return Run(notes=(f"{reason} beside it: task, model and filters are not known",))


def _run(path: Path, task: str | None) -> Run:
    if not path.is_file():
        return Run(notes=(f"{path.name} is not a file: task, model and filters are not known",))
    content = document(path).value()
    configs = content.get("configs") if isinstance(content, dict) else None
    if not isinstance(configs, dict):
        raise BadFile(
            path, "is not a results file of lm-eval (no object `configs`)", "Move the file away from the samples."
        )
    if task is None and len(configs) == 1:
        task = next(iter(configs))
    if task is None or task not in configs:
        return Run(notes=(f"{path.name} has no task of that name: task, model and filters are not known",))
    config = _object(configs[task])
    run = _object(content.get("config"))
    arguments = _object(run.get("model_args"))
    model = content.get("model_name") or arguments.get("pretrained") or arguments.get("model")
    version = content.get("lm_eval_version")
    return Run(
        tool=f"lm_eval {version}" if isinstance(version, str) else "lm_eval",
        task=task,
        model=model if isinstance(model, str) else None,
        repeats=_count(config.get("repeats")),
        documents=_count(_object(_object(content.get("n-samples")).get(task)).get("effective")),
        sampling=_object(config.get("generation_kwargs")),
        filters=_filters(config.get("filter_list")),
        config=run,
        stated={
            name: value
            for name, value in _object(_object(content.get("results")).get(task)).items()
            if name not in ("name", "alias")
        },
    )


def _filters(given: Any) -> dict[str, tuple[str, ...]]:
    """Return the functions of each named filter, in order."""
    found = {}
    for one in given if isinstance(given, list) else []:
        steps = _object(one).get("filter")
        name = _object(one).get("name")
        if isinstance(name, str) and isinstance(steps, list):
            found[name] = tuple(str(_object(step).get("function")) for step in steps)
    return found


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
