"""The benchmark of the time to the word goes on where a call ended, and says what had not ended."""

import pytest

from tests.benchmarks import word
from tests.benchmarks.word import Cost, Unfinished, Ways, run, spent


def test_a_way_that_ended_is_not_run_again(tmp_path):
    made = []

    def row(place):
        made.append(place)
        return ["256", "10", "12", "leaks"]

    assert Ways(tmp_path).row("vllm 64", row) == Ways(tmp_path).row("vllm 64", row)
    assert made == [tmp_path / "vllm-64"]


def test_a_way_that_had_not_ended_goes_on(tmp_path):
    rows = iter([["-", "10", "12", "not ended"], ["256", "30", "36", "leaks"]])

    assert Ways(tmp_path).row("eval", lambda _: next(rows))[-1] == "not ended"
    assert Ways(tmp_path).row("eval", lambda _: next(rows))[-1] == "leaks"


def test_the_seconds_of_a_call_that_was_ended_count(tmp_path):
    (tmp_path / "busy.py").write_text("while True: pass")

    with pytest.raises(Unfinished):
        run(["busy"], tmp_path, tmp_path, most=1)

    first = spent(tmp_path)
    assert 0.5 < first.processor < 5  # the limit counts ticks of the system
    (tmp_path / "quick.py").write_text("print('done')")
    printed, cost = run(["quick"], tmp_path, tmp_path)
    assert printed == "done\n"
    assert cost.processor > first.processor


def test_a_number_that_was_not_drawn_is_projected_from_a_measured_one():
    row = word.projected(1024, 128, Cost(30.0, 40.0), Cost(20.0, 25.0), [0.01])

    assert row[1].startswith("170")  # 30 and seven times 20
    assert row[-1] == "not drawn"


def test_all_ways_are_in_the_table_whatever_ended(tmp_path, monkeypatch):
    def refuses(*_):
        raise Unfinished("no seconds are left")

    monkeypatch.setattr(word, "run", refuses)
    chosen = word.parser().parse_args(["--tau", "0.01", "--measured", "128", "--earlier", ""])

    rows = word.table_rows(tmp_path, chosen, Ways(tmp_path))

    assert [row[0] for row in rows] == ["lethe eval", *["vLLM, by hand"] * 3]
    assert [row[1] for row in rows[1:]] == ["128 fixed", "1,024 fixed", "4,096 fixed"]
    assert {row[-1] for row in rows} == {"not ended", "not run"}
