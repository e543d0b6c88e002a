"""Stage `prepare`: the dataset's splits as JSON lines, checked row by row."""

from pathlib import Path

from lethe.config import Params
from lethe.data.rows import aim, load_splits
from lethe.errors import BadInput
from lethe.io.artifacts import write_splits
from stages import entry


def run(settings: Params, root: Path) -> None:
    splits = load_splits(settings.data)
    if "retain" not in splits and (settings.train.models or settings.unlearn.methods):
        raise BadInput(
            f"The dataset {settings.data.kind} has no retain set here, which training and unlearning need. "
            "Give one, or set train.models and unlearn.methods to {}."
        )
    write_splits(splits, settings.data.kind, root / "dataset", aim(settings.data.kind))
    print(", ".join(f"{name} {len(rows)}" for name, rows in splits.items()))


main = entry(run, __name__)
