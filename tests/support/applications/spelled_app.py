"""Applications of all frameworks with a limit on `/login`, in a server of their own: `python -m ... NAME PORT`.

Whatever reaches an endpoint is answered with the field `x-reached`. A request with the field `x-planted` is decided as
rules were before they knew of spellings, by a comparison of texts, so that the test can see itself fail.
"""

# ruff: noqa: PLC0415  # each server imports the framework that it serves, and no other

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from reconverge.integrations import Rule, everybody
from reconverge.integrations.web.request.paths import Places

REACHED: Final = "x-reached"
PLANTED: Final = "x-planted"
ROUTES: Final = ("/login", "/page")


def rules(prefix: str = "") -> list[Rule]:
    """Returns rules that admit one request an hour for each place, however many clients there are."""
    return [
        Rule(limits="1/hour", name="login", paths=[f"{prefix}/login"], key_func=everybody),
        Rule(limits="1/hour", name="items", paths=[f"{prefix}/items/{{id}}"], key_func=everybody),
        Rule(limits="1/hour", name="page", paths=[f"{prefix}/page"], methods=["GET"], key_func=everybody),
    ]


def plant() -> None:
    """Decides requests with the field `x-planted` by a comparison of texts."""
    find = Places.find

    def find_as_before(self: Places, request: Any) -> str | None:
        if request.header(PLANTED) is None:
            return find(self, request)
        for place in self.all:
            pattern = "[^/]+".join(map(re.escape, re.split(r"\{[^{}/]*\}", place.path))) + "/?"
            if re.fullmatch(pattern, request.path, re.DOTALL):
                return place.path
        return None

    Places.find = find_as_before  # type: ignore[method-assign]


# -------------------------------------------------------------------- ASGI


def starlette(prefix: str = "") -> Any:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def endpoint(_request: Any) -> Any:
        return PlainTextResponse("reached", headers={REACHED: "yes"})

    methods = ["GET", "POST"]
    paths = [*ROUTES, "/items/{id}"]
    return Starlette(routes=[Route(f"{prefix}{path}", endpoint, methods=methods) for path in paths])


def fastapi(**settings: Any) -> Any:
    from fastapi import FastAPI
    from fastapi.responses import PlainTextResponse

    app = FastAPI(**settings)

    async def endpoint() -> Any:
        return PlainTextResponse("reached", headers={REACHED: "yes"})

    for path in (*ROUTES, "/items/{id}"):
        app.add_api_route(path, endpoint, methods=["GET", "POST", "HEAD"])
    return app


def litestar() -> Any:
    from litestar import Litestar, route

    def handler(path: str) -> Any:
        @route(path, http_method=["GET", "POST", "HEAD"], name=path, status_code=200, response_headers={REACHED: "yes"})
        async def endpoint() -> None:
            """Answers with nothing but the field."""

        return endpoint

    return Litestar([handler(path) for path in (*ROUTES, "/items/{id:str}")])


def limited(app: Any, prefix: str = "") -> Any:
    from reconverge.integrations.asgi import RateLimitMiddleware

    return RateLimitMiddleware(app, rules=rules(prefix), agent="memory://")


def with_middleware(app: Any) -> Any:
    """Returns the application with the limits as one of its own middlewares."""
    from reconverge.integrations.asgi import RateLimitMiddleware

    app.add_middleware(RateLimitMiddleware, rules=rules(), agent="memory://")
    return app


def mounted(app: Any, prefix: str) -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    return Starlette(routes=[Mount(prefix, app=app)])


def fastapi_mounted(app: Any) -> Any:
    from fastapi import FastAPI

    outer = FastAPI()
    outer.mount("/api", app)
    return outer


def serve_asgi(app: Any, port: int, **settings: Any) -> None:
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", **settings)


# -------------------------------------------------------------------- WSGI


def flask(prefix: str = "") -> Any:
    """Serves Flask, with its views in a blueprint if there is a prefix."""
    import flask

    app = flask.Flask("spelled")

    def endpoint(**_: Any) -> Any:
        return "reached", {REACHED: "yes"}

    views: Any = flask.Blueprint("views", "spelled", url_prefix=prefix) if prefix else app
    for number, path in enumerate((*ROUTES, "/items/<id>")):
        views.add_url_rule(path, str(number), endpoint, methods=["GET", "POST"])
    if prefix:
        app.register_blueprint(views)
    return app


