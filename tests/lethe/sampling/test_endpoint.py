"""Answers of a served model: which servers the probes catch, what is kept, what is missing, and what is never written."""

import contextlib
import functools
import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare

import lethe
from lethe.config import load
from lethe.config.measuring import SERVED, Endpoint
from lethe.config.schema import CHAT_FILE
from lethe.errors import BadInput, BadValue, LetheError
from lethe.io.artifacts import write_splits
from lethe.models.endpoint_client import Ask, CapReached, ServerGone
from lethe.results import table
from lethe.results.licence import failed_of
from lethe.sampling import endpoint_probes
from lethe.sampling.endpoint import NONE, EndpointEngine, Journal
from lethe.sampling.endpoint_probes import NARROW, OPEN, cycle, drift, identity, takeover
from lethe.sampling.engine import AnswerStore, Prompt, Settings
from lethe.steps import compare, exact, likelihood, metrics, sample, score
from stages import epsilon_star
from tests.cases import cases
from tests.lethe.cli.calls import Command
from tests.lethe.sampling.fault_server import WORDS, FaultServer, Status, words
from tests.small import small_params, write_params

PROMPTS = [Prompt("a", (), text="A colour?"), Prompt("b", (), text="Another colour?")]
SETTINGS = Settings(n=64, max_new_tokens=16)
PROBES = 52  # requests


def engine_of(server: FaultServer, folder: Path, chat: bool = True, **changes) -> EndpointEngine:
    settings = {"endpoint": server.url, "name": "m", "retries": 0, "concurrency": 4, "timeout": 5.0}
    return EndpointEngine(Endpoint(**(settings | changes)), folder, chat)


def drawn(engine: EndpointEngine, settings: Settings = SETTINGS, prompts=PROMPTS):
    return list(engine.answer(prompts, settings))


def probes_of(engine: EndpointEngine) -> dict[str, bool | None]:
    """The probes by name, after the answers."""
    return {probe["name"]: probe["passed"] for probe in engine.served()["probes"]}


def failing(code: int, **how):
    """A fault that answers no request."""

    def fault(number, asked, answer):
        raise Status(code, **how)

    return fault


def late(fault):
    """A fault that begins after the probes."""
    return lambda number, asked, answer: fault(number, asked, answer) if number > PROBES else answer


def content(**said):
    """A fault that replaces the message of each choice; the stated probabilities were of the message before."""

    def fault(number, asked, answer):
        for choice in answer["choices"]:
            choice["message"] |= said
            choice["logprobs"] = None
        return answer

    return fault


def evaluated(server: FaultServer, rows=None, name: str = "m", **settings):
    return lethe.evaluate(
        name, rows or ROWS, endpoint=server.url, **{"n": 32, "max_new_tokens": 8} | settings
    )


def missing_texts(answers) -> int:
    return sum(text is None for of_prompt in answers for text in of_prompt.texts)


def own_settings(asked, generator):
    """Cuts what is not likely unless a request says otherwise, as by a model's generation_config.json."""
    return words(asked, generator, WORDS if "top_k" in asked else {"red": 0.6, "blue": 0.4})


@pytest.mark.parametrize("chat", [True, False])
def test_a_sound_server_passes_and_its_answers_have_the_law_of_the_model(tmp_path, chat):
    with FaultServer(own_settings) as server:
        engine = engine_of(server, tmp_path, chat)
        (answers,) = drawn(engine, Settings(n=1500, max_new_tokens=16), PROMPTS[:1])
    assert set(probes_of(engine).values()) == {True}
    assert not any("alike" in probe["sentence"] for probe in engine.served()["probes"])
    first = [text.split()[0] for text in answers.texts[1:]]
    expected = [mass * len(first) for mass in WORDS.values()]
    assert chisquare([first.count(word) for word in WORDS], expected).pvalue > 1e-3
    assert [len(text.split()) for text in answers.texts] == answers.tokens
    assert answers.mean_confidences[0] == pytest.approx(0.4)
    drawing = [body for body in server.bodies if "Write" not in json.dumps(body)]
    assert not any("seed" in body for body in drawing)


@pytest.mark.parametrize("refuses", [True, False])
def test_a_server_that_refuses_or_ignores_top_k_may_cut_by_itself(tmp_path, refuses):
    def fault(number, asked, answer):
        if refuses and "top_k" in asked:
            raise Status(422)
        return answer

    with FaultServer(
        lambda asked, generator: words({**asked, "top_k": 0}, generator), fault
    ) as server:
        engine = engine_of(server, tmp_path)
        assert missing_texts(drawn(engine)) == 0
        assert probes_of(engine)["cuts"] is None
        assert ("min_p" in server.bodies[-1]) != refuses


def cached():
    """Equal requests get the first answer again."""
    stored: dict[str, dict] = {}
    return lambda number, asked, answer: stored.setdefault(json.dumps(asked), answer)


def hot(asked, generator):
    return words(asked | {"temperature": 1}, generator)


def greedy(asked, generator):
    return words(asked | {"temperature": 0}, generator)


def endless(asked, generator):
    return [*words(asked, generator)[0], "red", "red", "red"], False


def lying(asked, generator):
    """Draws another law than the log-probabilities state."""
    return words(asked, generator, {"grey": 0.97, "red": 0.03})


def renamed(number, asked, answer):
    return answer | {"model": "m" if number < PROBES + 5 else "other"}


@pytest.mark.parametrize(
    ("server", "probe"),
    [
        (FaultServer(fault=cached()), "draws"),
        (FaultServer(hot), "temperature"),
        (FaultServer(greedy), "temperature"),
        (FaultServer(endless), "max_tokens"),
        (FaultServer(lying), "logprobs"),
        (FaultServer(fault=renamed), "identity"),
    ],
    ids=["cached", "hot", "greedy", "endless", "lying", "renamed"],
)
def test_a_probe_catches_the_fault(tmp_path, server, probe):
    with server:
        engine = engine_of(server, tmp_path)
        drawn(engine)
        assert probes_of(engine)[probe] is False


