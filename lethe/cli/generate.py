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
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer
from typer.core import TyperCommand

from lethe.errors import BadArguments, BadValue
from lethe.io.files import Json, plain

if TYPE_CHECKING:
    from lethe.api.result import View
    from lethe.cli.outcome import Outcome, Shown

Typers = Any  # what Typer hands on: its context, whose class is its own, and the arguments of its classes
# A sentence of a parameter that no command line needs.
IN_PYTHON = re.compile(r" In Python\b.*?\.(?= |$)")
OF_A_HOOK = ("call", "arguments", "as_json")  # parameters of every hook that are no options


GROWS = "verify"  # writes the certificate that it reads, with what it drew


class Command:
    """A row of the table of commands: a function of `lethe.api`, its examples, and what only the command line has.

    After MODULE:FUNCTION, the target lists the ``arguments`` typed without a name; ``names`` are other names of an option. If
    `lethe.cli.hooks` has a function of the same name in a module of the same name, it calls the public function, and its
    further parameters become options. A command that is ``fast`` takes the machine's own kernels unless it is called with
    --portable. ``alone`` has the value of each option that may stand without one.
    """

    def __init__(
        self,
        target: str,
        *examples: str,
        names: Mapping[str, tuple[str, ...]] | None = None,
        fast: bool = False,
        alone: Mapping[str, str] | None = None,
    ):
        place, *self.arguments = target.split()
        module, self.function = place.split(":")
        self.module = f"lethe.api.{module}"
        self.hooks = f"lethe.cli.hooks.{module}"
        self.examples = examples
        self.names = names or {}
        self.fast = fast
        self.alone = alone or {}

    @cached_property
    def summary(self) -> str:
        """The first line of the docstring, read from the source: no library is loaded for `lethe --help`."""
        source = Path(__file__).parents[2].joinpath(*self.module.split(".")).with_suffix(".py")
        for node in ast.parse(source.read_bytes()).body:
            if isinstance(node, ast.FunctionDef) and node.name == self.function:
                return (ast.get_docstring(node) or "").partition("\n")[0]
        raise LookupError(f"{self.module} has no function {self.function}")

    def load(self) -> tuple[Callable[..., Shown], Callable[..., Outcome] | None]:
        """The public function and its hook, if it has one."""
        function = getattr(importlib.import_module(self.module), self.function)
        if find_spec(self.hooks) is None:
            return function, None
        return function, getattr(importlib.import_module(self.hooks), self.function, None)


class LetheCommand(TyperCommand):
    """Names an option as it is typed where the library refuses the value: the library knows it as an argument.

    ``alone`` has the value of each option that may stand without one.
    """

    alone: Mapping[str, str] = MappingProxyType({})

    def parse_args(self, ctx: Typers, args: list[str]) -> list[str]:
        words = []
        for place, word in enumerate(args):
            following = args[place + 1] if place + 1 < len(args) else "-"
            has_value = not following.startswith("-") or following[1:].isdigit()
            if word in self.alone and not has_value:
                words.append(f"{word}={self.alone[word]}")
            else:
                words.append(word)
        return super().parse_args(ctx, words)

    def make_context(self, *args: Typers, **extra: Typers) -> Typers:
        try:
            return super().make_context(*args, **extra)
        except typer.BadParameter as error:
            from lethe.config.fields import bad_option

            raise bad_option(error.param, error.__cause__) or error from None

    def invoke(self, ctx: Typers) -> Typers:
        options = {}
        for parameter in self.params:
            if parameter.param_type_name == "option":
                options[parameter.name] = parameter.opts[0]
        try:
            return super().invoke(ctx)
        except BadValue as error:
            name = error.name.replace(" ", "_")
            if name not in options or ctx.params.get(name) is None:
                raise
            raise BadValue(options[name], error.got, error.legal, error.remedy) from None
        except BadArguments as error:
            names = [options.get(name, name) for name in error.names]
            raise BadArguments(tuple(names), error.problem) from None


class LazyCommand(TyperCommand):
    """A command of the table: its name now, its summary once a help lists it, its options once it is called."""

    def __init__(self, name: str, command: Command, panel: str | None = None):
        super().__init__(name, rich_help_panel=panel, params=[], rich_markup_mode="markdown")
        self.command = command

    @property
    def help(self) -> str:
        """The summary, whose source takes a fiftieth of a second to parse."""
        return self.command.summary

    @help.setter
    def help(self, text: str | None) -> None:
        """Click sets what it got, which is nothing."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: Typers = None,
        **extra: Typers,
    ) -> Typers:
        return built(self.name or "", self.command).make_context(info_name, args, parent, **extra)


def built(name: str, command: Command) -> TyperCommand:
    """The command with its options, as Typer makes it."""
    alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    alone.command(name, cls=LetheCommand)(callback_of(command))
    made = typer.main.get_command(alone)
    assert isinstance(made, LetheCommand)
    made.alone = command.alone
    return made


def callback_of(command: Command) -> Callable[..., None]:
    """The function that Typer calls: it has the options of the public function, of the hook, and `--json`."""
    from lethe.api.result import Measurement
    from lethe.cli.files import check_written, fresh
    from lethe.cli.outcome import Outcome

    function, hook = command.load()
    options = options_of(function, command)
    hook_options: dict[str, inspect.Parameter] = {}
    wants_json = False
    if hook is not None:
        hook_options = options_of(hook, command)
        wants_json = "as_json" in inspect.signature(hook).parameters
    has_rows = issubclass(_result_of(function), Measurement)

    def call(as_json: bool, **values: Json) -> None:
        values.pop("portable", None)  # `lethe.cli.app.main` has read it
        check_written(values, may_grow=command.function == GROWS)
        table = values.pop("table", None) if has_rows else None
        if table is not None:
            fresh("--table", table, (".parquet",))
        arguments = {name: value for name, value in values.items() if value not in (None, [])}
        for_hook = {name: arguments.pop(name) for name in hook_options if name in arguments}
        if wants_json:
            for_hook["as_json"] = as_json
        if hook is None:
            answer = Outcome(function(**arguments))
        else:
            answer = hook(function, arguments, **for_hook)
        if table is not None:
            _write_rows(table, answer.result)
        _show(answer, as_json)

    shared = _shared_options(command, has_rows)
    parameters = [*(options | hook_options).values(), *shared]
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__doc__ = _help_of(function, command)
    return call


def _result_of(function: Callable[..., object]) -> type:
    """The class of a function's result; of two classes the first."""
    annotation = function.__annotations__["return"].partition(" ")[0]
    result: type = function.__globals__[annotation]
    return result


