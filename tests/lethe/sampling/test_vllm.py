"""vLLM in the stage `sample` with two models at a time, and real servers: vLLM's answers have the exact law of the model,
and the probes say what the server of transformers ignores."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import chisquare
from transformers import AutoTokenizer

import lethe
from lethe.config.measuring import Endpoint
from lethe.models import checkpoints
from lethe.models.encoding import Encoder, Example
from lethe.models.endpoint_texts import GivenText, stated_texts
from lethe.models.likelihood import answer_tokens
from lethe.sampling.endpoint import EndpointEngine
from lethe.sampling.engine import Prompt, Settings, open_engine
from tests.lethe.sampling.real_servers import transformers_server, vllm_server
from tests.lethe.sampling.sampling_models import build_llama, exact_probabilities
from tests.lethe.small_checkpoint import small_model
from tests.small import ROOT, run

N = 600
LENGTH = 3
LETTERS = (
    "abcdefghijklmnopqrs"  # with the end as many tokens as a walk asks the log-probabilities of
)


@pytest.fixture
def served(tmp_path):
    pytest.importorskip("vllm")
    folder = build_llama(tmp_path / "model", LETTERS, scale=1.0)
    cuts = {"top_k": 2, "repetition_penalty": 1.5}  # which the server takes by itself
    cuts |= {"eos_token_id": len(LETTERS)}
    (folder / "generation_config.json").write_text(json.dumps(cuts))
    with vllm_server(folder, tmp_path / "server.log") as url:
        yield folder, url


@pytest.mark.slow
def test_answers_of_a_vllm_server_have_the_law_of_the_model(served, tmp_path):
    folder, url = served
    engine = EndpointEngine(Endpoint(endpoint=url, name="tiny"), tmp_path / "scratch", chat=False)
    prompts = [Prompt("p", (), text="ab")]
    settings = Settings(n=N, max_new_tokens=LENGTH)
    (answers,) = engine.answer(prompts, settings)
    probes = {probe["name"]: probe["passed"] for probe in engine.served()["probes"]}
    assert probes.pop("seed") in (True, False, None)
    assert set(probes.values()) == {True}
    law: dict[str, float] = {}
    for tokens, mass in exact_probabilities(folder, (0, 1), LENGTH).items():
        text = "".join(f"{LETTERS} "[token] for token in tokens).strip()
        law[text] = law.get(text, 0) + mass
    counts = {text: answers.texts[1:].count(text) for text in law}
    assert sum(counts.values()) == N
    large = [text for text, mass in law.items() if mass * N >= 5]
    seen = [counts[text] for text in large]
    masses = [law[text] * N for text in large]
    seen = [*seen, N - sum(seen)]
    masses = [*masses, N - sum(masses)]
    assert chisquare(seen, np.array(masses) * N / sum(masses)).pvalue > 1e-3
    rows = [{"id": "a", "question": "ab", "answer": "c", "keywords": ["c", "hg"]}]
    arguments = {"prompt": "{question}", "max_new_tokens": LENGTH}
    (in_process,) = lethe.exact(folder, rows, exact_only=True, **arguments).certificates.trees
    (stated,) = lethe.exact(
        "tiny", rows, endpoint=url, requests=2000, **arguments
    ).certificates.trees
    assert stated.lower == pytest.approx(in_process.lower, rel=1e-3)  # 0.001: neither is 0 here
    assert 0 < stated.lower <= stated.upper_certain <= in_process.upper_certain * (1 + 1e-3)
    seeded = Endpoint(endpoint=url, name="tiny", seeded=True)
    settings = Settings(n=24, max_new_tokens=LENGTH, seed=5)
    runs = [EndpointEngine(seeded, tmp_path / name, chat=False) for name in ("first", "again")]
    first, again = (next(iter(run.answer(prompts, settings))).texts for run in runs)
    assert first == again
    assert len({*first}) > 6
    _check_stated(folder, url)


def _check_stated(folder, url):
    """What the server states of given texts is what the model in this process gives them."""
    model, tokenizer = checkpoints.load(folder)
    encoder = Encoder(tokenizer, "{question}")
    examples = []
    texts = []
    for answer in ("c", "dab", "qrsq"):
        examples.append(
            Example(encoder.prompt({"question": "ab"}), tuple(tokenizer(answer).input_ids))
        )
        texts.append(GivenText("p", "ab", answer))

    stated = stated_texts(Endpoint(endpoint=url, name="tiny"), chat=False, texts=texts)

    in_process = answer_tokens(model, examples, 0, label="own")
    assert [text.missing for text in stated] == ["", "", ""]
    assert [text.tokens for text in stated] == [1, 3, 4]
    nats = [answer.log_probs.sum() for answer in in_process]
    assert [text.nats for text in stated] == pytest.approx(nats, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("draws", [False, True])
def test_the_probes_say_what_the_server_of_transformers_ignores(tmp_path, draws):
    """It draws only if the model's generation settings say so."""
    folder = build_llama(tmp_path / "model", LETTERS, scale=1.0)
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": draws, "top_k": 0}))
    with transformers_server(folder, tmp_path / "server.log") as url:
        engine = EndpointEngine(
            Endpoint(endpoint=url, name=str(folder)), tmp_path / "scratch", chat=False
        )
        (answers,) = engine.answer(
            [Prompt("p", (), text="ab")], Settings(n=8, max_new_tokens=LENGTH)
        )
        probes = {probe["name"]: probe["passed"] for probe in engine.served()["probes"]}
    assert (probes["n"], probes["logprobs"], probes["cuts"]) == (False, None, None)
    assert (probes["draws"], probes["temperature"]) == (draws, draws)
    assert (len({*answers.texts}) > 1) == draws


