"""Likelihoods of given answers against one row at a time, with nothing padded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lethe.models import checkpoints
from lethe.models.encoding import Encoder
from lethe.models.likelihood import TOKENS, given_answers

ROWS = [
    {
        "id": "a",
        "question": "Who is Ada?",
        "answer": "a painter",
        "paraphrased_answer": "She is a painter of the sea",
    },
    {"id": "b", "question": "Where is Bo?", "answer": "at sea", "perturbed_answer": ["at a sea", "is Ada"]},
]
ANSWERS = [
    ("a", "answer", 0, "a painter"),
    ("a", "paraphrased", 0, "She is a painter of the sea"),
    ("b", "answer", 0, "at sea"),
    ("b", "perturbed", 0, "at a sea"),
    ("b", "perturbed", 1, "is Ada"),
]


@pytest.fixture
def folder(tiny, tmp_path):
    checkpoints.save(tmp_path / "model", *tiny)
    return tmp_path / "model"


def naive(model, tokenizer, prompt, row, text):
    example = Encoder(tokenizer, prompt).example(row, text)
    with torch.no_grad():
        log_p = model(torch.tensor([example.prompt + example.answer])).logits[0].double().log_softmax(-1)
    log_p = log_p[len(example.prompt) - 1 : -1].numpy()
    assert len(log_p) == len(example.answer)
    p = np.exp(log_p)
    mean = (p * log_p).sum(1)
    return {
        "log_probs": log_p[np.arange(len(log_p)), list(example.answer)],
        "expected": mean,
        "spread": np.sqrt((p * (log_p - mean[:, None]) ** 2).sum(1)),
        "greedy": log_p.argmax(1) == np.array(example.answer),
    }


def test_every_answer_token_by_token(tiny, prompt, folder):
    table = given_answers(folder, {"forget": ROWS}, prompt, "test")["forget"]
    assert list(zip(table["prompt_id"], table["kind"], table["number"], strict=True)) == [
        key[:3] for key in ANSWERS
    ]
    rows = {row["id"]: row for row in ROWS}
    for given, (prompt_id, _, _, text) in zip(table.itertuples(), ANSWERS, strict=True):
        for name, expected in naive(*tiny, prompt, rows[prompt_id], text).items():
            np.testing.assert_allclose(getattr(given, name), expected, rtol=2e-4, atol=2e-4)


def test_a_table_a_split_and_the_same_numbers_in_any_company(prompt, folder):
    together = given_answers(folder, {"forget": ROWS[:1], "retain": ROWS}, prompt, "test")
    alone = together["forget"]
    for name in TOKENS:
        for one, other in zip(alone[name], together["retain"][name], strict=False):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
