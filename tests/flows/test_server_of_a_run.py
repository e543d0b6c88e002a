"""The server of a run: its address, its first tables, its log, and what counts as its loss."""

import threading

import httpx
import pytest

from flows import server
from tests.flows.faults import answering_server


def test_a_server_that_does_not_answer_is_named_without_its_password(monkeypatch):
    monkeypatch.setattr(server.OwnServer, "running", None)  # a session's server would be waited for
    with answering_server(503) as port:
        monkeypatch.setenv("PREFECT_API_URL", f"http://ann:secret@127.0.0.1:{port}/api/")
        server.require()  # the server answers, so the flow itself will tell
    for address in (f"http://ann:secret@127.0.0.1:{port}/api", "http://ann:secret@127.0.0.1:port/api"):
        monkeypatch.setenv("PREFECT_API_URL", address)
        with pytest.raises(server.Unreachable) as refused:
            server.require()
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "lost"),
    [(500, True), (503, True), (429, True), (408, True), (404, False), (409, False), (422, False)],
)
def test_only_a_server_that_is_gone_or_busy_is_lost(status, lost):
    from flows import pipeline

    request = httpx.Request("GET", "http://127.0.0.1/api")
    error = httpx.HTTPStatusError("x", request=request, response=httpx.Response(status, request=request))
    assert (pipeline.lost(error) is not None) == lost
    wrapped = RuntimeError("Prefect's own")
    wrapped.__cause__ = error
    assert (pipeline.lost(wrapped) is not None) == lost


def test_one_server_makes_the_tables_and_the_others_wait(tmp_path):
    first = server.first_tables(tmp_path)
    assert first is not None
    found: list[object] = []
    other = threading.Thread(target=lambda: found.append(server.first_tables(tmp_path)))
    other.start()
    (tmp_path / "prefect.db").write_text("whole")
    assert not found
    server.tables_made(first)
    other.join(10)
    assert found == [None]
    assert (tmp_path / "prefect.db").read_text() == "whole"


def test_tables_of_a_killed_server_are_made_anew(tmp_path):
    killed = server.first_tables(tmp_path)
    (tmp_path / "prefect.db").write_text("half")
    (tmp_path / "prefect.db-wal").touch()
    killed.close()  # as the kernel does
    again = server.first_tables(tmp_path)
    assert again is not None
    assert not list(tmp_path.glob("prefect.db*"))
    again.close()