QUESTIONS = {
    "forget": [("f1", "Who is Ada?", "A painter."), ("f2", "Where is Bo?", "At sea.")],
    "retain": [("r1", "What does Cy eat?", "Bread.")],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A folder in which `python -m stages.sample mine` works: params, dataset, a small random model."""
    folder = tmp_path_factory.mktemp("project")
    texts = [answer for _, _, answer in QUESTIONS["forget"]]
    checkpoints.save(folder / "model", *small_model(texts, hidden=64))
    (folder / "data/dataset").mkdir(parents=True)
    for split, rows in QUESTIONS.items():
        lines = (
            json.dumps({"id": key, "question": question, "answer": answer})
            for key, question, answer in rows
        )
        (folder / f"data/dataset/{split}.jsonl").write_text("\n".join(lines) + "\n")
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["sample"]["stop"] = "fixed"
    params["models"]["mine"] = {"path": str(folder / "model"), "adaptive_threshold": 0.9}
    params["sample"].update(engine="vllm", data_parallel=2, n=20, utility_n=4, max_new_tokens=8)
    params["sample"]["prompt"] = str(ROOT / params["sample"]["prompt"])
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    return folder


@pytest.mark.slow
def test_the_sample_stage_with_vllm(project):
    run(project, "stages.sample", "mine", PYTHONPATH=str(ROOT))
    generations = project / "data/generations/mine"
    about = json.loads((generations / "about.json").read_text())
    assert about["engine"] == "vllm"
    encoder = Encoder(
        AutoTokenizer.from_pretrained(project / "model"), ROOT / "lethe/models/prompts/qa.txt"
    )
    prefix = open_engine("prefix", project / "model")
    for split, n in [("forget", 20), ("retain", 4)]:
        table = pd.read_parquet(generations / f"{split}.parquet")
        for key, question, _ in QUESTIONS[split]:
            answers = table[table.prompt_id == key]
            assert answers["sample"].tolist() == list(range(-1, n))
            prompt = Prompt(key, encoder.prompt({"question": question}))
            (greedy,) = prefix.answer([prompt], Settings(n=0, max_new_tokens=8))
            assert answers.text.iloc[0] == greedy.texts[0]
            assert answers.tokens.between(1, 8).all()
            assert answers.mean_confidence.between(0, 1).all()
            assert answers.finish_reason.isin(["stop", "length"]).all()
