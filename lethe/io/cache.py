"""One recipe for the key of every result kept between runs: settings, facts, and the source of the code behind it.

A key hashes the settings, named facts (a data set's content, a dtype, the version of a library) and the source of every
module in the import closure of the modules that the caller names, within their package: a key that matches is never stale. A
module loaded by name appears in no import statement. The caller names the member that made the result (`module_of`);
`Sources.closure` with ``by_name`` follows every name that a module holds.

`Store` holds such results in files with a digest of their content, and a damaged file counts as missing.
"""

import ast
import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, MutableMapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar, cast

from lethe.errors import LetheError
from lethe.instruction_set import own_kernels
from lethe.io.files import Json, plain, write_text

if TYPE_CHECKING:
    from pydantic import BaseModel

K = TypeVar("K")
V = TypeVar("V")

REGISTRY = "lethe.registry"
KERNELS = "lethe.instruction_set"  # decides the last bits of every number, so every closure contains this module
# Modules that decide when and where, but not what. A closure contains every other imported module.
LEFT_OUT = {
    "lethe": "the public names; first use loads each of them",
    "lethe.config": "reads the settings, which the key contains",
    "lethe.errors": "words mistakes",
    "lethe.io": "moves data to and from files",
    "lethe.process": "starts and ends processes",
    "lethe.progress": "shows progress",
    REGISTRY: "finds a member by name; the closure contains the member",
    "lethe.results.quantities": "names numbers; dvc.yaml lists the module where a name chooses what is written",
    "lethe.tracking": "reports finished work to MLflow",
}
MODULE_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)+(:\w+)?")


class Sources:
    """The modules below one folder as of the first request: an edit during a long run changes none of its keys."""

    def __init__(self, root: Path):
        self.root = root
        self.places: dict[str, Path | None] = {}
        self.sources: dict[str, bytes] = {}
        self.names: dict[tuple[str, bool], frozenset[str]] = {}
        self.codes: dict[tuple[str, ...], str] = {}

    def place(self, module: str) -> Path | None:
        if module not in self.places:
            below = self._folder(module).joinpath(*module.split("."))
            candidates = (below / "__init__.py", below.with_suffix(".py"))
            self.places[module] = next((path for path in candidates if path.is_file()), None)
        return self.places[module]

    def source(self, module: str) -> bytes:
        """Return the content of a module's file; without a file, as in a notebook, something that only this process has."""
        if module not in self.sources:
            place = self.place(module)
            if place is None and module != "__main__":
                raise LookupError(f"no module {module} below {self._folder(module)}")
            self.sources[module] = place.read_bytes() if place else f"# {uuid.uuid4()}".encode()
        return self.sources[module]

    def closure(
        self, *modules: str, by_name: bool = False, without: Iterable[str] = ()
    ) -> list[str]:
        """Return modules with the packages around them and all their imports within, also those inside functions, sorted."""
        packages = {"lethe", *(module.partition(".")[0] for module in modules)}
        seen: set[str] = set()
        ahead = [*modules, *([KERNELS] if self.place(KERNELS) else [])]
        while ahead:
            module = ahead.pop()
            if module in seen or module.partition(".")[0] not in packages:
                continue
            left_out = module in LEFT_OUT or _below(module, LEFT_OUT.keys() - {"lethe"})
            if left_out and module not in modules:
                continue
            seen.add(module)
            ahead += self.imports(module)
            if by_name:
                ahead += [one for one in self.imports(module, by_name) if not _below(one, without)]
            parts = module.split(".")
            around = (".".join(parts[:count]) for count in range(1, len(parts)))
            ahead += filter(self.place, around)  # a folder without __init__.py runs no code
        return sorted(seen)

    def imports(self, module: str, by_name: bool = False) -> frozenset[str]:
        if (module, by_name) not in self.names:
            tree = ast.parse(self.source(module))
            names = self._named(tree) if by_name else self._imported(module, tree)
            self.names[module, by_name] = frozenset(names)
        return self.names[module, by_name]

    def key(self, *modules: str, settings: object = None, **facts: object) -> str:
        if modules not in self.codes:
            hashes = {
                one: hashlib.sha256(self.source(one)).hexdigest() for one in self.closure(*modules)
            }
            self.codes[modules] = digest(hashes)
        names = sorted(facts)
        return digest(self.codes[modules], settings, names, *(facts[name] for name in names))

    def members(self, package: str) -> list[str]:
        """Return the modules directly below a package; a folder below it is no member, since no registry lists one."""
        place = self.place(package)
        if place is None or place.name != "__init__.py":
            return []
        return sorted(
            f"{package}.{path.stem}" for path in place.parent.glob("*.py") if path != place
        )

    def _folder(self, module: str) -> Path:
        top = module.partition(".")[0]
        if (self.root / top).is_dir() or top == "__main__":
            return self.root
        spec = importlib.util.find_spec(top)
        if spec is None or not spec.origin:
            return self.root
        return Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]

    def _imported(self, module: str, tree: ast.Module) -> Iterator[str]:
        for node in _statements(tree.body):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    own = self.place(module)
                    up = node.level - (own is not None and own.name == "__init__.py")
                    above = module.rsplit(".", up)[0]
                    base = f"{above}.{base}".rstrip(".")
                if base.partition(".")[0] not in ("lethe", module.partition(".")[0]):
                    continue
                for alias in node.names:
                    below = f"{base}.{alias.name}"
                    yield below if self.place(below) is not None else base

    def _named(self, tree: ast.AST) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == REGISTRY:
                for alias in node.names:
                    yield from self._named(
                        self._assigned(REGISTRY).get(alias.name, ast.Module([], []))
                    )
            elif (
                isinstance(node, ast.JoinedStr)
                and node.values
                and isinstance(node.values[0], ast.Constant)
            ):
                head = str(node.values[0].value)
                if head.endswith(".") and MODULE_NAME.fullmatch(head[:-1]):
                    yield from self.members(head[:-1])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value.partition(":")[0]
                if (
                    MODULE_NAME.fullmatch(node.value)
                    and name.startswith("lethe.")
                    and self.place(name)
                ):
                    yield name
                    yield from self.members(name)

    def _assigned(self, module: str) -> dict[str, ast.AST]:
        values: dict[str, ast.AST] = {}
        for node in ast.parse(self.source(module)).body:
            if isinstance(node, ast.Assign):
                values |= {
                    target.id: node.value for target in node.targets if isinstance(target, ast.Name)
                }
        return values


