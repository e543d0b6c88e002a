"""Stage `audit@NAME`: one entry of `audits`, by the module of its kind."""

from pathlib import Path

from lethe.audits import write_rows
from lethe.config import Params
from lethe.io.files import SCHEMA_VERSION, atomic_folder, write_json
from lethe.io.tables import write_parquet
from lethe.registry import AUDITS
from stages import entry, named


def run(settings: Params, root: Path, name: str) -> None:
    """Compute one entry of ``audits``; write ``root/audits/name``."""
    audit = named("audits", settings.audits, name)
    result = AUDITS[audit.kind].audit(audit)
    write_json(root / "audits" / f"{name}.json", {"schema": SCHEMA_VERSION, **result.headline})
    with atomic_folder(root / "audits" / name) as folder:
        values = {"schema": SCHEMA_VERSION, **result.headline, **result.details}
        write_json(folder / "result.json", values)
        for title, table in result.tables.items():
            write_parquet(folder / f"{title}.parquet", table)
    write_rows("audit", name, result, root)
    for sentence in result.sentences:
        print(f"{name}: {sentence}")


main = entry(run, __name__)
