"""Losses and likelihoods of given answers against loops over rows and tokens, with nothing padded."""

import math

import numpy as np
import pytest
import torch

from lethe.errors import BadFile, BadInput
from lethe.models import checkpoints
from lethe.models.encoding import Encoder, Example, collate
from lethe.models.forward import forward
from lethe.models.in_memory import QA_PROMPT
from lethe.models.likelihood import TOKENS, answer_tokens, given_answers, mean_losses

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


EXAMPLES = [Example((5, 6, 7), (8, 9)), Example((5,), (10, 11, 12, 13)), Example((6, 7), (8,))]


def by_hand(model, example):
    """[(ln p(token), entropy, mean and sd of ln p, is greedy)] for each answer token, one forward pass each."""
    rows = []
    for place, token in enumerate(example.answer):
        ids = torch.tensor([example.prompt + example.answer[:place]])
        with torch.no_grad():
            p = model(input_ids=ids).logits[0, -1].double().softmax(-1)
        log_p = p.log()
        mean = float((p * log_p).sum())
        sd = math.sqrt(max(0.0, float((p * log_p**2).sum()) - mean**2))
        rows.append((float(log_p[token]), -mean, mean, sd, int(log_p.argmax()) == token))
    return rows


def test_sums_means_and_entropies_equal_the_loop(tiny):
    model = tiny[0].eval()
    out = forward(model, collate(EXAMPLES, 0))
    expected = [by_hand(model, example) for example in EXAMPLES]
    assert out.tokens.tolist() == [2, 4, 1]
    sums = [sum(row[0] for row in rows) for rows in expected]
    assert out.log_probs.tolist() == pytest.approx(sums, rel=1e-5)
    assert float(out.nll) == pytest.approx(-sum(sums) / 7, rel=1e-5)
    entropies = [sum(row[1] for row in rows) / len(rows) for rows in expected]
    assert float(out.entropy) == pytest.approx(sum(entropies) / 3, rel=1e-5)


@pytest.mark.parametrize("size", [1, 2, 32])
def test_likelihoods_equal_the_loop_in_the_order_asked(tiny, size):
    model = tiny[0].eval()
    for tokens, example in zip(answer_tokens(model, EXAMPLES, 0, size), EXAMPLES, strict=True):
        rows = by_hand(model, example)
        assert tokens.log_probs == pytest.approx([row[0] for row in rows], rel=1e-5)
        assert tokens.expected == pytest.approx([row[2] for row in rows], rel=1e-5)
        assert tokens.spread == pytest.approx([row[3] for row in rows], rel=1e-3)
        assert tokens.greedy.tolist() == [row[4] for row in rows]
        assert tokens.nll == pytest.approx(-sum(row[0] for row in rows) / len(rows), rel=1e-5)


def test_an_answer_beyond_the_context_has_no_tokens_and_the_others_have_theirs(tiny):
    model = tiny[0].eval()
    context = model.config.max_position_embeddings
    long = Example((3,) * context, (4,))
    for tokens, example in zip(answer_tokens(model, [long, EXAMPLES[0]], 0), [long, EXAMPLES[0]], strict=True):
        assert len(tokens.log_probs) == len(tokens.greedy) == (0 if example is long else len(example.answer))
    with pytest.raises(BadInput, match=r"Row 'a': .* more tokens"):
        mean_losses(*tiny, QA_PROMPT, [{"id": "a", "question": "?" * 600, "answer": "x"}])


def test_a_tokenizer_of_another_model_is_told(tiny):
    with pytest.raises(BadFile, match=r"token 5000\b.* below \d+"):
        answer_tokens(tiny[0], [Example((5000,), (1,))], 0)
