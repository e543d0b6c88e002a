"""`python -m lethe` is the `lethe` command."""

import os  # Python itself has loaded these two: no file of the current folder can stand for them
import sys

# Python puts the current folder first, where a stranger's file may have the name of a library.
if not sys.flags.safe_path:
    first = os.path.realpath(sys.path[0])
    holds_lethe = os.path.realpath(__file__).startswith(os.path.join(first, "lethe", ""))
    if first == os.path.realpath(os.getcwd()) and not holds_lethe:
        del sys.path[0]

from lethe.cli.app import main

main()
