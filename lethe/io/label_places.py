"""Where a pipeline keeps a person's labels. DVC tracks each of these places, also while it is as it was committed."""

from pathlib import Path

LABELS = "data/labels"
CALIBRATION = "data/labels/calibration.csv"
ANSWERS = "data/labels/answers.jsonl"
PLACES = (LABELS, CALIBRATION, ANSWERS)


def filled(place: str | None, root: Path = Path()) -> str | None:
    """Return ``place``; None where it is null, or one of `PLACES` into which nobody has put a label."""
    if place is None:
        return None
    path = root / place
    if place == LABELS:
        names = {file.name for file in path.glob("*.jsonl")}
        return place if names - {Path(ANSWERS).name} else None
    if place not in (CALIBRATION, ANSWERS):
        return place
    if not path.is_file():
        return None
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if place == CALIBRATION:
        lines -= 1  # the header
    return place if lines > 0 else None
