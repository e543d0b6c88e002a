"""`lethe run`: bring every stage up to date."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.options import PullFlag, PushFlag, Scheduler
from lethe.cli.console import JsonFlag, print_json

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9_-])?")


def command(
    stages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STAGE]...",
            help="Only these stages and what they need, such as `metrics@npo` or `metrics`. [default: all]",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("-S", "--set", metavar="KEY=VALUE", help="Change a value of params.yaml first; repeatable."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Change params.yaml by this preset first, by its name."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Stages run at once. Default: as many as cores; 1 where they share a GPU."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the DVC experiment that -S and --preset make.")] = None,
    fail_on: Annotated[
        Literal["worse"] | None,
        typer.Option(
            help="worse: exit status 1 where a model is proved to leak more than before, or newly leaks."
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

    Examples: `lethe run -S unlearn.methods.npo.beta=0.2`, `lethe run metrics@npo -S sample.n=128`
    """
    from flows import inputs, record, remote, settings, workspace
    from flows.overview import standard
    from flows.server import require, temporary_server
    from lethe import config
    from lethe.config.yaml import parse
    from lethe.errors import BadInput, BadValue, visible
    from lethe.process import watch

    root = Path.cwd()
    if name is not None and not (set_ or preset):
        raise BadInput("--name: names the DVC experiment that -S and --preset make, and none is given.")
    if name is not None and not NAME.fullmatch(name):
        raise BadValue("--name", name, "letters, digits, '-', '_' and '.', the first a letter or digit")
    if parent := os.environ.get("LETHE_PARENT"):  # the points of a sweep end with the sweep
        watch(int(parent))
    screen = standard()
    workspace.prepare(root)
    if pull or push:
        remote.require(root)
    changes = list(settings.read_preset(preset).items()) if preset else []
    changes += map(parse, set_ or [])
    moved = settings.holds_attacks_among_models(root / config.FILE)
    # The lock comes before the change of params.yaml: otherwise another run could copy the file in between.
    with workspace.only_run(root):
        if stages:
            workspace.check_stages(root, stages, settings.changed(root / config.FILE, changes)[1])
        if changes or moved:
            if not workspace.in_git(root):
                workspace.keep_original(root)
            changed = settings.change(root / config.FILE, changes)
            if not changed:
                screen.print("params.yaml unchanged")
            for line in changed:
                screen.print(f"params.yaml changes: {line}")
        inputs.check(config.load(), root)
        workspace.keep_params(root)
        with temporary_server(root):
            require()
            from flows.pipeline import run

            error = run(jobs, stages or (), pull, push, scheduler)
        screen.print(record.damaged_store(root), end="")
        news, experiment = record.read(root), {}
        edited = workspace.params_changed(root)
        if edited:
            screen.print(
                "params.yaml changed during the run. The run used the values with which it began; run `lethe run` again "
                "for the new ones." + (" Not kept as a DVC experiment." if changes else "")
            )
        if changes and error is None and not edited and not stages:
            experiment["experiment"], sentence = workspace.save_experiment(name)
            screen.print(sentence)
    if news and error:  # the record may be an earlier run's
        news = replace(news, alarms=[])
    if as_json:
        values = news.as_json() if news else {"alarms": []}
        print_json({**values, **experiment, "error": str(error) if error else None})
    elif news:
        typer.echo(record.summary(news))
    if error:
        raise error
    if fail_on == "worse" and news and (worse := [one for one in news.alarms if one.worse]):
        screen.print(f"Gate closed: {visible(worse[0].sentence())}.")
        raise typer.Exit(1)
