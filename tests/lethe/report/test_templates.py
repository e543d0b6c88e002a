"""The templates of the pages: each is compiled once in a process."""

import jinja2

from lethe.report.page import FILTERS
from lethe.report.templates import templates


def test_a_template_is_compiled_once_in_a_process(monkeypatch):
    templates(*FILTERS).get_template("first.html")
    monkeypatch.setattr(jinja2.Environment, "compile", None)

    again = templates(*FILTERS).get_template("first.html")

    assert again.name == "first.html"
