"""`import lethe`: what it costs, what it offers, and that every docstring's example runs."""

import doctest
from operator import attrgetter

import pytest

import lethe
from lethe.api.result import TableWithSentences, View
from tests.small import ROOT, python

HEAVY = {
    "torch",
    "transformers",
    "pandas",
    "numpy",
    "scipy",
    "mlflow",
    "prefect",
    "pydantic",
    "matplotlib",
    "typer",
}


AUDITS = ("one_run", "epsilon_star", "swap")
FUNCTIONS = [name for name in lethe.__all__ if name not in ("__version__", "audit")]
FUNCTIONS += [f"audit.{name}" for name in AUDITS]


@pytest.fixture
def own_registry(monkeypatch):
    """What an example registers is gone after the test."""
    from lethe.registry import SCORERS

    monkeypatch.setattr(SCORERS, "registered", {})


def test_import_lethe_loads_no_library(tmp_path):
    code = "import sys, lethe; dir(lethe); lethe.__version__; print(*sys.modules)"
    loaded = python(tmp_path, "-c", code).stdout.split()
    assert "lethe" in loaded
    assert not HEAVY & set(loaded)
    assert [name for name in loaded if name.startswith("lethe.")] == []


def test_help_loads_no_library(project):
    """The pipeline folder's commands are listed too: the modules of flows must import as little."""
    code = "import sys; from lethe.cli.app import app; print(*sys.modules)"
    loaded = set(python(project, "-c", code).stdout.split())
    assert "flows.cli" in loaded
    assert not (HEAVY - {"typer"}) & loaded


def test_every_name_is_there_and_no_other():
    assert set(lethe.__all__) <= set(dir(lethe))
    for name in lethe.__all__:
        assert getattr(lethe, name) is not None
    with pytest.raises(AttributeError):
        _ = lethe.exact_bounds


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_docstring_runs(name, here, own_registry):
    function = attrgetter(name)(lethe)
    found = doctest.DocTestFinder(recurse=False).find(function, name)
    assert sum(len(example.examples) for example in found) >= 2
    runner = doctest.DocTestRunner(verbose=False)
    failures = []
    for example in found:
        runner.run(example, out=failures.append)
    assert not failures, "".join(failures)


@pytest.mark.parametrize(("page", "least"), [("docs/python.md", 11), ("README.md", 3)])
def test_the_page_of_the_library_runs(page, least, here, own_registry):
    failures = []
    text = (ROOT / page).read_text(encoding="utf-8")
    example = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, page, None, 0)
    doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert len(example.examples) >= least
    assert not failures, "".join(failures)


def test_a_result_shows_its_guarantee_and_escapes_what_a_model_wrote(here):
    class Written(TableWithSentences):
        to_frame = None

        def views(self):
            return [View("", ["text"], [["<script>x</script>"]] * 30, self.sentences())]

        def sentences(self):
            return ["at most <b>3</b>"]

    shown = Written()._repr_html_()
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert "10 more rows" in shown
