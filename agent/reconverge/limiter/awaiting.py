"""Coroutines that return a decision, and raise TypeError if a caller takes their truth value without `await`.

In Python a coroutine that was never awaited is true. So an `if` without its `await` would admit every request, with
nothing but a warning when the coroutine is collected.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
NOTHING_YET: Final = "has decided nothing before it is awaited; write await, as in"


class Undecided(Coroutine[Any, Any, T]):
    """A coroutine that raises TypeError when its truth value is taken, or compared with True or False."""

    __slots__ = ("__weakref__", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:  # noqa: ARG002
        return self._coroutine.throw(kind if value is None else value)

    def close(self) -> None:
        self._coroutine.close()

    def __bool__(self) -> NoReturn:
        raise self._undecided("if await")

    if not TYPE_CHECKING:  # a type checker finds a block without its await only if it does not know the methods

        def __aenter__(self) -> NoReturn:
            raise self._undecided("async with await")

        __enter__ = __exit__ = __aexit__ = __aenter__

        def __getattr__(self, name: str) -> NoReturn:
            """Raises AttributeError, which names the missing `await`, for an attribute that the result may have."""
            called = getattr(self._coroutine, "__qualname__", "this coroutine")
            raise AttributeError(f"{called}() {NOTHING_YET}: (await {called}(...)).{name}", name=name, obj=self)

    def _undecided(self, words: str) -> TypeError:
        self._coroutine.close()
        name = getattr(self._coroutine, "__qualname__", "this coroutine")
        return TypeError(f"{name}() {NOTHING_YET}: {words} {name}(...)")

    def __eq__(self, other: object) -> bool:
        return bool(self) if isinstance(other, bool) else self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<undecided {self._coroutine!r}>"


def undecided(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorates a coroutine function: testing its coroutines for truth, without `await`, raises TypeError."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return Undecided(method(*args, **kwargs))

    # Frameworks check whether a function is a coroutine function, and would run others on a thread.
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(call)
    # In Python 3.11, only asyncio reads a mark for that.
    call._is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", True)  # type: ignore[attr-defined]  # noqa: SLF001
    return call
