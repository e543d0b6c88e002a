"""The comparison with the golden values names what differs, and says by its exit status whether anything does."""

import dataclasses

from lethe.results import table
from tests import golden
from tests.cases import cases

ROW = table.Result(
    *("m", "question", "leak", "sampled"),
    item="q",
    estimate=0.1,
    lower=0.0,
    upper=1e-300,
    alpha_upper=0.05,
    n=8,
)


@cases
def test_the_numbers_of_a_row_count_and_its_words_do_not(tmp_path, change, same):
    place = table.place(tmp_path, "metrics", "m")
    table.write(place, [ROW])
    before = golden.hashes(tmp_path)
    table.write(place, [dataclasses.replace(ROW, **change)])
    assert list(before) == ["results/metrics/m.parquet"]
    assert (golden.hashes(tmp_path) == before) is same
