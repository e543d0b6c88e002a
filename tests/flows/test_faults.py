"""What `lethe run` does on a machine with a fault: the results are right or absent, and one sentence says why."""

import os
import signal
import subprocess

import pytest

from tests.flows.faults import pid_of_module
from tests.flows.miniature import ends, flow_runs, processes_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_of_the_run_that_dies_starts_again_and_the_record_is_whole(small, number):
    small.use_its_own_server()
    process = small.waiting("models/npo")
    first = pid_of_module(small, "flows.server")
    os.kill(first, number)
    out, err = small.go_on(process)
    assert process.returncode == 0, err
    assert set(ends(out).values()) == {"ran"}
    assert "Traceback" not in err
    assert flow_runs(small)[-1].state_name == "Completed"
    assert not list(processes_of(small))


def test_a_damaged_file_of_dvcs_cache_is_found_and_made_again(small):
    assert set(small.ran().values()) == {"ran"}
    whole = small.contents()
    text = small.folder / "data/models/npo/text"
    (cached,) = [
        path for path in (small.folder / ".dvc/cache/files").rglob("*")
        if path.is_file() and path.read_bytes() == text.read_bytes()
    ]  # fmt: skip
    cached.chmod(0o644)
    cached.write_bytes(b"flipped")
    cached.chmod(0o444)  # DVC trusts a write-protected file
    subprocess.run(["rm", "-r", text.parent], check=True)
    again = small.lethe("run", "--json")
    assert again.returncode == 0, again.stderr
    assert small.contents() == whole
    assert ends(again.stdout)["unlearn@npo"] == "ran"
    assert "damaged" in again.stderr
    subprocess.run(["rm", "-r", text.parent], check=True)
    assert small.ran()["unlearn@npo"] == "restored"
    assert small.contents() == whole


def test_a_file_size_limit_is_told_as_a_full_disk(small):
    """What a user without the right to mount can see of a full disk: the kernel refuses bytes beyond a limit."""
    (small.folder / "step.py").write_text(
        (small.folder / "step.py")
        .read_text()
        .replace("run_stage(main)", LIMITED + "run_stage(main)")
    )
    result = small.lethe("run")
    assert result.returncode == 1
    assert "prepare: The disk" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list((small.folder / "data/dataset").rglob("*"))


LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))\n"
