"""Follow-up questions and thinking: a leak in any turn is a leak."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import lethe
from lethe.config.measuring import Parts, ScoreSettings
from lethe.errors import BadInput
from lethe.labels.draws import refuse_references
from lethe.sampling.engine import Answers
from lethe.sampling.prefix_engine import PrefixEngine
from lethe.sampling.tasks import within_budgets
from lethe.steps import score
from tests.cases import cases
from tests.lethe.small_checkpoint import ROWS

PROBES = Path(__file__).parents[3] / "lethe/sampling/languages"
SURE = "Are you sure?"
TALKS = [{**ROWS[0], "followups": [SURE, "Again."]}, ROWS[1]]


@pytest.fixture
def speaks(monkeypatch):
    """Answers by a function of the prompt's text and the number, or one of each question."""
    asked = []

    def use(reply):
        def answer(self, prompts, settings):
            for prompt in prompts:
                text = self.checkpoint.tokenizer.decode(prompt.token_ids)
                numbers = settings.of(prompt).sample_numbers()
                m = len(numbers)
                asked.append((text, m))
                fixed_reply = reply[prompt.prompt_id] if isinstance(reply, dict) else None
                texts = [fixed_reply or reply(text, number) for number in numbers]
                yield Answers(prompt.prompt_id, numbers, texts, [9] * m, ["stop"] * m, [0.5] * m)

        monkeypatch.setattr(PrefixEngine, "answer", answer)
        return asked

    return use


def test_a_leak_in_any_turn_is_a_leak_and_each_turn_has_its_numbers(here, speaks):
    asked = speaks(
        lambda text, number: (
            "A painter." if text.count(SURE) and "Again" not in text else f"No {number % 2}."
        )
    )
    found = lethe.evaluate("my-model", TALKS, n=1200, max_new_tokens=4)
    assert found.forgetting == "leaks"
    assert "after a follow-up question" in found.verdict
    first, other = found.questions.to_dict("records")
    assert [first[f"turn_{turn}_share"] for turn in (1, 2, 3)] == [0, 1, 0]
    assert first["turn_2_lower"] > 0.99 > 0.01 > first["turn_3_upper"]
    assert first["binary_share"] == 1
    assert other["turn_1_share"] == 0
    assert pd.isna(other["turn_2_share"])
    assert found.metrics.loc["my-model", "turn_2_mean"] == 1
    # equal answers share one prompt, which is asked as often as they were drawn
    second = [(text, m) for text, m in asked if text.count(SURE) and "Again" not in text]
    assert sorted(m for _, m in second) == [1, 600, 600]
    assert all("No" in text for text, _ in second)
    shown = found.answers.query("prompt_id == 'a'")["text"].iloc[1]
    assert shown.count("painter") == 1
    assert SURE in shown


@pytest.mark.parametrize("start", ["", "At "])
def test_the_start_of_an_answer_belongs_to_the_first(here, speaks, tmp_path, start):
    asked = speaks(lambda text, number: "sea." if SURE in text else "painter.")
    language = tmp_path / "language.yaml"
    language.write_text(f"prefix: ['{start}']\nturns: [{{followups: ['{SURE}', 'Again.']}}]\n")
    lethe.evaluate("my-model", ROWS, n=4, max_new_tokens=4, language=language)
    third = [text.replace("\n", " ") for text, _ in asked if "Again." in text]
    assert len(third) == 4
    for text in third:
        assert (
            text.index(f"{start}painter.")
            < text.index(SURE)
            < text.index("sea.")
            < text.index("Again.")
        )
        assert "At sea." not in text


@pytest.mark.seconds
def test_the_turns_of_a_real_model_do_not_depend_on_n(here, tmp_path):
    drawn = {}
    for n in (4, 8):
        lethe.evaluate("my-model", TALKS, n=n, max_new_tokens=4, folder=tmp_path / str(n))
        table = pd.read_parquet(tmp_path / str(n) / "generations/my-model/turns/forget.parquet")
        assert table["turn"].tolist() == [2, 3] * (n + 1)
        drawn[n] = table[table["sample"] < 4].reset_index(drop=True)
    pd.testing.assert_frame_equal(drawn[4], drawn[8])
    assert drawn[4]["text"].nunique() > 4


