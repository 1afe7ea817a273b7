"""Finds a proxy that is not trusted, so that all clients behind it are counted as one, and logs a warning."""

# Theory of operation.
#
# Without `trusted_proxies`, the address at the other end of the connection is the client. Behind a proxy that is the
# proxy for all clients: together they use up what is meant for each. The application does not know of the proxy, and a
# forwarding field alone proves none, because any client may write one. But clients from the internet have no private
# address, and one client has no reason to name many others. So a private address whose requests name many clients is
# a proxy, or a program that pretends to be one; hence the "if" in the warning.
#
# The search costs an admitted request nothing: only refused requests are looked at, and only those with a private
# address as their key.

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from reconverge.integrations.web.request.addresses import ADDRESS_CHARACTERS_MAX, X_FORWARDED_FOR
from reconverge.integrations.web.request.key_sources import OfAddress, source_of
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

REFUSED_MIN: Final = 100
CLIENTS_MIN: Final = 10
"""A warning is logged after so many refused requests from one private address, which have named so many clients."""
PEERS_MAX: Final = 16
"""The most private addresses that are watched; an application has few proxies."""
PRIVATE: Final = re.compile(
    r"(?:10|127|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.[\d.]+|f[cd][\da-f]{2}:[\da-f:]*/\d+|::/64"
)
"""The key of a private or loopback address; clients of IPv6 are counted by their network."""
FIELD: Final = X_FORWARDED_FOR.encode()
IN_ENVIRONMENT: Final = "HTTP_X_FORWARDED_FOR"


class UntrustedProxy:
    """Watches the requests that a guard refuses by their address, and logs once that a proxy must be trusted."""

    def __init__(self, failed: Callable[[Exception, str], None]) -> None:
        self._failed = failed
        self._logged = LoggedOnce()
        self._refused: dict[str, int] = {}
        self._clients: dict[str, set[str]] = {}

    def look(self, function: Callable[..., Any], key: str, asked: Any) -> None:
        """Notes a refused request, which a rule has counted by `key`, found by the key function `function`.

        `asked` is the request: a `Request`, a scope of ASGI, an environment of WSGI, or a framework's own object. Never
        raises an error.
        """
        peer = key[key.rfind("|") + 1 :]  # without the route or scope that keys may begin with
        if PRIVATE.fullmatch(peer) is None or not isinstance(source_of(function), OfAddress):
            return
        try:
            client = _forwarded_for(asked)
        except Exception as error:  # noqa: BLE001  # fields of a form that no server should report
            self._failed(error, X_FORWARDED_FOR)
            return
        if not client or (peer not in self._refused and len(self._refused) >= PEERS_MAX):
            return
        self._refused[peer] = self._refused.get(peer, 0) + 1
        clients = self._clients.setdefault(peer, set())
        if len(clients) < CLIENTS_MIN:
            clients.add(client)
        if self._refused[peer] >= REFUSED_MIN and len(clients) >= CLIENTS_MIN and self._logged.is_new():
            logger.warning(
                "reconverge: %d requests from the private address %s were refused, and their X-Forwarded-For names at "
                "least %d clients, which are counted as one; if the address is that of your proxy, add it: "
                "trusted_proxies=[%r]",
                REFUSED_MIN,
                peer,
                CLIENTS_MIN,
                peer,
            )


def _forwarded_for(asked: Any) -> str:
    """Returns the client that the last proxy names in X-Forwarded-For; empty without one."""
    said: object
    if hasattr(asked, "header"):
        said = asked.header(X_FORWARDED_FOR)
    elif hasattr(asked, "headers"):
        said = asked.headers.get(X_FORWARDED_FOR)
    else:
        said = _in_mapping(cast("Mapping[str, Any]", asked))
    return said.rpartition(",")[2].strip()[:ADDRESS_CHARACTERS_MAX] if isinstance(said, str) else ""


def _in_mapping(asked: Mapping[str, Any]) -> object:
    headers = asked.get("headers")
    if headers is None:
        return asked.get(IN_ENVIRONMENT)
    if not isinstance(headers, Sequence):  # an iterator, of which the application would find nothing
        return None
    found = [value for name, value in headers if name == FIELD]
    return found[-1].decode("latin-1") if found else None
