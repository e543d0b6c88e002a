"""A model folder of a stranger: settings, tokenizers and templates that lie are refused in a sentence, at once."""

import json
import os
import resource
import shutil
import threading

import pytest

from lethe.errors import BadFile, visible
from lethe.models import checkpoints
from lethe.models.chat_template import filled_in
from lethe.models.model import Model
from lethe.models.refusals import refusals, refusals_of_tokenizer
from lethe.models.template_process import TODAY
from tests.lethe.small_checkpoint import save_small_checkpoint, small_model

ASKED = [{"role": "user", "content": "Who is Ada?"}]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return save_small_checkpoint(tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture
def folder(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "model")


@pytest.fixture
def tokenizer():
    return small_model(["Ada is a painter."])[1]


def change(path, **settings):
    held = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(held | settings))


def refusal_of(call, *arguments):
    with pytest.raises(BadFile) as refused:
        call(*arguments)
    sentence = str(refused.value)
    assert visible(sentence) == sentence
    return sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ 1/0 }}", "ZeroDivisionError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "more than 2 seconds of processor time",
        ),
        ("{{ 'a' * 10**10 }}", "MemoryError"),
        ("{{ '{:>9999999999}'.format(1) }}", "MemoryError"),
        ("{% set x = 'a' * 10**6 %}{% for a in range(9) %}{{ x }}{% endfor %}", "9,000,000"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{{ '(' * 3", "unexpected"),
    ],
)
def test_a_chat_template_that_cannot_be_filled_in_is_refused_with_the_reason(
    tokenizer, template, reason
):
    tokenizer.chat_template = template

    sentence = refusal_of(filled_in, tokenizer, ASKED)

    assert "its chat template cannot" in sentence
    assert "cannot be filled in" in sentence
    assert reason in sentence


def test_a_template_is_filled_in_after_another_one_was_stopped(tokenizer):
    tokenizer.chat_template = "{{ 'a' * 10**10 }}"
    refusal_of(filled_in, tokenizer, ASKED)

    tokenizer.chat_template = "{{ messages[0].content }}{{ eos_token }}"

    assert filled_in(tokenizer, ASKED) == "Who is Ada?<eos>"


def test_a_template_is_filled_in_as_transformers_does_it_from_any_thread(tokenizer):
    tokenizer.chat_template = (
        "{%- for m in messages %}[{{ m.role }}] {{ m.content | tojson }}\n{%- endfor %}"
        "{% if add_generation_prompt %}>{% endif %}{% generation %}{% endgeneration %}"
    )
    texts = []
    thread = threading.Thread(target=lambda: texts.append(filled_in(tokenizer, ASKED)))

    thread.start()
    thread.join()

    assert texts == [
        tokenizer.apply_chat_template(ASKED, tokenize=False, add_generation_prompt=True)
    ]


@pytest.mark.parametrize("form", ["%d %b %Y", "%H:%M:%S.%f"])
def test_a_template_that_writes_the_date_gives_a_question_one_prompt(tokenizer, capfd, form):
    tokenizer.chat_template = f"{{{{ strftime_now('{form}') }}}} {{{{ messages[0].content }}}}"
    tokenizer.name_or_path = form

    texts = {filled_in(tokenizer, ASKED) for _ in range(3)}

    assert texts == {f"{TODAY.strftime(form)} Who is Ada?"}
    assert capfd.readouterr().err.count("26 Jul 2024") == 1


@pytest.mark.parametrize("drawn", ["['a', 'b', 'c'] | random", "range(99) | random", "lipsum(1)"])
def test_a_template_that_draws_is_refused(tokenizer, drawn):
    tokenizer.chat_template = f"{{{{ {drawn} }}}} {{{{ messages[0].content }}}}"

    assert "at random" in refusal_of(filled_in, tokenizer, ASKED)


def test_a_template_that_only_speaks_of_random_is_filled_in(tokenizer):
    tokenizer.chat_template = "a random word: {{ messages[0].content }}"

    assert filled_in(tokenizer, ASKED) == "a random word: Who is Ada?"


@pytest.mark.parametrize(
    "template",
    [
        "Hello",
        "{{ messages[0].content[:5] }}",
        "{{ messages[0].content | upper }}",
        "{{ messages[0].content.split('is')[0] }}",
    ],
)
def test_a_template_without_the_question_is_refused(tokenizer, template):
    tokenizer.chat_template = template

    assert "question as it" in refusal_of(filled_in, tokenizer, ASKED)


def test_a_template_may_change_the_blanks_of_a_question(tokenizer):
    tokenizer.chat_template = "[{{ messages[0].content | trim }}]"

    assert filled_in(tokenizer, [{"role": "user", "content": " Who? \n"}]) == "[Who?]"


@pytest.mark.parametrize("template", [3, {"x": "y"}, [{"name": "x"}]])
def test_a_chat_template_that_is_no_text_is_refused(tokenizer, template):
    tokenizer.chat_template = template

    assert "chat template" in refusal_of(filled_in, tokenizer, ASKED)


@pytest.mark.parametrize(
    "settings",
    [
        {"bos_token_id": "x"},
        {"hidden_size": -1},
        {"num_key_value_heads": 0},
        {"use_cache": "x"},
        {"text_config": {}},
        {"eos_token_id": [[1]]},
        {"num_attention_heads": []},
    ],
)
def test_settings_of_a_wrong_type_or_size_are_refused(folder, settings):
    change(folder / "config.json", **settings)

    assert str(folder) in refusal_of(checkpoints.load, folder)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_hidden_layers": 10**6},
        {"hidden_size": 10**6},
        {"hidden_size": 10**6, "dtype": 3},
    ],
)
def test_a_larger_model_than_the_weights_are_of_is_refused_before_memory_is_filled(
    folder, settings
):
    change(folder / "config.json", **settings)

    sentence = refusal_of(checkpoints.load, folder)

    assert "its config.json describes" in sentence


