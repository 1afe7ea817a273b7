"""Keeps the last contracts of a node in a file, for a start while the hub is away."""

# One line names the format and the lengths of the parts; then the index and its pages follow as they were read. The
# index is signed, so the file is verified when it is read exactly as if it came from the hub. A new file is written
# beside the old one and then moved over it, so that a reader finds all of one version or all of the version before.

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from reconverge.contracts.store.index import INDEX_BYTES_MAX
from reconverge.contracts.store.pages import PAGE_BYTES_MAX, PAGES_MAX, digest_of

MAGIC: Final = b"reconverge-contracts-kept-1 "
HEADER_BYTES_MAX: Final = 4096
FILE_BYTES_MAX: Final = HEADER_BYTES_MAX + INDEX_BYTES_MAX + (PAGES_MAX + 1) * PAGE_BYTES_MAX


class Kept(NamedTuple):
    """The content of a `KeptFile`: the signed index of the contracts, and its pages."""

    signed: bytes
    """The index in its signed form."""
    pages: dict[str, bytes]
    """The pages in bytes, by their digests."""


class KeptFile:
    """A file with the last contracts of a node: processes of a machine write it, and read it when they start."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def read(self) -> Kept | None:
        """Returns the file's content; None if there is no file. Raises OSError, and ValueError for damaged content."""
        try:
            with self.path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        header, line_end, rest = content[:HEADER_BYTES_MAX].partition(b"\n")
        if not header.startswith(MAGIC) or not line_end or len(content) > FILE_BYTES_MAX:
            raise ValueError(
                f"{self.path} was not written by reconverge, or is longer than {FILE_BYTES_MAX} bytes; delete it"
            )
        rest = content[len(header) + 1 :]
        lengths = [int(each) for each in header[len(MAGIC) :].split()]
        if not lengths or min(lengths) < 0 or sum(lengths) != len(rest):
            raise ValueError(
                f"{self.path} has {len(rest)} bytes after its first line, which states another number; delete the file"
            )
        parts: list[bytes] = []
        for length in lengths:
            parts.append(rest[:length])
            rest = rest[length:]
        return Kept(parts[0], {digest_of(page): page for page in parts[1:]})

    def write(self, index: bytes, pages: Collection[bytes]) -> None:
        """Replaces the file's content by an index and its pages, whole or not at all. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lengths = b" ".join(b"%d" % len(each) for each in (index, *pages))
        number, name = tempfile.mkstemp(prefix=f".{self.path.name}-", dir=self.path.parent)  # no other user may read it
        try:
            with os.fdopen(number, "wb") as file:
                file.write(b"".join((MAGIC, lengths, b"\n", index, *pages)))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
