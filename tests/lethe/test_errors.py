"""How the end of a stage is told."""

import signal

import pytest

from lethe.errors import StageFailed

MEMORY = "was ended by SIGKILL, which the system sends when memory runs out (`lethe run --jobs 1` needs less)."


@pytest.mark.parametrize("status", [-signal.SIGKILL, 128 + signal.SIGKILL])
def test_a_signal_is_named_with_and_without_a_shell_between(status):
    error = StageFailed("sample@npo", status)
    assert str(error) == f"Stage sample@npo {MEMORY}"
    assert error.exit_status == 1


@pytest.mark.parametrize(
    ("status", "end", "told"),
    [
        (1, 1, "failed with exit status 1."),
        (2, 2, "failed with exit status 2."),
        (127, 1, "failed with exit status 127."),
        (128, 1, "failed with exit status 128."),
        (255, 1, "failed with exit status 255."),
        (-signal.SIGTERM, 1, "was ended by SIGTERM."),
        (-999, 1, "was ended by signal 999."),
    ],
)
def test_an_exit_status_is_no_signal(status, end, told):
    error = StageFailed("train@base", status, "the last line")
    assert str(error) == f"Stage train@base {told} Its last output:\nthe last line"
    assert error.exit_status == end
