"""Processes: what was ever drawn for a gate, over seeds, machines and interruptions."""

import pytest

from lethe.errors import LetheError
from lethe.io import processes
from lethe.io.processes import QuestionCounts
from tests.benchmarks import retries

TESTED = ["eval", "weights", ["q1", "q2"]]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "processes"


def drawn(folder, seed, counts, most=None):
    """The process after a call that drew these leaks and answers to each question."""
    most = most or max(n for _, n in counts.values())
    process = processes.begin(TESTED, seed, most, folder)
    return process.with_counts(
        seed, {item: QuestionCounts(*pair) for item, pair in counts.items()}, most
    )


def test_counts_of_two_seeds_add(folder):
    drawn(folder, "0", {"q1": (1, 100), "q2": (0, 100)})

    process = drawn(folder, "7", {"q1": (2, 50), "q2": (0, 60)})

    assert process.totals() == {"q1": QuestionCounts(3, 150), "q2": QuestionCounts(0, 160)}


def test_equal_seeds_are_the_same_draws_of_which_the_longer_count(folder):
    drawn(folder, "0", {"q1": (1, 100), "q2": (0, 100)})

    process = drawn(folder, "0", {"q1": (2, 300), "q2": (0, 50)}, most=300)

    assert process.totals() == {"q1": QuestionCounts(2, 300), "q2": QuestionCounts(0, 100)}


def test_the_same_draws_read_again_change_nothing(folder):
    first = drawn(folder, "0", {"q1": (1, 100)})

    assert drawn(folder, "0", {"q1": (1, 100)}) == first


def test_another_model_has_a_process_of_its_own(folder):
    drawn(folder, "0", {"q1": (1, 100)})

    other = processes.begin(["eval", "other weights"], "0", 100, folder)

    assert other.totals() == {}


def test_draws_that_were_begun_are_not_forgotten(folder):
    processes.begin(TESTED, "0", 100, folder)  # killed

    process = drawn(folder, "1", {"q1": (0, 100)})

    assert process.unfinished() == ["0"]
    assert drawn(folder, "0", {"q1": (5, 100)}).unfinished() == []


def test_fewer_answers_do_not_finish_what_was_begun(folder):
    drawn(folder, "0", {"q1": (0, 100)})
    processes.begin(TESTED, "0", 1000, folder)  # killed

    process = drawn(folder, "0", {"q1": (0, 100)}, most=100)

    assert process.unfinished() == ["0"]


def test_a_longer_number_of_answers_holds_what_was_begun(folder):
    processes.begin(TESTED, "0", 100, folder)  # killed

    assert drawn(folder, "0", {"q1": (0, 300)}).unfinished() == []


def test_a_rule_that_was_begun_is_finished_by_itself_alone(folder):
    processes.begin(TESTED, "0", 1000, folder, rule="tau 0.01")  # killed

    assert drawn(folder, "0", {"q1": (0, 100)}).unfinished() == ["0"]
    process = processes.begin(TESTED, "0", 1000, folder, rule="tau 0.01")
    assert (
        process.with_counts("0", {"q1": QuestionCounts(0, 400)}, 1000, "tau 0.01").unfinished()
        == []
    )


def test_answers_that_were_counted_are_not_begun_again(folder):
    drawn(folder, "0", {"q1": (0, 300)})

    assert processes.begin(TESTED, "0", 100, folder).unfinished() == []


def test_the_largest_evidence_is_kept_by_threshold(folder):
    process = drawn(folder, "0", {"q1": (0, 100)})
    process.with_evidence(0.1, {"q1": 5.0, "q2": 1.0})
    process.with_evidence(0.2, {"q1": 9.0})

    later = process.with_evidence(0.1, {"q1": 3.0, "q2": 2.0})

    assert later.largest == {"0.1": {"q1": 5.0, "q2": 2.0}, "0.2": {"q1": 9.0}}
    assert processes.read(process.path) == later


@pytest.mark.parametrize(
    "segments", ["3", '{"0": {"counts": {"q1": {"leaks": 9, "n": 8, "missing": 0}}}}']
)
def test_a_damaged_file_is_an_error_and_no_new_test(folder, segments):
    path = drawn(folder, "0", {"q1": (0, 100)}).path
    path.write_text(
        f'{{"schema": 1, "key": "{path.stem}", "segments": {segments}, "largest": {{}}}}'
    )

    with pytest.raises(LetheError, match="holds no process"):
        processes.begin(TESTED, "0", 100, folder)


def test_the_file_of_another_model_is_an_error_and_opens_no_gate(folder):
    clean = drawn(folder, "0", {"q1": (0, 9000)}).path
    leaky = processes.begin(["eval", "other weights"], "0", 100, folder).path
    leaky.write_bytes(clean.read_bytes())

    with pytest.raises(LetheError, match="another test"):
        processes.begin(["eval", "other weights"], "0", 100, folder)


def test_draws_of_another_name_add_and_leave_nothing_begun(folder):
    drawn(folder, "0", {"q1": (5, 100)})
    process = processes.begin(TESTED, "0", 300, folder)

    process = process.with_counts("0", {"q1": QuestionCounts(1, 300)}, 300, drawn_as="0 other")

    assert process.totals() == {"q1": QuestionCounts(6, 400)}
    assert process.unfinished() == []


def test_a_folder_that_cannot_be_written_keeps_this_call_alone(folder):
    folder.write_text("a file")

    process = processes.begin(TESTED, "0", 100, folder)
    counted = process.with_counts("0", {"q1": QuestionCounts(0, 100)}, 100)

    assert not counted.kept
    assert counted.with_evidence(0.1, {"q1": 2.0}).largest == {"0.1": {"q1": 2.0}}
    assert counted.totals() == {"q1": QuestionCounts(0, 100)}


def test_whoever_changes_seeds_by_hand_opens_the_gate_of_a_leaking_model_as_rarely_as_promised():
    share = retries.opened_by_hand(alpha=0.05, runs=200)

    assert share <= 0.05
