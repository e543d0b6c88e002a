"""What ROUGE cannot read is missing and named, never a 1 for another answer."""

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

import lethe
from lethe.api.logs import score_log
from lethe.errors import BadInput
from lethe.registry import ROUGE
from lethe.scoring.scorer import scorer
from lethe.scoring.text.rouge import doubts, reads

UNREAD = [
    "\u6771\u4eac 2020",
    "\u6771\u4eac2020\u5e74",
    "\u041c\u043e\u0441\u043a\u0432\u0430 1980",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u0662\u0660\u0662\u0660 Tokyo",
    "\uff28\uff41\uff52\uff52\uff59 2020",
    "\u00d6\u00f6 2020",
    "the \u03b1 particle",
]
READ = [
    "Caf\u00e9 M\u00fcller, 1999",
    "42 m\u00b2",
    "Tokyo 2020 \u2014 \u201cnow\u201d",
    "\u00e0 Paris",
]


@pytest.mark.parametrize("reference", UNREAD)
@pytest.mark.parametrize("name", ROUGE)
def test_a_reference_with_words_that_rouge_drops_has_no_score(name, reference):
    scores = scorer(name)([reference, "\u5927\u962a 2020", ""], {"answer": reference})

    assert np.isnan(scores).all()


def test_a_threshold_on_a_missing_score_is_missing_too():
    assert np.isnan(scorer("above")(["\u5927\u962a 2020"], {"answer": "\u6771\u4eac 2020"})).all()


@pytest.mark.parametrize("reference", [*READ, "plain words"])
def test_what_rouge_reads_of_latin_text_has_the_number_of_rouge_score(reference):
    generation = "Cafe Muller in Paris 1999, 42 m now, plain"
    package = RougeScorer(["rougeL"], use_stemmer=True).score(reference, generation)["rougeL"]

    recall = scorer("rouge_l")([generation], {"answer": reference})

    assert reads(reference)
    assert recall.tolist() == [package.recall]


def test_the_warning_names_the_question_and_what_is_read_of_it():
    rows = [
        {"id": "plain", "answer": "hello"},
        {"id": "mix", "answer": "\u6771\u4eac 2020"},
        {"id": "accent", "answer": "Caf\u00e9 M\u00fcller"},
    ]

    unscored, partly = doubts(rows)

    for words in ("in 1 of 3", "'mix'", "'2020'"):
        assert words in unscored
    for words in ("in 1 of 3", "'accent'", "'caf m ller'"):
        assert words in partly
    assert doubts(rows[:1]) == []


def test_the_warning_counts_all_such_questions_and_names_up_to_three():
    rows = [{"id": place, "answer": f"Caf\u00e9 {place}"} for place in range(5)]

    (three,) = doubts(rows[:3])
    (five,) = doubts(rows)

    for words in ("3 of 3", "('0'", "'caf 0'; '1'", "'caf 1'; '2'", "'caf 2')."):
        assert words in three
    assert "in 5 of 5 ('0', of" in five
    assert "reads 'caf 2'; and 2 more)." in five
    assert "'3'" not in five


def test_scoring_a_log_tells_of_references_that_rouge_drops(tmp_path, capsys):
    log, data = tmp_path / "answers.csv", tmp_path / "forget.jsonl"
    log.write_text("prompt_id,sample,text\nmix,0,\u5927\u962a 2020\nen,0,hello\n", encoding="utf-8")
    data.write_text(
        '{"id": "mix", "question": "Which?", "answer": "\u6771\u4eac 2020"}\n'
        '{"id": "en", "question": "Say it", "answer": "hello"}\n',
        encoding="utf-8",
    )

    scores = score_log(log, data=data).table

    told = capsys.readouterr().err
    assert "'mix', of which it" in told
    assert "it reads '2020'" in told
    assert scores["rouge_l"].isna().tolist() == [True, False]


def test_one_text_that_rouge_cannot_judge_is_refused_with_the_reason():
    with pytest.raises(BadInput, match="ROUGE reads a-z and 0-9 only"):
        lethe.score(["\u5927\u962a 2020"], "rouge_l", answer="\u6771\u4eac 2020")
