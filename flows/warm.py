"""A process that has imported what the stages import, and forks itself for each stage of a run.

Imports take a stage that works on a model five seconds of processor time, more than most of its work on a small model. A
fork has them done. `python -m flows.warm DESCRIPTOR` gets jobs of `flows.dvc_child` through a socket, and with each job the
ends of two pipes, for the stage's lines and for DVC's answer. For each job it forks a process that does DVC's work, which
before that forks the process of the stage itself: DVC's locks and open files are none of the stage's.

The process ends with the socket, DVC's processes end with it, and each stage with DVC's process.

Where the system is not Linux, each job has a process of its own that imports everything anew.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from lethe.process import die_with_parent, no_telemetry, same_numbers

# Groups of stages that load a model.
OF_MODELS = (
    *("train", "unlearn", "sample", "likelihood", "epsilon_star", "exact", "extract", "twins"),
    "attack",
)
IMPORTED = (
    *("pandas", "pyarrow.parquet", "scipy.stats", "torch", "accelerate", "lethe.config"),
    *("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto"),
    *("transformers.models.llama.modeling_llama", "transformers.generation"),
    *("lethe.steps.sample", "lethe.steps.likelihood", "lethe.steps.exact", "lethe.steps.metrics"),
)
COMMAND = re.compile(r"python -m (stages\.\w+)((?: [\w.-]+)*)")
LONGEST = 1 << 16  # bytes of a job
ROOM = 400  # bytes of the command line, for the names of the processes that are forked


class Warm:
    """The process from the side of a run: it starts with the first job, and again where it has died."""

    def __init__(self, environment: Mapping[str, str]):
        self._environment = dict(environment)
        self._socket: socket.socket | None = None
        self.process: subprocess.Popen | None = None
        self._alone: list[subprocess.Popen] = []
        self._errors: IO[bytes] | None = None

    def submit(self, job: Mapping[str, object], descriptors: tuple[int, int]) -> None:
        """Have a job done; the process gets its own ends of the pipes for lines and answer."""
        message = json.dumps(job).encode()
        if not sys.platform.startswith("linux"):
            self._start_alone(message.decode(), *descriptors)
            return
        if self._socket is not None:
            try:
                socket.send_fds(self._socket, [message], descriptors)
                return
            except OSError:  # somebody killed it
                self.close()
        socket.send_fds(self._start(), [message], descriptors)

    def _start(self) -> socket.socket:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if self._errors is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # of all processes of this run
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flows.warm", str(theirs.fileno()), "-" * ROOM],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=self._environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return self._socket

    def _start_alone(self, job: str, lines: int, answer: int) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.dvc_child", job, str(answer)],
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=subprocess.STDOUT,
            env=self._environment,
            pass_fds=[answer],
            start_new_session=True,
        )
        self._alone.append(process)

    def errors(self) -> str:
        """The last lines that the process itself, no stage, printed as errors, such as why it cannot start."""
        if self._errors is None:
            return ""
        descriptor = self._errors.fileno()  # which shares its position with the process
        size = os.fstat(descriptor).st_size
        text = os.pread(descriptor, LONGEST, max(0, size - LONGEST)).decode(errors="replace")
        return "\n".join(text.strip().split("\n")[-3:])

    def stop(self) -> None:
        """End the processes by SIGTERM, and with them DVC's processes and their stages."""
        for process in (self.process, *self._alone):
            if process is not None:
                process.terminate()

    def close(self) -> None:
        """End the process once its stages have ended."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for process in (self.process, *self._alone):
            if process is not None:
                process.wait()


class Host:
    """A fork that waits for the command of its stage; without one it ends with this process."""

    def __init__(self, answer: int) -> None:
        reading, self._writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._writing)
            os.close(answer)
            _become_stage(reading)
        os.close(reading)
        self.waits = True

    def run(self, command: str, environment: Mapping[str, str]) -> int:
        """Have the fork run the command of a stage; return the exit status as a shell has it."""
        self.waits = False
        with open(self._writing, "w", encoding="utf-8") as file:
            json.dump({"command": command, "environment": dict(environment)}, file)
        _, ended = os.waitpid(self._pid, 0)
        status = os.waitstatus_to_exitcode(ended)
        return status if status >= 0 else 128 - status

    def close(self) -> None:
        if self.waits:
            os.close(self._writing)
            os.waitpid(self._pid, 0)


def _become_stage(reading: int) -> None:
    """Wait for a command, run its module as `python -m` does, and end this process; never returns."""
    status = 1
    try:
        with open(reading, encoding="utf-8") as file:
            text = file.read()
        if not text:
            os._exit(0)
        job = json.loads(text)
        os.environ.clear()
        os.environ.update(job["environment"])
        _rename(job["command"].split(" "))
        _, _, module, *names = job["command"].split(" ")
        sys.argv = ["-m", *names]
        status = _status_of(module)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _status_of(module: str) -> int:
    """Run a module as the main one, then what is due when an interpreter ends; return the exit status."""
    import atexit

    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _rename(words: list[str]) -> None:
    """Show these words as this process's command line, where those who look for a stage find them."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = "\0".join([sys.executable, *words[1:]]).encode()[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _in_this_process(host: Host) -> None:
    """Have DVC run the command of a stage in the waiting fork, and any other command as ever."""
    from dvc.stage import run
    from dvc.stage.exceptions import StageCmdFailedError

    by_shell = run._run

    def run_command(executable: str, command: str, **settings: Any) -> None:
        if not host.waits or not COMMAND.fullmatch(command):
            by_shell(executable, command, **settings)
            return
        status = host.run(command, settings["env"])
        Path(executable).with_name("status").write_text(str(status))  # as the shell of dvc_child
        if status != 0:
            raise StageCmdFailedError(command, status)

    run._run = run_command


