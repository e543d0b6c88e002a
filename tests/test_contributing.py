"""CONTRIBUTING.md names real places: the way of a question to its sentence."""

from __future__ import annotations

import re
from pathlib import Path

WAY = re.compile(r"^\d+\. `([\w/]+\.py):(\w+)`", re.M)


def test_the_way_of_a_question_has_few_steps_and_every_step_exists():
    steps = WAY.findall(Path("CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert 10 <= len(steps) <= 15
    for file, function in steps:
        assert re.search(rf"def {function}\(", Path(file).read_text(encoding="utf-8")), (file, function)