def flask_inside(prefix: str = "") -> Any:
    """Serves Flask with the limits around its own WSGI application."""
    from reconverge.integrations.wsgi import RateLimitMiddleware

    app = flask(prefix)
    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, rules=rules(prefix), agent="memory://")
    return app


def flask_extension() -> Any:
    """Serves Flask with the extension, and a limit on all views that has paths."""
    from reconverge.integrations.flask import Limits

    app = flask()
    limits = Limits(everybody, app=app, agent="memory://")
    for rule in rules():
        limits._application.append(limits.guard.declare(rule))
    return app


def dispatched(app: Any, *, outside: bool) -> Any:
    """Serves Werkzeug's dispatcher with an application at `/api`, and the limits outside of it or within."""
    from werkzeug.exceptions import NotFound
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    from reconverge.integrations.wsgi import RateLimitMiddleware

    within = app if outside else RateLimitMiddleware(app, rules=rules(), agent="memory://")
    dispatcher = DispatcherMiddleware(NotFound(), {"/api": within})
    return RateLimitMiddleware(dispatcher, rules=rules("/api"), agent="memory://") if outside else dispatcher


def serve_wsgi(app: Any, port: int) -> None:
    class Silent(WSGIRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as the base class calls it
            """Prints nothing."""

    with make_server("127.0.0.1", port, app, handler_class=Silent) as server:
        server.serve_forever()


def serve_werkzeug(app: Any, port: int) -> None:
    from werkzeug.serving import run_simple

    logging.getLogger("werkzeug").disabled = True
    run_simple("127.0.0.1", port, app, threaded=True)


def serve_gunicorn(name: str, port: int) -> None:
    """Replaces this process by a gunicorn that serves the application of that name."""
    command = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--log-level", "critical"]
    command += ["--no-control-socket", f"tests.support.applications.spelled_app:application({name!r})"]
    os.chdir(Path(__file__).parents[3])
    os.execv(sys.executable, command)  # noqa: S606  # a test starts what it names


def application(name: str) -> Any:
    plant()
    return flask_inside() if name == "flask" else django(serve=None)


# -------------------------------------------------------------------- Django


def django(*, serve: Callable[[Any], None] | None, asgi: bool = False, script_name: str | None = None) -> Any:
    """Serves Django, whose views have plain patterns, one that ends with `$`, and one that ignores case."""
    import django
    from django.conf import settings

    settings.configure(
        SECRET_KEY="spelled",  # noqa: S106  # a test's own
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="spelled_urls",
        FORCE_SCRIPT_NAME=script_name,
        LOGGING_CONFIG=None,
        MIDDLEWARE=[
            "django.middleware.common.CommonMiddleware",
            "reconverge.integrations.django.RateLimitMiddleware",
        ],
        RECONVERGE={"HUB": "memory://", "RULES": rules()},
    )
    from django.http import HttpResponse
    from django.urls import path, re_path

    def endpoint(_request: Any, **_: Any) -> Any:
        return HttpResponse("reached", headers={REACHED: "yes"})

    urls: Any = types.ModuleType("spelled_urls")
    urls.urlpatterns = [
        re_path(r"^(?i:login)$", endpoint),
        path("login/", endpoint),
        re_path(r"^page/?$", endpoint),
        path("items/<str:id>", endpoint),
    ]
    sys.modules["spelled_urls"] = urls
    logging.getLogger("django").disabled = True
    logging.getLogger("django.request").disabled = True
    django.setup()
    from django.core.asgi import get_asgi_application
    from django.core.wsgi import get_wsgi_application

    app: Any = get_asgi_application() if asgi else get_wsgi_application()
    if serve is not None:
        serve(app)
    return app


# -------------------------------------------------------------------- aiohttp


def serve_aiohttp(port: int, *, mount: str = "", outside: bool = True) -> None:
    """Serves aiohttp by its own server, with the limits outside of a mounted application or within."""
    from aiohttp import web

    from reconverge.integrations.aiohttp import Limits

    async def endpoint(_request: Any) -> Any:
        return web.Response(text="reached", headers={REACHED: "yes"})

    app = web.Application()
    for path in (*ROUTES, "/items/{id}"):
        app.router.add_get(path, endpoint)
        app.router.add_post(path, endpoint)
    limits = Limits(rules=rules(mount if outside else ""), agent="memory://")
    outer = app
    if mount:
        outer = web.Application()
        limits.install(outer if outside else app)
        outer.add_subapp(mount, app)
    else:
        limits.install(app)

    async def serve() -> None:
        runner = web.AppRunner(outer, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    asyncio.run(serve())


# -------------------------------------------------------------------- all of them

SERVERS: Final[dict[str, tuple[str, Callable[[int], object]]]] = {
    "starlette, h11": ("", lambda port: serve_asgi(limited(starlette()), port, http="h11")),
    "starlette, httptools": ("", lambda port: serve_asgi(limited(starlette()), port, http="httptools")),
    "starlette, its own middleware": ("", lambda port: serve_asgi(with_middleware(starlette()), port)),
    "starlette mounted at /": ("", lambda port: serve_asgi(mounted(limited(starlette()), "/"), port)),
    "starlette mounted at /api": ("/api", lambda port: serve_asgi(mounted(limited(starlette()), "/api"), port)),
    "starlette, outside of /api": (
        "/api",
        lambda port: serve_asgi(limited(mounted(starlette(), "/api"), "/api"), port),
    ),
    "starlette, --root-path": ("", lambda port: serve_asgi(limited(starlette()), port, root_path="/api")),
    "fastapi": ("", lambda port: serve_asgi(limited(fastapi()), port)),
    "fastapi, its own middleware": ("", lambda port: serve_asgi(with_middleware(fastapi()), port)),
    "fastapi mounted at /api": ("/api", lambda port: serve_asgi(fastapi_mounted(limited(fastapi())), port)),
    "fastapi(root_path)": ("/api", lambda port: serve_asgi(limited(fastapi(root_path="/api")), port)),
    "litestar": ("", lambda port: serve_asgi(limited(litestar()), port)),
    "litestar, h11": ("", lambda port: serve_asgi(limited(litestar()), port, http="h11")),
    "litestar, --root-path": ("", lambda port: serve_asgi(limited(litestar()), port, root_path="/api")),
    "litestar mounted at /api": ("/api", lambda port: serve_asgi(mounted(limited(litestar()), "/api"), port)),
    "flask, wsgiref": ("", lambda port: serve_wsgi(flask_inside(), port)),
    "flask, werkzeug": ("", lambda port: serve_werkzeug(flask_inside(), port)),
    "flask, gunicorn": ("", lambda port: serve_gunicorn("flask", port)),
    "flask, the extension": ("", lambda port: serve_wsgi(flask_extension(), port)),
    "flask, a blueprint": ("/api", lambda port: serve_wsgi(flask_inside("/api"), port)),
    "flask, within a dispatcher": ("/api", lambda port: serve_wsgi(dispatched(flask(), outside=False), port)),
    "flask, outside of a dispatcher": ("/api", lambda port: serve_wsgi(dispatched(flask(), outside=True), port)),
    "django, wsgiref": ("", lambda port: django(serve=lambda app: serve_wsgi(app, port))),
    "django, gunicorn": ("", lambda port: serve_gunicorn("django", port)),
    "django, uvicorn": ("", lambda port: django(serve=lambda app: serve_asgi(app, port), asgi=True)),
    "django, FORCE_SCRIPT_NAME": ("", lambda port: django(serve=lambda app: serve_wsgi(app, port), script_name="/api")),
    "aiohttp": ("", serve_aiohttp),
    "aiohttp, within /api": ("/api", lambda port: serve_aiohttp(port, mount="/api", outside=False)),
    "aiohttp, outside of /api": ("/api", lambda port: serve_aiohttp(port, mount="/api")),
}
"""By name: the beginning of the clients' paths, and a function that serves at a port."""


def main(words: Iterable[str]) -> None:
    name, port = words
    plant()
    SERVERS[name][1](int(port))


if __name__ == "__main__":
    main(sys.argv[1:])
