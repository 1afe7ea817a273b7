"""Stores snapshots of nodes at a Redis while a console is open. See `reconverge.hub.SnapshotBoard`."""

from __future__ import annotations

from typing import Final, NamedTuple

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.board import SNAPSHOT_BYTES_MAX, SNAPSHOTS_MAX, check_snapshot
from reconverge_sync.redis.lua.scripts import Call, script

WATCH: Final = script("now", "board/watch")
LEAVE: Final = script("now", "board/leave_snapshot")
READ: Final = script("now", "board/read_snapshots")
SECOND_US: Final = 1_000_000


class RedisBoard(NamedTuple):
    """The board of snapshots of one namespace. Its keys are in shard 0."""

    call: Call
    prefix: str
    given_time: str
    """In tests, the time for the scripts, as in `RedisHub._given_time`; else an empty text."""

    @property
    def _keys(self) -> tuple[str, str]:
        return f"{self.prefix}console", f"{self.prefix}snapshots"

    async def watch(self, keep_s: float) -> None:
        await self.call("EVAL", WATCH, 1, self._keys[0], round(keep_s * SECOND_US), self.given_time)

    async def watched_s(self) -> float:
        """Returns for how many more seconds a console counts as open; 0 if none does."""
        return (await self._leave("", b"", 0.0))[0]

    async def leave(self, name: str, payload: bytes, keep_s: float) -> bool:
        check_snapshot(name, payload)
        return (await self._leave(name, payload, keep_s))[1]

    async def _leave(self, name: str, payload: bytes, keep_s: float) -> tuple[float, bool]:
        arguments = (name, payload, round(keep_s * SECOND_US), SNAPSHOTS_MAX, self.given_time)
        reply = await self.call("EVAL", LEAVE, 2, *self._keys, *arguments)
        match reply:
            case [bytes(left), int(taken)] if left.isdigit():
                return int(left) / SECOND_US, bool(taken)
            case _:
                problem = f"the server's reply about open consoles, {reply!r:.80}, cannot be read; {ONE_VERSION}"
                raise HubUnavailable("protocol", problem, applied=False)

    async def snapshots(self) -> dict[str, bytes]:
        reply = await self.call("EVAL", READ, 2, *self._keys, SNAPSHOT_BYTES_MAX, self.given_time)
        if not isinstance(reply, list) or len(reply) % 2 or not all(isinstance(each, bytes) for each in reply):
            problem = f"the snapshots of nodes at {self._keys[1]} cannot be read; {ONE_VERSION}, or delete that key"
            raise HubUnavailable("protocol", problem, applied=False)
        return {str(name, "utf-8", "replace"): payload for name, payload in zip(reply[::2], reply[1::2], strict=True)}
