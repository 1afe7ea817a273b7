"""One connection to an MQTT broker through aiomqtt, and the translation of its errors.

Each message that arrives is passed to the receiver at once, in order, so no queue can overflow. Messages to send wait
in the client's own queue, up to WAITING_BYTES_MAX. A lost connection is not opened again: its user makes another one,
under another name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

import aiomqtt
from aiomqtt import MqttError
from aiomqtt.exceptions import MqttConnectError
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from reconverge.errors import HubUnavailable
from reconverge_sync.client.tls import UnusableFile
from reconverge_sync.client.urls import FILE_TEXT_MAX, NO_NAME_TEXT, UNREACHED_TEXT, shown
from reconverge_sync.mqtt.url import BrokerAddress

_BY_CODE: Final = {
    # The codes with which a broker refuses a connection; those of MQTT 3.1.1 have the texts of MQTT 5.
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
    """Returns an exception of the MQTT client as HubUnavailable; in its text, *** stands for each of `secrets`."""
    text = shown(error, secrets)[:TEXT_MAX]
    if isinstance(error, MqttConnectError):
        code: Any = getattr(error.rc, "value", error.rc)
        return HubUnavailable(_BY_CODE.get(code, "denied"), f"the broker refuses the connection: {text}", applied=False)
    if isinstance(error, UnusableFile):
        return HubUnavailable("tls", shown(error, secrets)[:FILE_TEXT_MAX], applied=False)
    if isinstance(error, ssl.SSLError) or "SSL" in text or "certificate" in text.lower():
        return HubUnavailable("tls", text, applied=False)
    if isinstance(error, asyncio.TimeoutError | TimeoutError) or "timed out" in text:
        return HubUnavailable("timeout", "the broker did not answer in time; check that it runs", applied=None)
    if isinstance(error, OSError | MqttError) and NO_NAME_TEXT.search(text):
        return HubUnavailable("refused", text, applied=False, misconfigured=True)
    if isinstance(error, OSError | MqttError) and UNREACHED_TEXT.search(text):
        return HubUnavailable("refused", text, applied=False)
    if isinstance(error, UnicodeError):
        return HubUnavailable("refused", "the host of the URL is not a valid name", applied=False, misconfigured=True)
    if isinstance(error, OSError | MqttError):
        return HubUnavailable("connection", text, applied=None)
    return HubUnavailable("client", f"{type(error).__name__}: {text}"[:TEXT_MAX], applied=None)


KEEPALIVE_S: Final = 5
"""The keep-alive of MQTT in seconds. The broker announces that a member is gone after one and a half times as long
without a message."""
WAITING_BYTES_MAX: Final = 4 << 20
"""The most bytes that wait to be sent to a broker that does not read. This is far more than members send before they
stop waiting for answers."""
MESSAGE_BYTES: Final = 200
"""The bytes of a message besides its payload, about."""
REFUSED_FROM: Final = 128
"""The lowest reason code by which a broker refuses a subscription."""
CONNECT_S_MAX: Final = 5.0
EXPIRY_S_MAX: Final = (1 << 32) - 1
"""The longest time after which MQTT 5 can let a message expire, in seconds."""

Hear = Callable[[str, bytes, bool], None]
"""A function that is called with each message: its topic, its payload, and whether the broker had retained it."""

# The client's own log is off: all that it could log is raised or counted here, and it may show passwords.
_silent = logging.getLogger("reconverge.mqtt")
_silent.setLevel(logging.CRITICAL + 1)


def _refused(topics: Sequence[str]) -> HubUnavailable:
    """Returns the error for a refused subscription to topics, which the broker's user may not read."""
    problem = f"the broker refuses the subscription to {', '.join(topics)[:TEXT_MAX]}; let its user read these topics"
    return HubUnavailable("permission", problem, applied=False)


