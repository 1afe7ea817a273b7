"""Notes the objects that are made of some kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def made_of(monkeypatch: pytest.MonkeyPatch, *kinds: type) -> list[Any]:
    """The objects of some kinds that are made from here on, while the test goes on."""
    made = list[Any]()

    def noted(make: Callable[..., None]) -> Callable[..., None]:
        def note(self: object, *args: Any, **kwargs: Any) -> None:
            made.append(self)
            make(self, *args, **kwargs)

        return note

    for kind in kinds:
        monkeypatch.setattr(kind, "__init__", noted(kind.__init__))  # type: ignore[misc]  # it is put back by the same name
    return made
