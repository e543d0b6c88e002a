"""Paraphrases by a served model: which line of a reply is asked, what is dropped, what is paid once, and the file."""

import pytest

import lethe
from lethe.config.measuring import Endpoint
from lethe.errors import BadArguments, BadInput, BadValue
from lethe.models.endpoint_client import CapReached, ServerGone
from lethe.sampling.paraphrases import TELLS, UNFIT, write_language
from lethe.sampling.prompt_language import productions, read_language
from tests.lethe.sampling.fault_server import FaultServer, Status, words

ROWS = [
    {"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]},
    {"id": "7: x", "question": "Where is Bo?", "answer": "At sea.", "keywords": ["sea"]},
]
ADA = "1. What does Ada do?\n- Which job has Ada?\n"


def replying(reply):
    """A server with one reply to every request for paraphrases, which draws answers to other questions."""

    def draw(body, generator):
        text = body["messages"][-1]["content"] if "messages" in body else ""
        return ([reply], False) if "other ways to ask" in text else words(body, generator)

    return FaultServer(draw)


def language_of(server, folder, n=5, rows=ROWS, **settings):
    endpoint = Endpoint(endpoint=server.url, name="w", retries=0, timeout=5, **settings)
    path = folder / "paraphrases.yaml"
    dropped = write_language(rows, endpoint, n, path, folder / "replies")
    return path, dropped


def questions_of(path, row):
    return [production.question for production in productions(read_language(path), row)]


def test_the_lines_of_a_reply_are_asked_beside_the_question(tmp_path):
    with replying(ADA) as server:
        path, dropped = language_of(server, tmp_path)

    expected = ["Who is Ada?", "What does Ada do?", "Which job has Ada?"]
    assert questions_of(path, ROWS[0]) == expected
    assert len(questions_of(path, ROWS[1])) == 3
    assert not dropped


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Is Ada a painter?", TELLS),
        ("Was it a PAINTER, this Ada?", TELLS),
        ("Here are some:", UNFIT),
        ("<|im_start|>system Who is Ada?", UNFIT),
        ("Who is \u202eAda?", UNFIT),
        (f"Who {'is ' * 400}Ada?", UNFIT),
        ("who is ada?", "repeat another"),
    ],
)
def test_a_line_that_may_not_be_asked_is_dropped_and_counted(tmp_path, line, reason):
    with replying(f"{line}\nWhat does Ada do?") as server:
        path, dropped = language_of(server, tmp_path, rows=ROWS[:1])

    assert questions_of(path, ROWS[0]) == ["Who is Ada?", "What does Ada do?"]
    assert dropped == {reason: 1}
    assert f"Dropped: 1 {reason}" in path.read_text()


def test_the_text_of_a_model_stays_text_in_the_file(tmp_path):
    line = "What of \"{answer}\": [Ada] # \\n 'x'?"
    with replying(line) as server:
        path, _ = language_of(server, tmp_path, rows=ROWS[:1])

    assert questions_of(path, ROWS[0])[1] == line


def test_at_most_n_paraphrases_of_a_question_are_kept(tmp_path):
    with replying(ADA) as server:
        path, _ = language_of(server, tmp_path, n=1)

    assert questions_of(path, ROWS[0]) == ["Who is Ada?", "What does Ada do?"]


def test_a_second_call_asks_nothing_and_writes_the_same_file(tmp_path):
    with replying(ADA) as server:
        first = language_of(server, tmp_path)[0].read_bytes()
        asked = len(server.bodies)
        second = language_of(server, tmp_path)[0].read_bytes()

        assert asked == 2
        assert len(server.bodies) == asked
    assert first == second


def test_a_failed_request_is_counted_and_asked_again(tmp_path):
    broken = [True]

    def fault(number, body, answer):
        if broken.pop() if broken else False:
            raise Status(500)
        return answer

    with replying(ADA) as server:
        server.fault = fault
        path, dropped = language_of(server, tmp_path, concurrency=1)
        without = questions_of(path, ROWS[0])
        language_of(server, tmp_path)

    assert sum(dropped.values()) == 1
    assert without == ["Who is Ada?"]
    assert len(questions_of(path, ROWS[0])) == 3


def test_the_cap_stops_before_a_request_that_could_exceed_it(tmp_path, capsys):
    with replying(ADA) as server:
        with pytest.raises(CapReached):
            language_of(server, tmp_path, concurrency=1, max_tokens_total=590, price_out=1e6)
        first = len(server.bodies)
        path, _ = language_of(server, tmp_path, concurrency=1, max_tokens_total=590)

        assert first == 1
        assert len(server.bodies) == 2
    assert "the cap is 590 tokens" in capsys.readouterr().err
    assert len(questions_of(path, ROWS[0])) == 3


def test_a_reply_without_a_paraphrase_is_no_language(tmp_path):
    with replying("I cannot do that.") as server, pytest.raises(BadInput, match=UNFIT):
        language_of(server, tmp_path)


def test_a_server_that_is_gone_is_named(tmp_path):
    with replying(ADA) as server:
        pass
    with pytest.raises(ServerGone):
        language_of(server, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"paraphrase": "endpoint"}, BadArguments),
        ({"paraphrase_model": "w"}, BadArguments),
        (
            {"paraphrase": "me", "paraphrase_endpoint": "http://x", "paraphrase_model": "w"},
            BadValue,
        ),
        ({"paraphrase": "endpoint", "paraphrase_endpoint": "x", "paraphrase_model": "w"}, BadValue),
    ],
)
def test_an_unfinished_request_for_paraphrases_is_refused(arguments, error):
    with pytest.raises(error, match="paraphrase"):
        lethe.evaluate("m", ROWS, endpoint="http://127.0.0.1:1", n=8, **arguments)


def test_an_evaluation_asks_the_paraphrases_and_keeps_the_file(tmp_path):
    with replying(ADA) as server:
        by_server = {"paraphrase_endpoint": server.url, "paraphrase_model": "w"}
        evaluation = lethe.evaluate(
            *("m", ROWS),
            **{"endpoint": server.url, "n": 40, "folder": tmp_path, "max_new_tokens": 4},
            **{"paraphrase": "endpoint", "prompt": "chat", **by_server},
        )
        asked = [body["messages"][-1]["content"] for body in server.bodies]

    assert "Which job has Ada?" in asked
    assert (tmp_path / "paraphrases.yaml").is_file()
    assert len(evaluation.answers) > 40
