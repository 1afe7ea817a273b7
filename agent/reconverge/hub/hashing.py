"""Wraps a hub so that it gets keyed hashes in place of keys, which may be names of clients and stay on the nodes."""

# Theory of operation.
#
# The problem. Keys are identities: names, addresses, tokens. The hub stores them, and so do its backups, its log of
# slow commands and programs that listen to its traffic.
#
# Why a plain hash is not enough. There are few enough addresses and clients to hash them all and compare. With a secret
# that only the nodes have, the hub can neither compute a hash nor tell whether a guess is right.
#
# How it works. A node decides by the keys themselves and pays nothing. Where its batch is handed to the hub, each key
# is replaced by BLAKE2b of it, keyed with the secret and salted with the namespace: 16 bytes, which are the same for
# two of 10^12 keys with a chance of one in 10^14. The hub's answers are in the order of the reports, so nothing is
# translated back. Only a recall names a key: recalls are dropped, and nodes report keys more often instead.
#
# Nodes with different secrets count the same key under different hashes, so each group of nodes with one secret admits
# the whole limit. `agent/key_marks.py` shows how nodes notice that.
from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final, overload

from reconverge.errors import InvalidSetting
from reconverge.hub.erasing import Erased, Erasures
from reconverge.hub.port import (
    ContractStore,
    Eraser,
    Hub,
    KeyMarker,
    KeyReader,
    SettingsStore,
    SnapshotBoard,
    Working,
)
from reconverge.hub.reading import KeyQuestion, KeyReadings
from reconverge.hub.report import Answer, Batch, CellReport, Totals, rows_of

VARIABLE: Final = "RECONVERGE_KEY_SECRET"
SECRET_BYTES_MIN: Final = 16
HASH_BYTES: Final = 16
MARK_BYTES: Final = 4
"""The length in bytes of the mark, a fingerprint by which nodes compare their secrets. It is so short that it reveals
next to nothing of the secret."""


class KeyHasher:
    """Hashes keys with a secret that it never shows. Raises InvalidSetting for an unusable secret.

    `name` is the name of the secret in messages: the setting, or the variable that it comes from.
    """

    __slots__ = ("_key", "_salt", "mark")

    def __init__(self, secret: str | bytes, *, namespace: str, name: str = "key_secret") -> None:
        said: object = secret
        if not isinstance(said, str | bytes):
            problem = f"is neither text nor bytes, but {type(said).__name__}; make one with: openssl rand -hex 32"
            raise InvalidSetting(name, "***", problem)
        raw = said.encode() if isinstance(said, str) else said
        if len(raw) < SECRET_BYTES_MIN:
            problem = f"is shorter than {SECRET_BYTES_MIN} bytes; make one with: openssl rand -hex 32"
            raise InvalidSetting(name, "***", problem)
        self._key = blake2b(raw, digest_size=32, person=b"reconverge keys").digest()
        self._salt = blake2b(namespace.encode(), digest_size=16).digest()
        self.mark = blake2b(self._key, digest_size=MARK_BYTES, person=b"reconverge mark").hexdigest()
        """The fingerprint of the secret."""

    def hashed(self, key: str) -> str:
        """Returns the hash of `key`, which hubs get in its place, in hexadecimal digits."""
        return blake2b(key.encode(), digest_size=HASH_BYTES, key=self._key, salt=self._salt).hexdigest()

    def with_hashes(self, names: Sequence[str]) -> list[str]:
        """Returns `names`, followed by the hash of each of them."""
        return [*names, *map(self.hashed, names)]

    def __repr__(self) -> str:
        return "<KeyHasher>"


class _HashedReports(Sequence[CellReport]):
    """Cell reports with a hash in place of each key, computed when a report is read."""

    def __init__(self, cells: Sequence[CellReport], hasher: KeyHasher) -> None:
        self._cells = cells
        self._hasher = hasher

    @overload
    def __getitem__(self, index: int) -> CellReport: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CellReport]: ...
    def __getitem__(self, index: int | slice) -> CellReport | Sequence[CellReport]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[CellReport]:
        hashed = self._hasher.hashed
        return (cell._replace(key=hashed(cell.key)) for cell in self._cells)

    def __len__(self) -> int:
        return len(self._cells)


