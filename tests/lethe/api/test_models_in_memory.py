"""`import lethe`: its cost, its names, its examples; a model in memory gives the answers of its folder, unchanged."""

import doctest
from operator import attrgetter

import pytest

import lethe
from lethe.api.result import TableWithSentences, View
from lethe.errors import BadInput
from tests.cases import cases
from tests.lethe.api.conftest import ROWS
from tests.small import ROOT, python


@pytest.fixture
def held(here):
    """The user's model in memory, in training mode and with its own generation settings."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained("my-model")
    model.train()
    model.model.layers[0].eval()
    model.generation_config.temperature = 0.1
    model.generation_config.repetition_penalty = 5.0
    return model, AutoTokenizer.from_pretrained("my-model")


@pytest.mark.parametrize("engine", ["prefix", "transformers"])
def test_the_answers_are_those_of_the_folder(held, engine):
    how = {"n": 16, "max_new_tokens": 4, "engine": engine, "seed": 3}
    prompts = {"a": "Who is Ada?", "b": "Where is Bo?"}
    drawn = lethe.sample(*held, prompts, **how)
    same = lethe.sample("my-model", prompts=prompts, **how)
    assert drawn.to_frame().equals(same.to_frame())
    assert drawn.to_frame()["sample"].tolist() == [*range(-1, 16)] * 2
    assert len(set(drawn.texts("a"))) > 1
    assert drawn.texts() == drawn.texts("a") + drawn.texts("b")
    with pytest.raises(BadInput, match="prompt_id: got 'c'"):
        drawn.texts("c")


def test_a_chat_model_gets_its_template_and_takes_messages(held):
    model, tokenizer = held
    tokenizer.chat_template = (
        "{% for turn in messages %}{{ turn['role'] }}: {{ turn['content'] }}\n{% endfor %}"
    )
    how = {"n": 8, "max_new_tokens": 4}
    asked = [{"role": "user", "content": "Who is Ada?"}]
    (plain,) = lethe.sample(
        model, tokenizer, ["user: Who is Ada?\n"], prompt="{question}", **how
    ).answers
    for prompts in (["Who is Ada?"], [asked]):
        (answers,) = lethe.sample(model, tokenizer, prompts, **how).answers
        assert answers == plain
    system = [{"role": "system", "content": "Be brief."}, *asked]
    (other,) = lethe.sample(model, tokenizer, [system], **how).answers
    assert other.texts != plain.texts
    for wrong in ([], [{"role": "user"}], [*asked, {"role": "assistant", "content": "Ada"}]):
        with pytest.raises(BadInput, match="prompts: got"):
            lethe.sample(model, tokenizer, [wrong], **how)
    with pytest.raises(BadInput, match="the template of messages"):
        lethe.sample(model, tokenizer, [asked], prompt="{question}", **how)


def test_the_model_is_given_back_as_it_was(held, here):
    import torch

    model, tokenizer = held
    habits = model.generation_config
    modes = [module.training for module in model.modules()]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    before = sorted(path for path in here.rglob("*"))
    torch.use_deterministic_algorithms(False)
    lethe.sample(model, tokenizer, ["Who?"], 4, max_new_tokens=2)
    lethe.evaluate(model, ROWS, tokenizer=tokenizer, n=4, max_new_tokens=2)
    assert not torch.are_deterministic_algorithms_enabled()
    assert model.generation_config is habits
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert sorted(path for path in here.rglob("*")) == before


def test_an_evaluation_in_memory_has_the_tables_of_the_folder(held, here):
    """The numbers differ: a stream of draws is named by the weights, which memory and files write in other ways."""
    model, tokenizer = held
    found = lethe.evaluate(model, ROWS, tokenizer=tokenizer, n=8, max_new_tokens=4)
    again = lethe.evaluate("my-model", "forget.jsonl", n=8, max_new_tokens=4, name="model")
    kept = lethe.load_run("data")
    assert found.forgetting == again.forgetting
    assert list(found.metrics) == list(again.metrics)
    assert found.report is None
    assert list(found.questions) == list(kept.questions)
    assert found.questions["n"].equals(kept.questions["n"])
    asked = ["model", "split", "prompt_id", "sample"]
    assert found.answers[asked].equals(again.answers[asked])
    assert found.answers["sample"].tolist() == [*range(-1, 8)] * 2


def test_equal_weights_in_memory_draw_equal_answers(held, here):
    model, tokenizer = held

    first, second = (
        lethe.evaluate(model, ROWS, tokenizer=tokenizer, n=8, max_new_tokens=4) for _ in range(2)
    )

    assert first.verdict == second.verdict
    assert first.answers.equals(second.answers)


@cases
def test_a_mistake_is_a_sentence(held, function, arguments, words):
    model, tokenizer = held
    usual = {"sample": {"prompts": ["a"], "n": 2}, "evaluate": {"data": ROWS}}[function]
    with pytest.raises(BadInput, match=words):
        getattr(lethe, function)(**{"model": model, "tokenizer": tokenizer, **usual, **arguments})


HEAVY = {
    "torch",
    "transformers",
    "pandas",
    "numpy",
    "scipy",
    "mlflow",
    "prefect",
    "pydantic",
    "matplotlib",
    "typer",
}


AUDITS = ("one_run", "epsilon_star", "swap", "twins")
FUNCTIONS = [name for name in lethe.__all__ if name not in ("__version__", "audit", "twins")]
FUNCTIONS += [f"audit.{name}" for name in AUDITS]
FUNCTIONS += ["twins.draw", "twins.add"]


@pytest.fixture
def own_registry(monkeypatch):
    """What an example registers is gone after the test."""
    from lethe.registry import SCORERS

    monkeypatch.setattr(SCORERS, "registered", {})


def test_import_lethe_loads_no_library(tmp_path):
    code = "import sys, lethe; dir(lethe); lethe.__version__; print(*sys.modules)"
    loaded = python(tmp_path, "-c", code).stdout.split()
    assert "lethe" in loaded
    assert not HEAVY & set(loaded)
    assert [name for name in loaded if name.startswith("lethe.")] == []


def test_help_loads_no_library(project):
    """The commands of a pipeline folder are listed too, without an import of its code."""
    code = "import sys; from lethe.cli.app import app; print(*sys.modules)"
    loaded = set(python(project, "-c", code).stdout.split())
    assert "flows.cli" not in loaded
    assert not (HEAVY - {"typer"}) & loaded


def test_settings_records_and_tables_of_results_load_no_numpy(tmp_path):
    """A process fixes its kernels after these imports."""
    code = (
        "import sys, lethe.config, lethe.tracking, lethe.results.table, lethe.verdict.finding;"
        "print(*sys.modules)"
    )
    loaded = python(tmp_path, "-c", code).stdout.split()
    assert "lethe.results.table" in loaded
    assert "numpy" not in loaded


@pytest.mark.slow
def test_bounds_of_a_table_load_no_distributions(tmp_path):
    """scipy.stats takes a third of the start of `lethe bounds`."""
    lines = [f"q,{sample},0" for sample in range(9)]
    (tmp_path / "scores.csv").write_text("\n".join(["prompt_id,sample,score", *lines]))
    code = "import sys, lethe; lethe.bounds('scores.csv').views(); print(*sys.modules)"

    loaded = python(tmp_path, "-c", code).stdout.split()

    assert "scipy.special" in loaded
    assert "scipy.stats" not in loaded


def test_every_name_is_there_and_no_other():
    assert set(lethe.__all__) <= set(dir(lethe))
    for name in lethe.__all__:
        assert getattr(lethe, name) is not None
    with pytest.raises(AttributeError):
        _ = lethe.exact_bounds


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_docstring_runs(name, here, own_registry):
    function = attrgetter(name)(lethe)
    found = doctest.DocTestFinder(recurse=False).find(function, name)
    assert sum(len(example.examples) for example in found) >= 2
    runner = doctest.DocTestRunner(verbose=False)
    failures = []
    for example in found:
        runner.run(example, out=failures.append)
    assert not failures, "".join(failures)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "least"), [("docs/python.md", 11), ("README.md", 3)])
def test_the_page_of_the_library_runs(page, least, here, own_registry):
    failures = []
    text = (ROOT / page).read_text(encoding="utf-8")
    example = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, page, None, 0)
    doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert len(example.examples) >= least
    assert not failures, "".join(failures)


def test_a_result_shows_its_guarantee_and_escapes_what_a_model_wrote(here):
    class Written(TableWithSentences):
        to_frame = None

        def views(self):
            return [View("", ["text"], [["<script>x</script>"]] * 30, self.sentences())]

        def sentences(self):
            return ["at most <b>3</b>"]

    shown = Written()._repr_html_()
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert "10 more rows" in shown
