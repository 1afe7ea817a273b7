"""Examines whether an MQTT broker can be used as a hub, without disturbing the agents that use it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.checking.probe import try_exchanges
from reconverge.hub.diagnosis import COMMAND, Diagnosis, Finding, Level, Trip
from reconverge_sync.mqtt.connection import MqttLink
from reconverge_sync.mqtt.messages import MalformedMessage, read_claim
from reconverge_sync.mqtt.session import VERSION, Membership
from reconverge_sync.mqtt.url import BrokerAddress

REACHED, LOGIN, PERMISSION, SIZE, RETAINED = "reached", "login", "permission", "size", "retained"
LEADER, EXCHANGE = "leader", "exchange"
LETTER_BYTES: Final = 1 << 17
"""The size in bytes of a large trial message: longer than a whole batch or a part of a ledger usually is."""
ELECTION_TENURES: Final = 6
"""For how many tenures to wait until the trial members have elected a leader, which takes a little more than two."""
STEP_S: Final = 0.02

_REACH: Final = {
    "refused": (REACHED, "{place} refuses connections", "Start the broker, or correct host and port in the URL."),
    "timeout": (
        REACHED,
        "{place} does not answer in time",
        "Check the network between this machine and the broker, such as firewalls.",
    ),
    "tls": (
        REACHED,
        "{place} cannot be trusted, or speaks no TLS: {text}",
        f"Name the authority that has signed its certificate in the URL:\n{COMMAND}?ssl_ca_certs=/path/to/ca.pem",
    ),
    "auth": (LOGIN, "the broker refuses the user or the password", "Correct them in the URL, or in its password_file."),
    "denied": (LOGIN, "{text}", "The broker's log says why."),
    "protocol": (LOGIN, "{text}", "Name its protocol in the URL:\n" + COMMAND + "?protocol=5"),
    "busy": (LOGIN, "{text}", "Raise its limit on connections, or wait until it has recovered."),
    "connection": (
        REACHED,
        "{place} ends the connection at once",
        "If it wants TLS, begin the URL with mqtts://; or it is no broker of MQTT.",
    ),
    "connection, encrypted": (
        REACHED,
        "{place} ends the connection at once",
        "If it speaks no TLS there, begin the URL with mqtt://; or it is no broker of MQTT.",
    ),
}
"""For each kind of failure to connect: the name of the failed check, the text of the finding, and the remedy."""


class MqttDiagnosis:
    """One examination of one broker, from the connection to an exchange between two trial members.

    The trial members use topics below those of the agents, which no agent listens to, so that the same permissions of
    the broker apply to them.
    """

    def __init__(self, address: BrokerAddress, namespace: str, *, timeout_s: float, clock: Clock) -> None:
        self._address = address
        self._root = f"{namespace}/rc/{VERSION}"
        self._scratch = f"{self._root}/doctor-{token_hex(4)}"
        self._timeout_s = timeout_s
        self._clock = clock
        self._findings: list[Finding] = []
        self._heard: dict[str, list[tuple[bytes, bool]]] = {}
        """The messages that have come by topic, each with whether the broker had retained it."""

    async def run(self) -> Diagnosis:
        """Runs all checks and returns the findings. See `Diagnosable.diagnose`."""
        link = self._link()
        exchanges: Sequence[Trip] = ()
        try:
            await link.open([f"{self._root}/+/claims", f"{self._scratch}/#"])
        except HubUnavailable as problem:
            self._unreached(problem)
            return Diagnosis(self._findings)
        self._reached()
        try:
            if await self._may_publish(link):
                await self._takes_large_messages(link)
                await self._keeps_for_newcomers(link)
                await self._check_leader()
                exchanges = await self._exchange(link)
        finally:
            await link.close()
        return Diagnosis(self._findings, exchanges=exchanges)

    def _unreached(self, problem: HubUnavailable) -> None:
        text = str(problem).partition(": ")[2]
        if problem.kind == PERMISSION:
            self._say(PERMISSION, f"the user may not read {self._root}/#", self._allow())
            return
        kind = f"{problem.kind}, encrypted" if self._address.encrypted else problem.kind
        unknown = (REACHED, "{text}", "The broker's log may say more.")
        check, fact, remedy = _REACH.get(kind) or _REACH.get(problem.kind) or unknown
        self._say(check, fact.format(place=self._place, text=text), remedy)

    def _reached(self) -> None:
        encrypted = " over TLS" if self._address.encrypted else ""
        self._say(REACHED, f"{self._place} answers{encrypted}, and speaks MQTT {self._address.protocol}")
        known = self._address.login.password is not None
        self._say(LOGIN, "the password is accepted" if known else "no password needed")

    async def _may_publish(self, link: MqttLink) -> bool:
        """Returns whether the user may publish.

        A trial message must come back, because brokers also confirm messages that they do not permit.
        """
        came = await self._comes_back(link, "allowed", b"allowed")
        if came:
            self._say(PERMISSION, f"the user may read and write {self._root}/#")
        else:
            self._say(PERMISSION, f"what the user publishes under {self._root}/# does not come back", self._allow())
        return came

    async def _takes_large_messages(self, link: MqttLink) -> None:
        if not await self._comes_back(link, "large", bytes(LETTER_BYTES)):
            fact = f"a message of {LETTER_BYTES} bytes does not arrive"
            self._say(SIZE, fact, f"Have the broker take it:\n{COMMAND}message_size_limit 1048576")

    async def _keeps_for_newcomers(self, link: MqttLink) -> None:
        """Adds a finding on whether the broker hands a topic's newest message to a client that subscribes later."""
        topic = f"{self._scratch}/kept"
        if not await self._comes_back(link, "kept", b"kept", retain=True):
            return
        newcomer = self._link()
        try:
            self._heard.pop(topic, None)
            await newcomer.open([topic])
            kept = await self._eventually(lambda: (b"kept", True) in self._heard.get(topic, ()))
        except HubUnavailable as problem:
            self._unreached(problem)
            return
        finally:
            await newcomer.close()
            await self._comes_back(link, "kept", b"", retain=True)
        if kept:
            self._say(RETAINED, "the broker keeps the newest claim for newcomers; nothing need survive its restart")
        else:
            remedy = f"A new agent waits for the next claim. Have it keep them:\n{COMMAND}retain_available true"
            self._findings.append(Finding(RETAINED, Level.WARNING, "the broker keeps no retained messages", remedy))

    async def _check_leader(self) -> None:
        """Adds findings: are agents connected, with as many shards as this hub, and has each shard a leader?"""
        shards = [f"{self._root}/{shard}/claims" for shard in range(self._address.shards)]
        tenure_s = self._address.tenure_ns / SECOND_NS
        await self._eventually(lambda: all(self._answering(topic) for topic in shards), tenure_s)
        others = [topic for topic in self._heard if topic.endswith("/claims") and topic not in shards]
        # These claims may be retained ones; a member that is connected sends further claims.
        if others and await self._eventually(lambda: any(map(self._answering, others)), tenure_s):
            fact = f"the agents have more shards than the {self._address.shards} of this URL"
            remedy = "All must name the same number: those that do not fail to see each other's counts."
            self._findings.append(Finding(LEADER, Level.PROBLEM, fact, remedy))
        silent = sum(not self._answering(topic) for topic in shards)
        if not silent:
            self._say(LEADER, f"an agent keeps the ledger, and answers{' for each shard' * (len(shards) > 1)}")
        elif silent < len(shards):
            fact = f"of {len(shards)} shards, {silent} have no leader"
            remedy = "All agents must name the same shards; or an election is under way: try again."
            self._findings.append(Finding(LEADER, Level.WARNING, fact, remedy))
        else:
            self._say(LEADER, "no agent is connected just now; the next ones elect a leader, which keeps the ledger")

    async def _exchange(self, link: MqttLink) -> Sequence[Trip]:
        """Makes one trial member the leader, and lets another one exchange with it.

        Returns the round trips; none if no exchange succeeded.
        """
        members = [self._member()]
        begun_s = asyncio.get_running_loop().time()
        patience_s = ELECTION_TENURES * self._address.tenure_ns / SECOND_NS + 2 * self._timeout_s
        try:
            while True:
                try:
                    await members[0].totals()
                    if len(members) == 1:
                        members.append(self._member())  # only now, so that it is not elected
                    trips = await try_exchanges(members[1].exchange, self._clock)
                    break
                except HubUnavailable as problem:
                    if asyncio.get_running_loop().time() - begun_s > patience_s:
                        self._say(EXCHANGE, f"failed ({problem})", "The broker's log may say more.")
                        return ()
                    await asyncio.sleep(STEP_S)
        finally:
            for member in reversed(members):
                with contextlib.suppress(HubUnavailable):
                    await member.leave()
            for shard in range(self._address.shards):
                await self._comes_back(link, f"rc/{VERSION}/{shard}/claims", b"", retain=True)
        self._say(EXCHANGE, "works (tried by two members under topics of their own, nothing left behind)")
        return trips

    def _member(self) -> Membership:
        membership = Membership(
            self._address,
            self._scratch,
            timeout_s=self._timeout_s,
            clock=self._clock,
            hub_clock=None,
            new_name=lambda: token_hex(8),
            rejects=Counter(),
        )
        membership.take_part()
        return membership

    def _link(self) -> MqttLink:
        name = token_hex(10)
        return MqttLink(
            self._address, name=name, gone_topic=f"{self._scratch}/gone", timeout_s=self._timeout_s, hear=self._hear
        )

    def _hear(self, topic: str, payload: bytes, kept: bool) -> None:  # noqa: FBT001  # a `Hear`, called by position
        self._heard.setdefault(topic, []).append((payload, kept))

    async def _comes_back(self, link: MqttLink, word: str, payload: bytes, *, retain: bool = False) -> bool:
        topic = f"{self._scratch}/{word}"
        return link.post(topic, payload, qos=1, retain=retain) and await self._eventually(
            lambda: any(came == payload for came, _ in self._heard.get(topic, ()))
        )

    async def _eventually(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        until_s = asyncio.get_running_loop().time() + (self._timeout_s if seconds is None else seconds)
        while not condition():
            if asyncio.get_running_loop().time() > until_s:
                return False
            await asyncio.sleep(STEP_S)
        return True

    def _answering(self, topic: str) -> bool:
        """Returns whether a leader has sent a claim on `topic` just now, not one that the broker had retained."""
        for payload, kept in self._heard.get(topic, ()):
            with contextlib.suppress(MalformedMessage):
                if not kept and read_claim(payload).answers:
                    return True
        return False

    def _allow(self) -> str:
        return f"Allow both to it in the broker's acl_file:\n{COMMAND}topic readwrite {self._root}/#"

    @property
    def _place(self) -> str:
        host = self._address.host
        return f"{f'[{host}]' if ':' in host else host}:{self._address.port}"

    def _say(self, check: str, fact: str, remedy: str = "") -> None:
        self._findings.append(Finding(check, Level.PROBLEM if remedy else Level.OK, fact, remedy))
