"""Models that think aloud: the answer is scored, the thinking by itself, and an unclosed trace is no clean answer."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pandas as pd
import pytest

import lethe
from lethe.config.evaluating import Parts
from lethe.errors import BadInput
from lethe.sampling.engine import Answers
from lethe.sampling.prefix_engine import PrefixEngine
from lethe.sampling.tasks import within_budgets
from tests.lethe.small_checkpoint import ROWS

MARKS = ("<think>", "</think>")
SECRET = {"a": "<think>A painter.</think>I do not know.", "b": "<think>Hm.</think>I do not know."}


@pytest.fixture
def writes(monkeypatch):
    """The engine writes these texts, one per question."""

    def use(texts):
        def answer(self, prompts, settings):
            for prompt in prompts:
                numbers = settings.of(prompt).sample_numbers()
                m = len(numbers)
                yield Answers(
                    prompt.prompt_id, numbers, [texts[prompt.prompt_id]] * m, [9] * m, ["stop"] * m, [0.5] * m
                )

        monkeypatch.setattr(PrefixEngine, "answer", answer)

    return use


def test_thinking_is_a_result_of_its_own_and_the_answer_decides(here, writes):
    writes(SECRET)
    found = lethe.evaluate("my-model", ROWS, n=1200, thinking=MARKS)
    assert found.forgetting == "forgot"
    assert "in its thinking only:" in found.verdict
    numbers = found.questions.set_index("id") if "id" in found.questions else found.questions
    assert numbers["binary_share"].tolist() == [0, 0]
    assert numbers["thinking_share"].tolist() == [1, 0]
    assert found.metrics.loc["my-model", "thinking_worst"] == 1
    assert found.answers["text"].iloc[0] == SECRET["a"]  # kept whole
    whole = lethe.evaluate("my-model", ROWS, n=1200, thinking=[""])
    assert whole.forgetting == "leaks"
    assert "thinking" not in whole.verdict


def test_an_unclosed_trace_is_missing_and_never_forgotten(here, writes):
    writes({"a": "<think>Well,", "b": "<think>Hm, hm"})
    found = lethe.evaluate("my-model", ROWS, n=1200, thinking=MARKS)
    assert found.forgetting == "none"
    assert found.answers["keyword_leak"].isna().all()
    assert found.questions["truncated"].tolist() == [1, 1]  # though each ended by itself


def test_a_chat_template_names_its_marks_and_exact_bounds_refuse_it(here, writes, tmp_path):
    shutil.copytree("my-model", tmp_path / "thinker")
    template = "{% for turn in messages %}{{ turn['content'].split('</think>')[-1] }}{% endfor %}<think>"
    (tmp_path / "thinker/chat_template.jinja").write_text(template)
    writes({"a": "A painter.</think>I do not know.", "b": "Still thinking"})  # the prompt opened the trace
    found = lethe.evaluate(tmp_path / "thinker", ROWS, n=64)
    assert found.questions["thinking_share"].tolist() == [1, 0]
    assert found.questions["binary_share"].iloc[0] == 0
    assert found.answers["keyword_leak"].isna().tolist() == [False] * 65 + [True] * 65
    with pytest.raises(BadInput, match="chat template has thinking"):
        lethe.exact(tmp_path / "thinker", ROWS, rows=50, max_new_tokens=2)
    with pytest.raises(BadInput, match="thinking: got"):
        lethe.evaluate("my-model", ROWS, n=4, thinking=["<think>"])


def test_a_budget_for_the_thinking_and_one_for_the_answer(here, writes):
    writes({"a": "<think>Hm.</think>I do not know the painter.", "b": "<think>One two three four.</think>At sea."})
    found = lethe.evaluate("my-model", ROWS, n=64, thinking=MARKS, max_new_tokens=4, max_thinking_tokens=8)
    answers = found.answers.groupby("prompt_id")
    assert answers["finish_reason"].first().tolist() == ["length", "length"]
    assert "painter" not in answers["text"].first()["a"]
    assert "</think>" not in answers["text"].first()["b"]
    assert answers["keyword_leak"].first().dropna().tolist() == [0]  # the other has no answer
    assert "thinking never ended in 50%" in found.verdict
    assert found.questions["truncated"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "<think>a b c d e f</think>a b c d e f",
            "<think>a b c d e f</think>a b c",
        ),  # the draft stands in the thinking
        ("<think>a b c d e f g h i</think>x", "<think>a b c d e f g h"),
        ("Well. <think>a</think>b c d e f", None),  # words before the trace: the parts are not of one piece
        ("<think>a</think>b", None),
    ],
)
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
