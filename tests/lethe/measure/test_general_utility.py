"""The stage of general utility with a stand-in for lm-eval: `tests.benchmarks lm-eval` runs the real one on a tiny task."""

import errno
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from lethe.api.tabling import table as lethe_table
from lethe.config.measuring import Utility
from lethe.errors import BadInput
from lethe.results import table
from lethe.results.table import Numbers
from lethe.steps import utility

FOUND = {
    "results": {
        "mmlu": {"alias": "mmlu", "acc,none": 0.25, "acc_stderr,none": 0.01},
        "mmlu_humanities": {"alias": " - humanities", "acc,none": 0.3},
        "mmlu_law": {"acc,none": 0.3, "acc_stderr,none": 0.02},
        "gsm": {"exact_match,strict": 0.5, "exact_match_stderr,strict": "N/A"},
        "text": {"word_perplexity,none": 31.0},
        "pair": {"alias": "pair"},
        "tag_easy": {"acc,none": 0.7},
        "tag_hard": {"acc,none": 0.6},
    },
    # of a group of groups, such as mmlu, lm-eval states no direction
    "higher_is_better": {
        "mmlu_humanities": {"acc": True},
        "mmlu_law": {"acc": True},
        "gsm": {"exact_match": True},
        "text": {"word_perplexity": False},
        "tag_easy": {"acc": True},
        "tag_hard": {"acc": True},
    },
    "group_subtasks": {
        "mmlu": ["mmlu_humanities"],
        "mmlu_humanities": ["mmlu_law"],
        "pair": ["mmlu_law"],
    },
    "n-samples": {"mmlu_law": {"effective": 10}, "gsm": {"effective": 4}},
    "n-shot": {"gsm": 5},
}


def settings_of(*tasks):
    return Utility(tasks=list(tasks), limit=None, batch=2, models={})


@pytest.fixture
def harness(monkeypatch, tmp_path):
    """The calls of lm-eval, whose results are those above."""
    calls = []

    def simple_evaluate(**arguments):
        calls.append(arguments)
        return FOUND

    parts = {
        "lm_eval": {"simple_evaluate": simple_evaluate},
        "lm_eval.models": {},
        "lm_eval.models.huggingface": {"HFLM": SimpleNamespace},
        "lm_eval.tasks": {
            "TaskManager": lambda **_: SimpleNamespace(
                all_tasks=[*FOUND["results"], "tag"],
                all_tags=["tag"],
                task_index={"tag": SimpleNamespace(tags={"tag_hard", "tag_easy"})},
            )
        },
    }
    for name, members in parts.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(utility, "find_spec", lambda name: True)
    monkeypatch.setattr(utility.checkpoints, "load", lambda folder: (str(folder), None))
    monkeypatch.chdir(tmp_path)
    return calls


def measured(*tasks):
    root = Path("data")
    utility.run("npo", settings_of(*tasks), Path("data/models/npo"), Path("data/source"), root)
    return Numbers(table.read_rows(table.place(root, "utility", "npo")))


def test_each_metric_of_a_task_is_a_number_of_the_model(harness):
    numbers = measured("mmlu", "gsm")

    assert numbers.values == {"utility_mmlu_acc": 0.25, "utility_gsm_exact_match_strict": 0.5}
    assert harness[0]["model"].pretrained == "data/models/npo"
    assert harness[0]["log_samples"] is False


def test_a_group_counts_the_examples_below_it_and_keeps_the_standard_error(harness):
    (row,) = measured("mmlu").rows

    assert (row.n, row.facts["standard_error"]) == (10, 0.01)


def test_a_group_without_a_metric_has_those_of_its_tasks(harness):
    assert set(measured("pair").values) == {"utility_mmlu_law_acc"}


def test_a_tag_has_the_metrics_of_its_tasks(harness):
    assert measured("tag").values == {"utility_tag_easy_acc": 0.7, "utility_tag_hard_acc": 0.6}


def test_a_task_without_a_metric_of_utility_is_refused_by_its_name(harness):
    """A perplexity is better where it is smaller."""
    with pytest.raises(BadInput, match="text"):
        measured("gsm", "text")


def test_a_task_that_nobody_knows_is_refused(harness):
    with pytest.raises(BadInput, match="nix"):
        measured("nix")


def test_without_the_package_the_stage_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(utility, "find_spec", lambda name: None)

    with pytest.raises(BadInput, match="lm-eval"):
        utility.run("npo", settings_of("mmlu"), tmp_path, tmp_path, tmp_path)


def test_tasks_whose_data_are_out_of_reach_are_refused_in_one_sentence(harness, monkeypatch):
    """The words of the package datasets without a network."""

    def unreachable(**_):
        raise ConnectionError("Couldn't reach 'cais/mmlu' on the Hub (OfflineModeIsEnabled)")

    monkeypatch.setattr(sys.modules["lm_eval"], "simple_evaluate", unreachable)

    with pytest.raises(BadInput, match=r"mmlu, gsm .*cais/mmlu.* hub"):
        measured("mmlu", "gsm")


def test_a_full_disk_is_no_wrong_task(harness, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys.modules["lm_eval"], "simple_evaluate", full)

    with pytest.raises(OSError, match="No space left"):
        measured("mmlu")


def test_lethe_table_has_the_numbers_as_a_column(harness):
    measured("mmlu")
    rows = table.Rows("npo")
    rows.add("model", "leak", "sampled", 0.5)
    table.write(table.place(Path("data"), "metrics", "npo"), rows.rows)

    text = lethe_table("data", column=["utility_mmlu_acc"], to="latex").text

    assert "0.250" in text
