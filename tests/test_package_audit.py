"""`audit-packages` of the benchmarks fails for a weakness that no document explains, and for a package that was
not looked up."""

from __future__ import annotations

from tests.side.package_audit import IDENTIFIER, completed, frozen_versions, verdict

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


def test_a_projects_page_stands_in_for_the_page_of_its_newest_release():
    pages = {
        "newest": {"info": {"version": "2"}, "vulnerabilities": [{"id": "PYSEC-2030-1", "fixed_in": []}]},
        "older": {"info": {"version": "3"}, "vulnerabilities": []},
        "taken-back": {"info": {"version": "1"}, "vulnerabilities": [{"id": "PYSEC-2030-2", "withdrawn": "2030"}]},
    }
    told = {"dependencies": [{"name": name, "skip_reason": "not found"} for name in (*pages, "absent")]}
    told["dependencies"].append(TOLD["dependencies"][1])
    frozen = frozen_versions("# a list\nNewest==2\nolder==2.1 ; python_version > '3'\ntaken_back==1\nabsent==1\n")
    open_, left = verdict(completed(told, frozen, pages.get), set())
    assert open_ == [
        "newest 2: PYSEC-2030-1 (mended in no release)",
        "weak 1.5: PYSEC-2030-1 (mended in 2.0)",
    ]
    assert [line.partition(":")[0] for line in left] == ["older", "absent"]
    assert "2.1" in left[0]
