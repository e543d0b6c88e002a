"""The page on which a person labels: keys, undo, an old tab, untrusted text, and who may ask."""

import html
import re
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager

import pytest
import typer

from lethe.cli.label_dialogue import ask, label_on_page
from lethe.labels.draws import DrawnAnswers, Wanted
from lethe.labels.labels import AnswerText, Labels, digest_of, read_labels
from lethe.labels.plan import LabelPlan
from lethe.report.label_page import BYTES, LabelServer
from tests.lethe.cli.calls import Command

HOSTILE = "<script>alert(1)</script> \u202e"
TEXTS = [HOSTILE] * 12 + ["code 9"] * 8


def plan() -> LabelPlan:
    wanted = {"a": Wanted("It is <b>9</b>.", ("9",))}
    draws = DrawnAnswers(
        {"a": [AnswerText("a", text) for text in TEXTS]}, {"a": "<i>Who?</i>"}, {}, wanted
    )
    return LabelPlan(draws, 1.0, 0, 0.05)


@contextmanager
def served(labels):
    with LabelServer(plan(), labels) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def name_of(text):
    return digest_of(AnswerText("a", text), {"a": "<i>Who?</i>"})


def asked(address, form=None, **headers):
    """The status and text of a reply; redirects are followed."""
    body = None if form is None else urllib.parse.urlencode(form).encode()
    request = urllib.request.Request(address, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def labels(tmp_path):
    return Labels(tmp_path / "labels.jsonl")


def test_a_label_is_kept_and_the_next_answer_shown(labels):
    with served(labels) as server:
        _, first = asked(server.address)
        digest = re.search('name="answer" value="([0-9a-f]+)"', first)[1]
        _, second = asked(server.address, {"answer": digest, "key": "leak"})
    assert digest == name_of(HOSTILE)
    assert read_labels(labels.path).by_answer == {AnswerText("a", HOSTILE): 1}
    assert "code 9" in second
    assert "8 of 20 draws" in second


def sixty() -> LabelPlan:
    """Two questions of 400 draws, of which a person reads 60: the most frequent ones, and random draws of the rest."""
    texts = [f"text {place % 70}" for place in range(400)]
    answers = {name: [AnswerText(name, text) for text in texts] for name in "ab"}
    return LabelPlan(DrawnAnswers(answers, {"a": "Who?", "b": "Where?"}, {}, {}), 0.2, 38, 0.05)


def test_sixty_answers_are_labelled_alike_at_the_terminal_and_on_the_page(labels, tmp_path):
    at_terminal = Labels(tmp_path / "terminal.jsonl")
    stated = sixty().sentence(at_terminal)
    keys = ["n"] * 60
    shown = []

    ask(sixty(), at_terminal, lambda: keys.pop() if keys else "q", shown.append)
    with LabelServer(sixty(), labels) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        first = page = asked(server.address)[1]
        while digest := re.search('name="answer" value="([0-9a-f]+)"', page):
            page = asked(server.address, {"answer": digest[1], "key": "clean"})[1]
        server.shutdown()
        thread.join()

    assert len(at_terminal.by_answer) == 60
    assert labels.by_answer == at_terminal.by_answer
    assert stated in html.unescape(first)
    assert all(bound in stated for bound in ("worst question at most", "average at most"))
    ends = [sixty().ends(kept) for kept in (labels, at_terminal)]
    assert ends[0] == ends[1] == sixty().ends(Labels(tmp_path / "none.jsonl"), label=0)


def test_an_old_tab_labels_nothing(labels):
    with served(labels) as server:
        old = {"answer": name_of(HOSTILE), "key": "leak"}
        asked(server.address, old)
        asked(server.address, {**old, "key": "clean"})
    assert labels.by_answer == {AnswerText("a", HOSTILE): 1}


def test_the_last_label_can_be_undone_even_at_the_end(labels):
    with served(labels) as server:
        for text in (HOSTILE, "code 9"):
            _, page = asked(server.address, {"answer": name_of(text), "key": "clean"})
        asked(server.address, {"answer": "", "key": "undo", "number": "2"})
    assert "Every answer is labelled" in page
    assert labels.by_answer == {AnswerText("a", HOSTILE): 0}


def test_an_undo_that_is_sent_twice_removes_one_label(labels):
    with served(labels) as server:
        for text in (HOSTILE, "code 9"):
            asked(server.address, {"answer": name_of(text), "key": "clean"})
        for _ in range(2):
            asked(server.address, {"answer": "", "key": "undo", "number": "2"})
    assert labels.by_answer == {AnswerText("a", HOSTILE): 0}


def test_another_question_of_the_same_id_is_another_answer():
    answer = AnswerText("a", "Paris")

    names = {
        digest_of(answer, {}),
        digest_of(answer, {"a": "Who?"}),
        digest_of(answer, {"a": "Where?"}),
    }

    assert len(names) == 3


def test_untrusted_texts_are_escaped(labels):
    with served(labels) as server:
        _, page = asked(server.address)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\u202e" not in page
    assert "&lt;i&gt;Who?" in page
    assert "It is &lt;b&gt;9&lt;/b&gt;." in page
    assert page.count("<script>") == page.count("<style>") == 1


def test_the_policy_allows_the_form_and_nothing_else(labels):
    with served(labels) as server:
        _, page = asked(server.address)
    policy = re.search('Content-Security-Policy" content="([^"]+)"', page)[1]
    assert "default-src &#39;none&#39;" in policy
    assert "form-action &#39;self&#39;" in policy
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}]
)
def test_a_foreign_page_reads_and_labels_nothing(labels, headers):
    with served(labels) as server:
        form = {"answer": name_of(HOSTILE), "key": "leak"}
        assert asked(server.address, **headers)[0] == 403
        assert asked(server.address, form, **headers)[0] == 403
    assert not labels.by_answer


