"""CONTRIBUTING.md names real places: the way of a question to its sentence."""

from __future__ import annotations

import re

from tests.small import ROOT

WAY = re.compile(r"^\d+\. `([\w/]+\.py):(\w+)`", re.M)


def test_the_way_of_a_question_has_few_steps_and_every_step_exists():
    steps = WAY.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert 10 <= len(steps) <= 15
    for file, function in steps:
        assert re.search(rf"def {function}\(", (ROOT / file).read_text(encoding="utf-8")), (file, function)
