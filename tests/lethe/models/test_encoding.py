import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lethe.errors import BadFile, BadInput
from lethe.models import checkpoints
from lethe.models.checkpoints import QA_PROMPT
from lethe.models.encoding import IGNORED, Encoder, Example, collate, read_template
from lethe.models.likelihood import TOKENS, answer_tokens, forward, given_answers, mean_losses


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(question=st.text(), answer=st.text(min_size=1).filter(str.strip))
def test_prompt_and_answer_spell_the_whole_text(tiny, prompt, question, answer):
    encoder = Encoder(tiny[1], prompt)
    example = encoder.example({"question": question, "answer": answer})
    assert example.prompt == encoder.prompt({"question": question})
    assert example.answer[-1] == tiny[1].eos_token_id
    assert tiny[1].decode(example.prompt + example.answer[:-1]) == f"Question: {question}\nAnswer: {answer}"


def test_the_end_stands_there_once_and_braces_mean_nothing(tiny, prompt):
    encoder = Encoder(tiny[1], prompt)
    example = encoder.example({"question": "{answer} {0}", "answer": "x"})
    assert list(example.answer).count(tiny[1].eos_token_id) == 1
    assert "{answer} {0}" in tiny[1].decode(example.prompt)


def test_collate_masks_prompt_and_padding():
    batch = collate([Example((1, 2), (3,)), Example((4,), (5, 6, 7))], padding=0)
    assert batch.ids.tolist() == [[1, 2, 3, 0], [4, 5, 6, 7]]
    assert batch.mask.tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert batch.labels.tolist() == [[IGNORED, IGNORED, 3, IGNORED], [IGNORED, 5, 6, 7]]


def test_a_bad_template_is_named(tmp_path, tiny):
    with pytest.raises(BadFile, match="no such prompt file"):
        read_template(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("hello")
    with pytest.raises(BadFile, match=r"no \{question\}"):
        read_template(tmp_path / "empty.txt")
    with pytest.raises(BadFile, match="no chat template"):
        Encoder(tiny[1], "chat")


@pytest.mark.parametrize("template", ["{{ raise_exception('no user role') }}", "{% for", "{{ messages + 1 }}"])
def test_a_chat_template_that_cannot_be_filled_in_is_told(tiny, monkeypatch, template):
    monkeypatch.setattr(tiny[1], "chat_template", template)
    with pytest.raises(BadFile, match="chat template cannot"):
        Encoder(tiny[1], "chat").prompt({"question": "q"})


def test_a_prompt_file_in_another_encoding_is_told(tmp_path):
    (tmp_path / "latin.txt").write_bytes("Fr\u00e5ga: {question}".encode("latin-1"))
    with pytest.raises(BadInput, match="not valid UTF-8"):
        read_template(tmp_path / "latin.txt")


PARAPHRASED = "She is a painter of the sea"
ROWS = [
    {"id": "a", "question": "Who is Ada?", "answer": "a painter", "paraphrased_answer": PARAPHRASED},
    {"id": "b", "question": "Where is Bo?", "answer": "at sea", "perturbed_answer": ["at a sea", "is Ada"]},
]
ANSWERS = [
    ("a", "answer", 0, "a painter"),
    ("a", "paraphrased", 0, PARAPHRASED),
    ("b", "answer", 0, "at sea"),
    ("b", "perturbed", 0, "at a sea"),
    ("b", "perturbed", 1, "is Ada"),
]


@pytest.fixture
def folder(tiny, tmp_path):
    checkpoints.save(tmp_path / "model", *tiny)
    return tmp_path / "model"


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


def test_every_answer_token_by_token(tiny, prompt, folder):
    table = given_answers(folder, {"forget": ROWS}, prompt, "test")["forget"]
    keys = list(zip(table["prompt_id"], table["kind"], table["number"], strict=True))
    assert keys == [key[:3] for key in ANSWERS]
    rows, encoder = {row["id"]: row for row in ROWS}, Encoder(tiny[1], prompt)
    for found, (prompt_id, _, _, text) in zip(table.itertuples(), ANSWERS, strict=True):
        expected = by_hand(tiny[0], encoder.example(rows[prompt_id], text))
        for name, place in (("log_probs", 0), ("expected", 2), ("spread", 3), ("greedy", 4)):
            own = [row[place] for row in expected]
            np.testing.assert_allclose(getattr(found, name), own, rtol=2e-4, atol=2e-4)


def test_a_table_a_split_and_the_same_numbers_in_any_company(prompt, folder):
    together = given_answers(folder, {"forget": ROWS[:1], "retain": ROWS}, prompt, "test")
    alone = together["forget"]
    for name in TOKENS:
        for one, other in zip(alone[name], together["retain"][name], strict=False):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


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
