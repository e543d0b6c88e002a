"""The `dvc` command as a child that dies with its parent: `python -m flows.dvc_child repro ...`.

DVC reads params.yaml before a stage, and again afterwards to record the values. During a run, DVC and the stage read the
copy that the run made when it began, so an edit of params.yaml takes effect in the next run. dvc.lock is written whole, and
only the entry of the stage changes (`flows.lock_entries`).
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

from flows.lock_entries import write_entries
from lethe.process import PARAMS, die_with_parent


def read_params_from(copy: Path) -> None:
    """Have DVC read ``copy`` wherever it would read params.yaml of this folder."""
    from dvc.utils import serialize

    place = Path("params.yaml").absolute()

    def load(path: Any, fs: Any = None) -> Any:
        if Path(os.fspath(path)).absolute() == place:
            return serialize.load_yaml(copy)
        return serialize.load_yaml(path, fs=fs)

    serialize.LOADERS[".yaml"] = load


def write_whole() -> None:
    """Have DVC write dvc.lock whole or not at all: DVC empties the file first, and a kill then would lose every entry."""
    from dvc.utils.serialize import _common, _yaml

    from lethe.io.atomic import write_text

    dump_in_place = _common._dump_data

    def dump(path: Any, data: Any, dumper: Any, fs: Any = None, **options: Any) -> None:
        if fs is not None and fs.protocol != "local":
            return dump_in_place(path, data, dumper, fs, **options)
        text = io.StringIO()
        dumper(data, text, **options)
        write_text(path, text.getvalue())

    _common._dump_data = _yaml._dump_data = dump


if __name__ == "__main__":
    die_with_parent()
    write_whole()
    write_entries()
    if copy := os.environ.get(PARAMS):
        read_params_from(Path(copy))
    from dvc.cli import main

    sys.exit(main(sys.argv[1:]))
