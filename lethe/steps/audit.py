"""Stage `audit@NAME`: the files of one audit, by the module of its kind."""

from __future__ import annotations

from pathlib import Path

from lethe.audits.protocol import AuditResult
from lethe.config.schema import AuditParams
from lethe.evaluation.guarantees import guarantees
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.json_files import write_json
from lethe.io.tables import write_parquet
from lethe.registry import AUDITS


def run(name: str, settings: AuditParams, root: Path = Path("data")) -> AuditResult:
    """Run one entry of ``audits``; write the headline to ``root/audits/name.json``, the rest to ``root/audits/name``."""
    found = AUDITS[settings.kind].audit(settings)
    write_json(root / "audits" / f"{name}.json", {"schema": SCHEMA_VERSION, **found.headline})
    with atomic_folder(root / "audits" / name) as folder:
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **found.headline, **found.details})
        write_json(folder / "bounds.json", guarantees(found.bounds))
        for title, table in found.tables.items():
            write_parquet(folder / f"{title}.parquet", table)
    return found
