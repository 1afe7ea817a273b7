"""Goal: limits leave alone what a framework answers itself, or what its users expect to be left alone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import flask
import flask.views
import grpc
import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket, WebSocketDisconnect

from reconverge import Agent, InvalidSetting
from reconverge.integrations import Rule, by_user
from reconverge.integrations import fastapi as of_fastapi
from reconverge.integrations.flask import Limits
from tests.integrations.frameworks.test_grpc import CALL_S_MAX, SERVICE, Serves, in_a_loop, on_threads
from tests.support.applications.asking import ask_asgi, ask_wsgi, converse, statuses, websocket_scope


def hello() -> str:
    return "hello"


def test_static_files_of_blueprints_are_limited_no_more_than_those_of_the_application(
    agent: Agent, tmp_path: Path
) -> None:
    """Also of a blueprint in another one; but a view that is called `static` is a view."""
    (tmp_path / "a.css").write_text("x")
    app = flask.Flask(__name__, static_folder=tmp_path, static_url_path="/files")
    shop = flask.Blueprint("shop", __name__, static_folder=tmp_path, static_url_path="/files", url_prefix="/shop")
    inner = flask.Blueprint("inner", __name__, static_folder=tmp_path, static_url_path="/files", url_prefix="/inner")
    bare = flask.Blueprint("bare", __name__, url_prefix="/bare")
    bare.add_url_rule("/", "static", hello)
    shop.register_blueprint(inner)
    app.register_blueprint(shop)
    app.register_blueprint(bare)
    Limits(lambda: "ada", app=app, agent=agent, default_limits="2/minute", application_limits="3/minute")

    for path in ("/files/a.css", "/shop/files/a.css", "/shop/inner/files/a.css"):
        assert [200] * 4 == statuses(ask_wsgi(app, path, times=4)), path
    assert [200, 200, 429] == statuses(ask_wsgi(app, "/bare/", times=3))


def test_default_limits_count_by_what_the_functions_before_them_have_set(agent: Agent) -> None:
    """Flask calls functions before a request in the order of their registration, the limits with `init_app`."""
    app = flask.Flask(__name__)
    limits = Limits(lambda: flask.g.user, agent=agent, default_limits="1/minute")
    app.add_url_rule("/", "root", hello)

    @app.before_request
    def authenticate() -> None:
        flask.g.user = flask.request.headers["x-user"]

    limits.init_app(app)

    for user in ("ada", "bob"):
        assert [200, 429] == statuses(ask_wsgi(app, times=2, x_user=user)), user


def test_preflights_that_flask_answers_use_up_nothing(agent: Agent) -> None:
    """Nor do they of a class of views; a view that answers OPTIONS itself is limited as for any other method."""
    app = flask.Flask(__name__)
    pages = flask.Blueprint("pages", __name__, url_prefix="/pages")
    limits = Limits(lambda: "ada", app=app, agent=agent, default_limits="2/minute", application_limits="9/minute")

    class Page(flask.views.MethodView):
        def get(self) -> str:
            return "page"

    app.add_url_rule("/", "root", hello)
    app.add_url_rule("/page", view_func=Page.as_view("page"))
    app.add_url_rule("/own", "own", hello, methods=["GET", "OPTIONS"])
    pages.add_url_rule("/", "pages", hello)
    limits.limit("1/minute")(pages)
    app.register_blueprint(pages)

    for path in ("/", "/page", "/pages/"):
        assert [200] * 5 == statuses(ask_wsgi(app, path, method="OPTIONS", times=5)), path
        assert [200] == statuses(ask_wsgi(app, path)), path
    assert [200, 200, 429] == statuses(ask_wsgi(app, "/own", method="OPTIONS", times=3))


def test_errors_of_flask_are_settled_though_a_test_client_reads_no_body(agent: Agent) -> None:
    """Flask passes on the body of an HTTPException as an iterator."""
    app = flask.Flask(__name__)
    limits = Limits(lambda: "ada", app=app, agent=agent)

    def login() -> str:
        if "boom" in flask.request.args:
            raise RuntimeError
        return flask.abort(403)

    app.add_url_rule("/", "login", limits.limit("2/minute", deduct_when=lambda it: it.status_code == 401)(login))
    client = app.test_client()

    assert [403, 403, 403, 500, 500, 500] == [client.get(path).status_code for path in ("/", "/?boom") for _ in "abc"]


def test_fastapi_counts_each_method_of_a_path_apart_if_another_function_serves_it(agent: Agent) -> None:
    """One function for several methods has one count; so has a route of an included or mounted application."""
    app, inner, below = FastAPI(), APIRouter(prefix="/included"), FastAPI()
    limits = of_fastapi.Limits(agent, key_func=lambda: "ada")
    limit = [Depends(limits("2/minute"))]
    for router in (app, inner, below):
        router.add_api_route("/apart", nothing, methods=["GET"], dependencies=limit)
        router.add_api_route("/apart", nothing, methods=["POST"], dependencies=limit)
        router.add_api_route("/both", nothing, methods=["GET", "POST"], dependencies=limit)
    app.include_router(inner)
    app.mount("/mounted", below)
    limits.install(app)
    limits.install(below)

    for prefix in ("", "/included", "/mounted"):
        for path, expected in (("/apart", [200, 200, 429, 200]), ("/both", [200, 200, 429, 429])):
            methods = ("GET", "GET", "GET", "POST")
            asked = [ask_asgi(app, f"{prefix}{path}", method=method)[0].status for method in methods]
            assert expected == asked, prefix + path


def test_fastapi_describes_refusals_in_its_openapi_document(agent: Agent) -> None:
    """Of limited operations alone, in routers too, with the limit's status; the application's own text is kept."""
    app, inner, limits = FastAPI(), APIRouter(prefix="/inner"), of_fastapi.Limits(agent)
    limits.install(app)
    limited, shed = [Depends(limits("2/minute"))], [Depends(limits("9/minute", status=503))]
    inner.add_api_route("/both", nothing, methods=["GET"], dependencies=limited)
    app.include_router(inner, dependencies=shed)
    app.add_api_route("/free", nothing)
    app.add_api_route("/own", nothing, dependencies=limited, responses={429: {"description": "our own"}})
    paths = app.openapi()["paths"]

    assert {"200", "429", "503"} == set(paths["/inner/both"]["get"]["responses"])
    assert ["application/problem+json"] == list(paths["/inner/both"]["get"]["responses"]["429"]["content"])
    assert {"200"} == set(paths["/free"]["get"]["responses"])
    assert "our own" == paths["/own"]["get"]["responses"]["429"]["description"]
    assert app.openapi() == app.openapi()


@pytest.mark.parametrize("iterates", [True, False])
def test_messages_of_a_websocket_of_fastapi_are_limited(agent: Agent, *, iterates: bool) -> None:
    """For each key over all its connections. An endpoint iterates over them, or counts each and goes on as it likes."""
    app, limits = FastAPI(), of_fastapi.Limits(agent)
    messages = limits.messages("3/minute", close_code=1013)

    @app.websocket("/ws")
    async def chat(socket: WebSocket) -> None:
        await socket.accept()
        if iterates:
            async for message in messages(socket):
                await socket.send_text(f"echo {message!r}")
            return
        with suppress(WebSocketDisconnect):
            while text := await socket.receive_text():
                if not await messages.check(socket):
                    await socket.close(1013)
                    return
                await socket.send_text(f"echo {text!r}")

    first = asyncio.run(converse(app, websocket_scope(), "1"))
    sent = asyncio.run(converse(app, websocket_scope(), "2", "3", "one too many", "and more"))

    assert ["echo '1'"] == [message["text"] for message in first if "text" in message]
    assert ["echo '2'", "echo '3'"] == [message["text"] for message in sent if "text" in message]
    assert ("websocket.close", 1013) == (sent[-1]["type"], sent[-1]["code"])
    with pytest.raises(InvalidSetting, match="for connections and not for messages"):
        limits.messages("3/minute", key_func=Depends(nothing))


def test_messages_count_by_the_user_that_the_endpoint_has_put_into_the_state(agent: Agent) -> None:
    """Two users behind one address have a quota each, whichever connection they use."""
    app, limits = FastAPI(), of_fastapi.Limits(agent, key_func=by_user)
    messages = limits.messages("2/minute")

    def endpoint(user: str) -> None:
        @app.websocket(f"/{user}")
        async def chat(socket: WebSocket) -> None:
            socket.state.user = user
            await socket.accept()
            async for message in messages(socket):
                await socket.send_text(f"{message!s}")

    for user in ("ada", "bob"):
        endpoint(user)
        sent = asyncio.run(converse(app, websocket_scope() | {"path": f"/{user}"}, "1", "2", "one too many"))
        assert ["1", "2"] == [message["text"] for message in sent if "text" in message]


def nothing() -> None: ...


def calls(address: str, method: str, times: int = 3) -> list[str]:
    """The results of calls to a method of gRPC: `ok`, or the code of the error."""
    results: list[str] = []
    with grpc.insecure_channel(address) as channel:
        for _ in range(times):
            try:
                channel.unary_unary(method)(b"", timeout=CALL_S_MAX)
                results.append("ok")
            except grpc.RpcError as error:
                results.append(error.code().name)
    return results


@pytest.mark.parametrize("serving", [on_threads, in_a_loop])
def test_health_checks_of_grpc_are_limited_by_a_rule_with_paths_alone(serving: Serves) -> None:
    """Otherwise an orchestrator would restart a server that is only busy."""
    check, refusal = "/grpc.health.v1.Health/Check", "RESOURCE_EXHAUSTED"
    with serving("1/minute", agent=Agent("memory://")) as address:
        assert ["ok", refusal, refusal] == calls(address, f"/{SERVICE}/unary_unary")
        assert ["ok"] * 3 == calls(address, check)
    with serving(rules=[Rule(limits="2/minute", paths=[check])], agent=Agent("memory://")) as address:
        assert ["ok", "ok", refusal] == calls(address, check)
