"""Kill flow, server, DVC, stage or Dask worker at seeded random moments: `python -m tests.chaos [--cases N] [--seed S]`.

Each case takes a pipeline in which a random stage and all behind it are stale, runs it, sends SIGKILL or SIGTERM to one
process at a random moment, and runs it again to the end. ``--pipeline light``: stages of a second; ``stages``: real stages
at their smallest sizes, hours on a busy machine. Then every file below data must have the bytes of an
undisturbed run, no process of the case may live, and nothing printed may be a traceback. The results lie in
``--folder``; a second call with the same sources and seed continues. The exit status is 1 where a case fails.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.disturbed import case, differences, disturb
from tests.chaos.pipeline_copy import Copy, make, source_of_the_copy
from tests.small import ROOT


def undisturbed(copy: Copy, folder: Path, kind: str, server: dict[str, str]) -> dict:
    """The hashes and times of an undisturbed run, made once; a second undisturbed run must have the same hashes."""
    place = folder / "reference.json"
    source = source_of_the_copy()
    if place.exists() and (found := json.loads(place.read_text()))["source"] == source:
        return found
    (folder / "results.jsonl").unlink(missing_ok=True)
    shutil.rmtree(copy.folder, ignore_errors=True)
    copy = make(folder, kind)
    seconds: dict[str, float] = {}
    hashes: list[dict[str, str]] = []
    for _ in range(2):
        copy.forget(set(copy.graph()))
        began = time.monotonic()
        run = copy.start("undisturbed", LETHE_TRACKING="off", **server)
        assert run.wait() == 0, copy.said()
        print(
            f"undisturbed: {time.monotonic() - began:.0f} s, {len(copy.stages())} stages",
            flush=True,
        )
        seconds = copy.stages()
        hashes.append(copy.hashes())
    assert not differences(*hashes), differences(*hashes)
    began = time.monotonic()
    assert copy.start("undisturbed", LETHE_TRACKING="off", **server).wait() == 0, copy.said()
    overhead = time.monotonic() - began
    known = {"hashes": hashes[0], "seconds": seconds, "overhead": overhead}
    found = {"source": source, "graph": copy.graph(), **known}
    place.write_text(json.dumps(found))
    return found


def results(folder: Path, seed: int) -> dict[int, dict]:
    place = folder / "results.jsonl"
    rows = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    return {row["number"]: row for row in rows if row["seed"] == seed}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Kill processes of a run."
    )
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pipeline", choices=("light", "stages"), default="light")
    parser.add_argument("--folder", type=Path, help="default: .lethe/chaos/PIPELINE")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="end then; the next call continues"
    )
    parser.add_argument("--only", type=int, help="one case, by its number, again")
    asked = parser.parse_args()
    folder = (asked.folder or ROOT / ".lethe/chaos" / asked.pipeline).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with prefect_server(folder) as server:
        return chaos(asked, folder, server)


@contextlib.contextmanager
def prefect_server(folder: Path) -> Iterator[dict[str, str]]:
    """One server for all runs whose own is no victim."""
    from flows.server import CLIENT_KEY, require, temporary_server

    os.environ["PREFECT_HOME"] = str(folder / "prefect")
    os.environ.pop("PREFECT_API_URL", None)
    with temporary_server(folder):
        require()
        yield {name: os.environ[name] for name in ("PREFECT_API_URL", CLIENT_KEY)}


def chaos(asked: argparse.Namespace, folder: Path, server: dict[str, str]) -> int:
    copy = make(folder, asked.pipeline)
    reference = undisturbed(copy, folder, asked.pipeline, server)
    done = results(folder, asked.seed)
    began = time.monotonic()
    for number in range(asked.first, asked.cases) if asked.only is None else [asked.only]:
        if number in done and not done[number]["wrong"] and asked.only is None:
            continue
        if time.monotonic() - began > 60 * asked.minutes:
            break
        if differences(
            reference["hashes"], copy.hashes()
        ):  # an interrupted or failed case left it so
            copy.start("restored", LETHE_TRACKING="off", **server).wait()
        drawn = case(number, asked.seed, list(reference["seconds"]))
        known = (
            reference["graph"],
            reference["hashes"],
            reference["seconds"],
            reference["overhead"],
        )
        ended = disturb(drawn, copy, *known, server)
        done[number] = ended | {"seed": asked.seed}
        with open(folder / "results.jsonl", "a") as file:
            file.write(json.dumps(done[number]) + "\n")
        print(_line(done[number]), flush=True)
    rows = [done[number] for number in sorted(done) if asked.first <= number < asked.cases]
    print("\n".join([_line(None), *map(_line, rows)]))
    good = [row for row in rows if not row["wrong"]]
    whole = Counter(f"{row['victim']} {row['signal']}" for row in good)
    print(", ".join(f"{name}: {count}" for name, count in sorted(whole.items())))
    wanted = len(rows) if asked.only is not None else asked.cases - asked.first
    print(
        f"{len(good)} of {wanted} cases: the bytes of the undisturbed run, no process left, no traceback"
    )
    if len(rows) < wanted:
        print(f"{wanted - len(rows)} cases have not run: the same command continues")
    return 0 if len(good) == len(rows) else 1


def _line(row: dict | None) -> str:
    """One row of the table; None: its head."""
    if row is None:
        return "case victim signal  stale from                 killed after  status  rerun  result"
    result = "equal" if not row["wrong"] else "; ".join(row["wrong"])
    return (
        f"{row['number']:>4} {row['victim']:<6} {row['signal']:<7} {row['stale_from']:<26} {row['killed_after']:>9.1f} s "
        f"{row['status']:>7} {row['rerun_seconds']:>5.0f}s  {result}"
    )


if __name__ == "__main__":
    sys.exit(main())