class MqttLink:
    """A connection to a broker, which is opened once and not again after it was lost.

    `hear` is called with each message, in the event loop; it must neither wait nor raise. When the connection is lost,
    the broker announces that on `gone_topic`.
    """

    def __init__(self, address: BrokerAddress, *, name: str, gone_topic: str, timeout_s: float, hear: Hear) -> None:
        self._address = address
        self._name = name
        self._gone_topic = gone_topic
        self._timeout_s = min(timeout_s, CONNECT_S_MAX)
        self._hear = hear
        self._client: aiomqtt.Client | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._waiting_bytes = 0
        self._sockets: list[ssl.SSLSocket] = []

    async def open(self, topics: Sequence[str]) -> None:
        """Connects and subscribes to topics; returns when the broker has confirmed both. Raises HubUnavailable."""
        problem: HubUnavailable
        try:
            context = await asyncio.get_running_loop().run_in_executor(None, self._address.tls_context)
            if context is not None:
                self._remember_sockets(context)
            self._client = client = self._made(context)
            await client.__aenter__()
            if await self._subscribed(client, topics):
                return
            problem = _refused(topics)
        except asyncio.CancelledError:
            self.sever()
            raise
        except Exception as error:  # noqa: BLE001  # with any error of the client there is no connection
            problem = as_unavailable(error, secrets=self._address.login.secrets)
        self.sever()
        # Raised outside of the `except`: the client's traceback would show the password to a tool that prints locals.
        raise problem

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribes to further topics; returns when the broker has confirmed that. Raises HubUnavailable."""
        assert self._client is not None
        try:
            if await self._subscribed(self._client, topics):
                return
        except Exception as error:  # noqa: BLE001  # with any error of the client nothing is heard of them
            problem = as_unavailable(error, secrets=self._address.login.secrets)
        else:
            problem = _refused(topics)
        raise problem

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """Unsubscribes from topics, without waiting for the broker."""
        if self._client is not None:
            with contextlib.suppress(ValueError, OSError):
                _paho(self._client).unsubscribe(list(topics))

    async def _subscribed(self, client: aiomqtt.Client, topics: Sequence[str]) -> bool:
        """Subscribes to topics. Returns whether the broker has accepted all of them. Raises the client's errors."""
        codes = await client.subscribe(
            [(topic, SubscribeOptions(qos=1) if self._address.protocol == "5" else 1) for topic in topics]  # type: ignore[arg-type]  # pairs of either kind are taken
        )
        return all(getattr(code, "value", code) < REFUSED_FROM for code in codes)

    def _remember_sockets(self, context: ssl.SSLContext) -> None:
        """Stores all TLS sockets that the client makes, because it does not close one whose handshake fails."""
        wrap = context.wrap_socket

        def wrap_and_remember(*arguments: Any, **options: Any) -> ssl.SSLSocket:
            sock = wrap(*arguments, **options)
            self._sockets.append(sock)
            return sock

        context.wrap_socket = wrap_and_remember  # type: ignore[method-assign]

    def _made(self, context: ssl.SSLContext | None) -> aiomqtt.Client:
        hear = self._hear

        class MessageHandler(asyncio.Queue[aiomqtt.Message]):
            """A queue for the client that stores nothing, but passes each message to `hear` at once."""

            def put_nowait(self, item: aiomqtt.Message) -> None:
                payload = item.payload if isinstance(item.payload, bytes) else b""
                hear(item.topic.value, payload, item.retain)

        newer = self._address.protocol == "5"
        login = self._address.login
        client = aiomqtt.Client(
            self._address.host,
            self._address.port,
            username=login.user,
            password=login.password,
            identifier=self._name,
            protocol=aiomqtt.ProtocolVersion.V5 if newer else aiomqtt.ProtocolVersion.V311,
            clean_session=None if newer else True,
            will=aiomqtt.Will(self._gone_topic, b"", qos=1),
            keepalive=KEEPALIVE_S,
            timeout=self._timeout_s,
            queue_type=MessageHandler,
            logger=_silent,
            tls_context=context,
        )
        _paho(client).connect_timeout = self._timeout_s
        return client

    async def lost(self) -> HubUnavailable:
        """Waits until the connection is lost, and returns the reason as an error."""
        assert self._client is not None
        try:
            async for _ in self._client.messages:
                pass
        except aiomqtt.MqttError as error:
            return as_unavailable(error.__cause__ or error, secrets=self._address.login.secrets)
        return HubUnavailable("connection", "the broker has ended the connection; check the broker's log")

    def post(
        self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False, keep_s: float | None = None
    ) -> bool:
        """Sends a message as soon as the broker accepts it. Returns False, and sends nothing, if too many bytes wait.

        A broker of MQTT 5 drops a retained message after `keep_s` seconds, unless that is None.
        """
        size = len(payload) + MESSAGE_BYTES
        if self._waiting_bytes + size > WAITING_BYTES_MAX:
            return False
        self._waiting_bytes += size
        sending = self._publish(topic, payload, qos=qos, retain=retain, keep_s=keep_s)
        task = asyncio.get_running_loop().create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return True

    async def deliver(self, topic: str, payload: bytes) -> None:
        """Sends a message, and waits until the broker has confirmed it, without a time limit."""
        self._waiting_bytes += len(payload) + MESSAGE_BYTES
        await self._publish(topic, payload, qos=1, retain=False)

    async def _publish(
        self, topic: str, payload: bytes, *, qos: int, retain: bool, keep_s: float | None = None
    ) -> None:
        assert self._client is not None
        properties = None
        if keep_s is not None and self._address.protocol == "5":
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # it has no types
            properties.MessageExpiryInterval = min(max(1, math.ceil(keep_s)), EXPIRY_S_MAX)
        with contextlib.suppress(aiomqtt.MqttError, OSError, ValueError, RuntimeError):
            # No timeout: the message takes up room until the client has sent it.
            await self._client.publish(topic, payload, qos=qos, retain=retain, properties=properties, timeout=math.inf)
        self._waiting_bytes -= len(payload) + MESSAGE_BYTES

    async def close(self) -> None:
        """Disconnects, so that the broker announces nothing, within a time limit; then closes all sockets."""
        client = self._client
        if client is not None:
            with contextlib.suppress(aiomqtt.MqttError, OSError, ValueError, RuntimeError):
                await client.__aexit__(None, None, None)
        self.sever()

    def sever(self) -> None:
        """Drops the connection at once, even if the loop is closed; the broker then announces this member as gone."""
        client, self._client = self._client, None
        for task in self._sending:
            with contextlib.suppress(RuntimeError):
                task.cancel()
        if client is None:
            return
        paho = _paho(client)
        with contextlib.suppress(Exception):
            paho._sock_close()  # noqa: SLF001  # the only way that does not wait for the broker
        for sock in self._sockets:
            sock.close()
        # If the client is still connecting, in a thread, its socket is closed when it opens.
        paho.on_socket_open = lambda _client, _data, sock: sock.close()
        paho.on_socket_close = paho.on_socket_register_write = paho.on_socket_unregister_write = None
        disconnected = getattr(client, "_disconnected", None)
        if disconnected is not None and disconnected.done() and not disconnected.cancelled():
            disconnected.exception()  # or asyncio logs that it was never retrieved
        misc_task = getattr(client, "_misc_task", None)
        if misc_task is not None:
            with contextlib.suppress(RuntimeError):
                misc_task.cancel()

    def abandon_in_fork(self) -> None:
        """Closes the forked child's copy of the parent's socket, without ending the parent's connection."""
        sock = None if self._client is None else _paho(self._client).socket()
        if sock is not None:
            # Closed without a shutdown, which would end the parent's connection.
            with contextlib.suppress(OSError):
                sock.close()


def _paho(client: aiomqtt.Client) -> Any:
    """Returns the paho client that aiomqtt uses, because aiomqtt has no settings for parts that are changed here."""
    return client._client  # noqa: SLF001
