"""The `lethe` command: a module of `lethe.cli` per command.

Exit status: 0 done, 1 the work failed, 2 wrong use or bad input. A command imports what it needs inside its
function, so that `lethe --help` pays for none of it.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from lethe.errors import BadInput, BadValue, LetheError, of_the_machine, visible
from lethe.process import same_numbers

# name on the command line -> module of lethe.cli whose function `command` it is
COMMANDS: dict[str, str] = {
    "eval": "eval",
    "exact": "exact",
    "bounds": "bounds",
    "compare": "compare",
    "certify": "certify",
    "verify": "verify",
    "label": "label",
    "log": "log",
    "plan": "plan",
    "ui": "ui",
}
# Commands of a pipeline folder: its own flows/cli.py brings them.
PIPELINE = ("run", "serve", "sweep", "study")
AUDITS: dict[str, str] = {
    "one-run": "lethe.cli.audit_one_run",
    "epsilon-star": "lethe.cli.audit_epsilon_star",
    "swap": "lethe.cli.audit_swap",
}
SCORES: dict[str, str] = {
    "log": "lethe.cli.score_log",
    "tofu-log": "lethe.cli.score_tofu_log",
}


class LetheGroup(TyperGroup):
    """Turns a `LetheError` into its one sentence on standard error and its exit status."""

    def invoke(self, ctx: Any) -> Any:  # typer keeps the context's class to itself
        try:
            return super().invoke(ctx)
        except LetheError as error:
            typer.echo(visible(f"lethe: {error}"), err=True)
            raise typer.Exit(error.exit_status) from None
        except BrokenPipeError:
            # The reader of the output closed the pipe (`lethe ... | head`).
            _drop_output()
            raise typer.Exit(0) from None
        except Exception as error:
            if (sentence := of_the_machine(error)) is None:
                raise
            _drop_output()
            typer.echo(visible(f"lethe: {sentence}"), err=True)
            raise typer.Exit(sentence.exit_status) from None


class LetheCommand(TyperCommand):
    """Names an option as it is typed where the library refuses the value: the library knows it as an argument."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BadValue as error:
            name = error.name.replace(" ", "_")
            given = [one for one in self.params if one.name == name and one.param_type_name == "option"]
            if not given or ctx.params.get(name) is None:
                raise
            raise BadValue(given[0].opts[0], error.got, error.legal, error.remedy) from None


class ScoreGroup(LetheGroup):
    """Reads `lethe score LOG` as `lethe score log LOG`: a first argument that is no command belongs to `log`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["log", *args]
        return super().parse_args(ctx, args)


def _drop_output() -> None:
    """Send what standard output still holds to nowhere, so that Python's last flush at exit raises no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _group(help: str, commands: dict[str, str], cls: type[LetheGroup] = LetheGroup) -> typer.Typer:
    group = typer.Typer(cls=cls, help=help, no_args_is_help=True, rich_markup_mode="markdown")
    for name, module in commands.items():
        function = importlib.import_module(module).command
        group.command(name, cls=LetheCommand)(function)
    return group


app = typer.Typer(
    cls=LetheGroup,
    help="Lethe: what a language model still knows of what it should have forgotten, with guarantees.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _pipeline_commands() -> dict[str, Callable[..., None] | dict[str, str]]:
    """Return the commands of the current folder if it is a pipeline folder, else commands that say where they work."""
    here = Path.cwd()
    if not all((here / name).is_file() for name in ("dvc.yaml", "params.yaml", "flows/cli.py")):
        return {name: _elsewhere(name) for name in PIPELINE}
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    return importlib.import_module("flows.cli").commands()


def _elsewhere(name: str) -> Callable[..., None]:
    def command(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise BadInput(
            f"lethe {name} works in a pipeline folder (one with dvc.yaml, params.yaml and flows/cli.py), and "
            f"{Path.cwd()} is not one. Change into a clone of Lethe's repository."
        )

    command.__doc__ = f"Works in a pipeline folder only (a clone of the repository): `lethe {name}`."
    return command


LENIENT = {"ignore_unknown_options": True, "allow_extra_args": True}
_pipeline = _pipeline_commands()
for _name, _function in _pipeline.items():
    if isinstance(_function, dict):
        app.add_typer(_group("Reproduce a study of the documents.", _function), name=_name)
        continue
    _settings = LENIENT if _function.__module__ == __name__ else None
    app.command(_name, cls=LetheCommand, context_settings=_settings)(_function)
for _name, _module in COMMANDS.items():
    app.command(_name, cls=LetheCommand)(importlib.import_module(f"lethe.cli.{_module}").command)
app.add_typer(_group("Privacy audits on files you already have.", AUDITS), name="audit")
app.add_typer(_group("Scores of logs and generations you already have.", SCORES, ScoreGroup), name="score")


def main() -> None:
    """Start the command, with the instruction set fixed before a numerical library is loaded."""
    same_numbers()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # where the locale's encoding lacks a character
    app(prog_name="lethe")
