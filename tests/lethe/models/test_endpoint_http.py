"""The tries of one request end within its time, with the waits between them; told on a clock that nobody waits for."""

import asyncio
import email.utils
import ssl
import time

import httpx2
import openai
import pytest

from lethe.models.endpoint_http import (
    LimitedClient,
    NoTimeToWait,
    Tries,
    Unreadable,
    stated_wait,
    trusted,
)


class Clock:
    """Seconds that pass where somebody sleeps or a reply takes them."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds


def refusal(status: int, **headers: str) -> openai.APIStatusError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = httpx2.Request("POST", "http://127.0.0.1:9/v1")
    response = httpx2.Response(status, headers=named, request=request)
    return openai.APIStatusError("", response=response, body=None)


def no_connection() -> openai.APIConnectionError:
    return openai.APIConnectionError(request=httpx2.Request("POST", "http://127.0.0.1:9/v1"))


def sent(clock: Clock, errors, retries: int = 6, seconds: float = 60.0, takes: float = 0.0):
    """What the tries bring where each in turn ends with one of ``errors``, after ``takes`` seconds, and then a reply."""
    left = list(errors)

    async def send() -> str:
        clock.seconds += takes
        if left:
            raise left.pop(0)
        return "a reply"

    return asyncio.run(Tries(retries, seconds, clock.now, clock.sleep).reply(send))


def test_a_busy_server_is_asked_again_after_the_seconds_that_it_says():
    clock = Clock()

    reply = sent(clock, [refusal(429, retry_after="20"), refusal(503, retry_after_ms="1500")])

    assert reply == "a reply"
    assert clock.waits == [20, 1.5]


@pytest.mark.parametrize("wait", ["61", "3600", "1e9", "1e300"])
def test_a_wait_beyond_what_is_left_ends_the_request_without_it(wait):
    clock = Clock()

    with pytest.raises(NoTimeToWait, match="429 and a wait beyond"):
        sent(clock, [refusal(429, retry_after=wait)])

    assert clock.waits == []


def test_the_time_of_a_request_counts_its_waits_and_its_tries():
    clock = Clock()

    with pytest.raises(NoTimeToWait):
        sent(clock, [refusal(503, retry_after="20")] * 6, seconds=60, takes=5)

    assert clock.waits == [20, 20]
    assert clock.seconds <= 1060


@pytest.mark.parametrize("wait", ["nan", "-1", "inf", "0", "", "soon", "\x1b[31m"])
def test_a_wait_that_is_no_time_is_replaced_by_one_that_doubles(wait):
    clock = Clock()

    sent(clock, [refusal(500, retry_after=wait)] * 6)

    expected = [0.5, 1, 2, 4, 8, 8]
    shares = [wait / most for wait, most in zip(clock.waits, expected, strict=True)]
    assert all(0.75 <= share <= 1 for share in shares)


def test_a_server_without_connection_is_asked_again_until_its_time_is_over():
    clock = Clock()

    with pytest.raises(openai.APIConnectionError):
        sent(clock, [no_connection()] * 20, retries=20, seconds=30)

    assert 3 < len(clock.waits) < 8
    assert clock.seconds <= 1030


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (refusal(400), False),
        (refusal(404), False),
        (refusal(307), False),
        (refusal(409), True),
        (refusal(599), True),
        (refusal(503, x_should_retry="false"), False),
        (refusal(400, x_should_retry="true"), True),
    ],
)
def test_only_an_error_that_may_pass_is_worth_another_try(error, again):
    clock = Clock()

    if again:
        assert sent(clock, [error]) == "a reply"
    else:
        with pytest.raises(openai.APIStatusError):
            sent(clock, [error])

    assert len(clock.waits) == again


def test_a_try_that_never_ends_is_ended():
    async def send() -> str:
        await asyncio.sleep(60)
        return "a reply"

    with pytest.raises(Unreadable, match="timeout"):
        asyncio.run(Tries(6, 0.05).reply(send))


def test_the_wait_may_be_a_date():
    date = email.utils.formatdate(time.time() + 90, usegmt=True)

    assert stated_wait(httpx2.Headers({"Retry-After": date})) == pytest.approx(90, abs=2)


def test_the_authorities_are_read_once_for_all_clients(monkeypatch):
    read = []
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: read.append(1))
    trusted.cache_clear()

    LimitedClient()
    LimitedClient()

    trusted.cache_clear()  # no later test trusts nobody
    assert read == [1]
