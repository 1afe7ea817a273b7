"""A console for tests: tokens, and a browser without a screen."""

from __future__ import annotations

import asyncio
import hmac
from base64 import urlsafe_b64encode
from types import TracebackType
from typing import Any, Final, Self

import httpx

from reconverge.integrations.customer_links import MAGIC

HOME: Final = "http://shop.example"
READER: Final = "a-token-that-may-read-1"
WRITER: Final = "a-token-that-may-write-1"
TOKENS: Final = {READER: "read", WRITER: "write"}
READS: Final = {"authorization": f"Bearer {READER}"}


def forged_link(identity: str, expires: object, secret: str, magic: bytes = MAGIC) -> str:
    """Returns a customer's link as `customer_token` makes it, with any end."""
    body = f"{urlsafe_b64encode(identity.encode()).rstrip(b'=').decode()}.{expires}"
    return f"{body}.{hmac.digest(secret.encode(), magic + body.encode(), 'sha256').hex()}"


class Browser:
    """Sends requests to an application in this process, keeps cookies, and follows no redirect by itself."""

    def __init__(self, app: Any, home: str = HOME) -> None:
        self.home = home
        self._runner = asyncio.Runner()
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=home)

    @property
    def cookies(self) -> httpx.Cookies:
        return self._client.cookies

    def send(self, method: str, path: str, **details: Any) -> httpx.Response:
        return self._runner.run(self._client.request(method, path, **details))

    def get(self, path: str, **details: Any) -> httpx.Response:
        return self.send("GET", path, **details)

    def post(self, path: str, **details: Any) -> httpx.Response:
        return self.send("POST", path, **details)

    def sign_in(self, token: str) -> httpx.Response:
        """Signs in as the form of the page does."""
        return self.post("/sign-in", data={"token": token}, headers={"origin": self.home})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()
