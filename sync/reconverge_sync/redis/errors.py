"""Converts exceptions of the Redis client to HubUnavailable: by class, or by the server's text if that says more."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from redis import exceptions

from reconverge.errors import HubUnavailable
from reconverge_sync.client.tls import UnusableFile
from reconverge_sync.client.urls import FILE_TEXT_MAX, NO_NAME_TEXT, UNREACHED_TEXT, shown

_BY_CLASS: Final = (
    # Replies whose first word, which has their meaning, the client removes. After none of them was a command applied.
    (exceptions.NoScriptError, "noscript"),
    (exceptions.OutOfMemoryError, "out-of-memory"),
    (exceptions.ReadOnlyError, "read-only"),
    (exceptions.BusyLoadingError, "loading"),
    (exceptions.MasterDownError, "master-down"),
    (exceptions.TryAgainError, "moving"),
    (exceptions.AskError, "moving"),  # MOVED, too
    (exceptions.ClusterDownError, "cluster-down"),
    (exceptions.NoPermissionError, "permission"),
)
_BY_TEXT: Final = (
    # The words, the kind, and whether the message may have been applied. Scripts wrap the words in a ResponseError.
    ("NOSCRIPT", "noscript", False),
    ("RCINVALID", "protocol", False),
    ("OOM ", "out-of-memory", False),
    ("READONLY", "read-only", False),
    ("LOADING", "loading", False),
    ("BUSY ", "busy", False),
    ("MISCONF", "misconfigured", False),
    ("NOREPLICAS", "no-replicas", False),
    ("MASTERDOWN", "master-down", False),
    ("CLUSTERDOWN", "cluster-down", False),
    ("TRYAGAIN", "moving", False),
    ("MOVED", "moving", False),
    ("ASK ", "moving", False),
    ("NOAUTH", "auth", False),
    ("WRONGPASS", "auth", False),
    ("invalid username-password", "auth", False),
    ("without any password configured", "auth", False),
    ("NOPERM", "permission", False),
    ("no permission", "permission", False),
    ("can't run this command or subcommand", "permission", False),
    ("max number of clients", "too-many-clients", False),
    ("DENIED", "denied", False),
)
_WRONG_SERVER: Final = frozenset(
    ("read-only", "loading", "master-down", "moving", "cluster-down", "no-replicas", "auth")
)
"""The kinds of error replies after which a new connection may reach a server that can serve."""


def as_unavailable(error: BaseException, *, secrets: tuple[str, ...] = ()) -> HubUnavailable:
    """Returns an exception of the client as HubUnavailable, with a text that is safe to show.

    The text has none of `secrets`: a server that does not know AUTH would repeat the command with its password.
    """
    text = shown(error, secrets)
    for kind_of_error, kind in _BY_CLASS:
        if isinstance(error, kind_of_error):
            return HubUnavailable(kind, text[:200], applied=False)
    for words, kind, applied in _BY_TEXT:
        if words in text:
            return HubUnavailable(kind, text[:200], applied=applied)
    if isinstance(error.__context__, UnusableFile):
        return HubUnavailable("tls", text[:FILE_TEXT_MAX], applied=False)
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return HubUnavailable("auth", text[:200], applied=False)
    if isinstance(error, exceptions.TimeoutError | asyncio.TimeoutError | TimeoutError):
        text = "the server did not answer in time; check that it runs, and has TLS if the URL begins with rediss://"
        return HubUnavailable("timeout", text, applied=None)
    if isinstance(error, ssl.SSLError) or "SSL" in text or "certificate" in text.lower():
        return HubUnavailable("tls", text[:200], applied=False)
    if isinstance(error, exceptions.ConnectionError | OSError):
        if NO_NAME_TEXT.search(text):
            return HubUnavailable("refused", text[:200], applied=False, misconfigured=True)
        refused = UNREACHED_TEXT.search(text) is not None
        return HubUnavailable("refused" if refused else "connection", text[:200], applied=False if refused else None)
    if isinstance(error, exceptions.ResponseError):
        return HubUnavailable("script", text[:200], applied=None)
    return HubUnavailable("client", f"{type(error).__name__}: {text[:160]}", applied=None)


def from_wrong_server(error: exceptions.RedisError) -> bool:
    """Returns whether an error is the reply of a server that cannot serve: a replica, or one whose slot has moved."""
    if isinstance(error, exceptions.TryAgainError):  # the server is the right one, and a slot is being moved
        return False
    return as_unavailable(error).kind in _WRONG_SERVER