def test_a_model_that_changes_half_way_under_its_name_drifts(tmp_path):
    def changing(asked, generator):
        late = len(server.bodies) > PROBES + 80
        return words(asked, generator, {"grey": 0.9, "red": 0.1} if late else WORDS)

    settings = Settings(n=80, max_new_tokens=16)
    with FaultServer(changing, n=False) as server:
        engine = engine_of(server, tmp_path)
        drawn(engine, settings)
        assert probes_of(engine)["drift"] is False


def stored(size: int):
    """Each request gets one of its first answers again, once there are ``size`` of them: the probes see several."""
    kept: dict[str, list[dict]] = {}
    generator = random.Random(1)

    def fault(number, asked, answer):
        answers = kept.setdefault(json.dumps(asked), [])
        if len(answers) < size:
            answers.append(answer)
            return answer
        return generator.choice(answers)

    return fault


def twelve(asked, generator):
    """Answers of twelve words: few of them are equal by chance."""
    if asked["temperature"] == 0 or asked.get("top_k") == 1:
        return words(asked, generator)
    limit = min(12, asked["max_tokens"])
    return generator.choices(list(WORDS), list(WORDS.values()), k=limit), limit < 12


@pytest.mark.seconds
@pytest.mark.parametrize(("fault", "passed"), [(stored(20), False), (None, True)])
def test_a_server_that_draws_from_a_store_of_answers_repeats_more_than_it_states(
    tmp_path, fault, passed
):
    with FaultServer(twelve, fault=fault, n=False) as server:
        engine = engine_of(server, tmp_path)
        drawn(engine, Settings(n=120, max_new_tokens=16))
        probes = probes_of(engine)

    assert probes["draws"] is True
    assert probes["repeats"] is passed


def test_repeats_are_not_tested_where_the_settings_change_the_law(tmp_path):
    with FaultServer(n=False) as server:
        engine = engine_of(server, tmp_path)
        drawn(engine, Settings(n=40, max_new_tokens=16, temperature=0.5))

        assert probes_of(engine)["repeats"] is None


def test_a_moved_log_probability_is_told_and_refuses_nothing(tmp_path):
    half = 32
    drawn_before = 0

    def moved(number, asked, answer):
        """The half is counted in answers: how many requests come before depends on the probes that were answered."""
        nonlocal drawn_before
        if PROMPTS[0].text not in json.dumps(asked) or asked["temperature"] == 0:
            return answer
        if drawn_before >= half:
            for choice in answer["choices"]:
                for step in choice["logprobs"]["content"]:
                    for likely in (step, *step["top_logprobs"]):
                        likely["logprob"] -= 0.001
        drawn_before += len(answer["choices"])
        return answer

    with FaultServer(words, moved) as server:
        engine = engine_of(server, tmp_path, concurrency=1, timeout=60.0)
        drawn(engine, Settings(n=2 * half, max_new_tokens=4), PROMPTS[:1])
    probes = engine.served()["probes"]
    assert {probe["name"]: probe["passed"] for probe in probes}["first token"] is False
    assert failed_of(probes) == ()


def test_four_answers_are_the_fewest_that_can_drift():
    assert [str(drift([["a"] * n])).split(": ")[1] for n in (3, 4)] == ["unknown", "ok"]
    assert drift([["a b"] * 40 + ["c"] * 40, ["a"] * 80]).passed is False


def test_the_most_tokens_of_a_request():
    short, long = (
        Ask("a" * 30, n=2, max_tokens=5),
        Ask("a" * 30, before=(("user", "b" * 60),), max_tokens=5),
    )
    assert (short.most(), long.most()) == (10 + 8 + 10, 30 + 16 + 5)


@pytest.mark.seconds
def test_a_seed_for_each_answer_redraws_it(tmp_path):
    texts = []
    for place, seed in [("a", 1), ("b", 1), ("c", 2)]:
        settings = Settings(n=64, max_new_tokens=16, seed=seed)
        with FaultServer() as server:
            engine = engine_of(server, tmp_path / place, seeded=True)
            texts.append([of_prompt.texts for of_prompt in drawn(engine, settings)])
            assert engine.served()["seeded"]
        seeds = [body.get("seed") for body in server.bodies if "Write" not in json.dumps(body)]
        assert len(set(seeds) - {None}) == 2 * 64
    first, again, other = texts
    assert first == again != other
    assert len({*first[0]}) > 16


def any_seed(asked, generator):
    """Draws the same, whatever the seed."""
    return words(asked, random.Random(0) if "seed" in asked else generator)


@pytest.mark.parametrize(("law", "passed"), [(any_seed, False), (greedy, None)])
def test_no_seed_is_sent_where_it_would_make_answers_equal(tmp_path, law, passed):
    with FaultServer(law) as server:
        engine = engine_of(server, tmp_path, seeded=True)
        (answers, _) = drawn(engine)
    probes = probes_of(engine)
    assert (probes["seed"], probes["draws"]) == (passed, law is any_seed)
    assert not any("seed" in body for body in server.bodies if "Write" not in json.dumps(body))
    assert (len({*answers.texts}) > 16) == (law is any_seed)


