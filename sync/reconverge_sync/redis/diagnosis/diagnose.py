"""Examines whether a Redis can be a hub, without changing any agent's data there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio

from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.checking.probe import try_exchanges
from reconverge.hub.diagnosis import Diagnosis, Finding, Level, Trip
from reconverge.hub.report import Answer, Batch
from reconverge_sync.merge.orders import data_of
from reconverge_sync.redis.diagnosis.advice import (
    EXCHANGE,
    LOGIN,
    REACHED,
    Address,
    RedisFailure,
    as_failure,
    finding_of,
)
from reconverge_sync.redis.diagnosis.checks import (
    CLUSTER_COMMANDS,
    PERMISSION,
    RedisServer,
    judge_load,
    judge_permissions,
    judge_server,
)
from reconverge_sync.redis.diagnosis.durability import judge_durability, judge_loss
from reconverge_sync.redis.diagnosis.keys import judge_keys, not_permitted, sample_keys
from reconverge_sync.redis.stored import READ_KEYS, read_shard

GREETINGS_MAX: Final = 5
PINGS_MAX: Final = 20
PINGS_S_MAX: Final = 2.0
NOT_ABOUT_PERMISSION: Final = frozenset(
    ("noscript", "protocol", "script", "out-of-memory", "misconfigured", "no-replicas", "read-only")
)
"""The kinds of errors that only a permitted command can have; any other error ends the diagnosis."""


@dataclass(frozen=True, slots=True)
class RedisTarget:
    """A Redis to be diagnosed: a client of it, its address, and the keys to try."""

    client: redis.asyncio.Redis
    address: Address
    namespace: str
    script: bytes
    keys: Sequence[str]
    """The keys of a trial exchange in the agents' namespace."""
    scratch_keys: Sequence[str]
    """The keys of a trial exchange in an unused namespace."""
    exchange: Callable[[Batch], Awaitable[Answer]]
    """Exchanges a batch in the unused namespace."""
    clustered: bool = False
    """Whether the server should be one of a cluster."""


