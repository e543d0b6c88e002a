"""Inspect's logs: epochs, what is missing, and what contradicts independent draws."""

import math

import pytest

import lethe
from lethe.errors import BadFile
from lethe.io.logs import _untrusted, read_log
from tests.cases import cases
from tests.lethe.io.logs.small_logs import (
    DEFLATE,
    ZSTANDARD,
    entries,
    eval_log,
    header,
    pack,
    sample,
    write_json,
)

NAN = math.nan


@pytest.fixture(params=["zstandard", "deflate", "chunked", "json"])
def written(request, tmp_path):
    """A function that writes a log in one of the shapes."""

    def write(head, samples):
        path = tmp_path / "a.log"  # the name says nothing
        if request.param == "json":
            return write_json(
                path,
                head | {"samples": samples, "reductions": [{"scorer": "match", "samples": []}]},
            )
        method = DEFLATE if request.param == "deflate" else ZSTANDARD
        return eval_log(path, head, samples, method, chunked=request.param == "chunked")

    return write


def table(log):
    return [tuple(row) for row in log.answers.fillna("-").itertuples(index=False)]


def test_epochs_stand_in_the_order_of_the_data_set(written):
    samples = [
        sample(name, epoch, f"{name} {epoch}")
        for name, epoch in ((7, 2), ("b/a", 1), (7, 1), ("b/a", 2))
    ]
    log = read_log(written(header(["b/a", 7]), samples))
    assert [row[:3] for row in table(log)] == [
        *(("b/a", 1, "b/a 1"), ("b/a", 2, "b/a 2"), ("7", 1, "7 1"), ("7", 2, "7 2"))
    ]
    assert (log.tool, log.task, log.model) == ("inspect_ai 0.3.285", "t", "hf/m")
    assert (log.draws, log.stopping, log.refusal, log.missing) == ("sampled", "fixed", None, {})
    assert log.sampling == {"temperature": 1.0, "seed": 3}
    assert log.prompts["prompt"].tolist() == ["Who?", "Who?"]


@pytest.mark.parametrize("listed", [[909], ["909"], [909, "909"]])
def test_a_number_and_a_text_of_one_id_are_one_question_as_inspect_joins_them(written, listed):
    samples = [sample(909, 1, "a"), sample("909", 2, "b")]

    log = read_log(written(header(listed), samples))

    assert [row[:3] for row in table(log)] == [("909", 1, "a"), ("909", 2, "b")]
    assert log.missing == {}
    assert log.prompts["planned"].tolist() == [2]


def test_an_epoch_of_one_id_that_stands_as_a_number_and_as_a_text_is_refused(written):
    samples = [sample(909, 1), sample("909", 1)]

    with pytest.raises(BadFile, match="prompt '909' appears twice"):
        read_log(written(header([909, "909"]), samples))


def test_scores_of_all_kinds(written):
    kinds = {
        "a": "C",
        "b": "P",
        "c": "I",
        "d": True,
        "e": 0.25,
        "f": "yes",
        "g": "0.5",
        "h": NAN,
        "i": "words",
    }
    scores = kinds | {"j": {"x": 1, "y": NAN}, "k": [0, 1], "l": None}
    log = read_log(written(header(["q"], 1), [sample(scores=scores)]))
    got = dict(zip(log.answers.columns[3:], log.answers.iloc[0, 3:], strict=True))
    values = {
        "a": 1,
        "b": 0.5,
        "c": 0,
        "d": 1,
        "e": 0.25,
        "f": 1,
        "g": 0.5,
        "j.x": 1,
        "k.0": 0,
        "k.1": 1,
    }
    assert {name: value for name, value in got.items() if not math.isnan(value)} == values
    assert {name for name, value in got.items() if math.isnan(value)} == {"h", "i", "j.y", "l"}
    assert any("unscored" in note for note in log.notes)


def test_what_is_missing_is_counted_once_by_reason(written):
    samples = [
        sample("q", 1),
        sample("q", 2, scores={"match": NAN}),
        sample("q", 3, scores={}, error={"message": "it broke"}),
        sample("q", 4, limit={"type": "token", "limit": 3}),
        sample("q", 5, invalidation={"author": "a"}),
        sample("q", 6, error_retries=[{"message": "once"}]),
    ]
    log = read_log(written(header(["q", "r"], 6), samples))
    assert log.missing == {"error": 1, "limit": 1, "withdrawn": 1, "not written": 6, "unscored": 1}
    owed = log.scored("match")
    assert owed["prompt_id"].tolist() == ["q"] * 6 + ["r"] * 6
    assert owed["sample"].tolist() == [1, 2, 3, 4, 5, 6] * 2
    reasons = owed["reason"].tolist()
    assert reasons == [None, "unscored", "error", "limit", "withdrawn", None] + ["not written"] * 6
    assert owed["score"].notna().tolist() == [reason is None for reason in reasons]
    assert log.answers["match"].notna().tolist() == [
        True,
        False,
        False,
        True,
        True,
        True,
    ]  # as the tool has them
    assert any("retry" in note for note in log.notes)


