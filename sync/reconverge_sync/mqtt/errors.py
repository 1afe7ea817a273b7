"""What an MQTT client's exceptions mean: nearly all are of one class, so codes and texts decide."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from aiomqtt import MqttError
from aiomqtt.exceptions import MqttConnectError

from reconverge.errors import HubUnavailable
from reconverge_sync.client.error_texts import FILE_TEXT_MAX, NO_NAME_TEXT, UNREACHED_TEXT, shown
from reconverge_sync.client.tls import UnusableFile

_BY_CODE: Final = {
    # How a broker refuses a connection; what MQTT 3.1.1 says is told in MQTT 5's words.
    132: "protocol",
    133: "denied",
    134: "auth",
    135: "auth",
    136: "busy",
    137: "busy",
    138: "denied",
    140: "auth",
    149: "protocol",
    151: "busy",
    159: "busy",
}
TEXT_MAX: Final = 200


def as_unavailable(error: BaseException, *, secrets: tuple[str, ...] = ()) -> HubUnavailable:
    """What a client's exception says about the broker, in words that are safe to show: none of `secrets` is there."""
    text = shown(error, secrets)[:TEXT_MAX]
    if isinstance(error, MqttConnectError):
        code: Any = getattr(error.rc, "value", error.rc)
        return HubUnavailable(_BY_CODE.get(code, "denied"), f"the broker refuses the connection: {text}", applied=False)
    if isinstance(error, UnusableFile):
        return HubUnavailable("tls", shown(error, secrets)[:FILE_TEXT_MAX], applied=False)
    if isinstance(error, ssl.SSLError) or "SSL" in text or "certificate" in text.lower():
        return HubUnavailable("tls", text, applied=False)
    if isinstance(error, asyncio.TimeoutError | TimeoutError) or "timed out" in text:
        return HubUnavailable("timeout", "no answer in time", applied=None)
    if isinstance(error, OSError | MqttError) and NO_NAME_TEXT.search(text):
        return HubUnavailable("refused", text, applied=False, misconfigured=True)
    if isinstance(error, OSError | MqttError) and UNREACHED_TEXT.search(text):
        return HubUnavailable("refused", text, applied=False)
    if isinstance(error, UnicodeError):
        return HubUnavailable("refused", "the host's name cannot be one", applied=False, misconfigured=True)
    if isinstance(error, OSError | MqttError):
        return HubUnavailable("connection", text, applied=None)
    return HubUnavailable("client", f"{type(error).__name__}: {text}"[:TEXT_MAX], applied=None)