class RedisDiagnosis:
    """One examination of one Redis, from the connection to the memory; a fatal failure ends it."""

    def __init__(self, target: RedisTarget, clock: Clock | None = None) -> None:
        self._target = target
        self._clock = clock or SystemClock()
        self._findings: list[Finding] = []
        self._pings: list[Trip] = []
        self._exchanges: list[Trip] = []

    async def run(self) -> Diagnosis:
        """Runs all checks and returns the findings. See `Diagnosable.diagnose`."""
        server = RedisServer()
        try:
            if not await self._reach(server):
                return Diagnosis(self._findings)
            await self._ask_about(server)
            self._findings.append(judge_server(server, self._target.address, clustered=self._target.clustered))
            if self._findings[-1].level is not Level.PROBLEM and await self._may_do_everything():
                await self._exchange()
            await self._ping()
            keys = await self._look_at_keys(server)
        except RedisFailure as failure:
            self._fail(failure)
            keys = []
        if server.info is not None:
            self._findings += judge_load(server.info)
        return Diagnosis([*self._findings, *keys], self._pings, self._exchanges)

    async def _reach(self, server: RedisServer) -> bool:
        """Connects, logs in, and reads name, version and role into `server`; returns whether the login worked."""
        address = self._target.address
        hello: object = None
        refusal: RedisFailure | None = None
        try:
            hello = await self._greet()
        except RedisFailure as failure:
            if finding_of(failure, address).check == REACHED:
                raise
            refusal = failure
        self._say(REACHED, f"{address.place} answers{' over TLS' if address.encrypted else ''}")
        if refusal is not None and refusal.kind == PERMISSION:
            # HELLO needs no right; SELECT, with which the client begins, does.
            self._findings.append(judge_permissions(["SELECT"], self._target.namespace, address.database))
            return False
        if refusal is not None and refusal.kind != "unknown-command":
            raise refusal
        self._say(LOGIN, "the password is accepted" if address.has_password else "no password needed")
        said = pairs(hello)
        server.name = said.get("server", "redis").capitalize()
        server.version, server.mode, server.role = (said.get(name, "") for name in ("version", "mode", "role"))
        return True

    async def _greet(self) -> object:
        """Sends HELLO and returns the reply; tries once more if the server breaks off the TLS connection.

        TLS 1.3 lets a client send before its certificate is verified. A server that closes without reading resets the
        connection, and the reason may or may not arrive before that.
        """
        for _ in range(GREETINGS_MAX - 1):
            try:
                return await self._ask("HELLO")
            except RedisFailure as failure:
                if failure.kind != "connection-tls":
                    raise
        return await self._ask("HELLO")

    async def _ask_about(self, server: RedisServer) -> None:
        try:
            info = await self._ask("INFO")
        except RedisFailure as failure:
            if failure.kind not in (PERMISSION, "unknown-command"):
                raise
            info = {}
        server.info = info
        server.version = server.version or str(info.get("redis_version", ""))
        server.mode = server.mode or str(info.get("redis_mode", ""))
        server.role = server.role or str(info.get("role", ""))

    async def _may_do_everything(self) -> bool:
        """Tries each command in a way that shows whether it is permitted and writes nothing; returns whether all are.

        A single exchange would not be enough: it needs some of the commands only now and then.
        """
        own, scratch = self._target.keys, self._target.scratch_keys
        key, script = scratch[-1], self._target.script
        questions: dict[str, tuple[object, ...]] = {
            "DEL": (key,),
            "EVALSHA": ("0" * 40, len(scratch), *scratch),
            "EVAL": (script, len(scratch), *scratch, ""),  # no batch is empty: the script refuses it
            "HDEL": (key, "field"),
            "HGET": (key, "field"),
            "HGETALL": (key,),
            "HMGET": (key, "field"),
            "HSET": (key, "field", "value", "field"),  # one value too few
            "PEXPIRE": (key, 1000),
            "PTTL": (key,),
            "TIME": (),
        }
        if self._target.clustered:
            questions |= dict.fromkeys(CLUSTER_COMMANDS, ())
        replies = {name: await self._is_denied(*name.split("|"), *words) for name, words in questions.items()}
        denied = [command for command, reply in replies.items() if reply == "command"]
        # Either of the two suffices: for both the server checks the permission for the keys before it runs anything.
        runs = next((command for command in ("EVALSHA", "EVAL") if command not in denied), None)
        words = ("0" * 40 if runs == "EVALSHA" else script, len(own), *own, "")
        keys_denied = runs is not None and await self._is_denied(runs, *words) == "key"
        namespace = self._target.namespace
        finding = judge_permissions(
            denied,
            namespace,
            self._target.address.database,
            keys_denied=keys_denied,
            clustered=self._target.clustered,
        )
        if finding.level is Level.OK and "key" in replies.values():
            fact = "the user may use the agents' keys, but no other keys in which to try an exchange"
            remedy = f"That is no fault. To permit the trial:\n  ACL SETUSER USER ~{namespace}:*"
            finding = Finding(PERMISSION, Level.WARNING, fact, remedy)
        self._findings.append(finding)
        return finding.level is Level.OK

    async def _exchange(self) -> None:
        try:
            self._exchanges = await try_exchanges(self._target.exchange, self._clock)
        except HubUnavailable as error:
            self._fail(RedisFailure(error.kind, str(error).removeprefix(f"{error.kind}: ")))
        else:
            self._say(EXCHANGE, "works (tried in a scratch namespace, nothing left behind)")
        finally:
            await self._clean_up()

    async def _clean_up(self) -> None:
        keys = self._target.scratch_keys
        try:
            await self._ask("DEL", *keys)
        except RedisFailure as failure:
            if failure.kind in NOT_ABOUT_PERMISSION:
                return  # a server that refuses to write has nothing to delete
            fact = f"up to {len(keys)} small keys may be left behind by this check; they expire within 62 days"
            remedy = f"Delete them when the server answers again:\n  redis-cli DEL {' '.join(keys)}"
            self._findings.append(Finding(EXCHANGE, Level.WARNING, fact, remedy))

    async def _ping(self) -> None:
        begun_ns = self._clock.monotonic_ns()
        while len(self._pings) < PINGS_MAX and self._clock.monotonic_ns() - begun_ns < PINGS_S_MAX * SECOND_NS:
            sent_ns = self._clock.monotonic_ns()
            try:
                seconds, microseconds = await self._ask("TIME")
            except RedisFailure as failure:
                if failure.kind == PERMISSION:
                    return
                raise
            self._pings.append(Trip(sent_ns, self._clock.monotonic_ns(), seconds * 1_000_000 + microseconds))

    async def _look_at_keys(self, server: RedisServer) -> list[Finding]:
        target = self._target
        try:
            sample = await sample_keys(self._ask, self._ask_all, target.namespace)
        except RedisFailure as failure:
            if failure.kind not in (PERMISSION, "unknown-command"):
                raise
            return [not_permitted()]
        findings = [judge_keys(sample, target.namespace, server.info or {}, target.address.database)]
        return [*findings, *await self._look_at_durability(sample.longest_us, server)]

    async def _look_at_durability(self, longest_us: int, server: RedisServer) -> list[Finding]:
        """Returns findings on whether a restart loses the counts of long windows, and whether data were lost."""
        saves: bool | None = None
        try:
            saves = bool(pairs(await self._ask("CONFIG", "GET", "save")).get("save"))
        except RedisFailure as failure:
            if failure.kind not in (PERMISSION, "unknown-command", "script"):
                raise
        found = [judge_durability(longest_us, server.info or {}, saves=saves)]
        meta, nodes = self._target.keys[:2]
        try:
            reply = await self._ask("EVAL", READ_KEYS, 2, meta, nodes, "")
            found.append(judge_loss(data_of(*read_shard(reply, ())), longest_us))
        except RedisFailure as failure:
            if failure.kind not in NOT_ABOUT_PERMISSION | {PERMISSION, "unknown-command"}:
                raise
        except HubUnavailable:
            pass  # an exchange cannot read the stored data either, and its finding reports that
        return [finding for finding in found if finding is not None]

    async def _is_denied(self, command: str, *words: object) -> str:
        """Tries a command; returns "command" or "key" for what the user has no right to, and "" if all is permitted.

        Raises RedisFailure if the reply does not show that.
        """
        try:
            await self._ask(command, *words)
        except RedisFailure as failure:
            if failure.kind == PERMISSION:
                return "key" if "access" in failure.text or "a key" in failure.text else "command"
            if failure.kind not in NOT_ABOUT_PERMISSION:
                raise
        return ""

    async def _ask(self, *command: object) -> Any:
        """Runs one command, and returns the reply. Raises RedisFailure."""
        try:
            return await self._target.client.execute_command(*command)
        except Exception as error:  # noqa: BLE001  # any error of the client becomes a finding
            failure = as_failure(error, encrypted=self._target.address.encrypted)
        # Raised outside of the `except`: the client's traceback would show the password to a tool that prints locals.
        raise failure

    async def _ask_all(self, commands: Sequence[Sequence[object]]) -> Sequence[Any]:
        """Runs several commands in one pipeline. Returns the replies, with errors as exceptions.

        Raises RedisFailure.
        """
        try:
            pipeline = self._target.client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies: Sequence[Any] = await pipeline.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001  # as for a single one
            failure = as_failure(error, encrypted=self._target.address.encrypted)
        else:
            return replies
        raise failure

    def _say(self, check: str, fact: str) -> None:
        self._findings.append(Finding(check, Level.OK, fact))

    def _fail(self, failure: RedisFailure) -> None:
        finding = finding_of(failure, self._target.address)
        if finding not in self._findings:
            self._findings.append(finding)


def pairs(reply: object) -> dict[str, str]:
    """Returns the reply of HELLO as a dictionary of texts. The reply may be a dictionary, or a flat list of pairs.

    Returns an empty dictionary for any other reply.
    """
    if isinstance(reply, dict):
        return {_text(name): _text(value) for name, value in reply.items()}
    if not isinstance(reply, list):
        return {}
    return {_text(name): _text(value) for name, value in zip(reply[::2], reply[1::2], strict=False)}


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