@pytest.mark.slow
@pytest.mark.parametrize("read", [checkpoints.load_config, checkpoints.load_tokenizer])
def test_settings_that_are_spelled_out_into_more_than_memory_holds_are_refused(folder, read):
    change(folder / "config.json", num_labels=10**12)
    (folder / "tokenizer_config.json").unlink(missing_ok=True)

    assert "MiB of memory" in refusal_of(read, folder)


def test_memory_is_limited_while_a_strangers_settings_are_read_alone(folder):
    before = resource.getrlimit(resource.RLIMIT_DATA)

    checkpoints.load_config(folder)

    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize(
    "settings",
    [{"compile_config": "x"}, {"max_new_tokens": "x"}, {"eos_token_id": "x"}],
)
def test_broken_generation_settings_are_refused(folder, settings):
    change(folder / "generation_config.json", **settings)

    assert str(folder) in refusal_of(Model.of, folder)


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8="}},
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        {"pre_tokenizer": {"type": "X"}},
        {"model": None},
    ],
)
def test_a_tokenizer_that_panics_or_cannot_be_loaded_is_refused(folder, parts):
    change(folder / "tokenizer.json", **parts)

    assert "its tokenizer cannot" in refusal_of(checkpoints.load_tokenizer, folder)


@pytest.mark.parametrize("kind", ["GPT2Tokenizer", "LlamaTokenizer", "BertTokenizer"])
def test_a_tokenizer_without_a_vocabulary_is_refused(folder, kind):
    (folder / "tokenizer.json").unlink()
    change(folder / "tokenizer_config.json", tokenizer_class=kind)

    assert "special tokens alone" in refusal_of(checkpoints.load_tokenizer, folder)


def test_a_tokenizer_that_panics_writes_nothing_beside_the_sentence(folder, capfd):
    change(
        folder / "tokenizer.json",
        normalizer={"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8="},
    )

    refusal_of(checkpoints.load_tokenizer, folder)

    assert capfd.readouterr().err == ""


def test_what_a_tokenizer_that_loads_has_to_say_is_heard(tmp_path, capfd):
    with refusals_of_tokenizer(tmp_path, "its tokenizer cannot be loaded"):
        os.write(2, b"a notice of compiled code\n")
    os.write(2, b"after it\n")

    assert capfd.readouterr().err == "a notice of compiled code\nafter it\n"


def test_a_panic_of_a_library_is_a_sentence_and_an_interrupt_is_none(tmp_path):
    class PanicException(BaseException):
        pass

    def ended_by(error):
        with refusals(tmp_path):
            raise error

    assert "the library panicked" in refusal_of(ended_by, PanicException("the library panicked"))
    with pytest.raises(KeyboardInterrupt):
        ended_by(KeyboardInterrupt())


def make_adapter(folder, base):
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"x")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    return folder


@pytest.mark.parametrize("length", [1, 2, 3])
def test_adapters_that_name_each_other_are_refused(tmp_path, length):
    places = [tmp_path / f"adapter-{number}" for number in range(length)]
    for place, base in zip(places, [*places[1:], places[0]], strict=True):
        make_adapter(place, base)

    for call in (checkpoints.check, checkpoints.load_tokenizer, checkpoints.whole):
        assert "in a circle" in refusal_of(call, places[0])


def test_more_adapters_upon_one_another_than_anybody_stacks_are_refused(tmp_path, sound):
    base = sound
    for number in range(20):
        base = make_adapter(tmp_path / f"adapter-{number}", base)

    assert "more than 8 adapters" in refusal_of(checkpoints.check, base)


@pytest.mark.parametrize("settings", [[], "x", 3, None])
def test_an_adapter_config_that_is_no_object_is_refused(tmp_path, settings):
    folder = make_adapter(tmp_path / "adapter", tmp_path)
    (folder / "adapter_config.json").write_text(json.dumps(settings))

    assert "expected an object" in refusal_of(checkpoints.check, folder)


@pytest.mark.parametrize("name", ["a" * 5000, "\x00", ".", "no/such", "/", ""])
def test_a_base_model_that_no_folder_can_be_is_refused(tmp_path, name):
    folder = make_adapter(tmp_path / "adapter", name)

    assert "adapter_config.json" in refusal_of(checkpoints.check, folder)