@pytest.mark.parametrize("give", [0, 1, 2, 9])
def test_a_server_that_gives_another_number_of_answers(tmp_path, give):
    """Fewer answers are asked for again, one by one; more are left out; none is a failed request."""

    def fault(number, asked, answer):
        return (
            answer | {"choices": (answer["choices"] * 9)[:give]}
            if asked.get("n", 1) > 2
            else answer
        )

    with FaultServer(fault=late(fault)) as server:
        engine = engine_of(server, tmp_path)
        answers = drawn(engine)
    assert [len(of_prompt.texts) for of_prompt in answers] == [65, 65]
    assert (missing_texts(answers) > 0) == (give == 0)
    assert sum(engine.served()["missing"].values()) == missing_texts(answers)


def troubled(number, asked, answer):
    """Fails in three ways, refuses, and filters in two."""
    match number % 16:
        case 0:
            raise Status(500)
        case 1:
            return json.dumps(answer).encode()[:40]
        case 2:
            answer["choices"][0]["message"] |= {"content": None, "refusal": "I cannot say."}
        case 3:
            answer["choices"][0]["finish_reason"] = "content_filter"
        case 4:
            raise Status(400, code="content_filter")
        case 5:
            time.sleep(1.5)
    return answer


def test_missing_answers_are_counted_by_kind_and_have_no_text(tmp_path):
    with FaultServer(fault=late(troubled), n=False) as server:
        engine = engine_of(server, tmp_path, timeout=1.0)
        answers = drawn(engine)
    served = engine.served()["missing"]
    assert {"refused", "filtered", "failed: status 500", "failed: timeout"} < set(served)
    assert len(served) == 5
    reasons = [reason for of_prompt in answers for reason in of_prompt.finish_reasons]
    without = [reason in ("refused", "filtered", "failed") for reason in reasons]
    assert [text is None for of_prompt in answers for text in of_prompt.texts] == without
    assert sum(served.values()) == missing_texts(answers)
    again = EndpointEngine(
        engine.endpoint, tmp_path, True
    )  # of a later process, which asks for no answer
    for prompt in PROMPTS:
        again.remember(prompt, SETTINGS)
    assert again.served()["missing"] == served


UNANSWERED = [  # what a server states, its text, the finish_reason of the answer
    ("tool_calls", "red", "tool_calls"),
    ("function_call", None, "tool_calls"),
    ("error", "red", "error"),
    ("abort", "", "abort"),
    ("stop", None, "null content"),
    ("length", None, "null content"),
    (None, "red", "no end stated"),
    ("\x1b[2Jhappy", "red", "unknown end"),
    (7, "red", "unknown end"),
    ("content_filter", "red", "filtered"),
]


def drawn_through(fault, tmp_path, chat):
    """An engine whose probes had a sound server, and its answers of one that has the fault since."""
    with FaultServer(n=False) as server:
        engine = engine_of(server, tmp_path, chat)
        assert engine.probes.models
        server.fault = fault
        return engine, drawn(engine)


@pytest.mark.parametrize("chat", [True, False])
def test_a_text_without_a_known_end_is_a_missing_answer_of_its_kind(tmp_path, chat):
    def fault(number, asked, answer):
        stated, text, _ = UNANSWERED[number % len(UNANSWERED)]
        choice = answer["choices"][0]
        choice["finish_reason"] = stated
        if chat:
            choice["message"]["content"] = text
        else:
            choice["text"] = text
        return answer

    engine, answers = drawn_through(fault, tmp_path, chat)

    reasons = Counter(reason for answer in answers for reason in answer.finish_reasons)
    assert set(reasons) == {kind for _, _, kind in UNANSWERED}
    assert engine.served()["missing"] == reasons
    assert missing_texts(answers) == reasons.total()


@pytest.mark.parametrize(("reason", "again"), [("error", True), ("tool_calls", False)])
def test_what_the_server_failed_is_asked_again_and_what_the_model_ended_is_not(
    tmp_path, reason, again
):
    def fault(number, asked, answer):
        answer["choices"][0]["finish_reason"] = reason
        return answer

    with FaultServer(fault=late(fault), n=False) as server:
        list(
            AnswerStore("m", "endpoint", tmp_path).answer(
                engine_of(server, tmp_path), PROMPTS, SETTINGS
            )
        )
        before = len(server.bodies)
        list(
            AnswerStore("m", "endpoint", tmp_path).answer(
                engine_of(server, tmp_path), PROMPTS, SETTINGS
            )
        )

        assert (len(server.bodies) > before) == again


def test_an_empty_answer_that_the_model_ended_is_an_answer(tmp_path):
    def fault(number, asked, answer):
        answer["choices"][0]["message"]["content"] = ""
        return answer

    with FaultServer(fault=late(fault), n=False) as server:
        engine = engine_of(server, tmp_path)

        assert missing_texts(drawn(engine)) == 0


def test_the_verdict_on_a_server_counts_what_is_missing_by_kind(tmp_path):
    def fault(number, asked, answer):
        answer["choices"][0]["finish_reason"] = ("error", "tool_calls", "stop")[number % 3]
        return answer

    with FaultServer(fault=late(fault), n=False) as server:
        found = evaluated(server, n=150, folder=tmp_path / "out")

    assert re.search(r"Missing answers: .*\d+ error", found.verdict)
    assert re.search(r"Missing answers: .*\d+ tool_calls", found.verdict)
    assert found.answers["keyword_leak"].isna().sum() == found.answers["text"].isna().sum() > 100


