"""The cells of docs/quickstart.md print what the page says, on the models and answers of the page's preset."""

import doctest
import platform
import re

import pytest
import yaml

from flows import settings
from tests.small import ROOT, make_repository, run_in_one_process

PAGE = "docs/quickstart.md"


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a whole pipeline, on a machine that may be busy
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors give other numbers")
def test_every_cell_prints_what_the_page_says(tmp_path, monkeypatch):
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    (preset,) = re.findall(r"^lethe run --preset (\S+)", text, flags=re.MULTILINE)
    repository = make_repository(tmp_path / "lethe", yaml.safe_load((ROOT / "params.yaml").read_text()), git=False)
    settings.change(repository / "params.yaml", list(settings.read_preset(preset).items()))
    models = yaml.safe_load((repository / "params.yaml").read_text())["models"]
    stages = ["prepare", "train@base", "train@retrain", "unlearn@npo"]
    for name in models:
        stages += [f"{stage}@{name}" for stage in ("sample", "likelihood", "score", "metrics")]
    run_in_one_process(repository, *stages, timeout=1500)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("MPLBACKEND", "agg")
    failures: list[str] = []
    cells = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, PAGE, None, 0)
    doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(cells, out=failures.append)
    assert len(cells.examples) >= 12
    assert not failures, "".join(failures)
