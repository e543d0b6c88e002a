"""The `lethe` command: its groups, and its errors. Exit status: 0 done, 1 the work failed, 2 wrong use or bad input."""

import contextlib
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperGroup

from lethe.cli.generate import Command, LazyCommand, LetheCommand, Typers
from lethe.errors import (
    BadFile,
    BadInput,
    BadValue,
    LetheError,
    MissingArtifact,
    of_the_machine,
    one_line,
    visible,
)
from lethe.instruction_set import CHOICE
from lethe.process import no_telemetry, same_numbers

# A new command is a public function of `lethe.api` and a row here; a new option is a parameter.
MODEL = "Your model"
NUMBERS = "Your numbers"
PIPELINE = "The pipeline"
STUDIES = "Studies"

COMMANDS: dict[str, dict[str, Command]] = {
    MODEL: {
        "eval": Command(
            "evaluating:evaluate",
            "eval --model ./my-model --data forget.jsonl --retain retain.jsonl --n 256",
            fast=True,
        ),
        "sample": Command(
            "evaluating:sample prompts",
            'sample "Who is Ada?" --model ./my-model --n 32',
            "sample --data forget.jsonl --model ./my-model --n 32 --out answers.parquet",
            fast=True,
        ),
        "exact": Command(
            "probabilities:exact",
            "exact --model ./my-model --data forget.jsonl --temperature 0.7 --top-p 0.9",
            fast=True,
        ),
        "extract": Command(
            "probabilities:extract",
            "extract --model ./my-model --text book.txt --reference ./retrain --near 20",
            fast=True,
        ),
        "certify": Command(
            "certificates:certify",
            "certify --model ./my-model --data forget.jsonl --tau 0.05 --draws 200",
        ),
        "verify": Command(
            "certificates:verify file",
            "verify certificate.json --draws 200 --model ./my-model --data forget.jsonl --auditor me",
            alone={"--check": "-1"},  # `lethe.api.certificates.AS_CLAIMED`
        ),
        "table": Command(
            "tabling:table runs",
            "table data/eval/my-model --to latex --column m_bin_worst",
        ),
        "attest": Command(
            "attesting:attest run",
            "attest data/eval/my-model --model my-model --fail-above 0.5",
        ),
        "dossier": Command(
            "dossiers:dossier run",
            "dossier data/eval/my-model --model my-model --record author=Ron --request 2026-117",
        ),
        "label": Command(
            "labelling:label answers",
            "label answers.parquet --dataset forget.jsonl --labels labels.jsonl",
        ),
    },
    NUMBERS: {
        "bounds": Command(
            "bounding:bounds scores",
            "bounds scores.csv --alpha 0.01 --threshold 0.5",
            "bounds run.eval --score includes",
        ),
        "compare": Command(
            "runs:compare a b more",
            "compare HEAD~1 data --fail-on worse",
            "compare before.eval after.eval --score includes --page change.html",
            "compare data:npo data:grad_diff",
            "compare data",
            "compare gpt.eval llama.eval qwen.eval --page ranks.html",
        ),
        "log": Command("logs:read_log file", "log samples_qa.jsonl --table answers.csv"),
        "plan": Command(
            "planning:plan",
            "plan --alpha 0.01 --tau 0.05 --prompts 40",
            "plan --preset harry-potter --rate 1000",
            "plan --labels --width 0.1",
            "plan --compare --difference 0.1 --prompts 30",
        ),
    },
}
# The groups of `Your numbers`: name -> help and commands.
GROUPS: dict[str, tuple[str, dict[str, Command]]] = {
    "audit": (
        "Audit privacy on files you already have.",
        {
            "one-run": Command(
                "audit:one_run",
                "audit one-run --n 1000 --r 200 --errors 26 --mechanism gaussian --delta 1e-5",
            ),
            "epsilon-star": Command(
                "audit:epsilon_star",
                "audit epsilon-star --train member.csv --population other.csv --delta 1e-5",
            ),
            "swap": Command("audit:swap", "audit swap --predictions predictions.csv"),
            "twins": Command("audit:twins ranks", "audit twins ranks.csv --alpha 0.01"),
        },
    ),
    "twins": (
        "Draw secrets among twins before training, and check or open the draw.",
        {
            "draw": Command(
                "twins:draw rows",
                "twins draw templates.jsonl --kind 'pattern +49 151 ########' --out canaries/drawn.jsonl",
            ),
            "add": Command(
                "twins:add rows",
                "twins add customers.jsonl --kind 'pattern ######' --out records/with_twins.jsonl",
            ),
            "check": Command("twins:check_file rows", "twins check canaries/drawn.jsonl"),
            "open": Command("twins:open_file rows", "twins open canaries/drawn.jsonl"),
        },
    ),
    "score": (
        "Score logs and generations you already have.",
        {
            "log": Command(
                "logs:score_log log",
                "score log samples_qa.jsonl --scorer rouge_l --data forget.jsonl",
                "score log run.eval --judge endpoint --judge-endpoint URL --judge-model NAME --data forget.jsonl",
                names={"table": ("--table", "--out")},
            ),
            "tofu-log": Command(
                "logs:tofu_log file",
                "score tofu-log TOFU_EVAL.json --retain retain90/TOFU_EVAL.json",
            ),
        },
    ),
}