def test_the_same_command_asks_again_for_failed_answers_alone(tmp_path, capfd):
    def command(timeout=60.0):
        """The texts with their reasons in the order of the prompts, the record, and the requests to the server."""
        engine = engine_of(server, tmp_path, timeout=timeout)
        asked_before = len(server.bodies)
        store = AnswerStore("m", "endpoint", tmp_path)
        answers = sorted(
            store.answer(engine, PROMPTS, SETTINGS), key=lambda of_prompt: of_prompt.prompt_id
        )
        pairs = []
        for of_prompt in answers:
            pairs += zip(of_prompt.texts, of_prompt.finish_reasons, strict=True)
        return pairs, engine.served(), server.bodies[asked_before:]

    with FaultServer(fault=late(troubled), n=False) as server:
        first, _, _ = command(timeout=1.0)
        server.fault = failing(503)  # the server is down: what an earlier command brought stands
        down, served, asked = command()
        assert down == first
        assert "same command again" in capfd.readouterr().err
        server.fault = None
        mended, served, paid = command()
        for_answers = [body for body in paid if OPEN not in json.dumps(body)]  # the probes ask OPEN
        failed = [reason for _, reason in first].count("failed")
        assert len(for_answers) == failed >= len(asked) > 0
        assert served["failed"]["status 500"] > 0
        assert set(served["missing"]) == {"refused", "filtered"}
        assert command()[::2] == (mended, [])
    for before, after in zip(first, mended, strict=True):
        _, reason = before
        assert (before == after) != (reason == "failed")


def test_a_busy_server_is_asked_again_when_it_says(tmp_path):
    busy: list[float] = []

    def fault(number, asked, answer):
        if number == PROBES + 3:
            busy.append(time.monotonic())
            raise Status(429, [("Retry-After", "1")])
        return answer

    with FaultServer(fault=fault) as server:
        answers = drawn(engine_of(server, tmp_path, retries=2))
    assert busy
    assert time.monotonic() - busy[0] >= 1
    assert missing_texts(answers) == 0


def test_a_wait_beyond_the_timeout_is_a_missing_answer_that_says_so(tmp_path):
    fault = late(failing(429, headers=[("Retry-After", "600")]))
    began = time.monotonic()

    with (
        FaultServer(fault=fault, n=False) as server,
        pytest.raises(ServerGone, match="429 and a wait beyond"),
    ):
        drawn(engine_of(server, tmp_path, retries=6))

    assert time.monotonic() - began < 10


def test_a_server_that_dies_leaves_what_was_drawn_and_the_request(tmp_path):
    with FaultServer(n=False) as server:

        def fault(number, asked, answer):
            if number == 100:
                server.stop()
            return answer

        server.fault = fault
        engine = engine_of(server, tmp_path)
        with pytest.raises(ServerGone, match=r"to question '[ab]'") as caught:
            drawn(engine)
    assert caught.value.exit_status == 1
    kept = sum(len(place.read_text().splitlines()) for place in tmp_path.rglob("*.jsonl"))
    assert 30 < kept <= 100 - PROBES + 16  # a few were under way
    again = EndpointEngine(engine.endpoint, tmp_path, True)
    assert sum(len(again.remember(prompt, SETTINGS).answers) for prompt in PROMPTS) == kept


def test_a_server_that_only_fails_ends_the_run(tmp_path):
    with (
        FaultServer(fault=late(failing(503)), n=False) as server,
        pytest.raises(ServerGone, match="503"),
    ):
        drawn(engine_of(server, tmp_path))
    assert len(server.bodies) < PROBES + 2 * 16 + 4


def test_the_cap_stops_before_it_is_exceeded_and_a_larger_one_continues(tmp_path):
    with FaultServer() as server:
        engine = engine_of(server, tmp_path, max_tokens_total=1000, price_out=1.5)
        assert ", for at most 0.01" in engine.plan([(PROMPTS, SETTINGS)])
        with pytest.raises(CapReached, match="1,000"):
            drawn(engine)
        assert server.wrote + 10 * len(server.bodies) <= 1000
        before = len(server.bodies)
        answers = drawn(engine_of(server, tmp_path, max_tokens_total=50_000))
    assert before < len(server.bodies)
    assert missing_texts(answers) == 0


KILLED = """
import sys
from pathlib import Path
from lethe.config.measuring import Endpoint
from lethe.sampling.endpoint import EndpointEngine
from lethe.sampling.engine import Prompt, Settings
endpoint = Endpoint(endpoint=sys.argv[1], name="m", concurrency=4, retries=0)
prompts = [Prompt("a", (), text="A colour?"), Prompt("b", (), text="Another colour?")]
list(EndpointEngine(endpoint, Path(sys.argv[2]), True).answer(prompts, Settings(n=64, max_new_tokens=16)))
"""


@pytest.mark.seconds
@pytest.mark.parametrize(
    "moment", np.random.default_rng(4).integers(PROBES, PROBES + 130, 3).tolist()
)
def test_a_kill_pays_for_no_answer_twice(tmp_path, moment):
    with FaultServer(n=False) as server:

        def fault(number, asked, answer):
            if number == moment:
                os.kill(process.pid, signal.SIGKILL)
            return answer

        server.fault = fault
        process = subprocess.Popen([sys.executable, "-c", KILLED, server.url, str(tmp_path)])
        process.wait()
        at_kill = len(server.bodies)
        server.fault = None
        engine = engine_of(server, tmp_path)
        answers = drawn(engine)
        # what was under way at the kill is lost, and the server is probed again
        assert len(server.bodies) <= 2 * PROBES + 130 + 4
        assert at_kill < PROBES + 130
        paid = len(server.bodies)
        assert drawn(engine_of(server, tmp_path)) == answers
        assert len(server.bodies) == paid
    assert missing_texts(answers) == 0


ROWS = [
    {"id": "a", "question": "A colour?", "answer": "It is blue.", "keywords": ["blue"]},
    {"id": "b", "question": "Another?", "answer": "It is violet.", "keywords": ["violet"]},
]