def raw(server, target, *headers, version="HTTP/1.1"):
    """The first line of the reply to a request of these header lines alone."""
    request = "\r\n".join([f"GET {target} {version}", *headers, "", ""])
    with socket.create_connection(server.server_address[:2], timeout=20) as connection:
        connection.sendall(request.encode("latin-1"))
        return connection.makefile("rb").readline().decode()


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize(
    "headers",
    [
        [],
        ["Host: "],
        ["Host: {here}", "Host: evil.example"],
        ["Host: evil.example", "Host: {here}"],
        ["Host: {here}", "Origin: {origin}", "Origin: http://evil.example"],
        ["Host: evil.example", "X-Forwarded-Host: {here}"],
        ["Host: 127.0.0.1"],
        ["Host: [::1]:{port}"],
        ["Host: {here}.evil.example"],
        ["Host: {here}", "Origin: https://{here}"],
        ["Host: {here}", "Origin: http://127.0.0.1"],
        ["Host: {here}", "Origin: http://[::1]:{port}"],
    ],
)
def test_a_request_names_this_server_once_and_no_other_origin(labels, headers, version):
    with served(labels) as server:
        port = server.server_port
        names = {"here": f"127.0.0.1:{port}", "origin": server.origins[0], "port": port}
        status = raw(
            server, server.path, *(line.format(**names) for line in headers), version=version
        )

    assert " 403 " in status


@pytest.mark.parametrize("target", ["http://evil.example{path}", "//evil.example{path}"])
def test_a_target_with_another_name_is_another_page(labels, target):
    with served(labels) as server:
        host = f"Host: 127.0.0.1:{server.server_port}"
        status = raw(server, target.format(path=server.path), host)

    assert " 404 " in status


def test_the_servers_page_may_label(labels):
    with served(labels) as server:
        form = {"answer": name_of(HOSTILE), "key": "leak"}
        asked(server.address, form, Origin=server.origins[0])
    assert labels.by_answer


def test_without_the_key_nothing_is_shown(labels):
    with served(labels) as server:
        status, page = asked(server.origins[0] + "/x/")
        assert status == 404
        assert "Who" not in page
        assert server.server_address[0] == "127.0.0.1"


def test_a_form_that_is_too_long_is_refused(labels):
    with served(labels) as server:
        assert asked(server.address, {"answer": "x" * BYTES, "key": "leak"})[0] == 413
    assert not labels.by_answer


@pytest.fixture
def said(monkeypatch):
    """The lines that a command prints for people, whichever stream a thread of the tests has."""
    lines = []
    monkeypatch.setattr(typer, "echo", lambda text, err: lines.append(text))
    return lines


def printed_address(said):
    """The address of the page, once it is printed."""
    for _ in range(3000):
        for line in said:
            address = re.search(r"Label at (http\S+)", line)
            if address:
                return address
        time.sleep(0.01)
    raise AssertionError(said)


def test_the_command_ends_when_the_person_pauses(labels, said):
    thread = threading.Thread(target=label_on_page, args=(plan(), labels))
    thread.start()
    address = printed_address(said)
    _, kept = asked(address[1], {"answer": "", "key": "pause"})
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert "kept" in kept
    assert any("2 answers to read" in line for line in said)


def test_a_label_that_cannot_be_kept_ends_the_command(labels, said):
    (labels.path.parent / "file").touch()
    unkept = Labels(labels.path.parent / "file" / "labels.jsonl")
    failed = []

    def run():
        try:
            label_on_page(plan(), unkept)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    address = printed_address(said)
    with pytest.raises(ConnectionError):
        asked(address[1], {"answer": name_of(HOSTILE), "key": "leak"})
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert len(failed) == 1
    assert not any("Traceback" in line for line in said)


def test_a_page_and_mlflow_together_are_refused(tmp_path):
    (tmp_path / "answers.csv").write_text("prompt_id,text\na,x\na,y\n")
    said = Command("label").refused(tmp_path / "answers.csv", "--page", "--to-mlflow")
    assert "--page" in said
