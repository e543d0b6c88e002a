"""The reader by block beside the reader of whole tables, which is its naive twin."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lethe.errors import LetheError
from lethe.io import score_blocks
from lethe.io.cells import numbers_of
from lethe.io.tables import read_table
from lethe.measure import score_files
from lethe.measure.score_files import read_scores

# The cells of a column: those that every reader takes, and odd ones.
CELLS = {
    "prompt_id": (["q1", "q2", "Ada B"], ["q1 ", "", "1", "1.0", "01", "caf\u00e9", '"q1"', "\u200b"]),
    "sample": (["0", "1", "2", "3"], ["-1", "1.0", "", "a", "0x1", " 0X2", "99999999999"]),
    "score": (["0", "1", "0.25"], ["", "NA", "yes", "50%", "1.5", "nan", "inf", " 1", "0.1234567890123456789"]),
    "temperature": (["0.7", "1"], ["0", "", "auto", "0.70"]),
    "model": (["m"], ["n", ""]),
    "cached": (["false"], ["true", ""]),
    "stopped": (["0"], ["1", ""]),
    "finish_reason": (["stop", "length"], ["error", "", "7"]),
    "error": (["", "none"], ["timeout", "0.5"]),
    "Error": ([""], ["timeout", "-1", "[]"]),
    "stop_reason": (["", "128009"], ["error", "###", "-1"]),
    "status": (["200", "ok"], ["500", "", "failed", "500 Internal Server Error"]),
    "cache_hit": (["no"], ["yes"]),
    "gen_top_k": (["50"], ["1"]),
    "note": (["x"], ["", "a;b"]),
    "text": (["Ada", "Bo"], ["", "NA", " ", "Cy"]),
    "epoch": (["1", "2", "3"], ["", "x"]),
    "split": (["forget"], ["retain", ""]),
    "seed": (["7"], ["8", ""]),
}  # fmt: skip
HEADS = ["prompt_id", "score"]
SCORES = [
    ["0", "1"],
    ["yes", "no"],
    ["Yes", "N", "y", "0", "1"],
    ["true", "false"],
    ["TRUE", "False", "", "0"],
    ["false"],
    ["3%", "85 %", "0"],
    ["3%", "1"],
    ["0,5", "1,0", "1"],
    ["yes", "3%"],
    ["1", "0", " true", "NA"],
    ["0.5", " 1", "no"],
]
# Cells with what quotes are for, and cells that two readers may read in two ways.
QUOTED = ['"a, ""b"""', '"a\nb"', '""', '"a;\tb"', '"\r\n"']
ILL_QUOTED = ['a"b', '"a"b', '"a', '"a" ', ' "a"', '""a"', '"a\r"']