def test_an_evaluation_says_what_was_served_and_writes_no_key(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("SERVER_KEY", "sk-never-written")
    with FaultServer() as server:
        found = evaluated(server, name="org/m", n=64, folder=tmp_path / "out", key_env="SERVER_KEY")
    assert server.keys == {"Bearer sk-never-written"}
    assert f"({server.url})" in found.report.read_text()
    assert found.numbers.bounds["m_bin_worst"].assumes.startswith("as served between")
    for place in tmp_path.rglob("*"):
        assert not place.is_file() or b"sk-never" not in place.read_bytes()
    assert "sk-never" not in "".join(capfd.readouterr())


def test_answers_of_a_server_that_repeats_stored_ones_carry_no_claim(tmp_path):
    with FaultServer(fault=cached(), n=False) as server:
        found = evaluated(server, n=64, folder=tmp_path / "out")
    page = found.report.read_text()
    summary = json.loads((tmp_path / "out/report/summary.json").read_text())["models"]["m"]
    tracked = json.loads((tmp_path / "out/metrics/m.json").read_text())

    assert found.forgetting == "none"
    assert found.utility == "open"
    assert "draws" in found.refused[0]
    assert found.as_json()["refused"] == found.refused
    assert not found.numbers.bounds
    assert found.as_json()["m_bin_worst"] is None
    assert found.questions["m_bin"].isna().all()
    assert "draws (8 equal requests" in found.verdict
    assert "requests got one answer" in found.verdict
    assert "With probability" not in page
    assert "There is no guarantee" in page
    assert summary["refused"] == list(found.refused)
    assert not summary["bounds"]
    assert "m_bin_worst" not in tracked
    assert tracked["refused"] == 1


def test_files_of_answers_that_carry_no_claim_bring_none_to_other_commands(tmp_path):
    with FaultServer(fault=cached(), n=False) as server:
        evaluated(server, n=64, folder=tmp_path / "out")
    scores = tmp_path / "out/scores/m/forget.parquet"

    bounds = lethe.bounds(scores, score="keyword_leak")
    compared = lethe.compare(scores, scores, score="keyword_leak")
    labelled = lethe.label(tmp_path / "out/generations/m", labels=tmp_path / "none.jsonl")

    for told in (bounds.as_json(), compared.as_json(), labelled.as_json()):
        assert "the probe draws" in told["refused"][0]
    assert bounds.as_json()["worst_prompt"] is None
    told = labelled.as_json()
    assert {row["upper"] for row in told["per_prompt"]} == {None}
    assert told["worst_prompt"] is None
    assert labelled.to_frame()["upper"].isna().all()
    said = " ".join(labelled.sentences())
    assert "switch off its cache" in said
    assert "with probability" not in said
    with pytest.raises(BadInput, match="no bound is stated"):
        labelled.worst()


@pytest.mark.seconds
def test_a_gate_on_a_server_that_repeats_stored_answers_is_closed(tmp_path, monkeypatch):
    (tmp_path / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    monkeypatch.chdir(tmp_path)

    def rarely_violet(asked, generator):
        return words(asked, generator, {"violet": 0.05, "red": 0.95})

    with FaultServer(rarely_violet, fault=cached(), n=False) as server:
        command = ("eval", "--model", "m", "--endpoint", server.url, "--data", "forget.jsonl")
        done = Command(*command, "--n", 200, "--fail-above", 0.2).call("--json")

    gate = json.loads(done.stdout)["gate"]
    assert done.exit_code == 1
    assert gate["closed"] is True
    assert gate["bound"] is None
    assert "the probe draws" in gate["reason"]
    assert "switch off its cache" in gate["reason"]


def one_stored_answer(asked, generator):
    return ["red"], False


def test_a_server_that_began_to_repeat_answers_is_probed_before_answers_of_another_law(tmp_path):
    with FaultServer() as server:
        evaluated(server, folder=tmp_path / "out")
        server.draw = one_stored_answer
        found = evaluated(server, n=600, temperature=0.5, folder=tmp_path / "out")

    assert found.refused
    assert found.forgetting == "none"


def test_a_server_that_was_mended_draws_answers_of_another_law_with_a_claim(tmp_path):
    with FaultServer(one_stored_answer) as server:
        assert evaluated(server, folder=tmp_path / "out").refused
        server.draw = words
        found = evaluated(server, temperature=0.5, folder=tmp_path / "out")

    assert not found.refused


@pytest.mark.parametrize("laws", [(words, one_stored_answer), (one_stored_answer, words)])
def test_answers_before_and_after_a_fault_are_both_under_its_probe(tmp_path, laws):
    before, after = laws
    fewer = SETTINGS.model_copy(update={"n": 40})
    with FaultServer(before) as server:
        drawn(engine_of(server, tmp_path), fewer)
        server.draw = after
        engine = engine_of(server, tmp_path)
        drawn(engine)

        assert probes_of(engine)["logprobs"] is False


def test_a_server_is_not_probed_where_no_answer_is_missing(tmp_path):
    with FaultServer() as server:
        drawn(engine_of(server, tmp_path))
        asked = len(server.bodies)
        engine = engine_of(server, tmp_path)
        drawn(engine)
        engine.served()

        assert len(server.bodies) == asked


def drawn_at(name: str, cut: object):
    """Draws of a server that obeys the setting of this name, ``cut`` being a value that cuts."""

    def draw(asked, generator):
        settings = {"temperature": asked["temperature"], "max_tokens": asked["max_tokens"]}
        if asked.get(name, 1.0) == cut:
            settings["top_k"] = 1
        return words(settings, generator)

    return draw


@pytest.mark.parametrize(
    ("draw", "law", "passed"),
    [
        (words, {"top_p": 0.5}, False),
        (drawn_at("top_p", NARROW), {"top_p": 0.5}, True),
        (drawn_at("top_p", NARROW), {"top_k": 2}, False),
        (words, {"top_k": 2}, True),
        (words, {}, None),
    ],
)
def test_a_cut_that_the_answers_have_must_be_obeyed(tmp_path, draw, law, passed):
    with FaultServer(draw) as server:
        engine = engine_of(server, tmp_path)
        drawn(engine, SETTINGS.model_copy(update={"n": 4, **law}))

    found = probes_of(engine)
    cuts = [name for name in ("top_p", "top_k") if name in found]
    assert cuts == list(law)
    assert [found[name] for name in cuts] == [passed] * len(law)


@pytest.mark.seconds
@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("place", ["reply", "choice"])
def test_a_text_beside_an_error_is_no_answer(tmp_path, chat, place):
    def fault(number, asked, answer):
        error = {"code": 502, "message": "upstream"}
        if place == "reply":
            return answer | {"error": error}
        answer["choices"][0]["error"] = error
        return answer

    _, answers = drawn_through(fault, tmp_path, chat)

    assert {text for answer in answers for text in answer.texts} == {None}
    assert {reason for answer in answers for reason in answer.finish_reasons} == {"error"}


def test_a_name_of_another_model_is_told(tmp_path):
    def fault(number, asked, answer):
        return answer | {"model": "other"}

    with FaultServer(fault=fault, n=False) as server:
        engine = engine_of(server, tmp_path, name="forgetful")
        drawn(engine)
        (found,) = [probe for probe in engine.served()["probes"] if probe["name"] == "identity"]

    assert found["passed"] is None
    assert "was asked for forgetful" in found["sentence"]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        *[("gpt-4o-2024-08-06", "gpt-4o"), ("llama3:latest", "llama3"), ("/models/npo", "npo")],
        *[("org/npo", "NPO"), ("npo", "./out/npo/"), ("(no name)", "npo")],
    ],
)
def test_a_version_or_folder_in_a_name_is_no_other_model(said, asked):
    assert identity({(said, None): 1}, asked).passed


