"""The commands of this pipeline folder, which the `lethe` command adds when it runs here: run, serve, sweep, study."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lethe.cli.generate import JsonFlag, print_json, print_table
from lethe.errors import BadArguments, BadInput, BadValue, LetheError, check, plural, visible

if TYPE_CHECKING:
    from flows.record import RunRecord
    from flows.workspace import Graph, Order
    from lethe.io.files import Json

STUDIES = {  # `lethe study NAME` and its function in `studies.commands`
    "game": "game",
    "landscape": "landscape",
    "epsilon-star-simulation": "simulation",
    "epsilon-star-text": "text_epsilon_star",
    "one-run-figures": "one_run_figures",
    "tofu-table-1": "tofu_table",
    "harry-potter-55": "harry_potter",
    "behaviours-50": "behaviours",
    "twins-canaries": "canaries",
    "theorems": "theorems",
    "demonstration": "demonstration",
    "sweep": "sweep",
    "papers": "papers",
    "numbers": "numbers",
}
# An experiment becomes a git reference, a sweep a folder.
EXPERIMENT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
SWEEP = re.compile(r"[A-Za-z0-9_-]+")
PullFlag = Annotated[
    bool,
    typer.Option(
        "--pull", help="Fetch from the DVC remote what other machines made, and run only the rest."
    ),
]
PushFlag = Annotated[bool, typer.Option("--push", help="Send the results to the DVC remote.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run the stages on the workers of this Dask scheduler. Each must see this folder under this path.",
    ),
]
SharingScheduler = Annotated[
    str | None,
    typer.Option(
        help="Address of a Dask scheduler whose workers see this folder and PREFECT_API_URL's server."
    ),
]


def commands() -> dict[str, Callable[..., None] | dict[str, str]]:
    """The function of each command by its name; of a group, the names of its functions in `studies.commands`."""
    return {"run": run, "serve": serve, "sweep": sweep, "study": STUDIES}


def run(
    stages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STAGE]...",
            help="Only these stages and what they need, such as `metrics@npo` or `metrics`. [default: all]",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "-S",
            "--set",
            metavar="KEY=VALUE",
            help="Change a value of params.yaml first; repeatable.",
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Change params.yaml by this preset first, by its name.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Stages run at once. Default: as many as cores; 1 where they share a GPU."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the DVC experiment that -S and --preset make.")
    ] = None,
    fail_on: Annotated[
        Literal["worse", "trace", "attack"] | None,
        typer.Option(
            help="Exit status 1 where a model is proved to leak more than in the run before (worse), or has a trace of drawn "
            "secrets or no word on one (trace), or where it is not proved that at most the goal of the attacks drawn from a "
            "recipe succeed (attack)."
        ),
    ] = None,
    require: Annotated[
        Literal["forgot"] | None,
        typer.Option(
            help="forgot: exit status 1 unless every model under test has the word forgot."
        ),
    ] = None,
    pull: PullFlag = False,
    push: PushFlag = False,
    scheduler: Scheduler = None,
    as_json: JsonFlag = False,
) -> None:
    """Run every stale stage and the stages that depend on it, several at once; the other stages do not run.

    With `-S` or `--preset`, params.yaml in this folder changes first, as with `dvc exp run -S`; in a git
    repository the result is then saved as a DVC experiment (`dvc exp show`). To go back: `git checkout params.yaml`,
    then `lethe run`, which restores the results from DVC's cache. Without git the first change leaves the
    original in .lethe/params.original.yaml: copy it back, then `lethe run`.

    A change of one key can make many stages stale: the first line says how many. With names of stages only these and what
    they need run, nothing is compared with the run before, and no experiment is kept.

    Example: `lethe run -S unlearn.methods.npo.beta=0.2`

    Example: `lethe run metrics@npo -S sample.n=128`
    """
    from flows import workspace
    from lethe.process import no_telemetry, watch

    root = Path.cwd()
    if name is not None and not (set_ or preset):
        raise BadInput(
            "--name: names the DVC experiment that -S and --preset make, and none is given."
        )
    if name is not None and not EXPERIMENT.fullmatch(name):
        raise BadValue(
            "--name", name, "letters, digits, '-', '_' and '.', the first a letter or digit"
        )
    parent = os.environ.get("LETHE_PARENT")
    if parent:  # the points of a sweep end with the sweep
        watch(int(parent))
    no_telemetry()
    workspace.prepare(root)
    order = workspace.Order(stages or (), pull, push, jobs, scheduler)
    news, experiment, error = _run_changed(root, set_ or [], preset, name, order)
    _conclude(news, experiment, error, as_json)
    if news:
        _gates(news, fail_on, require)


def _gates(news: RunRecord, fail_on: str | None, require: str | None) -> None:
    """Say of each gate that was asked for whether it is open; end with status 1 where one is closed."""
    from flows.overview import standard

    said = []
    if fail_on == "worse":
        said.append(_whether_worse(news))
    if fail_on == "trace":
        said.append(_whether_untraced(news))
    if fail_on == "attack":
        said.append(_whether_attacks_fail(news))
    if require == "forgot":
        said.append(_whether_forgot(news))
    for is_open, sentence in said:
        state = "open" if is_open else "closed"
        standard().print(f"Gate {state}: {sentence}")
    if not all(is_open for is_open, _ in said):
        raise typer.Exit(1)


def _whether_worse(news: RunRecord) -> tuple[bool, str]:
    """Whether no model is proved to leak more than in the run before, and the sentence that says so."""

    if not news.complete:
        return False, (
            "this run was not complete, so it was compared with none. "
            "Run all stages: lethe run --fail-on worse."
        )
    level = f" {news.tries['sentence']}" if news.tries else ""
    for alarm in news.alarms:
        if alarm.worse:
            return False, f"{visible(alarm.sentence())}.{level}"
    for model, reasons in news.refused.items():
        because = visible(" ".join(reasons))
        return False, f"nothing is claimed of {visible(model)}. {because}"
    if news.compared_with is None:
        return True, "no run came before this one, so nothing was compared."
    return True, f"no model is proved to leak more than before.{level}"


def _whether_forgot(news: RunRecord) -> tuple[bool, str]:
    """Whether every model under test has the word *forgot*, and the sentence that says so."""

    if not news.complete:
        return False, (
            "this run was not complete, so it says no word. "
            "Run all stages: lethe run --require forgot."
        )
    for model, words in news.verdicts.items():
        word = words.forgetting
        if word == "none":
            word = "no word"
        if word != "forgot":
            return False, f"{visible(model)} has not the word forgot but: {word}."
    if not news.verdicts:
        return False, "no model under test has a word."
    most = ""
    for model, attempt in news.tries_of_words.items():
        if not attempt.is_allowed:
            about = f"this gate on {visible(model)}"
            return False, attempt.sentence(about, "metrics.alpha")
        if not most or attempt.number > news.tries_of_words[most].number:
            most = model
    if not news.verdicts.keys() <= news.tries_of_words.keys():
        return False, "it is not known how often these words were tried: run the stage compare."
    said = news.tries_of_words[most].sentence(f"this gate on {visible(most)}", "metrics.alpha")
    return True, f"every model under test has the word forgot. {said}"


def _whether_untraced(news: RunRecord) -> tuple[bool, str]:
    """Whether no model under test has a trace of drawn secrets, each being tested, and the sentence that says so."""

    if not news.complete:
        return False, (
            "this run was not complete, so it says no word on a trace. "
            "Run all stages: lethe run --fail-on trace."
        )
    traces = {name: words.trace for name, words in news.verdicts.items()}
    untested = [name for name, trace in traces.items() if not trace]
    if untested or not traces:
        of = visible(", ".join(untested)) or "this run"
        return False, f"no secret of {of} was drawn among twins (docs/twins.md)."
    for trace in traces.values():
        if trace["word"] in ("trace", "none"):
            return False, visible(trace["sentence"])
    sentence = "no trace of drawn secrets is proved."
    weak = [name for name, trace in traces.items() if trace["word"] == "open"]
    if weak:
        sentence += f" The test is too weak to exclude one: {visible(', '.join(weak))}."
    return True, sentence


def _whether_attacks_fail(news: RunRecord) -> tuple[bool, str]:
    """Whether each population of attacks is proved to succeed in at most its goal, and the sentence that says so."""
    from flows.tries import read_populations, try_of

    populations = read_populations(Path.cwd(), news.stages)
    if not populations:
        return False, "this run tried no population of attacks (docs/attacks.md)."
    for name, result in populations.items():
        if result is None:
            return (
                False,
                f"the attacks of {visible(name)} did not end in this run. "
                f"Run them: lethe run attack@{name}, or all: lethe run attack.",
            )
        if result.ended != "below":
            return False, visible(result.sentence(name))
    sentences = []
    is_open = True
    for name, result in populations.items():
        if result is None:
            continue
        attempt = try_of(Path.cwd(), name, result)
        is_open = is_open and attempt.is_allowed
        about = f"this gate on {name}"
        said = attempt.sentence(about, f"attacks.{name}.alpha")
        sentences.append(f"{result.sentence(name)} {said}")
    return is_open, visible(" ".join(sentences))


def _run_changed(
    root: Path,
    set_: list[str],
    preset: str | None,
    name: str | None,
    order: Order,
) -> tuple[RunRecord | None, dict[str, str | None], LetheError | None]:
    """Change params.yaml and run the pipeline by ``order``; return the record, experiment and error."""
    from flows import record, remote, settings, workspace
    from flows.beginning import current_graph
    from flows.overview import standard
    from lethe import config
    from lethe.config.load import parse

    if order.pull or order.push:
        remote.require(root)
    changes: list[tuple[str, Json]] = []
    if preset:
        changes += settings.read_preset(preset).items()
    changes += map(parse, set_)
    # The lock comes before the change of params.yaml: otherwise another run could copy the file in between.
    with workspace.only_run(root):
        if order.wanted:
            workspace.check_stages(
                root, order.wanted, settings.changed(root / config.FILE, changes)[1]
            )
        for line in settings.change_here(root, changes):
            standard().print(line)
        graph = current_graph(root, order.pull)
        if order.wanted:
            graph = graph.towards(order.wanted)
        error = _bring_up_to_date(root, graph, order)
        experiment: dict[str, str | None] = {}
        params = root / config.FILE
        edited = (
            not params.is_file()
            or params.read_bytes() != (root / workspace.PARAMS_COPY).read_bytes()
        )
        if edited:
            told = (
                "params.yaml changed during the run. The run used the values with which it began; run `lethe run` again "
                "for the new ones."
            )
            if changes:
                told += " Not kept as a DVC experiment."
            standard().print(told)
        if changes and error is None and not edited and not order.wanted:
            experiment["experiment"], sentence = workspace.save_experiment(name)
            standard().print(sentence)
        return record.read(root), experiment, error


def _bring_up_to_date(root: Path, graph: Graph, order: Order) -> LetheError | None:
    """Run the flow, unless nothing is stale and only a server of Lethe's own would hear of it."""
    from flows import ending, server
    from lethe import config

    if not graph.behind() and not server.is_a_users():
        ending.nothing_to_do(root, graph, config.load(), order.push)
        return None
    with server.temporary_server(root):  # it starts while this process imports Prefect
        from flows import pipeline

        return pipeline.run(order, graph)


