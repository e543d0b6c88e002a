"""``python -m tests.one_process STAGE ...``: stages one after another in a process with the fixed instruction set.

A stage's own process spends seconds on its imports. A test that needs many stages, and not their processes, saves these.
"""

import sys


def main(stages: list[str]) -> None:
    """Run stages such as ``metrics@npo`` in this folder."""
    from lethe.process import same_numbers

    same_numbers()
    from tests.small import work

    for stage in stages:
        work(stage)


if __name__ == "__main__":
    main(sys.argv[1:])