def in_turn(texts):
    """A fault of a server that answers a question by these texts in turn, with the stated probabilities of others."""
    times = Counter[str]()

    def fault(number, asked, answer):
        question = json.dumps(asked["messages"])
        answer["choices"][0]["message"]["content"] = texts[times[question] % len(texts)]
        times[question] += 1
        return answer

    return fault


def test_a_store_that_is_read_in_turn_is_no_draw(tmp_path):
    with FaultServer(n=False) as server:
        engine = engine_of(server, tmp_path)
        assert engine.probes.models
        server.fault = in_turn([f"answer {number}" for number in range(12)])
        drawn(engine, Settings(n=100, max_new_tokens=16))

    assert probes_of(engine)["cycle"] is False


def test_an_honest_server_fails_the_cycle_as_rarely_as_its_level(monkeypatch):
    monkeypatch.setattr(endpoint_probes, "STORED", 0.05)
    random = np.random.default_rng(0)
    failures = 0
    for _ in range(2_000):
        texts = random.choice(["a", "b", "c", "d", "e"], size=12)
        failures += cycle([texts.tolist()]).passed is False

    assert failures / 2_000 <= 0.06


def test_the_probability_of_another_text_is_that_of_no_answer(tmp_path):
    def fault(number, asked, answer):
        answer["choices"][0]["message"]["content"] = "violet"
        return answer

    with FaultServer(n=False) as server:
        engine = engine_of(server, tmp_path)
        assert engine.probes.models
        server.fault = fault
        drawn(engine)

    masses = {line.mass for journal in engine.journals.values() for line in journal.lines.values()}
    assert masses == {None}


def stores_after(n: int):
    """A fault of a server that repeats one answer to a question once it gave n; it states no probabilities."""
    last: dict[str, list[str]] = {}

    def fault(number, asked, answer):
        kept = last.setdefault(json.dumps(asked["messages"]), [])
        for choice in answer["choices"]:
            del choice["logprobs"]
            if len(kept) == n:
                choice["message"]["content"] = kept[-1]
            else:
                kept.append(choice["message"]["content"])
        return answer

    return late(fault)


def test_a_store_that_fills_while_it_is_asked_takes_over(tmp_path):
    with FaultServer(fault=stores_after(10), n=False) as server:
        engine = engine_of(server, tmp_path)
        drawn(engine)

    assert probes_of(engine)["takeover"] is False


def test_an_answer_that_took_over_has_the_probability_of_its_place():
    found = takeover([["b", "a", "a", "a"], ["a", "c", "a", "c"]])

    assert "p = 0.5 " in found.sentence  # of two questions, the first with 1 in 4
    assert found.passed


def test_an_honest_server_fails_the_takeover_as_rarely_as_its_level(monkeypatch):
    monkeypatch.setattr(endpoint_probes, "STORED", 0.05)
    random = np.random.default_rng(0)
    failures = 0
    for _ in range(2_000):
        texts = random.choice(["often", "rare", "rarer"], size=12, p=[0.7, 0.2, 0.1])
        failures += takeover([texts.tolist()]).passed is False

    assert failures / 2_000 <= 0.06


def thinks(number, asked, answer):
    """Each third trace never ends, and leaves no answer; the others name the keyword in the trace alone."""
    reply = content(content=None if number % 3 == 0 else "None.", reasoning_content="Is it blue?")
    return reply(number, asked, answer)


def test_a_servers_own_field_of_thinking_is_scored_by_itself(tmp_path):
    with FaultServer(fault=thinks, n=False) as server:
        found = evaluated(server, n=150, folder=tmp_path / "out")
    first, other = found.questions.to_dict("records")
    assert (first["thinking_share"], other["thinking_share"], first["binary_share"]) == (1, 0, 0)
    missing = found.answers.query("sample >= 0")["keyword_leak"].isna()
    assert 80 < missing.sum() < 120
    assert found.metrics.loc["m", "unclosed"] == pytest.approx(missing.mean())
    assert "thinking never ended" in found.verdict
    assert set(found.answers["thinking"].dropna()) == {"Is it blue?"}