def test_texts_of_parts_leave_the_reasoning_out(written):
    parts = [
        {"type": "reasoning", "reasoning": "hm", "text": "no part of the answer"},
        {"type": "text", "text": " one"},
        {"type": "image", "image": "x"},
        {"type": "text", "text": "two\n"},
    ]
    older = sample()
    older["output"] = {"choices": [{"message": {"content": parts}, "stop_reason": "max_tokens"}]}
    log = read_log(written(header(["q"], 1), [older]))
    assert log.answers["text"].tolist() == [" one\ntwo\n"]
    assert any("cut" in note for note in log.notes)


@pytest.mark.parametrize("status", ["started", "cancelled", "error"])
def test_a_run_that_broke_off_is_unfinished(written, status):
    log = read_log(written(header(["q", "r"]) | {"status": status}, [sample("r", 2)]))
    assert log.stopping == "unfinished"
    assert log.missing == {"not written": 3}
    assert log.prompts[["prompt_id", "answers", "planned"]].values.tolist() == [
        ["q", 0, 2],
        ["r", 1, 2],
    ]


@pytest.mark.parametrize("key", ["early_stops", "stopped_samples"])
def test_epochs_left_out_by_a_stopping_rule_are_not_owed(written, key):
    stops = {
        "manager": "lethe",
        key: [{"id": "q", "epoch": 3}, {"id": "q", "epoch": 4}],
        "metadata": {},
    }
    head = header(["q"], 5) | {"results": {"early_stopping": stops}}
    log = read_log(written(head, [sample("q", 1), sample("q", 2)]))
    assert log.stopping == "early"
    assert log.missing == {"not written": 1}
    assert log.prompts["planned"].tolist() == [3]
    assert log.scored("match")["sample"].tolist() == [1, 2, 5]


@pytest.mark.parametrize(
    "generate", [{"temperature": 0}, {"temperature": 1, "top_k": 1}, {"top_p": 0.0}]
)
def test_greedy_repeats_are_copies_and_refused_by_name(written, generate):
    log = read_log(written(header(["q"], generate=generate), [sample(epoch=1), sample(epoch=2)]))
    assert log.draws == "copies"
    assert list(generate)[-1] in log.refusal
    assert "2 answers" in log.refusal
    once = read_log(written(header(["q"], 1, generate=generate), [sample()]))
    assert once.refusal is None


@cases
def test_settings_that_may_contradict_independent_draws_are_named(written, model, generate, name):
    samples = [sample(epoch=1, text="a"), sample(epoch=2, text="b")]
    log = read_log(written(header(["q"], model=model, generate=generate), samples))
    assert any(name in sentence for sentence in (*log.warnings, *log.facts.refused))
    plain = header(["q"], generate={"temperature": 1.0, "seed": 11})
    assert (
        read_log(written(plain, samples)).warnings == ()
    )  # hf seeds once, when the model is loaded


@pytest.mark.parametrize(
    "broken",
    [
        {"epoch": "1"},
        {"epoch": 2**40},
        {"id": None},
        {"output": {"completion": 3}},
        {"scores": [1]},
        {"output": {"completion": "\ud800"}},
    ],
)
def test_a_broken_sample_is_a_sentence(written, broken):
    with pytest.raises(BadFile):
        read_log(written(header(["q"]), [sample() | broken]))


def test_an_epoch_that_stands_twice_is_refused(written):
    with pytest.raises(BadFile, match=r"answer 1 of prompt 'q'"):
        read_log(written(header(["q"]), [sample(), sample(text="other")]))


def test_a_bomb_is_refused_before_it_expands(tmp_path, monkeypatch):
    head = header(["q"])
    bomb = [*entries(head, [sample()]), ("samples/b_epoch_1.json", b" " * (1 << 26))]
    path = tmp_path / "bomb.eval"
    path.write_bytes(pack(bomb, stated={"samples/b_epoch_1.json": (1 << 32) - 1}))
    with pytest.raises(BadFile, match="expand"):
        read_log(path)
    # An archive of an honest size, here by a higher limit: the entry alone is too large.
    monkeypatch.setattr(_untrusted, "ALWAYS_LEGAL", 1 << 30)
    path.write_bytes(pack(bomb, stated={"samples/b_epoch_1.json": 1 << 29 | 1}))
    with pytest.raises(BadFile, match="at most 512 MiB"):
        read_log(path)
    for method in (ZSTANDARD, DEFLATE):
        path.write_bytes(pack(bomb, method, stated={"samples/b_epoch_1.json": 10}))
        with pytest.raises(BadFile, match="damaged"):
            read_log(path)