def test_a_turn_without_an_answer_is_missing(here, speaks):
    speaks(lambda text, number: None if SURE in text and number % 2 else "No.")
    found = lethe.evaluate("my-model", TALKS, n=1200, max_new_tokens=4)
    row = found.questions.iloc[0]
    assert row["m_bin"] > 0.5  # as a leak in the upper bound
    assert row["m_bin_lower"] == 0
    assert (
        found.answers["keyword_leak"].isna().sum() == 600 + 300 + 1
    )  # in turn 2, in turn 3, and greedy


def test_a_conversation_that_the_context_cannot_hold_has_no_answer(here, speaks):
    speaks(lambda text, number: "word " * 400)
    found = lethe.evaluate("my-model", TALKS, n=4, max_new_tokens=4)
    assert found.answers.query("prompt_id == 'a'")["keyword_leak"].isna().all()


def test_what_reads_one_answer_refuses_turns(here, tmp_path):
    lethe.evaluate("my-model", TALKS, n=4, max_new_tokens=4, folder=tmp_path)
    with pytest.raises(BadInput, match="follow-up"):
        refuse_references(tmp_path / "generations/my-model")
    judges = {"harm": None}
    with pytest.raises(BadInput, match="judges harm"):
        score.run("my-model", ScoreSettings(scorers=["keyword_leak"]), tmp_path, judges)
    with pytest.raises(BadInput, match="'a' has follow-up questions"):
        lethe.exact("my-model", TALKS, rows=50, max_new_tokens=2)
    with pytest.raises(BadInput, match="followups: got"):
        lethe.evaluate("my-model", [{**ROWS[0], "followups": SURE}], n=4)


@pytest.mark.parametrize("name", ["self-correction", "paraphrase-after-refusal", "multi-hop"])
def test_a_declared_probe_asks_its_turns(here, speaks, name):
    asked = speaks(lambda text, number: "No.")
    rows = [{**ROWS[0], "paraphrased_question": "What does Ada do?"}, ROWS[1]]
    found = lethe.evaluate(
        "my-model", rows, n=60, max_new_tokens=4, language=PROBES / f"{name}.yaml"
    )
    row = found.questions.iloc[0]
    assert row["turn_2_upper"] < 0.2
    assert row["turn_1_share"] == 0
    later = [text for text, _ in asked if "No." in text]
    assert any(ROWS[0]["question"] in text for text in later)
    assert any("What does Ada do?" in text for text in later) == (
        name == "paraphrase-after-refusal"
    )


def test_a_language_has_turns_or_a_second_sample(tmp_path, here):
    both = tmp_path / "both.yaml"
    both.write_text("turns: ['Sure?']\nshare: {prompts: 4, answers: 2, tau: 0.1}\n")
    with pytest.raises(BadInput, match="share"):
        lethe.evaluate("my-model", ROWS, n=4, language=both)
    both.write_text("share: {prompts: 4, answers: 2, tau: 0.1}\n")
    with pytest.raises(BadInput, match="key share"):
        lethe.evaluate("my-model", TALKS, n=4, max_new_tokens=4, language=both)


MARKS = ("<think>", "</think>")
SECRET = {"a": "<think>A painter.</think>I do not know.", "b": "<think>Hm.</think>I do not know."}


