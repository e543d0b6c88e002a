"""The README and docs/: every link leads somewhere, every page can be found, every `make` target and command exists."""

from __future__ import annotations

import re

import pytest

from lethe.cli import app
from tests.small import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)\)")
LONGEST = 120  # lines of the README: it is the first screen, all else is a page of docs/


def links(page) -> set:
    """The files of the project to which a page links."""
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page):
    assert [str(target) for target in links(page) if not target.exists()] == []


def test_every_page_is_found_from_the_readme():
    found, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in found and page.suffix == ".md" and page.exists():
            found.add(page)
            ahead += links(page)
    assert {page.name for page in PAGES} - {page.name for page in found} == set()


def test_the_readme_stays_a_first_screen():
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_targets_exist(page):
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+(?: [a-z0-9-]+)*):", (ROOT / "Makefile").read_text(), re.M))
    targets = {name for line in targets for name in line.split()}
    assert set(re.findall(r"(?:`|^)make ([a-z][a-z0-9-]+)", text, re.M)) - targets == set()
    known = {*app.NAMES, "logs"}  # `lethe logs`: the name of an experiment
    assert set(re.findall(r"(?:`|^)lethe ([a-z][a-z-]+)", text, re.M)) - known == set()
