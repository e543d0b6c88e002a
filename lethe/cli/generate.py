"""A command from a public function: options from its signature, help from its docstring, and the ways of showing a result.
The function is imported when its command is called, so that `lethe --help` pays for none.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

from lethe.errors import BadArguments, BadValue, visible
from lethe.io.files import Json, plain

if TYPE_CHECKING:
    from lethe.api.result import View
    from lethe.cli.hooks import Answer, Shown

Typers = Any  # what Typer hands on: its context, whose class is its own, and the arguments of its classes
SECTION = re.compile(r"\n(?=\w[\w ]*\n-{3,}\n)")
PYTHON = (
    "tokenizer",
    "scratch",
    "folder",
    "ask",
    "worst",
)  # parameters that no command line can give
IN_PYTHON = re.compile(
    r" In Python\b.*?\.(?= |$)"
)  # a sentence of a parameter that no command line needs
OF_A_HOOK = ("call", "given", "as_json")  # parameters of every hook that are no options


class Command:
    """A row of the table of commands: a function of `lethe.api`, its examples, and what only the command line has.

    After MODULE:FUNCTION, the target lists the ``arguments`` typed without a name; ``names`` are other names of an option. A
    function of `lethe.cli.hooks` with the same name calls the public function; its further parameters become options. A
    command that is ``fast`` takes the machine's own kernels unless it is called with --portable.
    """

    def __init__(
        self,
        target: str,
        *examples: str,
        names: Mapping[str, tuple[str, ...]] | None = None,
        fast: bool = False,
    ):
        self.fast = fast
        target, *self.arguments = target.split()
        module, self.function = target.split(":")
        self.module, self.examples, self.names = f"lethe.api.{module}", examples, names or {}

    @cached_property
    def summary(self) -> str:
        """The first line of the docstring, read from the source: no library is loaded for `lethe --help`."""
        source = Path(__file__).parents[2].joinpath(*self.module.split(".")).with_suffix(".py")
        functions = (
            node
            for node in ast.parse(source.read_bytes()).body
            if isinstance(node, ast.FunctionDef)
        )
        own = next(node for node in functions if node.name == self.function)
        return (ast.get_docstring(own) or "").partition("\n")[0]

    def load(self) -> tuple[Callable[..., Shown], Callable[..., Answer] | None]:
        from lethe.cli import hooks

        return getattr(importlib.import_module(self.module), self.function), getattr(
            hooks, self.function, None
        )


class LetheCommand(TyperCommand):
    """Names an option as it is typed where the library refuses the value: the library knows it as an argument."""

    def make_context(self, *given: Typers, **extra: Typers) -> Typers:
        try:
            return super().make_context(*given, **extra)
        except typer.BadParameter as error:
            from lethe.config.fields import bad_option

            raise bad_option(error.param, error.__cause__) or error from None

    def invoke(self, ctx: Typers) -> Typers:
        options = {one.name: one.opts[0] for one in self.params if one.param_type_name == "option"}
        try:
            return super().invoke(ctx)
        except BadValue as error:
            name = error.name.replace(" ", "_")
            if name not in options or ctx.params.get(name) is None:
                raise
            raise BadValue(options[name], error.got, error.legal, error.remedy) from None
        except BadArguments as error:
            raise BadArguments(
                tuple(options.get(name, name) for name in error.names), error.problem
            ) from None


class LazyCommand(TyperCommand):
    """A command of the table: its name and summary now, its options once it is called."""

    def __init__(self, name: str, command: Command, panel: str | None = None):
        super().__init__(
            name,
            help=command.summary,
            rich_help_panel=panel,
            params=[],
            rich_markup_mode="markdown",
        )
        self.command = command

    def make_context(
        self, info_name: str | None, args: list[str], parent: Typers = None, **extra: Typers
    ) -> Typers:
        return built(self.name or "", self.command).make_context(info_name, args, parent, **extra)


def built(name: str, command: Command) -> TyperCommand:
    alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    alone.command(name, cls=LetheCommand)(callback_of(command))
    made = typer.main.get_command(alone)
    assert isinstance(made, TyperCommand)
    return made


def callback_of(command: Command) -> Callable[..., None]:
    """The function that Typer calls: it has the options of the public function, of the hook, and `--json`."""
    from lethe.api.result import Measurement
    from lethe.cli.hooks import Answer, fresh

    function, hook = command.load()
    returned = function.__globals__[function.__annotations__["return"].partition(" ")[0]]
    rows = issubclass(returned, Measurement)
    own = _parameters(function, command, skip=PYTHON)
    added = _parameters(hook, command, skip=OF_A_HOOK) if hook else {}

    def call(as_json: bool, **given: Json) -> None:
        given.pop("portable", None)  # `lethe.cli.app.main` has read it
        if table := given.pop("table", None) if rows else None:
            fresh("--table", table, (".parquet",))
        given = {name: value for name, value in given.items() if value not in (None, [])}
        to_hook = {name: given.pop(name) for name in added if name in given}
        to_hook |= (
            {"as_json": as_json} if hook and "as_json" in inspect.signature(hook).parameters else {}
        )
        answer = hook(function, given, **to_hook) if hook else Answer(function(**given))
        if table and isinstance(answer.result, Measurement):
            from lethe.results.table import write

            write(table, answer.result.rows())
        if as_json:
            print_json({**answer.result.as_json(), **answer.json})
        else:
            *first, last = answer.result.views()
            for view in first:
                print_view(view)
            print_view(last, answer.notes)
        if answer.error:
            raise answer.error
        if answer.status:
            raise typer.Exit(answer.status)

    parameters = own | {name: one for name, one in added.items() if name not in own}
    shared: dict[str, tuple[Json, bool | None]] = {"table": (TableOption, None)} if rows else {}
    shared |= {"portable": (PortableFlag, False)} if command.fast else {}
    for name, (kind, default) in (shared | {"as_json": (JsonFlag, False)}).items():
        shape = inspect.Parameter.KEYWORD_ONLY
        parameters[name] = inspect.Parameter(name, shape, default=default, annotation=kind)
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        sorted(parameters.values(), key=lambda one: one.default is not inspect.Parameter.empty)
    )
    call.__annotations__ = {name: one.annotation for name, one in parameters.items()}
    sections = _sections(function)
    parts = [sections[""].strip(), sections.get("Notes", "").strip()]
    parts += [f"Example: `lethe {example}`" for example in command.examples]
    call.__doc__ = "\n\n".join(filter(None, parts)).replace("``", "`")
    return call


def _parameters(
    function: Callable[..., object], command: Command, skip: Sequence[str]
) -> dict[str, inspect.Parameter]:
    from lethe.api.result import PARAMETERS

    texts = {
        name: IN_PYTHON.sub("", text) for name, text in (PARAMETERS | texts_of(function)).items()
    }
    parameters = {}
    for name, one in inspect.signature(function).parameters.items():
        if name in skip:
            continue
        kind, default = typed(one.annotation, function), one.default
        if one.kind is inspect.Parameter.VAR_POSITIONAL:
            kind, default = list[kind], None  # type: ignore[valid-type]
        if default is not inspect.Parameter.empty and get_origin(kind) is list:
            default = None  # the function's own default holds where the option is not given
        if default is None:
            kind = kind | None
        if name in command.arguments:
            info = typer.Argument(metavar=name.upper(), help=texts.get(name, ""))
        else:
            flag = (f"--{name.replace('_', '-')}",) if kind is bool and default is False else ()
            info = typer.Option(*(command.names.get(name) or flag), help=texts.get(name, ""))
        shape = inspect.Parameter.KEYWORD_ONLY
        parameters[name] = one.replace(
            annotation=Annotated[kind, info], default=default, kind=shape
        )
    return parameters


PLAIN: dict[str, type] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "Path": Path,
    "PathLike": Path,
}


# `typed` and `_kinds` give types and forms of `typing`, such as list[str] and Literal: nothing is the type of both.
def typed(annotation: str, function: Callable[..., object]) -> Any:
    """The type of an option, read from the annotation: a path where a file may be, else a list where several values may."""
    kinds = _kinds(_parsed(annotation), function.__globals__)
    lists = [one for one in kinds if get_origin(one) is list]
    return Path if Path in kinds else (lists or kinds)[0]


def _parsed(annotation: str) -> ast.expr:
    return ast.parse(" ".join(annotation.split()), mode="eval").body


def _kinds(node: ast.expr, names: Mapping[str, Json]) -> list[Any]:
    """The types of an annotation that a command line can give."""
    match node:
        case ast.BinOp(left=left, right=right):
            return _kinds(left, names) + _kinds(right, names)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=words):
            parts = words.elts if isinstance(words, ast.Tuple) else [words]
            return [Literal[tuple(word for part in parts for word in _words(part, names))]]
        case ast.Subscript(value=ast.Name(id="Sequence"), slice=item):
            return [list[kind] for kind in _kinds(item, names)]  # type: ignore[valid-type]
        case ast.Subscript(value=value):
            return _kinds(value, names)
        case ast.Attribute(attr=name) | ast.Name(id=name) if name in PLAIN:
            return [PLAIN[name]]
        case ast.Name(id=name) if isinstance(names.get(name), str):
            return _kinds(_parsed(names[name]), names)
    return []


def _words(part: ast.expr, names: Mapping[str, Json]) -> tuple[object, ...]:
    """A word of ``Literal[...]``; a name in it stands for the words of another."""
    return (part.value,) if isinstance(part, ast.Constant) else get_args(names[part.id])  # type: ignore[attr-defined]


def texts_of(function: Callable[..., object]) -> dict[str, str]:
    section = re.sub(r"\n +", " ", _sections(function).get("Parameters", ""))
    return {
        name: text for name, _, text in (line.partition(" : ") for line in section.splitlines())
    }


def _sections(function: Callable[..., object]) -> dict[str, str]:
    """The parts of a docstring by their titles; what stands before the first title has the title ""."""
    first, *rest = SECTION.split(inspect.getdoc(function) or "")
    titled = (part.split("\n", 2) for part in rest)
    return {"": first, **{title: text for title, _, text in titled}}


JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
PortableFlag = Annotated[
    bool,
    typer.Option(
        "--portable",
        help="Take the kernels that give the same bytes on every x86-64 machine; slower.",
    ),
]
TableOption = Annotated[
    Path | None,
    typer.Option(
        "--table",
        metavar="FILE",
        help="Write every number, its ends and guarantee to a .parquet file.",
    ),
]


def print_json(value: object) -> None:
    """Print strict JSON: dataclasses become objects, NumPy values plain ones, what is not finite null."""
    typer.echo(json.dumps(plain(value), allow_nan=False))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()
) -> None:
    """Print a table for people; markup and control characters inside it are shown, not obeyed; bounds are rounded outward.

    In a file or a pipe the table is as wide as needed, so no number is broken in two.
    """
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    from lethe.api.result import cell

    console = Console()
    table = Table(title=Text(cell(title)), title_justify="left", header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(cell(column), justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell(item)) for item in row])
    if not console.is_terminal:
        endless = console.options.update(width=1 << 16)
        console.width = max(console.width, Measurement.get(console, endless, table).maximum)
    console.print(table)
    for note in notes:
        console.print(Text(visible(note)))


def print_view(view: View, notes: Sequence[str] = ()) -> None:
    """Print a part of a result; a part without columns is text, wrapped in a terminal, whose markup is shown."""
    from rich.console import Console
    from rich.text import Text

    if view.columns and view.rows:
        print_table(view.title, view.columns, view.rows, [*view.notes, *notes])
        return
    console = Console()
    for text in filter(None, (view.title, *view.notes, *notes)):
        console.print(Text(visible(text)), soft_wrap=not console.is_terminal)
