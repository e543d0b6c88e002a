"""Broken inputs: `python -m tests.fuzz [--kind KIND] [--cases N] [--minutes M] [--seed S]`.

`tests.fuzz.logs` changes a file for a reader and calls the reader, which takes milliseconds, as a case of
`tests.fuzz.witnesses` for the checker of statements. The cases of the other kinds are whole commands (`tests.fuzz.commands`,
which says how a kind is added). The exit status is 1 where a case fails.
"""

import argparse
import sys

from tests.fuzz import commands


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Broken inputs for every reader."
    )
    parser.add_argument("--kind", choices=["logs", "witnesses", *commands.KINDS], default="logs")
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="end then, whatever is left"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one case, by its number; its files are kept")
    parser.add_argument(
        "--jobs",
        type=int,
        help="cases at once [default: 2, of servers more]; logs and witnesses have one",
    )
    asked = parser.parse_args()
    if asked.kind == "logs":
        from tests.fuzz import logs

        return logs.run(asked.first, asked.cases, asked.seed, asked.minutes, asked.only)
    if asked.kind == "witnesses":
        from tests.fuzz import witnesses

        return witnesses.run(asked.first, asked.cases, asked.seed, asked.minutes, asked.only)
    if asked.only is not None:
        return commands.repeat(asked.kind, asked.seed, asked.only)
    numbers = range(asked.first, asked.first + asked.cases)
    return commands.run(asked.kind, numbers, asked.seed, asked.minutes, asked.jobs)


if __name__ == "__main__":
    sys.exit(main())