def test_marks_in_a_servers_texts_are_found(tmp_path):
    with FaultServer(fault=content(content="<think>Blue?</think>None.")) as server:
        found = evaluated(server, folder=tmp_path / "out")
        whole = evaluated(server, thinking=[""])
    assert found.questions[["thinking_share", "binary_share"]].iloc[0].tolist() == [1, 0]
    assert whole.questions["binary_share"].iloc[0] == 1


def test_thinking_that_the_prompt_opens_and_nothing_closes_is_no_answer():
    def fault(number, asked, answer):
        return content(content="Blue?</think>None." if number % 3 else "Blue.")(
            number, asked, answer
        )

    with FaultServer(fault=fault, n=False) as server:
        found = evaluated(server)
    assert found.questions[["thinking_share", "binary_share"]].iloc[0].tolist() == [1, 0]
    assert 0.2 < found.metrics.loc["m", "unclosed"] < 0.5


@pytest.mark.seconds
@pytest.mark.parametrize("prompt", ["chat", "Q: {question} A:"])
def test_a_server_is_asked_after_its_own_answer(tmp_path, prompt):
    rows = [{**ROWS[0], "followups": ["Sure?"]}, ROWS[1]]
    settings = {"n": 24, "max_new_tokens": 1, "prompt": prompt, "folder": tmp_path / "out"}
    with FaultServer() as server:
        found = evaluated(server, rows, **settings)
        asked = len(server.bodies)
        assert evaluated(server, rows, **settings).answers.equals(found.answers)
        assert len(server.bodies) == asked  # nothing is paid for twice
    row = found.questions.iloc[0]
    assert row["binary_share"] >= max(row["turn_1_share"], row["turn_2_share"]) > 0
    first = set(
        pd.read_parquet(tmp_path / "out/generations/m/forget.parquet").query("prompt_id == 'a'")[
            "text"
        ]
    )
    if prompt == "chat":
        talks = [body["messages"] for body in server.bodies if len(body["messages"]) == 3]
        assert {talk[1]["content"] for talk in talks} == first
        assert all(
            talk[0]["content"] == "A colour?" and talk[2]["content"] == "Sure?" for talk in talks
        )
    else:
        talks = {body["prompt"] for body in server.bodies if "Sure?" in body["prompt"]}
        assert talks == {f"Q: A colour? A: {text}\n\nQ: Sure? A:" for text in first}


def test_a_served_model_in_a_language(tmp_path):
    language = tmp_path / "language.yaml"
    language.write_text("system: [null, Be short.]\nturns: [null, 'Sure?']\n")
    with FaultServer() as server:
        found = evaluated(server, n=40, max_new_tokens=4, language=language)
        roles = {tuple(turn["role"] for turn in body["messages"]) for body in server.bodies}
        assert ("system", "user", "assistant", "user") in roles
        assert found.questions["turn_2_share"].notna().all()
        language.write_text("prefix: [Sure]\n")
        with pytest.raises(BadInput, match="prefix"):
            evaluated(server, n=4, language=language)


def test_the_stages_of_a_served_model_measure_its_answers_and_say_what_needs_weights(tmp_path):
    raw = small_params()
    raw["sample"] |= {"prompt": CHAT_FILE, "n": 32}
    with FaultServer() as server:
        raw["models"]["remote"] = {"endpoint": server.url, "name": "m", "key_env": None}
        write_params(tmp_path, raw)
        with pytest.raises(BadInput, match=SERVED):  # the place that DVC tracks
            load(tmp_path / "params.yaml")
        raw["models"]["remote"]["path"] = SERVED
        write_params(tmp_path, raw)
        params = load(tmp_path / "params.yaml")
        served = params.models["remote"]
        root = tmp_path / "data"
        write_splits({"forget": ROWS}, "jsonl", root / "dataset")
        sample.run("remote", params.sample, served, root)
    likelihood.run("remote", params.sample, served, root)
    score.run("remote", params.score, root)
    metrics.run("remote", params.metrics, root)
    exact.run("remote", params.exact, params.sample, served, "word", root)
    epsilon_star.measure("remote", served, params.epsilon_star, params.sample.prompt, root)
    compare.against(["remote"], "remote", 0.01, params.exact, table.read(root), root)
    numbers = table.read(root, ["remote"]).model("remote")
    assert numbers.bounds["m_bin_worst"].assumes.startswith("as served between")
    assert "server" in numbers.row("epsilon_star", "given answers").evidence["note"]
    assert not list(Path(".lethe").rglob("*.jsonl"))  # the answers are in the artifact now


@pytest.mark.seconds
def test_a_comparison_names_the_servers(tmp_path):
    with FaultServer() as server:
        for name in ("first", "second"):
            evaluated(server, name=name, folder=tmp_path / name)
        notes = " ".join(lethe.compare(tmp_path / "first", tmp_path / "second").sentences())
    for name in ("A: first", "B: second"):
        assert f"{name} at {server.url}" in notes