def _work(message: bytes, lines: int, answer: int, loaded: bool) -> None:
    """DVC's process of a job; never returns."""
    from flows import dvc_child

    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(lines, 1)
        os.dup2(lines, 2)
        os.close(lines)
        _rename([sys.executable, "-m", "flows.dvc_child", message.decode()])
        die_with_parent()
        host = Host(answer) if loaded else None
        if host is not None:
            _in_this_process(host)
        result = dvc_child.done(json.loads(message))
        if host is not None:
            host.close()
        with open(answer, "w", encoding="utf-8") as file:
            json.dump(result, file)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def load() -> bool:
    """Import what stages that work on a model import, and read its code; a stage by itself says what prevents it."""
    try:
        for name in IMPORTED:
            importlib.import_module(name)
        _read_sources()
    except Exception:
        return False
    return True


def _read_sources() -> None:
    """Read the code of what is imported, of which such stages take hashes."""
    from lethe.identity import library

    modules = library()
    imported = [name for name in sys.modules if name.startswith("lethe.")]
    modules.code(*filter(modules.place, imported))


def _fork(lines: int) -> int:
    """As `os.fork`; where the system has no room for a process, -1, and the stage's lines say so."""
    try:
        return os.fork()
    except OSError as error:
        os.write(lines, f"no process for the stage: {error.strerror}\n".encode())
        return -1


def main() -> None:
    """Wait for jobs on the socket of the first argument, and fork a process for each, which has DVC loaded."""
    no_telemetry()
    same_numbers()
    importlib.import_module("dvc.repo")
    importlib.import_module("dvc.repo.reproduce")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended processes vanish
    # A fork of a process that has used a GPU cannot use it.
    may_load = not Path("/dev/nvidia0").exists()
    loaded = False
    jobs = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, descriptors, _, _ = socket.recv_fds(jobs, LONGEST, 2)
        if not message:
            os._exit(0)  # at once, without the end of all libraries
        group = str(json.loads(message).get("stage")).partition("@")[0]
        if may_load and not loaded and group in OF_MODELS and Path(f"stages/{group}.py").is_file():
            loaded = load()
            may_load = loaded
        lines, answer = descriptors
        if _fork(lines) == 0:
            jobs.close()
            _work(message, lines, answer, loaded)
        os.close(lines)
        os.close(answer)


if __name__ == "__main__":
    main()
