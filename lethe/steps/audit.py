"""Stage `audit@NAME`: the files of one audit, by the module of its kind."""

from __future__ import annotations

from pathlib import Path

from lethe.audits import AuditResult
from lethe.config.schema import AuditParams
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.json_files import flat_numbers, write_json
from lethe.io.tables import write_parquet
from lethe.registry import AUDITS


def run(name: str, settings: AuditParams, root: Path = Path("data")) -> AuditResult:
    """Run one entry of ``audits``; write the headline to ``root/audits/name.json``, the rest to ``root/audits/name``."""
    result = AUDITS[settings.kind].audit(settings)
    write_json(root / "audits" / f"{name}.json", {"schema": SCHEMA_VERSION, **result.headline})
    with atomic_folder(root / "audits" / name) as folder:
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **result.headline, **result.details})
        for title, table in result.tables.items():
            write_parquet(folder / f"{title}.parquet", table)
    write_rows("audit", name, result, root)
    return result


def write_rows(stage: str, name: str, result: AuditResult, root: Path) -> None:
    """Write the table of an audit or game: every number of its headline and details by dotted key, and the record whole."""
    from lethe.results import table

    rows, bounds = table.Rows(name), result.bounds
    numbers = flat_numbers(result.headline)
    numbers |= {key: value for key, value in flat_numbers(result.details).items() if key not in numbers}
    for key in dict.fromkeys((*numbers, *bounds)):  # an infinite bound is not among the finite numbers
        bound = bounds.get(key)
        ends = (bound, None) if bound and bound.side == "lower" else (None, bound)
        rows.add("audit", "number", "run", None if bound else numbers[key], *ends, item=key)
    whole = result.headline if stage == "game" else {**result.headline, **result.details}
    rows.add("audit", "record", "run", evidence=whole)
    table.write(table.place(root, stage, name), rows.rows)
