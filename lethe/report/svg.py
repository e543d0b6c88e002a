"""The style of all figures: drawn by matplotlib, inlined with the page's colours and fonts, or saved as PNG.

Figures are drawn in stand-in colours that become the page's CSS variables, so that one drawing serves light, dark
and paper. Text stays text. The same data gives the same bytes.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

INK, MUTED, RULE, ACCENT, WARM = (f"#01010{digit}" for digit in range(1, 6))
LIGHT = {
    "ink": "#1c1d1f",
    "muted": "#5d6167",
    "rule": "#e1e1db",
    "accent": "#2459a9",
    "warm": "#c2410c",
}
NAMES = dict(zip((INK, MUTED, RULE, ACCENT, WARM), LIGHT, strict=True))
COORDINATES = ("d", "x", "y", "width", "height", "points")
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


def canvas(width: float, height: float, left: float) -> tuple[Figure, Axes]:
    """An empty figure; call it inside `style`.

    The margins are fixed, so that the axes of neighbouring panels are aligned.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    figure.patch.set_visible(False)
    below, above, right = 0.4, 0.22, 0.08
    box = (left / width, below / height, 1 - (left + right) / width, 1 - (below + above) / height)
    axes = figure.add_axes(box)
    axes.patch.set_visible(False)
    return figure, axes


def house() -> dict[RcKeyType, object]:
    """The settings of house.mplstyle, in stand-in colours."""
    from matplotlib import rc_params_from_file

    return dict(
        rc_params_from_file(Path(__file__).with_name("house.mplstyle"), use_default_template=False)
    )


def style(name: str) -> AbstractContextManager[None]:
    """The house style as a context; ``name`` seeds the identifiers inside the drawing."""
    import matplotlib

    return matplotlib.rc_context(house() | {"svg.hashsalt": name})


def inline(figure: Figure, name: str, label: str) -> Markup:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(buffer.getvalue())
    # A style element inside an inline SVG would restyle the whole page.
    for parent in list(root.iter()):
        for child in [
            child for child in parent if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style")
        ]:
            parent.remove(child)
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.set("role", "img")
    root.set("aria-label", label)
    _clean_identifiers(root, name)
    for element in root.iter():
        _plain_attributes(element)
    text = ElementTree.tostring(root, encoding="unicode")
    for colour, variable in NAMES.items():
        text = text.replace(colour, f"var(--{variable})")
    text = text.replace("<defs />", "")
    return Markup(re.sub(r"\n\s*", "", text))


def _plain_attributes(element: ElementTree.Element) -> None:
    """Styles as attributes, which the page's content policy allows; coordinates to hundredths of a point."""
    for declaration in element.attrib.pop("style", "").split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font":  # the shorthand has no attribute; the page chooses the family
            key, value = "font-size", value.split()[0]
        if key and key != "font-family":
            element.set(key, value)
    for key in COORDINATES:
        if key in element.attrib:
            parts = re.split(r"(-?\d+\.\d+)", element.attrib[key])  # every second part is a number
            parts[1::2] = [f"{float(part):.2f}".rstrip("0").rstrip(".") for part in parts[1::2]]
            element.set(key, " ".join("".join(parts).split()))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]


def standalone(drawing: Markup) -> str:
    """An inline figure as a separate file in the colours for paper: for slides, papers and MLflow."""
    text = re.sub(r"var\(--(\w+)\)", lambda name: LIGHT[name.group(1)], str(drawing))
    return text.replace("<svg ", '<svg font-family="DejaVu Sans, sans-serif" ', 1) + "\n"


def _clean_identifiers(root: ElementTree.Element, name: str) -> None:
    """Keep only the identifiers that something refers to, with the figure's name before them."""
    text = ElementTree.tostring(root, encoding="unicode")
    used = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text))
    for element in root.iter():
        identifier = element.attrib.pop("id", None)
        if identifier in used:
            element.set("id", f"{name}-{identifier}")
        reference = element.attrib.pop(f"{{{_XLINK}}}href", None)
        if reference:
            element.set("href", f"#{name}-{reference[1:]}")
        for key, value in element.attrib.items():
            if "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))


COLOURS = ("#2459a9", "#c2410c", "#0f766e", "#7c3aed", "#a16207", "#be185d", "#4d7c0f", "#1c1d1f")
MARKS = ("o", "s", "D", "^", "v", "P", "X", "*")
DOTS_PER_INCH = 160


@contextmanager
def picture(
    path: Path, width: float, height: float, **grid: Any
) -> Iterator[tuple[Figure, np.ndarray]]:
    """Yield a figure with its axes (rows, columns), which ``grid`` asks of `Figure.subplots`, then save it."""
    import matplotlib
    from matplotlib.figure import Figure

    light = {colour: LIGHT[name] for colour, name in NAMES.items()}
    style = {key: light.get(str(value), value) for key, value in house().items()}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(squeeze=False, **grid)
        # No version of the library in the file: the same data gives the same bytes.
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
