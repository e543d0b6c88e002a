"""Shards of the stage `score@MODEL`: the scores of a part of the questions, and how the whole takes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.io.artifacts import Row, read_items
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.cache import cache_key, content_digest, module_of, versions
from lethe.io.json_files import write_json
from lethe.io.parts import Tables, columns_of, read_parts, write_parts
from lethe.io.references import References, read_references
from lethe.io.schema import read_artifact
from lethe.io.shards import Shard, found, place_of

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import Score

READ = ("prompt_id", "sample", "text", "production")  # those that a table has


def read_columns(path: Path) -> list[str]:
    """The columns of the generations that scores depend on."""
    return [name for name in columns_of(path) if name in READ]


def run(name: str, score: Score, shard: Shard, root: Path = Path("data"), kept: Path | None = None) -> None:
    """Score one shard of the questions of ``root/generations/name``; write ``root/shards/score``."""
    from lethe.scoring._tables import scored_parts

    generations = Tables(root / "generations" / name, f"sample@{name}")
    references = read_references(root / "generations" / name)
    keys: dict[str, str] = {}
    rows = 0
    with atomic_folder(place_of(root, "score", name, shard)) as folder:
        for split, path in generations.paths.items():
            items = read_items(split, root)
            asked = _prompts(path)
            own = shard.part(asked)
            if not own:
                continue
            drawn = _drawn(path, set(own))
            keys[split] = _key(score, split, items, _digests(drawn()), references)
            rows += write_parts(
                folder / f"{split}.parquet",
                scored_parts(drawn, items, score.names, score.params, kept, references),
            )
        write_json(folder / "about.json", {"schema": SCHEMA_VERSION, "keys": keys})
    print(f"{name}: shard {shard.number} of {shard.of}: {rows} answers scored")


def taken(
    name: str,
    split: str,
    path: Path,
    score: Score,
    items: Mapping[str, Row],
    root: Path,
    references: References,
    kept: Path | None = None,
) -> Iterator[pd.DataFrame] | None:
    """The scores of a split in parts like those of ``path``: from the shards, and for the rest scored here; None without any.

    A shard counts if its scorers, their code, its questions and its answers are those of the whole.
    """
    from lethe.scoring._tables import scored_parts

    folders = found(root, "score", name)
    digests = _digests(read_parts(path, read_columns(path))) if folders else {}
    asked = list(digests)
    best: list[tuple[Path | None, list[str]]] = []
    for count in sorted({shard.of for shard in folders}):
        held: list[tuple[Path | None, list[str]]] = []
        for shard in (Shard(number, count) for number in range(1, count + 1)):
            if own := shard.part(asked):
                folder = folders.get(shard)
                same = folder is not None and read_artifact(folder / "about.json")["keys"].get(split) == _key(
                    score, split, items, {prompt: digests[prompt] for prompt in own}, references
                )
                held.append((folder if same else None, own))
        if _questions_in(held) > _questions_in(best):
            best = held
    if not _questions_in(best):
        return None
    return _in_order(
        path,
        [
            scored_parts(_drawn(path, set(own)), items, score.names, score.params, kept, references)
            if folder is None
            else read_parts(folder / f"{split}.parquet")
            for folder, own in best
        ],
    )


def _questions_in(held: Sequence[tuple[Path | None, list[str]]]) -> int:
    return sum(len(own) for folder, own in held if folder is not None)


def _prompts(path: Path) -> list[str]:
    return [prompt for part in read_parts(path, ["prompt_id"]) for prompt in part["prompt_id"].unique().tolist()]


def _drawn(path: Path, prompts: set[str]) -> Callable[[], Iterator[pd.DataFrame]]:
    columns = read_columns(path)

    def parts() -> Iterator[pd.DataFrame]:
        for part in read_parts(path, columns):
            own = part[part["prompt_id"].isin(prompts)]
            if len(own):
                yield own.reset_index(drop=True)

    return parts


def _digests(parts: Iterable[pd.DataFrame]) -> dict[str, str]:
    """A digest of the answers to each question, in the order of the questions, from one pass over the answers."""
    digests = {}
    for part in parts:
        for prompt, answers in part.groupby("prompt_id", sort=False):
            digest = hashlib.blake2b(digest_size=16)
            for row in answers.itertuples(index=False):
                digest.update(repr(tuple(row)).encode("utf-8", "surrogatepass"))
            digests[str(prompt)] = digest.hexdigest()
    return digests


def _key(
    score: Score, split: str, items: Mapping[str, Row], digests: Mapping[str, str], references: References
) -> str:
    """The key of everything that determines the scores of these questions; ``digests`` are those of their answers."""
    from lethe.registry import JUDGES, SCORERS
    from lethe.scoring.verdicts import LIBRARIES

    judges = {name: getattr(score.params.get(name), "model", None) for name in score.names if name in JUDGES}
    modules = [module_of(JUDGES[name] if name in JUDGES else SCORERS[name]) for name in score.names]
    return cache_key(
        "lethe.scoring._tables",
        *modules,
        settings=score,
        judges={
            name: content_digest(Path(one)) if one and Path(one).exists() else one for name, one in judges.items()
        },
        libraries=versions(*LIBRARIES, "judgezoo") if judges else {},
        split=split,
        items=[items.get(prompt) for prompt in digests],
        answers=[*digests.items()],
        references=repr(sorted(references.items(), key=lambda pair: pair[0])),
    )


def _in_order(path: Path, scored: Sequence[Iterator[pd.DataFrame]]) -> Iterator[pd.DataFrame]:
    """The rows of the shards, which follow each other as the answers do, in the parts of ``path``."""
    import pandas as pd

    ahead = (part for parts in scored for part in parts)
    rest: pd.DataFrame | None = None
    for drawn in read_parts(path, ["prompt_id", "sample"]):
        pending = [] if rest is None else [rest]
        size = sum(map(len, pending))
        while size < len(drawn):
            pending.append(next(ahead))
            size += len(pending[-1])
        whole = pd.concat(pending, ignore_index=True)
        yield whole.iloc[: len(drawn)].reset_index(drop=True)
        rest = whole.iloc[len(drawn) :] if size > len(drawn) else None
