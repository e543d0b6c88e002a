"""Stage `prepare`: the dataset's splits as JSON lines, checked row by row."""

from pathlib import Path

from lethe.config import Params
from lethe.data.rows import aim, generates_secrets, load_splits, with_twins
from lethe.data.secrets import secrets_of
from lethe.errors import BadInput, plural
from lethe.io.artifacts import write_splits
from stages import entry


def run(settings: Params, root: Path) -> None:
    """Write ``root/dataset``, a file a split, with the twins of its secrets where ``twins`` asks for them."""
    splits = load_splits(settings.data)
    if "retain" not in splits and (settings.train.models or settings.unlearn.methods):
        raise BadInput(
            f"The dataset {settings.data.kind} has no retain set here, which training and unlearning need. "
            "Give one, or set train.models and unlearn.methods to {}."
        )
    generated_twins = False
    if settings.twins is not None:
        generated_twins = generates_secrets(settings.data.kind)
        splits = with_twins(settings.data, splits, settings.twins.k)
        secrets = secrets_of(splits["forget"])
        print(f"twins: {plural(len(secrets), 'secret')} of the forget set can be tested")
    kind = settings.data.kind
    write_splits(splits, kind, root / "dataset", aim(kind), generated_twins)
    print(", ".join(f"{name} {len(rows)}" for name, rows in splits.items()))


main = entry(run, __name__)
