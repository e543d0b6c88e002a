"""One privacy-utility landscape: from a file of settings to a folder of results and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.config.assignments import parse, section_of
from lethe.config.presets import read_preset
from lethe.errors import BadParam
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.json_files import write_json

if TYPE_CHECKING:
    from studies.landscape.settings import LandscapeSettings
    from studies.landscape.study import LandscapeResult

FILES = Path(__file__).parent / "presets"
OUT = Path("data/landscapes")


def read(name: str, changes: Sequence[str]) -> LandscapeSettings:
    """Return the validated settings of a landscape, with ``changes`` as ``key=value``."""
    from studies.landscape.settings import validate

    document = read_preset(FILES, name, "landscape")
    source, legal = f"studies/landscape/presets/{name}.yaml", "a key of the file"
    for key, value in map(parse, changes):
        section, last = section_of(document, key, value, source, legal)
        if last not in section:
            raise BadParam(key, value, legal, source)
        section[last] = value
    return validate(document, source)


@dataclass(frozen=True)
class DrawnLandscape:
    """A landscape and the p-values of its test of fit, where the settings ask for that test."""

    result: LandscapeResult
    goodness_of_fit: dict[str, object] | None = None

    def as_json(self) -> dict[str, object]:
        """Return both under the keys of `lethe study landscape --json`."""
        fit = {} if self.goodness_of_fit is None else {"goodness_of_fit": self.goodness_of_fit}
        return self.result.as_json() | fit


def draw(name: str, changes: Sequence[str]) -> DrawnLandscape:
    """Train all unfinished models, measure, draw; return what data/landscapes/NAME holds."""
    from studies.landscape.picture import landscape as picture
    from studies.landscape.study import Landscape
    from studies.simulation import figures
    from studies.simulation.simulation import fit_p_values

    settings = read(name, changes)
    study = Landscape(settings)
    result = study.result()
    p_values: dict[str, object] | None = None
    fit = settings.goodness_of_fit
    with atomic_folder(OUT / name) as folder:
        picture(folder / "landscape.png", result)
        if fit is not None:
            components = range(1, fit.components + 1)
            tables = {
                title: fit_p_values(values, components, fit.samples, settings.seed)
                for title, values in study.transformed_losses().items()
            }
            figures.goodness_of_fit(folder / "goodness-of-fit.png", tables, components, fit.samples)
            p_values = {
                "components": list(components),
                "samples": fit.samples,
                "p_values": tables,
            }
        drawn = DrawnLandscape(result, p_values)
        whole = {"schema": SCHEMA_VERSION, "settings": settings.model_dump(), **drawn.as_json()}
        write_json(folder / "result.json", whole)
    return drawn
