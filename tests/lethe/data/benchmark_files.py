"""Small copies of published benchmarks in their files' real layouts, with harmless texts: `small_benchmarks`."""

import shutil
from pathlib import Path

from lethe.config.schema import Data
from lethe.data.rows import check_splits
from lethe.registry import DATASETS
from tests.cases import read_cases

FILES = Path(__file__).with_name("small_benchmarks")
OPTIONS = read_cases(__file__)["OPTIONS"]


def load(kind, source, **changes):
    common = {"kind": kind, "source": "unused", "forget": "forget01", "seed": 0}
    settings = Data.model_validate({**common, kind: {**OPTIONS[kind], **changes}})
    return check_splits(DATASETS[kind].load(settings, source))


def write_benchmark(kind, folder):
    shutil.copytree(FILES / kind, folder, dirs_exist_ok=True)
