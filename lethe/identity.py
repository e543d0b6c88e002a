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
KERNELS = "lethe.instruction_set"  # decides the last bits of every number, so every closure contains this module
# Modules whose edit changes no output. A closure contains every other module that it can import.
LEFT_OUT = {
    CONFIG: "holds settings, whose resolved values count",
    "lethe.errors": "words mistakes, after which there is no output",
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
        packages = {"lethe", *(module.partition(".")[0] for module in modules)}
        seen: set[str] = set()
        ahead = [*modules, *([KERNELS] if self.place(KERNELS) else [])]
        while ahead:
            module = ahead.pop()
            if module in seen or module.partition(".")[0] not in packages:
                continue
            if _is_left_out(module) and module not in modules:
                continue
            seen.add(module)
            ahead += self.imports(module)
            ahead += filter(self.place, _packages_around(module))
        return sorted(seen)

    def imports(self, module: str) -> frozenset[str]:
        if module not in self.imported:
            tree = ast.parse(self.source(module))
            self.imported[module] = frozenset(self._imports(module, tree))
        return self.imported[module]

    def place(self, module: str) -> Path | None:
        """Return the file of a module; None where there is none."""
        if module not in self.places:
            below = self._folder(module).joinpath(*module.split("."))
            candidates = (below / "__init__.py", below.with_suffix(".py"))
            self.places[module] = next((path for path in candidates if path.is_file()), None)
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
        top = module.partition(".")[0]
        if (self.root / top).is_dir() or top == "__main__":
            return self.root
        spec = importlib.util.find_spec(top)
        if spec is None or not spec.origin:
            return self.root
        return Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]

    def _beside(self, module: str) -> list[Path]:
        """The files beside a module that are no code: those of its name, and of a package those of no module's name."""
        place = self.place(module)
        if place is None:
            return []
        inside = sorted(place.parent.iterdir())
        files = [file for file in inside if file.is_file() and not file.name.startswith(".")]
        modules = {file.stem for file in files if file.suffix == ".py"}
        data = [file for file in files if file.suffix not in (".py", ".pyc")]
        if place.name == "__init__.py":
            return [file for file in data if file.stem not in modules]
        return [file for file in data if file.stem == place.stem]

    def _imports(self, module: str, tree: ast.Module) -> Iterator[str]:
        for node in _statements(tree.body):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            if not isinstance(node, ast.ImportFrom):
                continue
            base = self._base(module, node)
            if base.partition(".")[0] not in ("lethe", module.partition(".")[0]):
                continue
            for alias in node.names:
                below = f"{base}.{alias.name}"
                yield below if self.place(below) is not None else base

    def _base(self, module: str, node: ast.ImportFrom) -> str:
        """The absolute name of the module of a ``from`` import."""
        base = node.module or ""
        if not node.level:
            return base
        place = self.place(module)
        up = node.level - (place is not None and place.name == "__init__.py")
        above = module.rsplit(".", up)[0]
        return f"{above}.{base}".rstrip(".")

    def _constants(self, module: str) -> frozenset[str]:
        """The constants of `lethe.config` that a module reads, such as ``lethe.config.measuring:SAMPLE.dtype``."""
        if module not in self.constants:
            found: set[str] = set()
            if any(
                name == CONFIG or name.startswith(f"{CONFIG}.") for name in self.imports(module)
            ):
                found.update(_constants(ast.parse(self.source(module))))
            self.constants[module] = frozenset(found)
        return self.constants[module]


def cache_key(*modules: str, settings: object = None, **facts: object) -> str:
    """Return the identity of a result that is kept between runs; a result with the same key is never stale."""
    return library().identity(*modules, settings=settings, **facts)


def module_of(member: object) -> str:
    if isinstance(member, ModuleType):
        return member.__name__
    return getattr(member, "__module__", type(member).__module__)


@lru_cache(maxsize=1)
def library() -> Sources:
    return Sources(Path(__file__).parents[1])


def resolved(value: object) -> object:
    """Return settings as plain values: of a model every field and every public property, also those of models within."""
    if hasattr(type(value), "model_fields"):
        model = cast("BaseModel", value)
        fields = {**dict(model), **(model.model_extra or {})}
        computed = {name: getattr(model, name) for name in _properties(type(model))}
        return {name: resolved(inner) for name, inner in {**fields, **computed}.items()}
    if isinstance(value, Mapping):
        return {str(key): resolved(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolved(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    return str(value) if isinstance(value, Path) else value


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
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        state.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 22):
                state.update(block)
    return state.hexdigest()


def versions(*distributions: str) -> dict[str, str | None]:
    """Return the installed version of each project whose code decides bits, and the processor where its kernels do."""
    kernels = own_kernels()
    installed = _installed(*distributions)
    return installed if kernels is None else {**installed, "kernels": kernels}


@lru_cache
def _installed(*distributions: str) -> dict[str, str | None]:
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
    return sorted(
        name
        for base in model.__mro__
        if base.__module__.partition(".")[0] != "pydantic"
        for name, attribute in vars(base).items()
        if isinstance(attribute, property) and not name.startswith("_")
    )


def _is_left_out(module: str) -> bool:
    # The top package holds the public names, each of which loads its module at first use.
    return module == "lethe" or any(
        module == name or module.startswith(f"{name}.") for name in LEFT_OUT
    )


def _packages_around(module: str) -> list[str]:
    """The packages whose ``__init__.py`` an import of the module runs."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _constants(tree: ast.Module) -> Iterator[str]:
    """Yield the constants that a file imports from `lethe.config`, each with the attribute that the file reads of it."""
    module_of_name: dict[str, str] = {}
    for node in _statements(tree.body):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(CONFIG):
            module_of_name |= {
                alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names
            }
    owners = set()
    for read in ast.walk(tree):
        if isinstance(read, ast.Attribute) and isinstance(read.value, ast.Name):
            owners.add(read.value)
            if read.value.id in module_of_name:
                yield from _if_constant(module_of_name[read.value.id], f".{read.attr}")
    for read in ast.walk(tree):
        if isinstance(read, ast.Name) and read not in owners and read.id in module_of_name:
            yield from _if_constant(module_of_name[read.id], "")


def _if_constant(place: str, attribute: str) -> Iterator[str]:
    """Yield a place of `lethe.config` unless it is a module, class, type or function: these hold no value of their own."""
    value = _value(place)
    is_type = isinstance(value, (type, TypeVar)) or get_origin(value) is not None
    if not is_type and not isinstance(value, (ModuleType, FunctionType)):
        yield place + attribute


def _value(place: str) -> object:
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
        if isinstance(node, ast.If) and ast.unparse(node.test) in (
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        ):
            yield from _statements(node.orelse)
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, name, ()))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(part.body)