class _HashedRows(_HashedReports):
    """Packed cell reports with a hash in place of each key, made from reports that are `Rows`."""

    def rows(self) -> bytes:
        """Returns the packed rows of the reports; no row contains a key."""
        cells = rows_of(self._cells)
        assert cells is not None
        return cells.rows()

    def names(self, prefixes: Sequence[bytes]) -> list[bytes]:
        hashed = self._hasher.hashed
        return [prefixes[cell.limit] + hashed(cell.key).encode() for cell in self._cells]


class HashedHub:
    """A wrapper that passes hashes in place of keys to another hub. It keeps the promises of `Hub`."""

    def __init__(self, hub: Hub, hasher: KeyHasher) -> None:
        self._hub = hub
        self._hasher = hasher

    @property
    def shards(self) -> int:
        return self._hub.shards

    async def exchange(self, batch: Batch) -> Answer:
        kind = _HashedReports if rows_of(batch.cells) is None else _HashedRows
        answer = await self._hub.exchange(batch._replace(cells=kind(batch.cells, self._hasher)))
        return answer._replace(recalls=None)

    async def totals(self) -> dict[str, Totals]:
        return await self._hub.totals()

    async def close(self) -> None:
        await self._hub.close()

    def __repr__(self) -> str:
        return f"Hashed({self._hub!r})"


class _HashedReading(HashedHub):
    """The wrapper of a hub that is a `KeyReader`."""

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        assert isinstance(self._hub, KeyReader)
        hashed = [question._replace(key=self._hasher.hashed(question.key)) for question in questions]
        return await self._hub.read_keys(shard, hashed)


class _HashedErasing(HashedHub):
    """The wrapper of a hub that is an `Eraser`, from which identities can be erased."""

    async def order_erasure(self, marks: Sequence[str]) -> int:
        return await self._eraser.order_erasure(marks)

    async def erasures(self, since_us: int) -> Erasures:
        return await self._eraser.erasures(since_us)

    async def drop_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> int:
        hashed = [question._replace(key=self._hasher.hashed(question.key)) for question in questions]
        return await self._eraser.drop_keys(shard, hashed)

    async def erase(self, shard: int, identity: str, names: Sequence[str], *, cursor: int = 0) -> Erased:
        """Erases keys by their plain names and by hashes, as keys from before the secret are stored in plain."""
        return await self._eraser.erase(shard, identity, self._hasher.with_hashes(names), cursor=cursor)

    @property
    def _eraser(self) -> Eraser:
        assert isinstance(self._hub, Eraser)
        return self._hub


PASSED_ON: Final = (SettingsStore, ContractStore, SnapshotBoard, KeyMarker, Working)
"""The protocols whose methods take no keys to hash: contracts name their customers in plain text, and nodes hash the
keys in a snapshot by `KeyHasher` before they send it."""


def _of_the_hub(name: str) -> property:
    return property(lambda hashed: getattr(hashed._hub, name))  # noqa: SLF001  # it is of this file


def hashing(hub: Hub, hasher: KeyHasher) -> HashedHub:
    """Returns a wrapper that sends `hub` hashes in place of keys, and implements each further protocol that it does."""
    able = ((KeyReader, _HashedReading), (Eraser, _HashedErasing))
    kinds = tuple(kind for port, kind in able if isinstance(hub, port)) or (HashedHub,)
    ports = [port for port in PASSED_ON if isinstance(hub, port)]
    passed_on = {name: _of_the_hub(name) for port in ports for name in vars(port) if not name.startswith("_")}
    wrapper: HashedHub = type("HashedHub", kinds, passed_on)(hub, hasher)
    return wrapper
