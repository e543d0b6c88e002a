"""Broken logs: each is read, or refused in one sentence, in little time and memory."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lethe.errors import BadFile, BadInput, BadRow
from lethe.io.logs import FORMATS as READERS
from lethe.io.logs import _untrusted, read_log
from tests.lethe.io.logs.broken_logs import ANYTHING, with_twice, with_value
from tests.lethe.io.logs.small_logs import FORMATS, KINDS, lm_eval_line, small, write_lines

often = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=KINDS)
def good(request, tmp_path):
    path = small(request.param, tmp_path)
    log = read_log(path)
    assert log.format == FORMATS[request.param]
    return path, path.read_bytes()


def survives(path):
    """Read the file: a log, or an error of ours whose sentence names the file. Anything else fails the test."""
    log, sentence = None, str(path)
    try:
        log = read_log(path)
    except BadInput as error:
        sentence = str(error)
    assert str(path) in sentence
    sentence.encode()
    if log is None:
        return
    assert len(log.answers)
    log.summary()
    for score in log.scores:
        log.scored(score)


def test_each_format_is_told_by_its_content_alone(good):
    path, content = good
    for name in ("x.csv", "x.eval", "samples_x.jsonl", "TOFU_EVAL.json"):
        renamed = path.with_name(name)
        renamed.write_bytes(content)
        assert read_log(renamed).format == read_log(path).format


@often
@given(part=st.floats(0, 1))
def test_a_log_that_is_cut_off(good, part):
    path, content = good
    cut = path.with_name("cut")
    cut.write_bytes(content[: int(part * len(content))])
    survives(cut)


def test_a_log_without_its_last_byte_is_refused(good):
    path, content = good
    path.write_bytes(content.rstrip()[:-1])
    with pytest.raises((BadFile, BadRow)):
        read_log(path)


@often
@given(places=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_log_with_changed_bytes(good, places):
    path, content = good
    changed = bytearray(content)
    for part, value in places:
        changed[int(part * len(content))] = value
    bad = path.with_name("changed")
    bad.write_bytes(bytes(changed))
    survives(bad)


@often
@given(seed=st.integers(0, 10_000), value=ANYTHING)
def test_a_log_with_values_of_other_types(tmp_path, seed, value):
    survives(with_value(tmp_path, seed, value))


@often
@given(seed=st.integers(0, 10_000))
def test_a_log_in_which_something_stands_twice(tmp_path, seed):
    survives(with_twice(tmp_path, seed))


@often
@given(content=st.binary(max_size=60) | ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_a_file_that_is_no_log(tmp_path, content):
    path = tmp_path / "stranger"
    path.write_bytes(content)
    with pytest.raises((BadFile, BadRow)):
        read_log(path)


@pytest.mark.parametrize("count", [50_000])
@pytest.mark.parametrize("opening", ["[", '{"a":', '{"doc_id":0,"resps":', '{"parameters":{"a":'])
def test_a_log_nested_too_deeply(tmp_path, opening, count):
    path = tmp_path / "deep"
    path.write_text(opening * count)
    with pytest.raises((BadFile, BadRow), match=r"deep|valid JSON|list|known tool"):
        read_log(path)


def test_a_key_that_stands_twice_hides_nothing(tmp_path):
    answers = '[{"test_case": "q", "generation": "a"}]'
    path = tmp_path / "a.json"
    path.write_text(f'{{"b": {answers},\n "b": {answers}}}')
    with pytest.raises(BadFile, match="'b'"):
        read_log(path)
    path.write_text('{"prompt": "q", "responses": [{"response": "a", "response": "b"}]}')
    with pytest.raises(BadRow, match=r"line 1: .*'response'"):
        read_log(path)


def test_numbers_beyond_floats_are_missing_and_beyond_reason_refused(tmp_path):
    path = write_lines(tmp_path / "a", [lm_eval_line(0, ["a"], acc=10**400, other=1.0)])
    assert read_log(path).answers["acc,none"].isna().all()
    path.write_text(json.dumps(lm_eval_line(0, ["a"])).replace('"doc_id": 0', '"doc_id": ' + "9" * 5000))
    with pytest.raises(BadRow, match="line 1"):
        read_log(path)


def test_half_a_character_is_refused_by_name(tmp_path):
    path = tmp_path / "a"
    path.write_text(json.dumps(lm_eval_line(0, ["\ud83d"])))
    with pytest.raises(BadFile, match=r"prompt '0': the text .*surrogate"):
        read_log(path)


def test_documents_beyond_the_bound_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(_untrusted, "LARGEST", 200)
    for kind in ("inspect-json", "open-unlearning", "harmbench"):
        with pytest.raises(BadFile, match="MiB"):
            read_log(small(kind, tmp_path))
    monkeypatch.setattr(_untrusted, "LARGEST", 600)
    with pytest.raises(BadRow, match=r"line 2: more than .*"):
        read_log(write_lines(tmp_path / "a", [lm_eval_line(0, ["a"]), lm_eval_line(1, ["a" * 600])]))


def test_an_unknown_log_names_the_known_ones(tmp_path):
    path = tmp_path / "a"
    path.write_text('{"hello": 1, "there": {}}')
    with pytest.raises(BadFile, match="'hello', 'there'") as error:
        read_log(path)
    for form in READERS:
        assert form.holds in str(error.value)