def _write_rows(table: Path, result: Shown) -> None:
    from lethe.api.result import Measurement
    from lethe.results.table import write

    if isinstance(result, Measurement):
        write(table, result.rows())


def _show(answer: Outcome, as_json: bool) -> None:
    """Print a result for machines or for people, and end as it says."""
    if as_json:
        print_json({**answer.result.as_json(), **answer.json})
    elif answer.brief is not None:
        print_notes([*answer.brief, *answer.notes])
    else:
        *first, last = answer.result.views()
        for view in first:
            print_view(view)
        print_view(last, answer.notes)
    if answer.error:
        raise answer.error
    if answer.status:
        raise typer.Exit(answer.status)


def _shared_options(command: Command, has_rows: bool) -> list[inspect.Parameter]:
    """The options that many commands have, whatever their function."""
    options = []
    if has_rows:
        options.append(_option("table", TableOption, None))
    if command.fast:
        options.append(_option("portable", PortableFlag, False))
    options.append(_option("as_json", JsonFlag, False))
    return options


def _option(name: str, annotation: Any, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _help_of(function: Callable[..., object], command: Command) -> str:
    """What stands above the options: the docstring's first section, its notes, and the examples."""
    from lethe.api.parameters import sections_of

    sections = sections_of(function)
    parts = [sections[""].strip()]
    if "Notes" in sections:
        parts.append(sections["Notes"].strip())
    parts += [f"Example: `lethe {example}`" for example in command.examples]
    return "\n\n".join(parts).replace("``", "`")


def options_of(function: Callable[..., object], command: Command) -> dict[str, inspect.Parameter]:
    """The parameters of a function or of a hook as Typer reads them, without those that no command line can give."""
    from lethe.api.parameters import PARAMETERS, texts_of

    texts = PARAMETERS | texts_of(function)
    options = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in OF_A_HOOK:
            continue
        # Every file here postpones its annotations; those of `call` may name a class that is not loaded.
        annotation = eval(parameter.annotation, function.__globals__)
        if _only_in_python(annotation):
            continue
        text = IN_PYTHON.sub("", texts.get(name, ""))
        options[name] = _typers_option(parameter, typed(annotation), text, command)
    return options


def _typers_option(
    parameter: inspect.Parameter, kind: Any, text: str, command: Command
) -> inspect.Parameter:
    """One parameter with the type and the help of its option or argument."""
    name, default = parameter.name, parameter.default
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        kind = list[kind]
        default = None
    if default is not inspect.Parameter.empty and get_origin(kind) is list:
        default = None  # the function's own default holds where the option is not given

    info: Any
    if name in command.arguments:
        info = typer.Argument(metavar=name.upper(), help=text)
    elif name in command.names:
        info = typer.Option(*command.names[name], help=text)
    elif kind is bool and default is False:
        info = typer.Option(f"--{name.replace('_', '-')}", help=text)
    else:
        info = typer.Option(help=text)
    if default is None:
        kind = kind | None
    return _option(name, Annotated[kind, info], default)


def _only_in_python(annotation: Any) -> bool:
    from lethe.api.parameters import InPython

    return any(isinstance(mark, InPython) for mark in getattr(annotation, "__metadata__", ()))


def typed(annotation: Any) -> Any:
    """The type of an option: as `Typed` says, else a list where several values may be, else the first of a union."""
    from lethe.api.parameters import Typed

    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, Typed):
            return mark.kind
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        kinds = [typed(kind) for kind in get_args(annotation) if kind is not NoneType]
        lists = [kind for kind in kinds if get_origin(kind) is list]
        return (lists or kinds)[0]
    if origin is Sequence:
        (item,) = get_args(annotation)
        kind = typed(item)
        return list[kind]  # type: ignore[valid-type]
    return annotation


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
        console.print(
            Text(cell(note))
        )  # on one line: the name of a question could add a sentence of its own


def print_view(view: View, notes: Sequence[str] = ()) -> None:
    """Print a part of a result; a part without columns is text, wrapped in a terminal, whose markup is shown."""
    if view.columns and view.rows:
        print_table(view.title, view.columns, view.rows, [*view.notes, *notes])
        return
    print_notes([view.title, *view.notes, *notes])


def print_notes(notes: Sequence[str]) -> None:
    """Print sentences, each as one line, wrapped in a terminal; markup and breaks of lines inside are shown, not obeyed."""
    from rich.console import Console
    from rich.text import Text

    from lethe.api.result import cell

    console = Console()
    for text in filter(None, notes):
        console.print(Text(cell(text)), soft_wrap=not console.is_terminal)
