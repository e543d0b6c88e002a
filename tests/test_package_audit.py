"""`make audit-packages` fails for a weakness that no document explains, and for a package that was not looked up."""

from __future__ import annotations

from tests.side.package_audit import IDENTIFIER, verdict

WEAK = {"id": "PYSEC-2030-1", "aliases": ["CVE-2030-12345"], "fix_versions": ["2.0"]}
TOLD = {
    "dependencies": [
        {"name": "good", "version": "1", "vulns": []},
        {"name": "weak", "version": "1.5", "vulns": [WEAK]},
        {"name": "unknown", "skip_reason": "Dependency not found on PyPI"},
    ]
}


def test_each_weakness_is_open_until_a_document_names_it():
    open_, left = verdict(TOLD, set())
    assert open_ == ["weak 1.5: PYSEC-2030-1 (mended in 2.0)"]
    assert left == ["unknown: Dependency not found on PyPI"]
    for name in ("PYSEC-2030-1", "CVE-2030-12345"):
        assert verdict(TOLD, set(IDENTIFIER.findall(f"The weakness {name} needs a browser.")))[0] == []
    assert verdict(TOLD, {"PYSEC-2030-2"})[0] == open_
