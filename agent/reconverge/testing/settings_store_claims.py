"""Tests of the promises of `reconverge.hub.SettingsStore`, for the tests of such a hub to inherit."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from reconverge.hub.port import Hub, SettingsStore
from reconverge.testing.claims.scenes.scene import Scene
from reconverge.testing.claims.scenes.trial import Trial, claim

PAYLOAD: Final = bytes(range(256))
BYTES_MAX: Final = 1000
KEEP_S: Final = 600.0
POLL_S: Final = 0.01


def store(hub: Hub) -> SettingsStore:
    """Returns `hub`. Raises AssertionError unless it is a store of settings."""
    assert isinstance(hub, SettingsStore), "the hub is no reconverge.hub.SettingsStore"
    return hub


class SettingsStoreClaims(Trial):
    """Tests of the promises of every settings store; to be inherited beside `HubClaims`, or alone.

    `HubClaims` describes the methods to define.
    """

    @claim
    async def test_before_anything_is_posted_nothing_is_read(self, scene: Scene) -> None:
        """An empty store returns None, not an empty payload."""
        assert await store(scene.hub).read(bytes_max=BYTES_MAX) is None

    @claim
    async def test_what_was_posted_last_is_read_by_all(self, scene: Scene) -> None:
        """Every reader gets the newest settings unchanged, with any bytes; so does a reader that connects later."""
        hub, other = store(scene.hub), store(scene.another_hub())
        for payload in (b"first", PAYLOAD, b"third", b"third"):
            await hub.post(payload, keep_s=KEEP_S)
            for reader in (hub, other, other):
                await self._reads_settings(reader, payload)
        await self._reads_settings(store(scene.another_hub()), b"third")

    @claim
    async def test_every_reader_may_post(self, scene: Scene) -> None:
        """The newest settings count, from whichever connection they come."""
        hub, other = store(scene.hub), store(scene.another_hub())
        for poster, payload in ((hub, b"one"), (other, b"two"), (hub, b"three")):
            await poster.post(payload, keep_s=KEEP_S)
            await self._reads_settings(hub, payload)
            await self._reads_settings(other, payload)

    @claim
    async def test_settings_that_are_too_long_are_seen_to_be_that(self, scene: Scene) -> None:
        """A payload of `bytes_max` bytes is read whole; of a longer one, at least `bytes_max + 1` bytes are read."""
        hub = store(scene.hub)
        await hub.post(b"x" * BYTES_MAX, keep_s=KEEP_S)
        await self._reads_settings(hub, b"x" * BYTES_MAX)
        await hub.post(b"y" * 40 * BYTES_MAX, keep_s=KEEP_S)
        await self._reads_settings(hub, b"y" * (BYTES_MAX + 1), at_least=True)

    @claim
    async def test_namespaces_do_not_read_each_others_settings(self, scene: Scene) -> None:
        """A hub with another namespace does not read these settings."""
        hub, stranger = store(scene.hub), store(scene.keep(self.make_stranger(scene.hub)))
        await hub.post(PAYLOAD, keep_s=KEEP_S)
        await self._reads_settings(hub, PAYLOAD)
        assert await stranger.read(bytes_max=BYTES_MAX) is None
        await stranger.post(b"theirs", keep_s=KEEP_S)
        await self._reads_settings(stranger, b"theirs")
        assert await hub.read(bytes_max=BYTES_MAX) == PAYLOAD

    async def _reads_settings(self, hub: SettingsStore, payload: bytes, *, at_least: bool = False) -> None:
        """Asserts that `hub` reads `payload`, or, with `at_least`, a longer payload that begins with it.

        The hub may take up to `patience_s` until it does.
        """

        def expected() -> bool:
            return read == payload or (at_least and read is not None and read.startswith(payload))

        read = await hub.read(bytes_max=BYTES_MAX)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience_s):
                while not expected():
                    await asyncio.sleep(POLL_S)
                    read = await hub.read(bytes_max=BYTES_MAX)
        assert expected(), f"{payload[:20]!r}... was posted, and {(read or b'')[:20]!r}... is read"