@st.composite
def tables(draw):
    """The text of a table; of each column the cells are plain, or odd ones are among them."""
    others = draw(
        st.lists(st.sampled_from(sorted(set(CELLS) - set(HEADS))), max_size=3, unique=True)
    )
    header = draw(st.permutations([*HEADS, *others]))
    odd = draw(st.lists(st.sampled_from([*HEADS, *header]), max_size=1))
    quoting = draw(st.sampled_from([[], ["note"], ["note", "odd note"], header]))
    cells = []
    for name in header:
        plain, further = CELLS[name]
        if name == "score":
            plain = [*plain, *draw(st.sampled_from(SCORES))] if draw(st.booleans()) else SCORES[0]
            plain = draw(st.sampled_from([plain, draw(st.sampled_from(SCORES))]))
        texts = [*plain, *further] if name in odd else plain
        if name in quoting:
            texts = [*texts, *(f'"{text}"' for text in texts if '"' not in text)]
        if name in ("note", "model") and quoting:
            texts = [*texts, *QUOTED]
        if name == "note" and "odd note" in quoting:
            texts = [*texts, *ILL_QUOTED]
        cells.append(st.sampled_from(texts))
    rows = draw(st.lists(st.tuples(*cells), min_size=1, max_size=12))
    if quoting == header:
        header = draw(st.sampled_from([header, [f'"{name}"' for name in header]]))
    separator = draw(st.sampled_from([",", ";", "\t"]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines = [separator.join(row) for row in [header, *rows]]
    return end.join(lines) + draw(st.sampled_from(["", end]))


def outcome(path, missing):
    """What a reader made of a file, in values that can be compared."""
    try:
        read = read_scores(path, missing)
    except LetheError as error:
        return str(error)
    prompts = []
    for prompt in read.prompts:
        samples = None
        if prompt.samples is not None:
            samples = [str(sample) for sample in prompt.samples]
        scores = repr(prompt.scores.tolist())
        prompts.append([prompt.prompt_id, scores, prompt.missing, samples, prompt.lost])
    return prompts, read.stated, read.understood, read.stopped


@pytest.mark.seconds
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(table=tables(), missing=st.sampled_from([None, "worst", "drop"]))
def test_a_table_read_by_block_is_the_table_read_whole(tmp_path, table, missing):
    path = tmp_path / "scores.csv"
    path.write_bytes(table.encode())

    with patch.object(score_blocks, "BLOCK", 40):
        by_block = outcome(path, missing)
    with patch.object(score_files, "read_score_rows", lambda *_: None):
        whole = outcome(path, missing)

    assert by_block == whole


def written(tmp_path, *lines):
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def by_block(path):
    return score_blocks.read_score_rows(path, "prompt_id", "score", ["score"])


def test_a_plain_table_is_read_by_block(tmp_path):
    path = written(tmp_path, "prompt_id,sample,score", "b,0,0.5", "a,0,1", "b,-1,0")

    rows = by_block(path)

    assert rows.prompts == ["b", "a"]
    assert rows.codes.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(rows.numbers.values, [0.5, 1, 0])
    assert rows.samples.tolist() == [0, 0, -1]


def test_a_statement_on_draws_is_kept_once_with_its_rows(tmp_path):
    lines = [f"q,{sample},0,0.7,m" for sample in range(9)]
    path = written(tmp_path, "prompt_id,sample,score,temperature,model", *lines)

    with patch.object(score_blocks, "BLOCK", 40):
        rows = by_block(path)

    assert rows.times.tolist() == [9]
    assert rows.statements["temperature"].tolist() == [0.7]


@pytest.mark.parametrize("place", [0, 19_990])
def test_a_byte_that_is_no_utf8_is_refused_in_a_column_that_is_not_read_too(tmp_path, place):
    lines = [f"q,{sample},0,note".encode() for sample in range(20_000)]
    lines[place] += b"\xff"
    path = tmp_path / "scores.csv"
    path.write_bytes(b"\n".join([b"prompt_id,sample,score,note", *lines]))

    with pytest.raises(LetheError, match="UTF-8"):
        read_scores(path, None)


def test_hexadecimal_samples_stay_texts(tmp_path):
    path = written(tmp_path, "prompt_id,sample,score", "q,0x0,0", "q,0x1,0")

    (prompt,) = read_scores(path, None).prompts

    assert prompt.samples.tolist() == ["0x0", "0x1"]


@pytest.mark.parametrize(
    ("cells", "form", "word_of_1"),
    [
        (["0", "yes", "Y", "no"], "words", "y"),
        (["false", "true"], "words", "true"),
        (["false", "false"], "words", "true"),
        (["0", "85%", ""], "percent", "1"),
        (['"0,5"', "1"], "decimal comma", "1"),
        (['"0"', '"1"'], "plain", "1"),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_scores_of_people_are_read_by_block_too(tmp_path, cells, form, word_of_1, size):
    rows = [f'"q, ""1""",{cell}' for cell in cells]
    path = written(tmp_path, "prompt_id,score", *rows)

    with patch.object(score_blocks, "BLOCK", size + 20):
        read = by_block(path)

    assert read.prompts == ['q, "1"']
    assert (read.numbers.form, read.numbers.word_of_1) == (form, word_of_1)
    whole = numbers_of(read_table(path)["score"])
    np.testing.assert_array_equal(read.numbers.values, whole.values)


@pytest.mark.parametrize("row", ['q"1,0', '"q"1,0', "q,maybe", "q,3%", "q,0,1", ",0"])
def test_what_is_unusual_is_left_to_the_reader_of_whole_tables(tmp_path, row):
    path = written(tmp_path, "prompt_id,score", "p,1", row)

    assert by_block(path) is None


MARK = "\ufeff"


@pytest.mark.parametrize(
    "lines",
    [
        ["finish_reason,score,prompt_id", f"{MARK},0,q", "stop,0,q"],
        ["finish_reason,score,prompt_id", f"{MARK}stop,0,q", "stop,0,q"],
        ["prompt_id,score", f"{MARK}q,0", "q,0"],
        ["score,prompt_id", f"{MARK}1,q", "0,q"],
        [f"{MARK}{MARK}finish_reason,prompt_id,score", "error,q,0", "stop,q,0"],
    ],
)
def test_a_mark_within_the_text_is_left_to_the_reader_of_whole_tables(tmp_path, lines):
    assert by_block(written(tmp_path, *lines)) is None


def test_a_mark_at_the_start_of_a_later_block_is_left_to_it_too(tmp_path):
    path = written(tmp_path, "score,prompt_id", *["0,q"] * 4, f"{MARK}1,q")

    with patch.object(score_blocks, "BLOCK", 8):
        assert by_block(path) is None


def test_the_number_of_a_sample_as_score_is_left_to_it(tmp_path):
    path = written(tmp_path, "prompt_id,sample,score,finish_reason", "q,0,1,error", "q,1,0,stop")

    assert score_blocks.read_score_rows(path, "prompt_id", "sample", ["sample"]) is None
