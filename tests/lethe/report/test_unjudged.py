"""The page counts the questions that were judged, and names the others first."""

import pandas as pd
import pytest

from lethe.io.tables import write_parquet
from tests.lethe.report.conftest import rendered
from tests.lethe.report.test_page import page_words

ENDS = ["lower", "upper", "alpha_lower", "alpha_upper"]


@pytest.fixture
def run_without_verdicts_on_one_question(own_small):
    """As measured where the scorer cannot judge the question."""
    for path in (own_small / "data/results/metrics").glob("*.parquet"):
        rows = pd.read_parquet(path)
        of_question = (rows["item"] == "forget-001") & (rows["quantity"] == "leak")
        rows.loc[of_question, ENDS] = None
        write_parquet(path, rows)
    return own_small


def test_the_guarantee_is_about_the_judged_questions_and_names_the_others_first(
    run_without_verdicts_on_one_question, without_figures
):
    words = page_words(rendered(run_without_verdicts_on_one_question).html)

    covers = words[words.index("What the guarantee covers.") :]
    first, second = covers.index("Nobody judged 1 of 3 questions"), covers.index("With probability")
    assert "no word is about" in covers
    assert "is about them: forget-001." in covers
    assert first < second
    assert "about these 2 questions" in covers