def test_entries_that_lie_over_one_another_are_refused(tmp_path):
    content = pack(entries(header(["q"]), [sample(epoch=1), sample(epoch=2)]))
    names = [b"samples/q_epoch_1.json", b"samples/q_epoch_2.json"]
    first, second = (
        content.rindex(name) for name in names
    )  # in the list of entries, which holds the places
    twice = content[: second - 4] + content[first - 4 : first] + content[second:]
    path = tmp_path / "over.eval"
    path.write_bytes(twice)
    with pytest.raises(BadFile, match=r"q_epoch_2"):
        read_log(path)


def test_a_name_that_leaves_the_folder_writes_nothing(tmp_path):
    inside = tmp_path / "in"
    inside.mkdir()
    outside = sample("../../evil")
    log = read_log(eval_log(inside / "a.eval", header(["../../evil"], 1), [outside]))
    assert log.answers["prompt_id"].tolist() == ["../../evil"]
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "a.eval"]


def test_other_zips_are_told(tmp_path):
    path = tmp_path / "other.zip"
    path.write_bytes(pack([("readme.txt", b"hello")]))
    with pytest.raises(BadFile, match=r"header.json and _journal"):
        read_log(path)
    path.write_bytes(pack([("header.json", b"[]")]))
    with pytest.raises(BadFile, match="expected an object"):
        read_log(path)
    path.write_bytes(
        pack([("header.json", b"{}")], method=DEFLATE).replace(
            b"\x08\x00\x00\x00\x21", b"\x0c\x00\x00\x00\x21"
        )
    )
    with pytest.raises(BadFile, match="method 12"):
        read_log(path)


@pytest.mark.parametrize(
    ("value", "scores", "mean"), [([1, 0], ("s.0", "s.1"), 1.0), ({"a": 1}, ("s.a",), 1.0)]
)
def test_a_list_and_a_dictionary_of_scores_are_one_score_for_each_part(
    tmp_path, value, scores, mean
):
    path = write_json(
        tmp_path / "log.json", header(["q"], 1) | {"samples": [sample(scores={"s": value})]}
    )

    found = lethe.bounds(path, leak_is="high")

    assert found.log.log.scores == scores
    assert found.log.score == scores[0]
    assert found.questions["q"].values["mean"] == mean
    said = " ".join(" ".join(view.notes) for view in found.views())
    for other in scores[1:]:
        assert f"others, by --score: {other}" in said
        assert lethe.bounds(path, score=other).questions["q"].values["mean"] == 0


def request(text, **more):
    return {"event": "model", "output": {"completion": text}, **more}


def asked(text, **more):
    """A sample whose answer came by a request with these members, after and before those to other models."""
    events = [request("other", config={"temperature": 0}, cache="read"), request(text, **more)]
    return sample("q", 1, text, events=[*events, request("GRADE: C", config={"temperature": 0})])


def test_an_answer_out_of_inspects_cache_is_no_draw(tmp_path):
    log = read_log(eval_log(tmp_path / "a.eval", header(["q"], 1), [asked("Ron", cache="read")]))

    assert "from a cache" in log.facts.repeated


def test_the_settings_of_the_request_that_brought_the_answer_count(tmp_path):
    cold = asked("Ron", config={"temperature": 0})
    log = read_log(eval_log(tmp_path / "a.eval", header(["q"], 1), [cold]))

    assert "temperature 0" in log.facts.deterministic


def test_requests_to_other_models_say_nothing_of_the_answer(tmp_path):
    warm = asked("Ron", config={"temperature": 1.0}, cache="write")
    log = read_log(eval_log(tmp_path / "a.eval", header(["q"], 1), [warm]))

    assert (log.facts.deterministic, log.facts.repeated) == (None, None)


@pytest.mark.parametrize(
    "further", [{"extra_body": {"top_k": 1}}, {"extra_body": {"temperature": 0}}]
)
def test_what_is_passed_on_to_the_server_counts(tmp_path, further):
    head = header(["q"], 1, generate={"temperature": 1.0} | further)
    log = read_log(eval_log(tmp_path / "a.eval", head, [sample()]))

    assert log.facts.deterministic


def test_what_is_passed_on_to_the_provider_counts(tmp_path):
    head = header(["q"], 1)
    head["eval"]["model_args"] = {"do_sample": False}
    log = read_log(eval_log(tmp_path / "a.eval", head, [sample()]))

    assert "do_sample" in log.facts.deterministic


def test_epochs_of_two_models_are_no_draws_of_one(tmp_path):
    samples = [sample("q", epoch, f"Ron {epoch}") for epoch in (1, 2)]
    samples[1]["output"]["model"] = "other"
    log = read_log(eval_log(tmp_path / "a.eval", header(["q"]), samples))

    assert "2 models" in log.facts.mixed
