"""Errors: mistakes of the caller, and a hub that cannot be reached.

A refusal is not among them: it is a `Decision`. Each error carries its facts as attributes,
and its message names the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

ALIKE_MIN: Final = 0.7
"""How much of two words must agree, as `difflib` counts that: 'strikt' and 'strict' agree in 0.83."""
WORD_LENGTH_MAX: Final = 100
"""Longer words are no misspelling, and comparing them takes long."""


def nearest(word: object, known: Iterable[str], alike_min: float = ALIKE_MIN) -> str | None:
    """The known word that `word` is closest to, in any case; None if none is close."""
    if not isinstance(word, str) or len(word) > WORD_LENGTH_MAX:
        return None
    spelled = {each.lower(): each for each in known}
    found = get_close_matches(word.lower(), spelled, n=1, cutoff=alike_min)
    return spelled[found[0]] if found else None


def asked(word: object, known: Iterable[str]) -> str:
    """The end of a message: `; did you mean 'strict'?`, or nothing."""
    found = nearest(word, known)
    return "" if found is None else f"; did you mean {found!r}?"


class ReconvergeError(Exception):
    """The root of everything this package raises on purpose."""


SHOWN_MAX = 80
SHOWN_BITS_MAX = 256


def shown(value: object) -> str:
    """`value` as a message can show it, however long it is; Python refuses to write out very large numbers."""
    if isinstance(value, int) and value.bit_length() > SHOWN_BITS_MAX:
        return f"{'-' if value < 0 else ''}2**{value.bit_length() - 1}..."
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


class InvalidLimit(ReconvergeError, ValueError):
    """Raised when a limit cannot be understood, or asks for something that does not exist.

    `text` is the given text; `position` is the offset at which it stopped making sense, or None.
    """

    def __init__(self, text: str, problem: str, position: int | None = None) -> None:
        self.text = text
        self.problem = problem
        self.position = position
        where = "" if position is None else f", at character {position + 1}"
        pointer = "" if position is None else f"\n  {text}\n  {' ' * position}^"
        super().__init__(f"limit {text!r}{where}: {problem}{pointer}")


class UnknownLimit(ReconvergeError, LookupError):
    """Raised when a limit is used that was never declared."""

    def __init__(self, name: str, declared: Iterable[str]) -> None:
        self.name = name
        self.declared = tuple(sorted(declared))
        known = ", ".join(self.declared) or "none yet; declare one with agent.limit(name, '100/minute')"
        super().__init__(f"no limit named {name!r}; declared: {known}{asked(name, self.declared)}")


class LimitConflict(ReconvergeError, ValueError):
    """Raised when one name is declared twice with different meanings."""

    def __init__(self, name: str, declared: object, requested: object) -> None:
        self.name = name
        super().__init__(
            f"limit {name!r} is already declared as {declared}, and cannot also be {requested}; "
            "use another name, or declare it once and share the limiter"
        )


class InvalidKey(ReconvergeError, ValueError):
    """Raised when a key is not a string that can be counted under."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)


class InvalidCost(ReconvergeError, ValueError):
    """Raised when a cost is not a whole number of zero or more, or is corrected by more than any quota has."""

    def __init__(self, cost: object, problem: str) -> None:
        self.cost = cost
        super().__init__(f"cost {shown(cost)} {problem}; a cost is a whole number of zero or more")


class CostExceedsQuota(ReconvergeError, ValueError):
    """Raised when a cost is larger than the limit could ever admit at once, however long one waits."""

    def __init__(self, limit: str, cost: int, quota: int) -> None:
        self.limit = limit
        self.cost = cost
        self.quota = quota
        super().__init__(
            f"limit {limit!r} admits at most {quota} at once, so a cost of {shown(cost)} can never be admitted; "
            "split the request, or raise the quota"
        )


