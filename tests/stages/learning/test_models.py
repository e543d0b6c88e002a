import pytest
import torch

from stages.errors import BadFile
from stages.learning import models


def test_a_model_survives_its_folder_as_safetensors(tiny, tmp_path):
    model, tokenizer = tiny
    models.save(tmp_path / "m", model, tokenizer)
    assert (tmp_path / "m" / "model.safetensors").is_file()
    again, words = models.load(tmp_path / "m")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    text = "Ada is a painter. \u00fc \U0001f600"
    assert words.decode(words(text)["input_ids"]) == text


def test_what_is_no_model_is_named(tmp_path, tiny):
    with pytest.raises(BadFile, match="no such folder"):
        models.load(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadFile, match=r"no config\.json"):
        models.load(tmp_path / "empty")
    tiny[0].config.save_pretrained(tmp_path / "pickled")
    torch.save(tiny[0].state_dict(), tmp_path / "pickled" / "pytorch_model.bin")
    with pytest.raises(BadFile, match=r"no \.safetensors file"):
        models.load(tmp_path / "pickled")
