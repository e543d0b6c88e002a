"""The vectorised losses against a loop over tokens: prompt and padding must not count."""

import math

import pytest
import torch

from lethe.errors import BadFile, BadInput
from lethe.models.encoding import Example, collate
from lethe.models.forward import forward
from lethe.models.in_memory import QA_PROMPT
from lethe.models.likelihood import answer_tokens, mean_losses

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
