"""Stage `sources`: hash the code behind every stage, and behind each member that a stage loads by its name.

Each other stage of dvc.yaml takes its own hashes from data/sources.json as params. So an edit of a module makes only the
stages run again that can load the module.
"""

import hashlib
from pathlib import Path

from lethe.io.cache import Sources, digest
from lethe.io.files import write_json
from lethe.process import run_stage
from lethe.registry import AUDITS, DATASETS, GAMES, JUDGES, METHODS, MODEL_ATTACKS, Registry

# The registry of which a stage loads the one member that its entry in params.yaml names.
LOADED: dict[str, Registry] = {
    "prepare": DATASETS,
    "unlearn": METHODS,
    "attack": MODEL_ATTACKS,
    "judge": JUDGES,
    "audit": AUDITS,
    "game": GAMES,
}
NAMES = "lethe.results.quantities"  # no closure has it; these two stages write what it names
WITH_NAMES = ("metrics", "report")


def code(sources: Sources, *modules: str, without: tuple[str, ...] = ()) -> str:
    """Return the hash of modules, of all that they can import, and of the templates beside these files."""
    hashes = {}
    for module in sources.closure(*modules, by_name=True, without=without):
        hashes[module] = hashlib.sha256(sources.source(module)).hexdigest()
        place = sources.place(module)
        if place is not None and place.name == "__init__.py":
            for path in place.parent.iterdir():
                if path.is_file() and path.suffix not in (".py", ".pyc"):
                    hashes[f"{module}/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digest(hashes)


def members(sources: Sources, registry: Registry) -> dict[str, str]:
    """Return a hash per member of a registry; of another package's member, the hash of the package's version."""
    hashes = {}
    for name in registry.names():
        module = registry.source(name)
        hashes[name] = (
            code(sources, module, without=registry.folders)
            if module
            else digest(registry.version(name))
        )
    return hashes


def run(root: Path, out: Path) -> None:
    """Write ``out``: a hash per stage in ``root/stages``, and one per member of each registry in `LOADED`."""
    sources = Sources(root)
    hashes: dict[str, object] = {
        registry.kind: members(sources, registry) for registry in LOADED.values()
    }
    for path in sorted((root / "stages").glob("[a-z]*.py")):
        stage = path.stem
        if stage == "sources":
            continue
        names = (NAMES,) if stage in WITH_NAMES else ()
        without = LOADED[stage].folders if stage in LOADED else ()
        hashes[stage] = code(sources, f"stages.{stage}", *names, without=without)
    write_json(out, hashes)


def main() -> None:
    run(Path.cwd(), Path("data/sources.json"))


if __name__ == "__main__":
    run_stage(main)
