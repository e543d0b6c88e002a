"""What libraries raise on a stranger's model folder, as one sentence that names the folder."""

import contextlib
import os
import resource
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from lethe.errors import DISK, BadFile, LetheError

LONGEST_REASON = 300  # characters kept of a library's message
# The messages of these classes say by themselves what is wrong; the message of a KeyError is only the key.
MODEST = 1 << 30  # bytes; no settings and no tokenizer of a sound model take as much
USED = Path(
    "/proc/self/statm"
)  # the sixth number is the data of this process, in pages; Linux alone has the file
_ALONE = threading.RLock()  # standard error and the limit of memory belong to the whole process
SPEAKING = (OSError, ValueError, AttributeError, TypeError, RuntimeError, ImportError)
NOT_LOADABLE = "is not a causal language model that transformers can load"


@contextlib.contextmanager
def refusals(folder: Path | str, problem: str = NOT_LOADABLE, remedy: str = "") -> Iterator[None]:
    """Turn into `BadFile` whatever transformers, tokenizers, safetensors, peft or torch raise because of ``folder``.

    No list of classes would be complete: tokenizers raise a bare Exception, or panic with a BaseException of their own;
    settings of a wrong type end in any class, a division by zero too. Only Lethe's own errors, an interrupt, and a full disk
    or exhausted memory pass through. Keep nothing but calls of these libraries within.
    """
    try:
        yield
    except (LetheError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        if "trust_remote_code" in str(error):
            raise BadFile(folder, "needs its own code, which Lethe never runs") from error
        raise BadFile(folder, f"{problem} ({reason_of(error)})", remedy) from error


@contextlib.contextmanager
def refusals_of_tokenizer(folder: Path | str, problem: str, remedy: str = "") -> Iterator[None]:
    """As `refusals`, for calls of a tokenizer, whose library writes to standard error before it panics."""
    with refusals(folder, problem, remedy), _heard_only_of_success():
        yield


@contextlib.contextmanager
def limited_memory(folder: Path | str, most: int = MODEST) -> Iterator[None]:
    """Turn into `BadFile` whatever asks for more than ``most`` bytes because of ``folder``: a few settings can describe more
    than any machine holds. Another system than Linux has no such limit."""
    if not USED.is_file():
        yield
        return
    with _ALONE:
        usual, largest = resource.getrlimit(resource.RLIMIT_DATA)
        limit = int(USED.read_text().split()[5]) * resource.getpagesize() + most
        if usual != resource.RLIM_INFINITY:
            limit = min(limit, usual)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, largest))
        try:
            yield
        except MemoryError as error:
            problem = f"its settings ask for more than {most >> 20:,} MiB of memory, which its files do not need"
            raise BadFile(folder, problem, "Save the model with its settings again.") from error
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (usual, largest))


@contextlib.contextmanager
def _heard_only_of_success() -> Iterator[None]:
    """Keep what is written to standard error, also by compiled code, and write it out unless an error ends the block."""
    with _ALONE, tempfile.TemporaryFile() as kept:
        usual = os.dup(2)
        sys.stderr.flush()
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.truncate(0)
            raise
        finally:
            sys.stderr.flush()
            os.dup2(usual, 2)
            os.close(usual)
            kept.seek(0)
            os.write(2, kept.read())


def reason_of(error: BaseException) -> str:
    """A library's message in one line, cut after `LONGEST_REASON` characters; some messages list every known value."""
    message = " ".join(str(error).split()).rstrip(".")
    if not message:
        return type(error).__name__
    builtin = type(error).__module__ == "builtins" and type(error) is not Exception
    if builtin and not isinstance(error, SPEAKING):
        message = f"{type(error).__name__}: {message}"
    if len(message) <= LONGEST_REASON:
        return message
    words = message[:LONGEST_REASON].rpartition(" ")[0]
    if len(words) <= LONGEST_REASON // 2:  # a single long word
        words = message[:LONGEST_REASON]
    return f"{words} ..."
