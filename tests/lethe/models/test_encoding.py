import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lethe.errors import BadFile, BadInput
from lethe.models.encoding import IGNORED, Encoder, Example, collate, read_template


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
