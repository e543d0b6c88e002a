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


def templates(*filters: Callable[..., object]) -> Environment:
    """The templates of this folder, which can use ``filters`` and all functions of `lethe.text` under their own names.

    Every page begins with head.html and ends with foot.html: the same style, script and content policy.
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
    environment.filters.update({one.__name__: one for one in (*filters, visible)})
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    worn = {
        "style": style,
        "script": script,
        "policy": policy(style, script),
    }  # the package's own files
    environment.globals.update({name: Markup(text) for name, text in worn.items()}, visible=visible)
    return environment


@functools.cache
def _compiled() -> BytecodeCache:
    """The compiled templates of this process: compiling all of a page takes most of a second."""
    import jinja2

    code_of_template: dict[tuple[str, str], CodeType | None] = {}

    class InMemory(jinja2.BytecodeCache):
        def load_bytecode(self, bucket: Bucket) -> None:
            bucket.code = code_of_template.get((bucket.key, bucket.checksum))

        def dump_bytecode(self, bucket: Bucket) -> None:
            code_of_template[bucket.key, bucket.checksum] = bucket.code

    return InMemory()


def policy(style: str, script: str) -> str:
    """A content policy under which a page makes no request and uses only this style and this script.

    Each must be the exact and entire content of its element in the page.
    """
    kinds = {"script-src": script, "style-src": style}
    digests = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest())
        for kind, text in kinds.items()
    }
    allowed = [f"{kind} 'sha256-{digest.decode()}'" for kind, digest in digests.items()]
    return "; ".join(
        ["default-src 'none'", *allowed, "img-src data:", "base-uri 'none'", "form-action 'none'"]
    )


def bold_percents(sentence: str) -> Markup:
    return Markup(re.sub(r"\d[\d.]*%", r"<b>\g<0></b>", str(escape(sentence))))


def visible(text: str, longest: int = LONGEST) -> Markup:
    """Return an untrusted text as safe HTML: escaped markup, named invisible characters, long texts cut with their length."""
    sign = Markup('<span class="control" title="U+{}">{}</span>')
    html = Markup("").join(
        escape(character)
        if (shown := named(character)) is None
        else sign.format(f"{ord(character):04X}", shown)
        for character in text[:longest]
    )
    if len(text) > longest:
        html += Markup('<span class="cut"> … cut here: {} characters in all</span>').format(
            f"{len(text):,}"
        )
    return html