@dataclass(frozen=True)
class InAPipeline:
    """A command of a pipeline folder, whose own flows/cli.py is imported once the command is called.

    The summary is written here, because `lethe --help` in a stranger's folder must run nothing of that folder.
    """

    panel: str
    summary: str
    is_group: bool = False


IN_A_PIPELINE = {
    "run": InAPipeline(
        PIPELINE,
        "Run every stale stage and the stages that depend on it, several at once; the other stages do not run.",
    ),
    "serve": InAPipeline(
        PIPELINE,
        "Run the pipeline on a schedule until Ctrl-C, one run at a time, and print after each run what changed.",
    ),
    "sweep": InAPipeline(
        PIPELINE,
        "Run the pipeline for every combination of values, or at random, several points at once; params.yaml stays as it is.",
    ),
    "study": InAPipeline(STUDIES, "Reproduce a study of the documents.", is_group=True),
}
PIPELINE_FILES = ("dvc.yaml", "params.yaml", "flows/cli.py")
STARTED_IN = Path.cwd()  # the folder whose pipeline the commands above belong to

NAMES = {
    "ui",
    *IN_A_PIPELINE,
    *GROUPS,
    *(name for commands in COMMANDS.values() for name in commands),
}


class LetheGroup(TyperGroup):
    """Adds the commands of the table, and turns a `LetheError` into its one sentence and its exit status."""

    def __init__(self, **attrs: Typers):
        super().__init__(**attrs)
        for panel, commands in self.rows().items():
            for name, command in commands.items():
                self.add_command(LazyCommand(name, command, panel))

    def rows(self) -> Mapping[str | None, Mapping[str, Command]]:
        return {None: GROUPS[self.name][1]} if self.name in GROUPS else {}

    def invoke(self, ctx: Typers) -> Typers:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of the output closed the pipe (`lethe ... | head`).
            _drop_output()
            raise typer.Exit(0) from None
        except Exception as error:
            if (
                sentence := error if isinstance(error, LetheError) else of_the_machine(error)
            ) is None:
                raise
            if sentence is not error:
                _drop_output()
            typer.echo(visible(f"lethe: {sentence}"), err=True)
            raise typer.Exit(sentence.exit_status) from None


class TopGroup(LetheGroup):
    """The command `lethe`: its own commands, and those of a pipeline, which are loaded when they are called."""

    def __init__(self, **attrs: Typers):
        commands: dict[str, Typers] = {}
        for name, described in IN_A_PIPELINE.items():
            lazy = LazyPipelineGroup if described.is_group else LazyPipelineCommand
            commands[name] = lazy(name, described)
        commands.update(attrs.pop("commands", None) or {})
        super().__init__(commands=commands, **attrs)

    def rows(self) -> Mapping[str | None, Mapping[str, Command]]:
        return dict(COMMANDS.items())

    def list_commands(self, ctx: Typers) -> list[str]:
        panels = [MODEL, NUMBERS, PIPELINE, STUDIES]

        def place(name: str) -> int:
            command: Typers = self.commands[name]
            return panels.index(command.rich_help_panel)

        return sorted(self.commands, key=place)