def _conclude(
    news: RunRecord | None,
    experiment: dict[str, str | None],
    error: LetheError | None,
    as_json: bool,
) -> None:
    from flows.record import summary

    if news and error:  # the record may be an earlier run's
        news = replace(news, alarms=[])
    if as_json:
        values: dict[str, object] = {"alarms": []}
        if news:
            values = news.as_json()
        problem = str(error) if error else None
        print_json({**values, **experiment, "error": problem})
    elif news:
        typer.echo(summary(news))
    if error:
        raise error


def serve(
    cron: Annotated[
        str, typer.Option(help="The times in cron's form: minute hour day month weekday.")
    ],
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Stages run at once, as for `lethe run`.")
    ] = None,
    pull: PullFlag = False,
    push: PushFlag = False,
    scheduler: Scheduler = None,
) -> None:
    """Run the pipeline on a schedule until Ctrl-C, one run at a time, and print after each run what changed.

    Times are local. A run without changes takes seconds.

    Example: `lethe serve --cron "0 3 * * *"`
    """
    from flows import remote, settings, workspace
    from flows.server import temporary_server
    from lethe import config

    root = Path.cwd()
    workspace.prepare(root)
    settings.check(config.load(), root)
    if pull or push:
        remote.require(root)
    with workspace.only_schedule(root), temporary_server(root, schedules=True):
        from flows import schedule
        from flows.pipeline import Schedule

        schedule.serve(schedule.parse_cron(cron), Schedule(jobs, pull, push, scheduler))


