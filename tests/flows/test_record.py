"""The record of a run: what it says of the report."""

import pytest

from flows import record


@pytest.mark.parametrize(("state", "told"), [("Cached", True), ("Completed", True), ("UpstreamFailed", False)])
def test_a_report_of_an_earlier_run_is_not_this_one_s(tmp_path, state, told):
    place = tmp_path / record.REPORT
    place.parent.mkdir(parents=True)
    place.touch()
    written = record.write(tmp_path, {"report": {"state": state, "why": "x"}}, complete=told)
    assert (written["report"] is not None) == told
    assert ("Report: " in record.summary(written)) == told