def test_a_key_that_is_refused_is_not_quoted(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVER_KEY", "sk-never-written")
    fault = failing(401, message="Incorrect API key provided: sk-never-written")
    with FaultServer(fault=fault) as server, pytest.raises(BadInput, match="SERVER_KEY") as caught:
        drawn(engine_of(server, tmp_path, key_env="SERVER_KEY"))
    assert "sk-never" not in str(caught.value)


def test_a_torn_line_costs_one_answer(tmp_path):
    place = tmp_path / "answers.jsonl"
    assert sum(NONE.spent) == 0
    filtered = replace(NONE, reason="filtered")
    Journal(place).add({0: filtered, 1: filtered, 2: NONE})
    torn, *whole = place.read_text().splitlines()
    place.write_text("\n".join([torn[:9], *whole, ""]))
    assert Journal(place).answers == {1: filtered}
    assert Journal(place).lines == {1: filtered, 2: NONE}


def test_a_model_that_a_server_has_not_is_named(tmp_path):
    with FaultServer(fault=failing(404)) as server, pytest.raises(BadInput, match="no model"):
        drawn(engine_of(server, tmp_path))


@cases
def test_wrong_use_is_refused_without_the_secret(tmp_path, arguments):
    with pytest.raises((BadInput, BadValue)) as caught:
        lethe.evaluate("m", ROWS, n=4, folder=tmp_path / "out", **arguments)
    assert "secret" not in str(caught.value)
    assert "sk-a" not in str(caught.value)


def test_no_server_at_all(tmp_path):
    with pytest.raises(LetheError, match="9/v1"):
        lethe.evaluate("m", ROWS, n=4, folder=tmp_path / "out", endpoint="http://127.0.0.1:9/v1")


def raw(served: Callable[[Any], None]) -> FaultServer:
    """A server that writes its replies to the connection as ``served`` does; its list of models is sound."""

    class RawServer(FaultServer):
        def __enter__(self):
            super().__enter__()
            handler = self.server.RequestHandlerClass

            def reply(request, code, content, headers=()):
                if request.command == "GET":
                    sound(request, code, content, headers)
                    return
                with contextlib.suppress(OSError):
                    served(request)

            sound = handler.reply
            handler.reply = reply
            return self

    return RawServer()


def drips(request: Any) -> None:
    """A byte a tenth of a second, for ever."""
    request.send_response(200)
    request.send_header("Content-Type", "application/json")
    request.end_headers()
    while True:
        request.wfile.write(b" ")
        time.sleep(0.1)


def never_ends(request: Any) -> None:
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(b" " * 65536)


@functools.cache
def bomb() -> bytes:
    """A hundred megabytes in a hundred kilobytes."""
    return gzip.compress(b" " * 100_000_000)


def packs(request: Any) -> None:
    request.send_response(200)
    request.send_header("Content-Encoding", "gzip")
    request.send_header("Content-Length", str(len(bomb())))
    request.end_headers()
    request.wfile.write(bomb())


@pytest.mark.parametrize(
    ("served", "kind"),
    [
        (drips, "timeout"),
        (never_ends, "a reply of more than 1,056,768 bytes"),
        (packs, "a compressed reply"),
    ],
)
def test_a_reply_without_end_costs_a_bounded_time_and_memory(tmp_path, served, kind):
    bomb()
    began = time.monotonic()

    with raw(served) as server, pytest.raises(LetheError, match="none of the probes") as refused:
        drawn(engine_of(server, tmp_path, timeout=1.0))

    assert kind in str(refused.value)
    assert time.monotonic() - began < 20


def test_a_redirect_takes_no_question_to_another_address(tmp_path):
    with FaultServer() as other:
        headers = [("Location", f"{other.url}/chat/completions")]
        with (
            FaultServer(fault=failing(307, headers=headers)) as server,
            pytest.raises(BadInput, match="redirects"),
        ):
            drawn(engine_of(server, tmp_path))

        assert other.bodies == []


def test_a_negative_count_of_tokens_does_not_lift_the_cap(tmp_path):
    def fault(number, asked, answer):
        return answer | {"usage": {"prompt_tokens": -(10**6), "completion_tokens": -(10**6)}}

    with FaultServer(fault=late(fault), n=False) as server:
        engine = engine_of(server, tmp_path, max_tokens_total=3000, concurrency=1)
        with pytest.raises(LetheError):
            drawn(engine)

    assert engine.spent > 0
    assert len(server.bodies) < PROBES + 32


def test_a_lone_surrogate_poisons_no_folder(tmp_path):
    def fault(number, asked, answer):
        answer["choices"][0]["message"]["content"] += "\ud800\x00"
        return answer | {"model": "m\ud800"}

    with FaultServer(fault=fault) as server:
        first = drawn(engine_of(server, tmp_path))
        again = drawn(engine_of(server, tmp_path))

    assert first == again
    assert first[0].texts[0].endswith("\ufffd")


def test_a_folder_with_a_lone_surrogate_of_an_earlier_release_is_continued(tmp_path):
    place = tmp_path / "a.jsonl"
    line = {"sample": 0, **asdict(replace(NONE, text="red\ud800", reason="stop", model="m"))}
    place.write_text(json.dumps(line) + "\n")

    journal = Journal(place)

    assert journal.answers[0].text == "red\ufffd"


def test_the_name_of_a_server_moves_and_colours_no_terminal(tmp_path, capfd):
    def fault(number, asked, answer):
        return answer | {"model": "\x1b[31mm\u202e", "system_fingerprint": "\x9b2K"}

    with FaultServer(fault=fault) as server:
        engine = engine_of(server, tmp_path)
        drawn(engine)
        engine.served()

    told = capfd.readouterr().err.replace("\n", "").replace("\r", "")
    assert not any(unicodedata.category(letter) in ("Cc", "Cf") for letter in told)


def test_many_names_of_a_server_are_counted_not_listed(tmp_path):
    with FaultServer(fault=lambda number, asked, answer: answer | {"model": str(number)}) as server:
        engine = engine_of(server, tmp_path)
        drawn(engine)

    (identity,) = (probe for probe in engine.served()["probes"] if probe["name"] == "identity")
    assert identity["passed"] is False
    assert "other names" in identity["sentence"]
    assert len(identity["sentence"]) < 200
