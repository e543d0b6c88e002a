"""Where a prompt ends and where an answer does: tokenizers, chat templates and generation settings that disagree."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM

import lethe
from lethe.errors import BadFile, BadInput
from lethe.models.chat_template import EndOfTurn, end_of_turn
from lethe.models.checkpoints import load_tokenizer, whole
from lethe.models.encoding import Encoder, open_ids
from lethe.models.model import Model
from lethe.sampling.engine import Prompt, Settings, open_engine
from tests.lethe.sampling.sampling_models import build_llama

LETTERS = "abcdefghij!"
STOP = LETTERS.index("!")
END = len(LETTERS)
MATRICES = ["embed_tokens", "lm_head"]
ROW = {"id": "a", "question": "ab", "answer": "cd"}
CHAT = "{% for m in messages %}b{{ m['content'] }}END{% endfor %}{% if add_generation_prompt %}c{% endif %}"


@pytest.fixture
def folder(tmp_path) -> Path:
    return build_llama(tmp_path / "m", LETTERS, scale=1.0)


def with_template(folder: Path, template: str) -> Path:
    (folder / "chat_template.jinja").write_text(template)
    return folder


def appending_tokenizer(folder: Path):
    """The tokenizer, which now ends each text with its end token."""
    tokenizer = load_tokenizer(folder)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A .", pair="$A $B .", special_tokens=[(".", END)]
    )
    return tokenizer


def test_a_prompt_has_no_end_token_that_its_tokenizer_appends(folder):
    encoder = Encoder(appending_tokenizer(folder), "{question}")

    assert encoder.tokenizer("ab")["input_ids"] == [0, 1, END]
    assert encoder.prompt(ROW) == (0, 1)
    assert encoder.conversation(ROW) == (0, 1)
    assert encoder.example(ROW).prompt == (0, 1)
    assert encoder.example(ROW).answer[-1] == END


def test_a_prompt_has_no_separator_that_its_tokenizer_appends(folder):
    tokenizer = appending_tokenizer(folder)
    tokenizer.add_special_tokens({"sep_token": "!", "eos_token": "j"})

    encoder = Encoder(tokenizer, "{question}")

    assert tokenizer("ab")["input_ids"] == [0, 1, END]
    assert encoder.prompt(ROW) == (0, 1)
    assert encoder.example(ROW).prompt == (0, 1)


def test_an_end_token_that_stands_in_the_text_itself_stays(folder):
    assert open_ids(appending_tokenizer(folder), "ab.", special=True) == (0, 1, END)
    assert open_ids(load_tokenizer(folder), "ab.", special=True) == (0, 1, END)


def test_an_empty_text_keeps_one_token(folder):
    assert open_ids(appending_tokenizer(folder), "", special=True) == (END,)


def test_the_end_of_a_turn_is_the_token_behind_an_answer_in_the_rendered_template(folder):
    with_template(folder, CHAT.replace("END", "!\n"))

    assert end_of_turn(load_tokenizer(folder)) == EndOfTurn(token=STOP)
    assert Model.of(folder).end_ids == (END, STOP)


@pytest.mark.parametrize("ending", ["", "\n", " \n\n", "{{ 1/0 }}", "?", "a?"])
def test_what_no_answer_can_end_with_ends_no_turn(folder, ending):
    """Blanks, a template that fails, and tokens that the tokenizer does not know."""
    with_template(folder, CHAT.replace("END", ending))
    tokenizer = load_tokenizer(folder)
    tokenizer.unk_token = "."

    assert end_of_turn(tokenizer) == EndOfTurn()


@pytest.mark.parametrize(
    ("ending", "found"),
    [
        ("ab", EndOfTurn(text="ab")),
        ("ab\nba", EndOfTurn(text="ab")),
        ("ab.", EndOfTurn(token=END, text="ab")),
        (".ab", EndOfTurn(token=END)),
    ],
)
def test_several_ordinary_tokens_end_a_turn_as_a_text(folder, ending, found):
    with_template(folder, CHAT.replace("END", ending))

    assert end_of_turn(load_tokenizer(folder)) == found


def test_the_stop_strings_of_generation_config_end_an_answer_too(folder):
    with_template(folder, CHAT.replace("END", "ab"))
    place = folder / "generation_config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"stop_strings": ["cd", "ab"]}))

    assert Model.of(folder).end_texts == ("cd", "ab")


def test_a_stop_string_that_is_no_text_is_refused_in_a_sentence(folder):
    place = folder / "generation_config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"stop_strings": [7]}))

    with pytest.raises(BadFile, match="must be a text"):
        Model.of(folder)


@pytest.mark.parametrize("kind", ["prefix", "transformers"])
def test_an_answer_ends_before_a_text_that_ends_a_turn(folder, kind):
    """The answers are those without that end, each up to the end."""
    prompts = [Prompt("p", (0, 1))]
    settings = Settings(n=300, max_new_tokens=8)
    (plain,) = open_engine(kind, folder).answer(prompts, settings)
    with_template(folder, CHAT.replace("END", "ab"))

    (answers,) = open_engine(kind, folder).answer(prompts, settings)

    assert answers.texts == [text.partition("ab")[0] for text in plain.texts]
    cut = ["ab" in text for text in plain.texts]
    assert sum(cut) > 5
    for place, uncut in enumerate(plain.texts):
        if not cut[place]:
            assert answers.tokens[place] == plain.tokens[place]
            continue
        assert answers.finish_reasons[place] == "stop"
        assert answers.tokens[place] == uncut.index("ab") + 2  # a token is a letter
        assert answers.mean_confidences[place] is None


def test_exact_bounds_refuse_a_turn_that_several_tokens_end(folder):
    with_template(folder, CHAT.replace("END", "ab"))
    rows = [{"id": "a", "question": "ab", "answer": "d", "keywords": ["d"]}]

    with pytest.raises(BadInput, match="'ab'"):
        lethe.exact(folder, rows, max_new_tokens=2)


def test_the_ends_of_an_answer_are_those_of_generation_config_tokenizer_and_template(folder):
    with_template(folder, CHAT.replace("END", "!"))
    place = folder / "generation_config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"eos_token_id": [3, 4]}))

    assert Model.of(folder).end_ids == (3, 4, END, STOP)


@pytest.mark.parametrize("kind", ["prefix", "transformers"])
def test_an_answer_ends_where_the_template_ends_a_turn(folder, kind):
    with_template(folder, CHAT.replace("END", "!"))
    engine = open_engine(kind, folder)

    (answers,) = engine.answer([Prompt("p", (0, 1))], Settings(n=200, max_new_tokens=12))

    ended = [
        text
        for text, reason in zip(answers.texts, answers.finish_reasons, strict=True)
        if reason == "stop"
    ]
    assert len(ended) > 50
    assert not any("!" in text for text in answers.texts)


def test_exact_bounds_count_an_answer_up_to_the_end_of_its_turn(folder):
    with_template(folder, CHAT.replace("END", "!"))
    rows = [{"id": "a", "question": "ab", "answer": "d", "keywords": ["d"]}]

    found = lethe.exact(folder, rows, prompt="{question}", max_new_tokens=2, scorer="exact_match")

    (question,) = found.to_frame().to_dict("records")
    ids = torch.tensor([[0, 1]])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        first = model(ids).logits[0, -1].softmax(-1)[LETTERS.index("d")]
        then = model(torch.tensor([[0, 1, 3]])).logits[0, -1].softmax(-1)
    likely = float(first * (then[STOP] + then[END]))
    assert question["lower"] <= likely + 1e-4
    assert question["upper"] >= likely - 1e-4
    assert question["upper"] - question["lower"] < 0.05


def adapter_with_added_tokens(folder: Path, place: Path) -> Path:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.resize_token_embeddings(len(LETTERS) + 3)
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(target_modules=["q_proj"], modules_to_save=MATRICES, task_type="CAUSAL_LM")
    get_peft_model(model, lora).save_pretrained(place, save_embedding_layers=False)
    config = json.loads((place / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(folder)
    (place / "adapter_config.json").write_text(json.dumps(config))
    return place


def test_an_adapter_with_added_tokens_gives_its_base_as_many(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    merged = whole(adapter_with_added_tokens(folder, tmp_path / "a"))

    assert Model.of(merged).vocabulary == len(LETTERS) + 3