class ScoreGroup(LetheGroup):
    """Reads `lethe score LOG` as `lethe score log LOG`: a first argument that is no command belongs to `log`."""

    def parse_args(self, ctx: Typers, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["log", *args]
        return super().parse_args(ctx, args)


def _drop_output() -> None:
    """Send what standard output still holds to nowhere, so that Python's last flush at exit raises no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


app = typer.Typer(
    cls=TopGroup,
    help="Measure how much a language model still knows of data that it should have forgotten, with guarantees.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)


class _OfThisFolder:
    """What the command of a pipeline folder does once it is called: the folder's own command takes over."""

    name: str | None

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: Typers = None,
        **extra: Typers,
    ) -> Typers:
        command = _command_of_this_folder(self.name or "")
        return command.make_context(info_name, args, parent, **extra)


class LazyPipelineCommand(_OfThisFolder, TyperCommand):
    """A command of a pipeline folder: its name and summary now, the folder's code once the command is called."""

    def __init__(self, name: str, described: InAPipeline):
        super().__init__(
            name,
            help=described.summary,
            rich_help_panel=described.panel,
            params=[],
            rich_markup_mode="markdown",
        )


class LazyPipelineGroup(_OfThisFolder, TyperGroup):
    """A group of commands of a pipeline folder, which is imported once the group is called or its commands are read."""

    def __init__(self, name: str, described: InAPipeline):
        super().__init__(
            name=name,
            help=described.summary,
            rich_help_panel=described.panel,
            rich_markup_mode="markdown",
        )

    def get_command(self, ctx: Typers, cmd_name: str) -> Typers:
        return _command_of_this_folder(self.name or "").get_command(ctx, cmd_name)


def _in_a_pipeline() -> bool:
    return all((STARTED_IN / name).is_file() for name in PIPELINE_FILES)


def _command_of_this_folder(name: str) -> Typers:
    """The command of the pipeline folder with its options; elsewhere a command that says where it works."""
    alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    if not _in_a_pipeline():
        alone.command(name, cls=LetheCommand, context_settings=LENIENT)(_elsewhere(name))
        return typer.main.get_command(alone)

    here = str(STARTED_IN)
    if here not in sys.path:
        sys.path.insert(0, here)
    with _code_of_the_folder("flows/cli.py", name):
        function = importlib.import_module("flows.cli").commands()[name]
        if not isinstance(function, dict):
            alone.command(name, cls=LetheCommand)(function)
            return typer.main.get_command(alone)

    studies = _group(IN_A_PIPELINE[name].summary, LetheGroup)
    with _code_of_the_folder("studies/commands.py", name):
        functions = importlib.import_module("studies.commands")
        for study, function_name in function.items():
            studies.command(study, cls=LetheCommand)(getattr(functions, function_name))
        return typer.main.get_command(studies)


@contextlib.contextmanager
def _code_of_the_folder(file: str, name: str) -> Iterator[None]:
    """Turn into `BadFile` whatever the code of the pipeline folder does instead of giving the command ``name``."""
    try:
        yield
    except LetheError:
        raise
    except (Exception, SystemExit) as error:
        if (sentence := of_the_machine(error)) is not None:
            raise sentence from error
        problem = (
            f"gives no command {name!r} ({type(error).__name__}: {one_line(str(error))[:200]})"
        )
        remedy = "Change into a clone of Lethe's repository of this version."
        raise BadFile(STARTED_IN / file, problem, remedy) from error


