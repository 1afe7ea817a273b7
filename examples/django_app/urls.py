"""The views of the project, and where they are."""

from collections.abc import Iterator
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path

from reconverge.integrations import Response
from reconverge.integrations.django import limit, outcome_of


def home(_request: Any) -> HttpResponse:
    """Has the limit of all."""
    return HttpResponse(b"welcome")


def search(_request: Any) -> HttpResponse:
    """Has one of its own besides, by its name."""
    return HttpResponse(b"nothing found")


def login(request: Any) -> HttpResponse:
    """Only what fails counts."""
    return HttpResponse(status=200 if request.POST.get("word") == "right" else 401)


def failed(response: Response) -> bool:
    """Whether a login has failed."""
    return response.status >= 400


@limit("1000/minute", name="words", cost=300, settle="spent")
def chat(request: Any) -> StreamingHttpResponse:
    """Is charged for the words that it streams, and until it ends for as many as it may be."""
    budget = outcome_of(request)
    assert budget is not None

    def answer() -> Iterator[bytes]:
        for _ in range(10):
            budget.spend(1)
            yield b"word "

    return StreamingHttpResponse(answer())


urlpatterns = [
    path("", home, name="home"),
    path("search/", search, name="search"),
    path("login/", login, name="login"),
    path("chat/", chat, name="chat"),
]
