"""DVC's record of finished stages, dvc.lock, written in less time than DVC takes, and as a whole.

After each stage DVC reads the file by a parser in Python, which keeps comments, and overwrites it in place. Meanwhile no
other stage can be recorded, the more stages the longer, and a kill in between leaves half of the file. Here the parser in C
reads it, and a temporary file takes its place. The values are those that DVC writes, in its format but for the quotes of
texts that have quotes or line breaks; comments are lost.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.io.files import atomic_file

if TYPE_CHECKING:
    from dvc.fs import FileSystem
    from dvc.types import StrPath
    from ruamel.yaml import YAML

NAME = "dvc.lock"


@functools.cache
def write_as_a_whole() -> None:
    """Have DVC write the file so in this process, from the first call on."""
    from dvc import dvcfile

    of_dvc = dvcfile.modify_yaml

    @contextlib.contextmanager
    def modify(path: StrPath, fs: FileSystem | None = None) -> Iterator[dict[str, Any]]:
        how = modified(Path(path)) if Path(path).name == NAME else of_dvc(path, fs=fs)
        with how as values:
            yield values

    dvcfile.modify_yaml = modify


@contextlib.contextmanager
def modified(path: Path) -> Iterator[dict[str, Any]]:
    """The values of the file, empty where there is none; what they become is written when the block ends.

    Raises
    ------
    dvc.utils.serialize.YAMLFileCorruptedError
        If the file is no YAML.
    """
    from dvc.utils.serialize import load_yaml

    mode = path.stat().st_mode if path.exists() else None
    values = load_yaml(path) if mode is not None else {}
    yield values
    text = io.StringIO()
    _format().dump(values, text)
    with atomic_file(path) as new:
        # The emitter puts a blank behind a key without a value.
        new.write_text(text.getvalue().replace(": \n", ":\n"), encoding="utf-8")
    if mode is not None:  # another user of the folder may write it, too
        path.chmod(mode)


def _format() -> YAML:
    """How DVC writes the file: blocks, keys in their order, and nothing where a value is null."""
    from ruamel.yaml import YAML
    from ruamel.yaml.representer import SafeRepresenter

    class Representer(SafeRepresenter):
        def represent_none(self, data: None) -> Any:
            return self.represent_scalar("tag:yaml.org,2002:null", "")

    Representer.add_representer(type(None), Representer.represent_none)
    Representer.add_representer(OrderedDict, Representer.represent_dict)
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # typed as None, its first value
    yaml.Representer = Representer
    return yaml