def sweep(
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "-S",
            "--set",
            metavar="KEY=V1,V2,...",
            help="An axis; repeatable. With --random also KEY=uniform(0,1), log(1e-5,1e-3) or whole(1,20).",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="A sweep of flows/sweeps with a figure and the claims that it tests."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="PRESET", help="Preset of `lethe run` that every point starts from."),
    ] = None,
    random: Annotated[
        int | None,
        typer.Option(
            min=1, help="Run this many random points instead of the full grid; duplicates run once."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of --random. [default: 0]")] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name: data/sweeps/NAME.json. [default: sweep, or the preset]"),
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Points at once. Default: as many as cores.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Stages at once in a point.")] = 1,
    scheduler: SharingScheduler = None,
    as_json: JsonFlag = False,
) -> None:
    """Run the pipeline for every combination of values, or at random, several points at once; params.yaml stays as it is.

    A stage that points share runs once. A finished point takes seconds when the sweep runs again, and more points at
    random begin with those there are. Each model becomes a run in MLflow. If a point fails, the others finish, the file
    records the error, and the exit status is 1. data/sweeps/NAME.png draws the headline numbers against each axis of
    numbers; a preset draws its own figure and says what held.

    Example: `lethe sweep -S unlearn.methods.npo.beta=0.1,0.4 -S unlearn.methods.npo.epochs=10,20`

    Example: `lethe sweep --random 20 -S "unlearn.methods.npo.lr=log(1e-4,1e-3)"`

    Example: `lethe sweep --preset fig-4a`
    """
    from flows import grid, settings, workspace
    from flows.server import require, temporary_server
    from lethe import config
    from lethe.process import cores

    root = Path.cwd()
    chosen = None
    if preset is not None:
        if set_ or random is not None or seed is not None:
            raise BadValue(
                "--preset", preset, "given without -S, --random and --seed, which the preset fixes"
            )
        chosen = grid.read_sweep_preset(preset)
    elif not set_:
        raise BadArguments(("-S", "--preset"), "give one axis at least, or a preset.")
    elif seed is not None and random is None:
        raise BadValue("--seed", seed, "left out without --random")
    if name is None:
        name = preset or "sweep"
    check(SWEEP.fullmatch(name), "--name", name, "letters, digits, - and _")
    workspace.prepare(root)
    common: list[tuple[str, Json]] = []
    if base:
        common += settings.read_preset(base, "--base").items()
    if chosen:
        points = chosen.points
        common += chosen.params.items()
    elif random:
        points = grid.random_points(grid.axes_of(set_ or []), random, seed or 0)
    else:
        points = grid.grid_of(grid.axes_of(set_ or []))
    for point in points:  # no point runs unless all are valid
        settings.changed(root / config.FILE, [*common, *point.settings])
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "error")  # Dask logs every step
    with temporary_server(root):
        require()
        from flows import sweep as work

        # Another sweep of this name would change points not yet run.
        with workspace.only_run(root / work.SWEEPS / name):
            result = work.sweep(
                root,
                points,
                name,
                at_once or cores(),
                jobs,
                scheduler,
                common,
            )
    place = workspace.RESULTS / f"{name}.json"
    notes = work.concluded(chosen, result, place)
    if as_json:
        print_json(result)
    else:
        notes += [
            *work.matched_sentences(result),
            *work.guarantee_notes(result),
            f"Every metric of every model: {place}",
        ]
        print_table(f"Sweep {name}", *work.shown(result), notes=notes)
    if result["failed"]:
        errors = "; ".join(f"{point}: {error}" for point, error in result["failed"].items())
        raise LetheError(
            f"{len(result['failed'])} of {plural(len(points), 'point')} failed. {errors}"
        )
