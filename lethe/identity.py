"""What an output depends on: the code behind it, the settings that it reads, and named facts.

The identity of a result hashes three things. **Code**: every module that the named modules can import, also inside functions,
and the files beside these modules. **Members**: a registry loads a member by its name, so no import statement shows it; the
caller names the modules of the members that its settings name, and a member that nobody names changes nothing. **Settings**:
their resolved values, with defaults and computed properties, so that `lethe.config` itself need not be hashed.

The stage `sources` writes an identity for each entry of each stage, and `cache_key` is that of a result kept between runs.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import importlib.util
import json
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, TypeVar, cast, get_origin

from lethe.instruction_set import own_kernels

if TYPE_CHECKING:
    from pydantic import BaseModel

CONFIG = "lethe.config"
TYPES_ALONE = ("TYPE_CHECKING", "typing.TYPE_CHECKING")  # conditions under which no code runs
KERNELS = "lethe.instruction_set"  # decides the last bits of every number, so every closure contains this module
# Modules whose edit changes no output. A closure contains every other module that it can import.
LEFT_OUT = {
    CONFIG: "holds settings, whose resolved values count",
    "lethe.errors": "words mistakes, after which there is no output; what it passes on of `lethe.wording` counts",
    "lethe.progress": "shows progress",
    "lethe.registry": "finds a member by its name; the module of the member counts",
    "lethe.results.quantities": "names numbers and checks names; a stage that writes what it names lists the module",
    "lethe.tracking": "reports finished work to MLflow",
}


class Sources:
    """The modules below one folder as of the first request: an edit during a long run changes no identity."""

    def __init__(self, root: Path):
        self.root = root
        self.places: dict[str, Path | None] = {}
        self.sources: dict[str, bytes] = {}
        self.imported: dict[str, frozenset[str]] = {}
        self.constants: dict[str, frozenset[str]] = {}
        self.passed_on: dict[str, dict[str, str]] = {}
        self.codes: dict[tuple[str, ...], str] = {}

    def identity(self, *modules: str, settings: object = None, **facts: object) -> str:
        """Return the hash of the code that ``modules`` can run, of resolved settings and of named facts."""
        if modules not in self.codes:
            self.codes[modules] = digest(self.code(*modules))
        names = sorted(facts)
        values = [resolved(facts[name]) for name in names]
        return digest(self.codes[modules], resolved(settings), names, *values)

    def code(self, *modules: str) -> dict[str, object]:
        """Return a hash of each file that ``modules`` can run or read beside them, and the settings' constants they use."""
        code: dict[str, object] = {}
        for module in self.closure(*modules):
            code[module] = hashlib.sha256(self.source(module)).hexdigest()
            for file in self._beside(module):
                code[f"{module}/{file.name}"] = hashlib.sha256(file.read_bytes()).hexdigest()
            for constant in self._constants(module):
                code[constant] = resolved(_value(constant))
        return code

    def closure(self, *modules: str) -> list[str]:
        """Return ``modules``, the packages around them and all that they can import within their packages, sorted."""
        packages = {"lethe"}
        for module in modules:
            packages.add(_top(module))
        seen: set[str] = set()
        ahead = [*modules]
        if self.place(KERNELS) is not None:
            ahead.append(KERNELS)
        while ahead:
            module = ahead.pop()
            if module in seen or _top(module) not in packages:
                continue
            if _is_left_out(module) and module not in modules:
                continue
            seen.add(module)
            ahead += self.imports(module)
            ahead += filter(self.place, _packages_around(module))
        return sorted(seen)

    def imports(self, module: str) -> frozenset[str]:
        """Return the modules that a module's own statements import, also those inside its functions."""
        if module not in self.imported:
            tree = ast.parse(self.source(module))
            self.imported[module] = frozenset(self._imports(module, tree))
        return self.imported[module]

    def place(self, module: str) -> Path | None:
        """Return the file of a module; None where there is none."""
        if module not in self.places:
            below = self._folder(module).joinpath(*module.split("."))
            self.places[module] = None
            for path in (below.with_suffix(".py"), below / "__init__.py"):
                if path.is_file():
                    self.places[module] = path
        return self.places[module]

    def source(self, module: str) -> bytes:
        """Return the content of a module's file; without a file, as in a notebook, something that only this process has."""
        if module in self.sources:
            return self.sources[module]
        place = self.place(module)
        if place is not None:
            self.sources[module] = place.read_bytes()
        elif module == "__main__":
            self.sources[module] = f"# {uuid.uuid4()}".encode()
        else:
            raise LookupError(f"no module {module} below {self._folder(module)}")
        return self.sources[module]

    def _folder(self, module: str) -> Path:
        """The folder in which the package of a module lies."""
        top = _top(module)
        if (self.root / top).is_dir() or top == "__main__":
            return self.root
        spec = importlib.util.find_spec(top)
        if spec is None or not spec.origin:
            return self.root
        folder = Path(spec.origin).parent
        if spec.submodule_search_locations:  # a package: its file lies in a folder of its name
            return folder.parent
        return folder

    def _beside(self, module: str) -> list[Path]:
        """The files beside a module that are no code: those of its name, and of a package those of no module's name."""
        place = self.place(module)
        if place is None:
            return []
        inside = sorted(place.parent.iterdir())
        modules: set[str] = set()
        data: list[Path] = []
        for file in inside:
            if file.name.startswith(".") or not file.is_file():
                continue
            if file.suffix == ".py":
                modules.add(file.stem)
            elif file.suffix != ".pyc":
                data.append(file)
        if place.name == "__init__.py":
            return [file for file in data if file.stem not in modules]
        return [file for file in data if file.stem == place.stem]

    def _imports(self, module: str, tree: ast.Module) -> Iterator[str]:
        """Yield what `imports` returns: of a ``from`` import the module that a name is, or that defines it."""
        for node in _statements(tree.body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name
            if not isinstance(node, ast.ImportFrom):
                continue
            base = self._base(module, node)
            if _top(base) not in ("lethe", _top(module)):
                continue
            for alias in node.names:
                below = f"{base}.{alias.name}"
                if self.place(below) is None:
                    yield self._definer(base, alias.name)
                else:
                    yield below

    def _definer(self, module: str, name: str) -> str:
        """The module that a name comes from: a left-out module passes on names of others, which count."""
        if not _is_left_out(module) or self.place(module) is None:
            return module
        if module not in self.passed_on:
            self.passed_on[module] = self._passed_on(module)
        source = self.passed_on[module].get(name)
        if source is None:
            return module
        return self._definer(source, name)

    def _passed_on(self, module: str) -> dict[str, str]:
        """The module of each name that a module imports at its top level."""
        module_of_name = {}
        for node in ast.parse(self.source(module)).body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    module_of_name[alias.asname or alias.name] = self._base(module, node)
        return module_of_name

    def _base(self, module: str, node: ast.ImportFrom) -> str:
        """The absolute name of the module of a ``from`` import."""
        base = node.module or ""
        if not node.level:
            return base
        place = self.place(module)
        levels = node.level
        if place is not None and place.name == "__init__.py":
            levels -= 1  # a package is its own first level
        above = module.rsplit(".", levels)[0]
        return f"{above}.{base}".rstrip(".")

    def _constants(self, module: str) -> frozenset[str]:
        """The constants of `lethe.config` that a module reads, such as ``lethe.config.measuring:SAMPLE.dtype``."""
        if module not in self.constants:
            found: set[str] = set()
            if any(_is_within(name, CONFIG) for name in self.imports(module)):
                found.update(_constants(ast.parse(self.source(module))))
            self.constants[module] = frozenset(found)
        return self.constants[module]


def cache_key(*modules: str, settings: object = None, **facts: object) -> str:
    """Return the identity of a result that is kept between runs; a result with the same key is never stale."""
    return library().identity(*modules, settings=settings, **facts)


def module_of(member: object) -> str:
    """Return the module that a member of a registry is, or that defines its function, class or class of an instance."""
    if isinstance(member, ModuleType):
        return member.__name__
    return getattr(member, "__module__", type(member).__module__)


@lru_cache(maxsize=1)
def library() -> Sources:
    """Return the modules of this installation, the same for the whole process."""
    return Sources(Path(__file__).parents[1])


def resolved(value: object) -> object:
    """Return settings as plain values: of a model every field and every public property, also those of models within."""
    if hasattr(type(value), "model_fields"):
        model = cast("BaseModel", value)
        values = dict(model) | (model.model_extra or {})
        for name in _properties(type(model)):
            values[name] = getattr(model, name)
        return resolved(values)
    if isinstance(value, Mapping):
        return {str(key): resolved(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolved(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, Path):
        return str(value)
    return value


def digest(*values: object) -> str:
    """Return a hash of plain values, pydantic models, dataclasses, and arrays (type, shape and content)."""
    state = hashlib.blake2b(digest_size=16)
    # An array exists only where NumPy is loaded, and stages import this module before it.
    numpy = sys.modules.get("numpy")
    for value in values:
        if numpy is not None and isinstance(value, numpy.ndarray):
            state.update(f"{value.dtype}{value.shape}".encode())
            state.update(numpy.ascontiguousarray(value).tobytes())
        else:
            state.update(json.dumps(value, sort_keys=True, default=_plain).encode())
        state.update(b"\0")
    return state.hexdigest()


def content_digest(path: Path) -> str:
    """Return a hash of a file, or of all files below a folder with their names."""
    state = hashlib.blake2b(digest_size=16)
    places = [path] if path.is_file() else sorted(path.rglob("*"))
    for place in places:
        if not place.is_file():
            continue
        state.update(f"{place.relative_to(path)}\0{place.stat().st_size}\0".encode())
        with place.open("rb") as stream:
            while block := stream.read(1 << 22):
                state.update(block)
    return state.hexdigest()


def versions(*distributions: str) -> dict[str, str | None]:
    """Return the installed version of each project whose code decides bits, and the processor where its kernels do."""
    kernels = own_kernels()
    installed = _installed(*distributions)
    if kernels is None:
        return installed
    return {**installed, "kernels": kernels}


@lru_cache
def _installed(*distributions: str) -> dict[str, str | None]:
    """The installed version of each project; None of one that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    by_name: dict[str, str | None] = {}
    for name in distributions:
        try:
            by_name[name] = version(name)
        except PackageNotFoundError:
            by_name[name] = None
    return by_name


def _plain(settings: object) -> object:
    """The fields of a dataclass; the fields and properties of a pydantic model."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        return dataclasses.asdict(settings)
    return cast("BaseModel", settings).model_dump(mode="json")


def _properties(model: type) -> list[str]:
    """The public properties that a settings class computes; those of pydantic itself are none."""
    names: set[str] = set()
    for base in model.__mro__:
        if _top(base.__module__) == "pydantic":
            continue
        for name, attribute in vars(base).items():
            if isinstance(attribute, property) and not name.startswith("_"):
                names.add(name)
    return sorted(names)


def _is_left_out(module: str) -> bool:
    """Whether an edit of a module changes no output."""
    if module == "lethe":  # the public names, each of which loads its module at first use
        return True
    return any(_is_within(module, name) for name in LEFT_OUT)


def _is_within(module: str, package: str) -> bool:
    """Whether a module is the package or lies below it."""
    return module == package or module.startswith(f"{package}.")


def _top(module: str) -> str:
    """The package at the top of a module's name."""
    return module.partition(".")[0]


def _packages_around(module: str) -> list[str]:
    """The packages whose ``__init__.py`` an import of the module runs."""
    packages: list[str] = []
    above, dot, _ = module.rpartition(".")
    while dot:
        packages.append(above)
        above, dot, _ = above.rpartition(".")
    return packages


def _constants(tree: ast.Module) -> Iterator[str]:
    """Yield the constants that a file imports from `lethe.config`, each with the attribute that the file reads of it."""
    module_of_name: dict[str, str] = {}
    for node in _statements(tree.body):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(CONFIG):
            continue
        for alias in node.names:
            module_of_name[alias.asname or alias.name] = f"{node.module}:{alias.name}"
    if not module_of_name:
        return

    # A name that is read alone, or by one of its attributes.
    names: list[ast.Name] = []
    owners: set[ast.expr] = set()
    for read in ast.walk(tree):
        if isinstance(read, ast.Name):
            if read.id in module_of_name:
                names.append(read)
        elif isinstance(read, ast.Attribute) and isinstance(read.value, ast.Name):
            owners.add(read.value)
            if read.value.id in module_of_name:
                yield from _if_constant(module_of_name[read.value.id], f".{read.attr}")
    for name in names:
        if name not in owners:
            yield from _if_constant(module_of_name[name.id], "")


def _if_constant(place: str, attribute: str) -> Iterator[str]:
    """Yield a place of `lethe.config` unless it is a module, class, type or function: these hold no value of their own."""
    value = _value(place)
    is_type = isinstance(value, (type, TypeVar)) or get_origin(value) is not None
    if not is_type and not isinstance(value, (ModuleType, FunctionType)):
        yield place + attribute


def _value(place: str) -> object:
    """What stands at a place such as ``lethe.config.measuring:SAMPLE.dtype``."""
    module, _, path = place.partition(":")
    name, *attributes = path.split(".")
    package = importlib.import_module(module)
    value = getattr(package, name, None)
    if value is None:  # a module of the package
        return importlib.import_module(f"{module}.{name}")
    for attribute in attributes:
        value = getattr(value, attribute)
    return value


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield all statements, including those inside functions, without those that only the type checker runs."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) in TYPES_ALONE:
            yield from _statements(node.orelse)
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, name, ()))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(part.body)
