"""How all pages are rendered: values are escaped, and an undefined name in a template is an error."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from lethe.text import LONGEST, named

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent


def templates(*filters: Callable[..., object]) -> Environment:
    """The templates of this folder, which can use ``filters`` under their own names.

    Every page begins with head.html and ends with foot.html: the same style, script and content policy.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({one.__name__: one for one in filters})
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    worn = {"style": style, "script": script, "policy": policy(style, script)}
    environment.globals.update({name: Markup(text) for name, text in worn.items()})  # the package's own files
    return environment


def policy(style: str, script: str) -> str:
    """A content policy under which a page makes no request and uses only this style and this script.

    Each must be the exact and entire content of its element in the page.
    """
    kinds = {"script-src": script, "style-src": style}
    allowed = [f"{kind} 'sha256-{_digest(text)}'" for kind, text in kinds.items()]
    return "; ".join(["default-src 'none'", *allowed, "img-src data:", "base-uri 'none'", "form-action 'none'"])


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def bold_percents(sentence: str) -> Markup:
    return Markup(re.sub(r"\d[\d.]*%", r"<b>\g<0></b>", str(escape(sentence))))


def visible(text: str, longest: int = LONGEST) -> Markup:
    """Return an untrusted text as safe HTML: escaped markup, named invisible characters, long texts cut with their length."""
    shown = text[:longest]
    html = Markup("").join(_character(character) for character in shown)
    if len(text) > longest:
        html += Markup('<span class="cut"> … cut here: {} characters in all</span>').format(f"{len(text):,}")
    return html


def _character(character: str) -> Markup:
    shown = named(character)
    if shown is None:
        return escape(character)
    return Markup('<span class="control" title="U+{}">{}</span>').format(f"{ord(character):04X}", shown)
