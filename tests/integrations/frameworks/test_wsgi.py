"""Goal: behind the middleware a WSGI application answers as it always did, with limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconverge import Agent
from reconverge.integrations import Rule
from reconverge.integrations.wsgi import RateLimitMiddleware
from tests.support.applications.asking import ADA, ask_wsgi, environment_of, statuses, wsgi_answer
from tests.support.applications.webserver import check_fields


class Body:
    """A body that is streamed, and knows whether it was closed."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = iter(parts)
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        return self.parts

    def close(self) -> None:
        self.closed += 1


def serving(body: Any) -> Any:
    def app(environment: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return body

    return app


def tokens(agent: Agent) -> int:
    return agent.limiter("tokens").usage(ADA).own


BY_BYTES = Rule(limits="100/minute", name="tokens", cost=50, settle=lambda response: response.bytes_sent)


def test_a_body_is_the_applications_own(agent: Agent) -> None:
    """The very object, so that a server may send a file by itself, as long as nothing is to be settled."""
    body = Body(b"abc")

    assert body is RateLimitMiddleware(serving(body), "2/minute", agent=agent)(environment_of("/"), lambda *_: None)


def test_a_body_that_is_settled_is_streamed_and_closed_once(agent: Agent) -> None:
    """Part by part, for the bytes that were sent."""
    body = Body(b"abc", b"de")
    (answer,) = ask_wsgi(RateLimitMiddleware(serving(body), rules=[BY_BYTES], agent=agent))

    assert b"abcde" == answer.body
    assert 1 == body.closed
    assert 5 == tokens(agent)


def test_a_client_that_goes_away_is_settled_for_what_it_was_sent(agent: Agent) -> None:
    """A server closes the body, whether it has sent all of it or not."""
    body = Body(b"abc", b"de")
    streamed: Any = RateLimitMiddleware(serving(body), rules=[BY_BYTES], agent=agent)(
        environment_of("/"), lambda *_: None
    )
    next(iter(streamed))
    streamed.close()

    assert 1 == body.closed
    assert 3 == tokens(agent)


def test_an_error_page_begins_the_response_anew(agent: Agent) -> None:
    """With `exc_info`, which reaches the server; what is settled is settled by the status that was sent."""

    def app(environment: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        try:
            raise KeyError("a mistake")
        except KeyError as error:
            start_response("500 Oops", [], (KeyError, error, error.__traceback__))
        return [b"sorry"]

    seen: list[int] = []
    rule = Rule(limits="9/minute", name="tokens", deduct_when=lambda response: bool(seen.append(response.status)))  # type: ignore[func-returns-value]
    (answer,) = ask_wsgi(RateLimitMiddleware(app, rules=[rule], agent=agent))

    assert (500, b"sorry") == (answer.status, answer.body)
    assert [500] == seen
    check_fields(answer.headers, refused=False)


def test_what_the_server_offers_to_write_with_reaches_the_application(agent: Agent) -> None:
    """The result of `start_response` is passed on."""
    seen: list[Any] = []

    def app(environment: Any, start_response: Any) -> Any:
        seen.append(start_response("200 OK", []))
        return []

    RateLimitMiddleware(app, "1/minute", agent=agent)(environment_of("/"), lambda *_: "write")

    assert ["write"] == seen


def test_an_application_of_its_own_may_answer_a_breach(agent: Agent) -> None:
    """`on_breach` returns a WSGI application."""
    instead = serving([b"instead"])
    app = RateLimitMiddleware(serving([b"hello"]), "1/minute", agent=agent, on_breach=lambda _outcome: instead)

    assert [b"hello", b"instead"] == [answer.body for answer in ask_wsgi(app, times=2)]


def test_paths_are_text_and_may_be_anything(agent: Agent) -> None:
    """Bytes that are no UTF-8 lead nowhere, and fail nowhere."""
    rule = Rule(limits="1/minute", name="umlauts", paths=["/ä/{id}"])
    app = RateLimitMiddleware(serving([b""]), rules=[rule], agent=agent)

    assert [200, 429] == statuses(ask_wsgi(app, "/ä/1".encode().decode("latin-1"), times=2))
    assert [200, 200] == statuses(ask_wsgi(app, "/\xff", times=2))


def test_head_is_refused_without_a_body(agent: Agent) -> None:
    """HTTP has no body there."""
    app = RateLimitMiddleware(serving([b""]), "1/minute", agent=agent)

    assert b"" == wsgi_answer(app, environment_of("/", method="HEAD")).body
    refused = wsgi_answer(app, environment_of("/", method="HEAD"))
    assert (429, b"") == (refused.status, refused.body)
