"""A folder of many stages: Prefect has a task for each stage that runs, and for each clean stage of a small folder."""

import types

import pytest

from flows import pipeline


class Task:
    """Stands for Prefect's task: what is submitted ends at once."""

    def __init__(self):
        self.submitted = []

    def with_options(self, name):
        return self

    def submit(self, stage, overview, processes, wait_for):
        stage = stage.unwrap()
        stage.end = stage.end or "ran"
        self.submitted.append((stage.name, len(wait_for)))
        return types.SimpleNamespace(add_done_callback=lambda call: call(None))


@pytest.mark.parametrize(
    ("most", "tasks"), [(4, [("a", 0), ("b", 1), ("c", 1), ("d", 2)]), (3, [("c", 0), ("d", 1)])]
)
def test_clean_stages_of_a_large_folder_are_no_tasks(monkeypatch, most, tasks):
    task, passed = Task(), []
    for name, value in {"TASKS": most, "bring_up_to_date": task, "wait": len}.items():
        monkeypatch.setattr(pipeline, name, value)
    a, b = (pipeline.Stage("a", [], []), pipeline.Stage("b", [], []))
    b.upstream = [a]
    c = pipeline.Stage("c", [a], ["changed"])
    d = pipeline.Stage("d", [b, c], [])
    overview = types.SimpleNamespace(passed=lambda name, end: passed.append((name, end)))
    pipeline.run_stages([a, b, c, d], 2, overview, types.SimpleNamespace(stopped=False))
    assert task.submitted == tasks
    assert [stage.end for stage in (a, b, c, d)] == ["clean", "clean", "ran", "ran"]
    assert passed == ([] if most == 4 else [("a", "clean"), ("b", "clean")])
