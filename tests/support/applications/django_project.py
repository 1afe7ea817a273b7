"""A Django project in one file, whose setting RECONVERGE is the test's."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.http import FileResponse, Http404, HttpResponse, StreamingHttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View

from reconverge.integrations.web.request.request import Response

HERE = "tests.support.applications.django_project"
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "reconverge.integrations.django.RateLimitMiddleware",
]
WITHOUT_OURS = MIDDLEWARE[:-1]

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(Path(tempfile.mkdtemp(prefix="reconverge-test-")) / "db"),
            }
        },
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"],
        MIDDLEWARE=MIDDLEWARE,
        RECONVERGE={},
        ROOT_URLCONF=HERE,
        SECRET_KEY=HERE,
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    )
    django.setup()

from reconverge.integrations.django import exempt, limit, outcome_of  # noqa: E402  # it reads the settings

settled: list[Response] = []
"""The responses by which a cost was settled."""


def settle(response: Response) -> int:
    """Charges a token for each byte of the response."""
    settled.append(response)
    return response.bytes_sent


def home(request: Any) -> HttpResponse:
    return HttpResponse(b"welcome")


async def home_slowly(request: Any) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse(b"welcome")


def broken(request: Any) -> HttpResponse:
    raise ZeroDivisionError


def missing(request: Any) -> HttpResponse:
    raise Http404


def count(request: Any, upto: int) -> StreamingHttpResponse:
    def lines() -> Iterator[bytes]:
        for number in range(upto):
            yield b"%d\n" % number

    return StreamingHttpResponse(lines())


async def count_slowly(request: Any, upto: int) -> StreamingHttpResponse:
    async def lines() -> AsyncIterator[bytes]:
        for number in range(upto):
            yield b"%d\n" % number
            await asyncio.sleep(0)

    return StreamingHttpResponse(lines())


def file(request: Any) -> FileResponse:
    return FileResponse(io.BytesIO(b"a file"), filename="file.txt")


@limit("2/hour")
def limited(request: Any) -> HttpResponse:
    return HttpResponse(b"welcome")


@limit("2/hour")
async def limited_slowly(request: Any) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse(b"welcome")


def spending(request: Any) -> HttpResponse:
    outcome = outcome_of(request)
    assert outcome is not None
    outcome.spend(3)
    return HttpResponse(b"welcome")


@method_decorator(limit("2/hour"), name="dispatch")
class Shelf(View):  # type: ignore[misc]  # Django has no types
    """A view whose methods count together."""

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse(b"a shelf")

    def post(self, request: Any) -> HttpResponse:
        return HttpResponse(b"put")


@method_decorator(limit("2/hour"), name="dispatch")
class Drawer(View):  # type: ignore[misc]  # likewise
    """A view in an event loop whose methods count together."""

    async def get(self, request: Any) -> HttpResponse:
        await asyncio.sleep(0)
        return HttpResponse(b"a drawer")


@limit("2/hour")
class Box(View):  # type: ignore[misc]  # likewise
    """A view that is decorated itself, and of which only one method costs more."""

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse(b"a box")

    @method_decorator(limit("1/hour"))  # type: ignore[untyped-decorator]  # likewise
    def post(self, request: Any) -> HttpResponse:
        return HttpResponse(b"put")


@exempt
class Gate(View):  # type: ignore[misc]  # likewise
    """A view that the middleware does not limit."""

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse(b"open")


@method_decorator(exempt, name="dispatch")
class SlowGate(View):  # type: ignore[misc]  # likewise
    """A view in an event loop that the middleware does not limit."""

    async def get(self, request: Any) -> HttpResponse:
        await asyncio.sleep(0)
        return HttpResponse(b"open")


shop = [path("items/<int:number>/", lambda request, number: HttpResponse(b"item"), name="item")]
urlpatterns = [
    path("", home, name="home"),
    path("slow/", home_slowly, name="slow"),
    path("broken/", broken),
    path("missing/", missing),
    path("count/<int:upto>/", count, name="count"),
    path("count-slowly/<int:upto>/", count_slowly),
    path("file/", file),
    path("limited/", limited),
    path("limited-slowly/", limited_slowly),
    path("spending/", spending),
    path("shelf/", Shelf.as_view()),
    path("drawer/", Drawer.as_view()),
    path("box/", Box.as_view()),
    path("shop/", include((shop, "shop"))),
    path("free/home/", exempt(home)),
    path("free/slow/", exempt(home_slowly)),
    path("free/gate/", Gate.as_view()),
    path("free/slow-gate/", SlowGate.as_view()),
    path("free/shelf/", exempt(Shelf.as_view())),
    path("free/limited/", limit("2/hour", name="own")(exempt(home))),
    path("free/exempt-limited/", exempt(limit("2/hour", name="inner")(home_slowly))),
]


def prepare() -> None:
    call_command("migrate", verbosity=0)
