"""Stage `utility@MODEL`: tasks of lm-evaluation-harness, by that package (the extra lm-eval)."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from lethe.config.measuring import Utility
from lethe.errors import BadInput, of_the_machine, reason_of
from lethe.io.files import Json
from lethe.models import checkpoints
from lethe.results import table
from lethe.text import number

TASKS = "tasks"  # the folder of the user's own tasks, in that of the dataset


def run(name: str, settings: Utility, model: Path, source: Path, root: Path) -> None:
    """Write ``root/results/utility/name.parquet``: a row for each metric of a task of which a larger value is better.

    Tasks of one's own lie in the folder tasks of ``source``. Raises `BadInput` without lm-eval, and for a task that is
    unknown, has no such metric, or has its data out of reach.
    """
    asked, found = evaluated(settings, model, source / TASKS)
    rows = table.Rows(name)
    for task in measured_tasks(asked, found):
        for metric, value in metrics_of(found, task):
            evidence = evidence_of(found, task, metric)
            rows.add(
                "model",
                "general_utility",
                "given answers",
                value,
                item=item_of(task, metric),
                n=evidence["n"],
                evidence=evidence,
            )
            print(f"{name}: {task}, {metric} {number(value)}")
    table.write(table.place(root, "utility", name), rows.rows)


def evaluated(
    settings: Utility, model: Path, own_tasks: Path
) -> tuple[dict[str, list[str]], Mapping[str, Json]]:
    """The asked names, of a tag with its tasks, and what lm-eval returns for a model folder.

    Adapters are merged, and no code of a checkpoint runs.
    """
    check_installed()
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(own_tasks) if own_tasks.is_dir() else None)
    known = set(manager.all_tasks)
    for task in settings.tasks:
        if task not in known:
            raise BadInput(
                f"utility.tasks: lm-eval knows no task {task!r}. `lm-eval ls tasks` lists all; one's own lie in {own_tasks}."
            )
    asked = {task: [task] for task in settings.tasks}
    for tag in asked.keys() & set(manager.all_tags):
        asked[tag] = sorted(manager.task_index[tag].tags)
    checkpoints.prepare_torch()
    weights, tokenizer = checkpoints.load(model)
    try:
        found: Mapping[str, Json] = simple_evaluate(
            model=HFLM(pretrained=weights, tokenizer=tokenizer, batch_size=settings.batch),
            tasks=list(settings.tasks),
            num_fewshot=settings.fewshot,
            limit=settings.limit,
            task_manager=manager,
            log_samples=False,
        )
    except OSError as error:  # as the hub's client and a missing file have it
        if of_the_machine(error):
            raise
        raise BadInput(
            f"utility.tasks: the data of {', '.join(settings.tasks)} cannot be read ({reason_of(error)}). Let this machine "
            "reach the hub once, which fills its cache, or name tasks whose data are here."
        ) from error
    return asked, found


def check_installed() -> None:
    """Raise `BadInput` where lm-eval is missing."""
    if find_spec("lm_eval") is None:
        raise BadInput(
            "utility.tasks: the package lm-eval is not installed. Install the extra lm-eval (pip install 'lethe[lm-eval]'), "
            "or set utility.tasks to []."
        )


def measured_tasks(asked: Mapping[str, Sequence[str]], found: Mapping[str, Json]) -> list[str]:
    """The tasks that have a metric, of a group without one those below it; a name without any raises `LetheError`."""
    tasks: dict[str, None] = {}
    for name, meant in asked.items():
        measured: list[str] = []
        for task in meant:
            measured += _with_metrics(found, task)
        if not measured:
            raise BadInput(
                f"utility.tasks: {name!r} has no metric of which a larger value is better. Remove it."
            )
        tasks |= dict.fromkeys(measured)
    return list(tasks)


def _with_metrics(found: Mapping[str, Json], task: str) -> list[str]:
    """The task itself where it has a metric, else the nearest below it that have one."""
    if any(metrics_of(found, task)):
        return [task]
    tasks = []
    for below in found.get("group_subtasks", {}).get(task, []):
        tasks += _with_metrics(found, below)
    return tasks


def leaves(found: Mapping[str, Json], task: str) -> dict[str, None]:
    """The tasks below a group, through groups in it, each once; of a task itself."""
    subtasks = found.get("group_subtasks", {}).get(task)
    if not subtasks:
        return {task: None}
    tasks: dict[str, None] = {}
    for below in subtasks:
        tasks |= leaves(found, below)
    return tasks


def larger_is_better(found: Mapping[str, Json], task: str, metric: str) -> bool:
    """Whether all tasks below that state a direction say so; lm-eval states none for a group of groups."""
    directions = []
    for leaf in leaves(found, task):
        of_leaf = found["higher_is_better"].get(leaf, {})
        if metric in of_leaf:
            directions.append(bool(of_leaf[metric]))
    return bool(directions) and all(directions)


def metrics_of(found: Mapping[str, Json], task: str) -> Iterator[tuple[str, float]]:
    """Each metric of a task with its value, such as "acc" or, of another filter than none, "exact_match,strict"."""
    for key, value in found["results"].get(task, {}).items():
        metric, comma, chosen = key.partition(",")
        if not comma or metric.endswith("_stderr") or not isinstance(value, (int, float)):
            continue
        if larger_is_better(found, task, metric):
            yield metric if chosen == "none" else key, float(value)


def evidence_of(found: Mapping[str, Json], task: str, metric: str) -> dict[str, Json]:
    """The standard error by lm-eval, the number of examples, the shots and the version of the task."""
    name, _, chosen = metric.partition(",")
    error = found["results"][task].get(f"{name}_stderr,{chosen or 'none'}")
    counts = []
    for measured in leaves(found, task):
        if measured in found["n-samples"]:
            counts.append(found["n-samples"][measured]["effective"])
    return {
        "task": task,
        "metric": metric,
        "standard_error": error if isinstance(error, float) else None,
        "n": sum(counts) or None,
        "shots": found.get("n-shot", {}).get(task),
        "version": found.get("versions", {}).get(task),
    }


def item_of(task: str, metric: str) -> str:
    """The name of a metric in exports, without characters that a store refuses."""
    return f"{task}_{metric}".replace(",", "_").replace("|", "_")
