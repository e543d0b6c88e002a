"""The tables of docs/demonstration.md, after `lethe run`."""

import sys
from collections.abc import Sequence

from tests.benchmarks import run_table, word_table

PAGE = ["--write", "docs/demonstration.md"]


def main(arguments: Sequence[str] = ()) -> None:
    run_table.main([*PAGE, *arguments])
    word_table.main([*PAGE, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