class UnknownKind(ReconvergeError, LookupError):
    """Raised when a request is of a kind for which the limit names no cost."""

    def __init__(self, limit: str, kind: object, known: Iterable[str]) -> None:
        self.limit = limit
        self.kind = kind
        self.known = tuple(known)
        if self.known:
            names = ", ".join(repr(name) for name in self.known)
            advice = f"known: {names}; name it there, or give all others a cost as '*'"
        else:
            advice = "it has no costs by kind; declare it with costs={'GET': 1, 'POST': 2}"
        super().__init__(f"limit {limit!r} knows no kind {shown(kind)}; {advice}")


class InvalidSetting(ReconvergeError, ValueError):
    """Raised when a setting of the agent makes no sense."""

    def __init__(self, name: str, value: object, problem: str) -> None:
        self.name = name
        self.value = value
        self.problem = problem
        super().__init__(f"{name}={shown(value)}: {problem}")


class NeedsSlot(ReconvergeError, TypeError):
    """A contract that limits what is in progress was asked for what nothing would give back."""

    def __init__(self, limit: str, method: str, problem: str) -> None:
        self.limit = limit
        self.method = method
        super().__init__(f"{method}() of {limit!r} {problem}")


class LeaseEnded(ReconvergeError, TimeoutError):
    """Raised out of `async with limiter.slot(..., on_lease_end="cancel")`: the work was cancelled with its lease."""

    def __init__(self, limit: str, key: str) -> None:
        self.limit = limit
        self.key = key
        super().__init__(
            f"the hub has not answered for longer than the lease of {limit!r} lasts, so other nodes may have the slot "
            f"of {shown(key)} by now; the work was cancelled"
        )


class UnknownHub(ReconvergeError, ValueError):
    """Raised when no installed hub answers to a URL's scheme."""

    def __init__(self, scheme: str, known: Iterable[str]) -> None:
        self.scheme = scheme
        self.known = tuple(sorted(known))
        known_ones = ", ".join(f"{name}://" for name in self.known)
        super().__init__(f"no hub is known for {scheme!r}; known: {known_ones}{asked(scheme, self.known)}")


class MissingExtra(ReconvergeError, ImportError):
    """Raised when a part needs a package that is not installed."""

    def __init__(self, part: str, package: str, extra: str) -> None:
        self.extra = extra
        name = package.partition(".")[0]  # a module is named by its package: redis.asyncio is in redis
        super().__init__(
            f"{part} needs the package {name!r}; install it with: pip install 'reconverge[{extra}]', or in a clone of "
            f"reconverge, as long as it is not on PyPI: pip install '.[{extra}]'"
        )


class EventletPatched(ReconvergeError, RuntimeError):
    """Raised when an agent with a hub is used in a process whose threads eventlet has replaced."""

    def __init__(self) -> None:
        super().__init__(
            "eventlet has replaced this process's threads, and an agent with a hub needs one of the operating system "
            "beside them, which eventlet's locks do not support; use gevent or threads instead (gunicorn -k gevent, or "
            "-k gthread), leave out eventlet.monkey_patch(), or use memory://, which exchanges with no hub"
        )


MISCONFIGURED = frozenset({"auth", "denied", "permission", "script", "tls", "unknown-service"})
"""The kinds of failures of a hub that end when a setting is corrected, and hardly by waiting."""


class HubUnavailable(ReconvergeError):
    """Raised by a hub for everything that goes wrong there, and by `Agent.check`; never by a decision.

    `kind` is a short stable word for metrics ("timeout", "refused", "auth", ...), `problem` says it in a sentence.
    `applied` says whether the hub may have taken the message all the same: False when it surely did not, None when
    that cannot be known. `misconfigured` says whether this looks like a setting that is wrong, here or at the hub,
    rather than like an outage; by default that follows from the kind.
    """

    def __init__(
        self, kind: str, problem: str, *, applied: bool | None = None, misconfigured: bool | None = None
    ) -> None:
        self.kind = kind
        self.problem = problem
        self.applied = applied
        self.misconfigured = kind in MISCONFIGURED if misconfigured is None else misconfigured
        super().__init__(f"{kind}: {problem}")