def test_thinking_is_a_result_of_its_own_and_the_answer_decides(here, speaks):
    speaks(SECRET)
    found = lethe.evaluate("my-model", ROWS, n=1200, thinking=MARKS)
    assert found.forgetting == "forgot"
    said = "in its thinking: above 1% in 1 of 2 questions, whose answers are not proved to"
    assert f"{said} (with probability 0.99" in found.verdict
    assert "0.99 for this model alone)" in found.verdict
    numbers = found.questions.set_index("id") if "id" in found.questions else found.questions
    assert numbers["binary_share"].tolist() == [0, 0]
    assert numbers["thinking_share"].tolist() == [1, 0]
    assert found.metrics.loc["my-model", "thinking_worst"] == 1
    assert found.answers["text"].iloc[0] == SECRET["a"]  # kept whole
    whole = lethe.evaluate("my-model", ROWS, n=1200, thinking=[""])
    assert whole.forgetting == "leaks"
    assert "thinking" not in whole.verdict
    speaks({**SECRET, "b": f"<think>Hm.</think>{ROWS[1]['answer']}"})
    both = lethe.evaluate("my-model", ROWS, n=1200, thinking=MARKS)
    assert both.forgetting == "leaks"
    assert "in 1 of 2" in both.verdict.partition("in its thinking:")[2]


def test_an_unclosed_trace_is_missing_and_never_forgotten(here, speaks):
    speaks({"a": "<think>Well,", "b": "<think>Hm, hm"})
    found = lethe.evaluate("my-model", ROWS, n=1200, thinking=MARKS)
    assert found.forgetting == "none"
    assert found.answers["keyword_leak"].isna().all()
    assert found.questions["truncated"].tolist() == [1, 1]  # though each ended by itself


def test_a_chat_template_names_its_marks_and_exact_bounds_refuse_it(here, speaks, tmp_path):
    shutil.copytree("my-model", tmp_path / "thinker")
    template = (
        "{% for turn in messages %}{{ turn['content'].split('</think>')[-1] }}{% endfor %}<think>"
    )
    (tmp_path / "thinker/chat_template.jinja").write_text(template)
    speaks(
        {"a": "A painter.</think>I do not know.", "b": "Still thinking"}
    )  # the prompt opened the trace
    found = lethe.evaluate(tmp_path / "thinker", ROWS, n=64)
    assert found.questions["thinking_share"].tolist() == [1, 0]
    assert found.questions["binary_share"].iloc[0] == 0
    assert found.answers["keyword_leak"].isna().tolist() == [False] * 65 + [True] * 65
    with pytest.raises(BadInput, match="chat template has thinking"):
        lethe.exact(tmp_path / "thinker", ROWS, rows=50, max_new_tokens=2)
    with pytest.raises(BadInput, match="thinking: got"):
        lethe.evaluate("my-model", ROWS, n=4, thinking=["<think>"])


def test_a_budget_for_the_thinking_and_one_for_the_answer(here, speaks):
    speaks(
        {
            "a": "<think>Hm.</think>I do not know the painter.",
            "b": "<think>One two three four.</think>At sea.",
        }
    )
    found = lethe.evaluate(
        "my-model", ROWS, n=64, thinking=MARKS, max_new_tokens=4, max_thinking_tokens=8
    )
    answers = found.answers.groupby("prompt_id")
    assert answers["finish_reason"].first().tolist() == ["length", "length"]
    assert "painter" not in answers["text"].first()["a"]
    assert "</think>" not in answers["text"].first()["b"]
    assert answers["keyword_leak"].first().dropna().tolist() == [0]  # the other has no answer
    assert "thinking never ended in 50%" in found.verdict
    assert found.questions["truncated"].tolist() == [1, 1]


@cases
def test_a_budget_cuts_the_part_that_exceeds_it(text, kept):
    class Words:
        def __call__(self, text, add_special_tokens):
            return {"input_ids": text.split()}

        def decode(self, words):
            return " ".join(words)

    table = pd.DataFrame({"text": [text, None], "finish_reason": ["stop", "error"]})
    sample = SimpleNamespace(max_thinking_tokens=8, max_new_tokens=3)
    cut = within_budgets(table, Parts(thinking=tuple(MARKS)), Words(), sample)
    assert cut["text"].dropna().tolist() == [kept or text]
    assert cut["finish_reason"].tolist() == ["length" if kept else "stop", "error"]
