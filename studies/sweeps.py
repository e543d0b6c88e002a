"""What a finished sweep says of the claims that its preset states: its document is read, nothing is drawn.

The seeds are those of params.yaml, which every point of a sweep starts from.
"""

from collections.abc import Mapping
from pathlib import Path

from lethe import config
from lethe.errors import BadFile
from lethe.io.files import Json, read_json
from studies import outcome
from studies.demonstration import seeds_of

FOLDER = Path("data/sweeps")
LEVEL = 0.025  # of each direction
Values = dict[str, Json]


def study(root: Path, name: str, *, keep: bool = False) -> Values:
    """Read the sweep of the preset ``name`` in ``root``, write the outcome and return its values.

    Raises
    ------
    BadFile
        If the sweep has not run, a point of it failed, or it has no claims.
    """
    place = root / FOLDER / f"{name}.json"
    command = f"lethe sweep --preset {name}"
    if not place.is_file():
        raise BadFile(place, "is missing", f"Run {command} first.")
    sweep = read_json(place)
    if sweep["failed"]:
        points = ", ".join(sweep["failed"])
        raise BadFile(place, f"has points that failed ({points})", f"Run {command} again.")
    if not sweep.get("claims"):
        raise BadFile(place, "states no claim", "Name a sweep of a preset with claims.")

    seeds = seeds_of(config.load(root / config.FILE))
    asked = {"common": sweep["common"], "points": sweep["points"]}
    of_study = outcome.Study(f"sweep-{name}", f"lethe study sweep {name}", seeds, asked, keep)
    values: Values = {
        "points": len(sweep["points"]),
        "claims": [claim_of(tested) for tested in sweep["claims"]],
    }
    of_study.finish(values, [place.with_name(sweep["figure"]["file"])])
    return values


def claim_of(tested: Mapping[str, Json]) -> Values:
    """A claim with Kendall's tau between the ends that its test leaves.

    A direction that shows at `LEVEL` leaves what lies beyond tau on its side of 0; else every tau is left. ``strength``
    is the same of the size of tau.
    """
    relation = tested["trend"]
    falls = relation["p_falls"] <= LEVEL
    rises = relation["p_rises"] <= LEVEL
    tau = relation["tau"] or 0.0
    size = abs(tau)
    return {
        "says": tested["says"],
        "cause": tested["cause"],
        "effect": tested["effect"],
        "verdict": tested["verdict"],
        "points": relation["points"],
        "p": min(1.0, 2 * min(relation["p_falls"], relation["p_rises"])),
        "tau": {"mean": tau, "smallest": tau if rises else -1.0, "largest": tau if falls else 1.0},
        "strength": {
            "mean": size,
            "smallest": size if falls or rises else 0.0,
            "largest": 1.0,
        },
    }
