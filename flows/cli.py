"""The `lethe` command: one module of `flows.commands` a command, found by name in `COMMANDS` and `AUDITS`.

Exit status: 0 done, 1 the work failed, 2 wrong use or bad input. A command imports what it needs inside its
function, so that `lethe --help` pays for none of it.
"""

from __future__ import annotations

import importlib
import os
import sys

import typer
from typer.core import TyperGroup

from stages.errors import LetheError

# name on the command line -> module of flows.commands whose function `command` it is
COMMANDS: dict[str, str] = {
    "run": "run",
    "serve": "serve",
    "sweep": "sweep",
    "ui": "ui",
    "eval": "eval",
    "bounds": "bounds",
    "plan": "plan",
    "game": "game",
    "landscape": "landscape",
    "simulate-epsilon-star": "simulate_epsilon_star",
}
AUDITS: dict[str, str] = {
    "one-run": "audit_one_run",
    "epsilon-star": "audit_epsilon_star",
    "swap": "audit_swap",
}
SCORES: dict[str, str] = {
    "tofu-log": "score_tofu_log",
}


class LetheGroup(TyperGroup):
    """Turns a `LetheError` into its one sentence on standard error and its exit status."""

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except LetheError as error:
            typer.echo(f"lethe: {error}", err=True)
            raise typer.Exit(error.exit_status) from None
        except BrokenPipeError:
            # The reader of our output went away (`lethe ... | head`): nothing is left to say. Python would
            # complain once more when it flushes standard output at exit, hence the redirection.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


def _group(help: str, commands: dict[str, str]) -> typer.Typer:
    group = typer.Typer(cls=LetheGroup, help=help, no_args_is_help=True, rich_markup_mode="markdown")
    for name, module in commands.items():
        function = importlib.import_module(f"flows.commands.{module}").command
        group.command(name)(function)
    return group


app = typer.Typer(
    cls=LetheGroup,
    help="Lethe: what a language model still knows of what it was told to forget, with guarantees.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)
for _name, _module in COMMANDS.items():
    app.command(_name)(importlib.import_module(f"flows.commands.{_module}").command)
if AUDITS:
    app.add_typer(_group("Privacy audits on files you already have.", AUDITS), name="audit")
if SCORES:
    app.add_typer(_group("Scores of logs and generations you already have.", SCORES), name="score")


if __name__ == "__main__":
    app()