def cache_key(*modules: str, settings: object = None, **facts: object) -> str:
    return library().key(*modules, settings=settings, **facts)


def module_of(member: object) -> str:
    if isinstance(member, ModuleType):
        return member.__name__
    return getattr(member, "__module__", type(member).__module__)


@lru_cache(maxsize=1)
def library() -> Sources:
    return Sources(Path(__file__).parents[2])


def digest(*values: object) -> str:
    """Return a hash of plain values, pydantic models, dataclasses, and arrays (type, shape and content)."""
    state = hashlib.blake2b(digest_size=16)
    # An array exists only where NumPy is loaded, and stages import this module before it.
    numpy = sys.modules.get("numpy")
    for value in values:
        if numpy is not None and isinstance(value, numpy.ndarray):
            state.update(
                f"{value.dtype}{value.shape}".encode() + numpy.ascontiguousarray(value).tobytes()
            )
        else:
            state.update(json.dumps(value, sort_keys=True, default=_plain).encode())
        state.update(b"\0")
    return state.hexdigest()


def content_digest(path: Path) -> str:
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
    own = own_kernels()
    return _installed(*distributions) | ({} if own is None else {"kernels": own})


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


def _plain(settings: object) -> dict[str, object]:
    """The fields of a dataclass or of a pydantic model."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        return dataclasses.asdict(settings)
    return cast("BaseModel", settings).model_dump(mode="json")


def _below(module: str, packages: Iterable[str]) -> bool:
    return any(module.startswith(f"{package}.") for package in packages)


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


def keep(path: Path, value: object) -> None:
    """Write ``value`` as strict JSON below a line with its digest, atomically."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
    write_text(path, f"{_digest(text.encode())}\n{text}\n")


def recall(path: Path) -> Json:
    """Return the value that `keep` wrote; None where the file is missing, unreadable or damaged."""
    try:
        first, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        print(
            f"{path} cannot be read ({error.strerror}) and counts as missing",
            file=sys.stderr,
            flush=True,
        )
        return None
    content = content.removesuffix(b"\n")
    if first != _digest(content).encode():
        print(f"{path} is damaged and counts as missing", file=sys.stderr, flush=True)
        return None
    return json.loads(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Store(MutableMapping[K, V]):
    """JSON values by name, in files below ``scratch`` whose names hash ``key``, which is a `cache_key`, and the name."""

    def __init__(self, scratch: Path, key: str):
        self.scratch, self.key = scratch, key
        self.places: dict[K, Path] = {}

    def place(self, name: K) -> Path:
        if name not in self.places:
            key = digest(self.key, name)
            self.places[name] = self.scratch / key[:2] / f"{key}.json"
        return self.places[name]

    def __getitem__(self, name: K) -> V:
        value = recall(self.place(name))
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: K, value: V) -> None:
        keep(self.place(name), value)

    def __delitem__(self, name: K) -> None:
        self.place(name).unlink()

    def __iter__(self) -> Iterator[K]:
        return (name for name, place in self.places.items() if place.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        """Remove every file that this object read or wrote; call it after the result is written."""
        for place in self.places.values():
            place.unlink(missing_ok=True)


class Levels(Store[tuple[int, float], float]):
    """Solved Berk-Jones levels by (n, alpha), below LETHE_CACHE or the user's cache; no place to write costs time only."""

    def __init__(self, folder: Path | None = None):
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        place = folder or Path(os.environ.get("LETHE_CACHE") or home / "lethe") / "berk-jones"
        super().__init__(
            place, cache_key("lethe.statistics.bands", libraries=versions("numpy", "scipy"))
        )

    def __setitem__(self, name: tuple[int, float], eta: float) -> None:
        with contextlib.suppress(OSError, LetheError):
            super().__setitem__(name, eta)
