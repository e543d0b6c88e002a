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
from contextvars import ContextVar
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
PDF_ENTRIES = re.compile(rb"(?: +/\w+ \d+ 0 R\n){2,}")  # of a dictionary: names of other objects
COORDINATES = ("d", "x", "y", "width", "height", "points")
DECIMAL = re.compile(r"-?\d+\.\d+")
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
# A style element inside an inline SVG would restyle the whole page.
LEFT_OUT = (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style")
# Margins of a canvas, in inches.
BELOW = 0.4
ABOVE = 0.22
RIGHT = 0.08


def canvas(width: float, height: float, left: float) -> tuple[Figure, Axes]:
    """An empty figure; call it inside `style`. Sizes are in inches, ``left`` is the margin on the left.

    The margins are fixed, so that the axes of neighbouring panels are aligned.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    figure.patch.set_visible(False)
    across = 1 - (left + RIGHT) / width
    up = 1 - (BELOW + ABOVE) / height
    axes = figure.add_axes((left / width, BELOW / height, across, up))
    axes.patch.set_visible(False)
    return figure, axes


def house() -> dict[RcKeyType, object]:
    """The settings of house.mplstyle, in stand-in colours."""
    from matplotlib import rc_params_from_file

    path = Path(__file__).with_name("house.mplstyle")
    return dict(rc_params_from_file(path, use_default_template=False))


def style(name: str) -> AbstractContextManager[None]:
    """The house style as a context; ``name`` seeds the identifiers inside the drawing."""
    import matplotlib

    return matplotlib.rc_context(house() | {"svg.hashsalt": name})


_DRAWN: ContextVar[dict[str, Markup] | None] = ContextVar("drawn", default=None)


@contextmanager
def collecting() -> Iterator[dict[str, Markup]]:
    """Collect every drawing that `inline` makes meanwhile, by its name: so no figure of a page lacks its file."""
    drawn: dict[str, Markup] = {}
    token = _DRAWN.set(drawn)
    try:
        yield drawn
    finally:
        _DRAWN.reset(token)


def inline(figure: Figure, name: str, label: str) -> Markup:
    """The figure as an element for the page, in its colours; the same figure gives the same bytes.

    ``name`` begins the identifiers inside the drawing, and ``label`` tells those who cannot see it what it shows.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in LEFT_OUT:
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
    drawing = Markup(re.sub(r"\n\s*", "", text))
    drawn = _DRAWN.get()
    if drawn is not None:
        drawn[name] = drawing
    return drawing


def _plain_attributes(element: ElementTree.Element) -> None:
    """Styles as attributes, which the page's content policy allows; coordinates to hundredths of a point."""
    for declaration in element.attrib.pop("style", "").split(";"):
        key, _, value = declaration.partition(":")
        key = key.strip()
        value = value.strip()
        if key == "font":  # the shorthand has no attribute; the page chooses the family
            key = "font-size"
            value = value.split()[0]
        if key and key != "font-family":
            element.set(key, value)

    for key in COORDINATES:
        if key in element.attrib:
            coordinates = DECIMAL.sub(_to_hundredths, element.attrib[key])
            element.set(key, " ".join(coordinates.split()))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]


def _to_hundredths(found: re.Match[str]) -> str:
    return f"{float(found.group()):.2f}".rstrip("0").rstrip(".")


def standalone(drawing: Markup) -> str:
    """An inline figure as a separate file in the colours for paper: for slides, papers and MLflow."""
    text = str(drawing)
    for variable, colour in LIGHT.items():
        text = text.replace(f"var(--{variable})", colour)
    return text.replace("<svg ", '<svg font-family="DejaVu Sans, sans-serif" ', 1) + "\n"


def pdf(drawing: str) -> bytes | None:
    """A `standalone` figure as PDF, with matplotlib's own fonts; None where vl-convert-python is not installed.

    The same figure gives the same bytes: entries of a dictionary, whose order means nothing, are sorted.
    """
    try:
        import vl_convert
    except ImportError:
        return None
    import matplotlib

    vl_convert.register_font_directory(str(Path(matplotlib.get_data_path(), "fonts/ttf")))
    printed = bytes(vl_convert.svg_to_pdf(drawing))
    return PDF_ENTRIES.sub(_sorted_lines, printed)


def _sorted_lines(found: re.Match[bytes]) -> bytes:
    return b"".join(sorted(found.group().splitlines(keepends=True)))


def _clean_identifiers(root: ElementTree.Element, name: str) -> None:
    """Keep only the identifiers that something refers to, with the figure's name before them."""
    text = ElementTree.tostring(root, encoding="unicode")
    used = set(re.findall(r"url\(#([^)]+)\)", text))
    used.update(re.findall(r'href="#([^"]+)"', text))

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
    """Yield a figure with its axes (rows, columns), which ``grid`` asks of `Figure.subplots`, then save it.

    ``width`` and ``height`` are in inches.
    """
    import matplotlib
    from matplotlib.figure import Figure

    settings = house()
    for key, value in settings.items():
        colour = str(value)
        if colour in NAMES:
            settings[key] = LIGHT[NAMES[colour]]
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(squeeze=False, **grid)
        # No version of the library in the file: the same data gives the same bytes.
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