def _elsewhere(name: str) -> Callable[..., None]:
    def command(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        needed = "a pipeline folder (one with dvc.yaml, params.yaml and flows/cli.py)"
        problem = f"lethe {name} works in {needed}, and {Path.cwd()} is not one"
        raise BadInput(f"{problem}. Change into a clone of Lethe's repository.")

    command.__doc__ = f"Work in a pipeline folder only (a clone of the repository): `lethe {name}`."
    return command


LENIENT = {"ignore_unknown_options": True, "allow_extra_args": True}


# A process that waits for the server, prints the lines, opens the page and ends. The server replaces the process of the
# command; where that process is gone, nothing will answer.
TELL = """
import os, sys, time, urllib.request, webbrowser
port, server, url, *lines = sys.argv[1:]
while os.getppid() == int(server):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
    except OSError:
        time.sleep(0.25)
    else:
        print(*lines, sep="\\n", flush=True)
        if url:
            webbrowser.open(url)
        break
"""


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 5000,
    browser: Annotated[bool, typer.Option(help="Open the page where there is a screen.")] = True,
) -> None:
    """Serve the runs of this folder with MLflow's pages on 127.0.0.1 until Ctrl-C; nothing else can connect.

    Prints the addresses of the models' and the pipelines' page when they answer, and opens the first in the browser. If
    MLFLOW_TRACKING_URI names a server, that server has the runs, except those logged while the server was down.

    Example: `lethe ui --port 5001`
    """
    from lethe import tracking

    root = Path.cwd()
    if not (root / "mlflow.db").exists():
        raise MissingArtifact("mlflow.db", "the first pipeline")
    if not _free(port):
        raise BadValue(
            "--port", port, "a port of 127.0.0.1 that nothing listens on", "Choose another."
        )
    no_telemetry()
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = (
        "false"  # eight idle processes that only traces need
    )
    urls = [f"http://127.0.0.1:{port}{page}" for page in tracking.pages(root)]
    lines = []
    for what, url in zip(("Models by leakage", "Pipelines and what changed"), urls, strict=False):
        lines.append(f"{what}: {url}")
    lines.append("Ctrl-C ends it.")
    typer.echo("MLflow starts.", err=True)
    screen = sys.platform in ("darwin", "win32") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    )
    opened = ""
    if browser and screen and sys.stdout.isatty():
        opened = urls[0]
    # -I: a module of the current folder must not take the place of a library's.
    teller = [sys.executable, "-I", "-c", TELL, str(port), str(os.getpid()), opened, *lines]
    subprocess.Popen(teller, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    store = tracking.store(root)
    artifacts = (root / ".lethe/mlruns").as_uri()
    arguments = ["--backend-store-uri", store, "--default-artifact-root", artifacts]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    addresses = [f"127.0.0.1:{port}", f"localhost:{port}"]
    arguments += ["--allowed-hosts", ",".join(addresses)]
    arguments += ["--cors-allowed-origins", ",".join(f"http://{name}" for name in addresses)]
    os.chdir("/")  # uvicorn looks for MLflow in its current folder first
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", "server", *arguments])


def _free(port: int) -> bool:
    import socket

    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _group(help: str, kind: type[LetheGroup]) -> typer.Typer:
    return typer.Typer(
        cls=kind,
        help=help,
        callback=lambda: None,
        no_args_is_help=True,
        rich_markup_mode="markdown",
    )


def _add_groups() -> None:
    app.command("ui", cls=LetheCommand, rich_help_panel=PIPELINE)(ui)
    for name, (help, _) in GROUPS.items():
        group = _group(help, ScoreGroup if name == "score" else LetheGroup)
        app.add_typer(group, name=name, rich_help_panel=NUMBERS)


_add_groups()


def main() -> None:
    """Start the command, with the kernels chosen before a numerical library is loaded."""
    name = "".join(sys.argv[1:2])
    if name not in IN_A_PIPELINE:
        # Python puts the current folder before the libraries in a child started with -c or -m, as a pool's worker is.
        os.environ["PYTHONSAFEPATH"] = "1"
    command = COMMANDS[MODEL].get(name)
    portable = "--portable" in sys.argv
    if command and command.fast and not portable:
        os.environ[CHOICE] = "machine"  # the report says so
    else:
        if portable:
            os.environ.pop(CHOICE, None)
        same_numbers()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # where the locale's encoding lacks a character
    app(prog_name="lethe")
