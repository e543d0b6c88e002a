"""How all pages are rendered: values are escaped, and an undefined name in a template is an error."""

from __future__ import annotations

import base64
import functools
import hashlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

import lethe.text
from lethe.text import LONGEST, named

if TYPE_CHECKING:
    from types import CodeType

    from jinja2 import BytecodeCache, Environment
    from jinja2.bccache import Bucket

HERE = Path(__file__).parent
CONTROL = Markup('<span class="control" title="U+{}">{}</span>')  # code point and name
CUT = Markup('<span class="cut"> … cut here: {} characters in all</span>')


def templates(*filters: Callable[..., object]) -> Environment:
    """The templates of this folder, which can use ``filters`` and all functions of `lethe.text` under their own names.

    Every page begins with head.html and ends with foot.html: the same style, script and content policy. An undefined
    name raises `jinja2.UndefinedError`.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        bytecode_cache=_compiled(),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(inspect.getmembers(lethe.text, inspect.isfunction))
    for function in (*filters, visible):
        environment.filters[function.__name__] = function
    style = (HERE / "style.css").read_text(encoding="utf-8")
    script = (HERE / "page.js").read_text(encoding="utf-8")
    environment.globals.update(
        style=Markup(style),  # the package's own files
        script=Markup(script),
        policy=Markup(policy(style, script)),
        visible=visible,
    )
    return environment


@functools.cache
def _compiled() -> BytecodeCache:
    """The compiled templates of this process: compiling all of a page takes most of a second."""
    import jinja2

    code_of_template: dict[tuple[str, str], CodeType | None] = {}

    class TemplateCache(jinja2.BytecodeCache):
        def load_bytecode(self, bucket: Bucket) -> None:
            bucket.code = code_of_template.get((bucket.key, bucket.checksum))

        def dump_bytecode(self, bucket: Bucket) -> None:
            code_of_template[bucket.key, bucket.checksum] = bucket.code

    return TemplateCache()


def policy(style: str, script: str) -> str:
    """A content policy under which a page makes no request and uses only this style and this script.

    Each must be the exact and entire content of its element in the page.
    """
    rules = [
        "default-src 'none'",
        f"script-src {_source(script)}",
        f"style-src {_source(style)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(rules)


def _source(text: str) -> str:
    """The only script or style that a content policy allows, by its digest (Content Security Policy 3, section 2.3.1)."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def bold_percents(sentence: str) -> Markup:
    """The sentence as safe HTML, with each percentage in bold."""
    html = str(escape(sentence))
    return Markup(re.sub(r"\d[\d.]*%", r"<b>\g<0></b>", html))


def visible(text: str, longest: int = LONGEST) -> Markup:
    """Return an untrusted text as safe HTML: escaped markup, named invisible characters, long texts cut with their length.

    ``longest`` is in characters of the text.
    """
    pieces = []
    for character in text[:longest]:
        name = named(character)
        if name is None:
            pieces.append(escape(character))
        else:
            pieces.append(CONTROL.format(f"{ord(character):04X}", name))
    if len(text) > longest:
        pieces.append(CUT.format(f"{len(text):,}"))
    return Markup("").join(pieces)
