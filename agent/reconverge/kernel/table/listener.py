"""What is told that a key of a limit has better prospects."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Somebody who waits for keys of a limit."""

    def tell(self, key: str) -> None:
        """There may be room now. Must not wait, nor fail."""
