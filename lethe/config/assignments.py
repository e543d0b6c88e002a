"""`-S key=value` of the command line."""

from __future__ import annotations

from lethe.errors import BadParam, BadValue


def parse(assignment: str) -> tuple[str, object]:
    """``sample.n=64`` as its key and value; the value is read as YAML."""
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise BadValue("-S", assignment, "key=value, for example sample.n=64")
    return key.strip(), parse_value(key, text)


def section_of(
    document: object, key: str, value: object, source: str = "params.yaml", legal: str = ""
) -> tuple[dict[str, object], str]:
    """Find the section of a document in which a dotted key ends."""
    *sections, last = key.split(".")
    for part in sections:
        document = document.get(part) if isinstance(document, dict) else None
    if not isinstance(document, dict):
        raise BadParam(key, value, legal or f"a key whose sections exist ({'.'.join(sections)} does not)", source)
    return document, last


def parse_value(key: str, text: str) -> object:
    """Return the text of a value, read as YAML; raise `BadParam` for broken YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    # ValueError: an impossible date, a number of 5,000 digits; TypeError: a mapping as a key
    except (YAMLError, ValueError, TypeError, RecursionError):
        raise BadParam(key.strip(), text, "a value in YAML", source="-S") from None
