"""DVC's lock file, written in less time: the values, the bytes and the place are DVC's."""

import copy
import io
from collections import OrderedDict

import pytest
from dvc import dvcfile
from dvc.utils import serialize

from flows import lock_file

STAGE = {
    "cmd": "python -m stages.metrics npo",
    "md5": "1234567890123456789012345678e901",  # a number to YAML, were it not quoted
    "deps": [{"path": "data/dataset", "hash": "md5", "nfiles": 5}, {"path": "β.txt", "size": 0}],
    "params": {"lr": 1e-05, "epochs": 40, "reference": None, "of": {"empty": {}, "none": []}},
    "texts": ["yes", "1:30", "0o14", "2026-01-01", " blank ", "", "~", "long " * 40],
}


def by_dvc(values):
    text = io.StringIO()
    serialize._yaml._dump(values, text)
    return text.getvalue()


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / "dvc.lock"
    path.write_text(by_dvc({"schema": "2.0", "stages": {"prepare": STAGE}}), encoding="utf-8")
    return path


def test_the_bytes_are_those_of_dvc(lock):
    with lock_file.modified(lock) as values:
        values["stages"].update(OrderedDict({"metrics@npo": STAGE}))

    stages = {"prepare": STAGE, "metrics@npo": copy.deepcopy(STAGE)}
    assert lock.read_text(encoding="utf-8") == by_dvc({"schema": "2.0", "stages": stages})


@pytest.mark.parametrize("text", ["it's: x", "a\tb", "a\nb: \nc", "\U0001f600", '"', "a: \\n"])
def test_a_text_that_dvc_quotes_in_another_way_is_the_same(lock, text):
    with lock_file.modified(lock) as values:
        values["stages"]["prepare"]["params"] = {"text": text}

    assert serialize.load_yaml(lock)["stages"]["prepare"]["params"] == {"text": text}


def test_without_a_file_there_is_one_afterwards(tmp_path):
    with lock_file.modified(tmp_path / "dvc.lock") as values:
        assert values == {}
        values["schema"] = "2.0"

    assert serialize.load_yaml(tmp_path / "dvc.lock") == {"schema": "2.0"}


def test_who_could_write_the_file_still_can(lock):
    lock.chmod(0o664)

    with lock_file.modified(lock) as values:
        values["stages"] = {}

    assert lock.stat().st_mode & 0o777 == 0o664


def test_a_stage_that_fails_meanwhile_leaves_the_file(lock):
    before = lock.read_bytes()

    with pytest.raises(ZeroDivisionError), lock_file.modified(lock) as values:
        values["stages"] = 1 / 0

    assert lock.read_bytes() == before
    assert list(lock.parent.iterdir()) == [lock]


def test_dvc_writes_its_lock_file_so_and_keeps_the_comments_of_dvc_yaml(lock):
    pipeline = lock.with_name("dvc.yaml")
    pipeline.write_text("stages: {}  # by hand\n")
    lock_file.write_as_a_whole()

    for path in (lock, pipeline):
        with dvcfile.modify_yaml(path) as values:
            values["more"] = None

    assert serialize.load_yaml(lock)["more"] is None
    assert pipeline.read_text() == "stages: {}  # by hand\nmore:\n"
