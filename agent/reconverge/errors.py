"""The errors of this package: mistakes of the caller, and a hub that cannot be reached.

A refused request is not an error: the limiter returns a `Decision`. Each error carries its facts as attributes, and its
message names the remedy.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, cast

ALIKE_MIN: Final = 0.7
"""How similar two words must be, from 0 to 1, as `difflib` counts it: 'strikt' and 'strict' have 0.83."""
WORD_LENGTH_MAX: Final = 100
"""The longest word that is compared with known words: a longer one is no misspelling, and comparing it takes long."""
HIDDEN: Final = "***"
SECRET: Final = ("secret", "password", "token", "username")
"""A setting whose name contains one of these words is secret: no error message shows its value."""
_BETWEEN: Final = re.compile(r"([?&;,\s])")
"""The characters between the entries of a text such as the query of a URL."""


def nearest(word: object, known: Iterable[str], alike_min: float = ALIKE_MIN) -> str | None:
    """Returns the known word that is spelt most like `word`, ignoring case; None if no word is close."""
    if not isinstance(word, str) or len(word) > WORD_LENGTH_MAX:
        return None
    spelled = {each.lower(): each for each in known}
    found = get_close_matches(word.lower(), spelled, n=1, cutoff=alike_min)
    return spelled[found[0]] if found else None


def asked(word: object, known: Iterable[str]) -> str:
    """Returns a question for the end of an error message, such as `; did you mean 'strict'?`.

    Returns "" if no word in `known` is spelt like `word`.
    """
    found = nearest(word, known)
    return "" if found is None else f"; did you mean {found!r}?"


ONE_VERSION: Final = "run one version of reconverge on all nodes, and let no other program write to the hub's data"
"""The remedy in an error about data or messages that cannot be read."""

IN_QUOTES: Final = "write it in quotes: YAML reads on, off, yes and no as truth values"
"""The remedy in an error about a truth value where a word such as 'off' is expected."""


class PortableError(Exception):
    """The base class of errors that can be pickled although their constructors need more than the message.

    By default, `pickle` copies an error by calling its constructor with the message alone. That raises TypeError in the
    process that unpickles the error, and a pool of processes then breaks or hangs. So this class makes the copy without
    the constructor. An attribute that cannot be pickled is None in the copy.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return _copied, (type(self), self.args, {name: _portable(value) for name, value in vars(self).items()})


def _copied(kind: type[PortableError], args: tuple[object, ...], facts: Mapping[str, object]) -> PortableError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(facts)
    return error


def _portable(value: object) -> object:
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001  # an object of the application may raise any error
        return None
    return value


class ReconvergeError(PortableError):
    """The base class of all errors that this package raises on purpose."""


SHOWN_MAX = 80
SHOWN_BITS_MAX = 256


def shown(value: object) -> str:
    """Returns a value's repr for an error message, shortened if it is long. Very large integers become `2**N...`."""
    if isinstance(value, int) and value.bit_length() > SHOWN_BITS_MAX:
        return f"{'-' if value < 0 else ''}2**{value.bit_length() - 1}..."
    return _cut(repr(value))


def is_secret(name: str) -> bool:
    """Returns whether a setting of this name is secret."""
    return any(word in name.lower() for word in SECRET)


class _ReprOf:
    """An object whose `repr` is a given text, to stand for a value in an error message."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def shown_setting(name: str, value: object) -> str:
    """Returns what an error message shows of a setting's value: its repr without passwords and user names."""
    if value and isinstance(value, str | bytes) and is_secret(name):
        return repr(HIDDEN)
    if isinstance(value, int):
        return shown(value)
    return _cut(repr(_without_secrets(value)))


def _without_secrets(value: object) -> object:
    """Returns an object whose repr is that of `value`, with `***` for logins in URLs and entries with secret names."""
    if type(value) is str:
        return without_secrets(value)
    if type(value) is bytes:
        return without_secrets(value.decode("latin-1")).encode("latin-1")
    if type(value) is dict:
        return {
            key: _ReprOf(HIDDEN) if _is_secret_entry(key) else _without_secrets(each) for key, each in value.items()
        }
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(map(_without_secrets, cast("Iterable[object]", value)))  # type: ignore[call-arg]
    return _ReprOf(without_secrets(repr(value)))


def _is_secret_entry(name: object) -> bool:
    """Returns whether the entry called `name`, of a dict or a URL's query, is secret.

    A plural is not: many limits have a kind of request that is called `tokens`.
    """
    return isinstance(name, str) and is_secret(name) and not name.endswith("s")


def without_secrets(text: str) -> str:
    """Returns a text with `***` for the login in a URL, and for entries with secret names."""
    before, found, rest = text.partition("://")
    _, at, host = rest.rpartition("@")  # a password may contain what ends it in a URL
    if found and at:
        text = f"{before}{found}{HIDDEN}@{host}"
    pieces = _BETWEEN.split(text)
    for place, piece in enumerate(pieces):
        name, equals, _ = piece.partition("=")
        if equals and _is_secret_entry(name):
            pieces[place] = f"{name}={HIDDEN}"
    return "".join(pieces)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


class InvalidLimit(ReconvergeError, ValueError):
    """Raised when a limit cannot be parsed, or has a setting that does not exist or is out of range.

    `text` is the limit as it was given; `position` is the offset of the mistake in it, or None if that is not known.
    """

    def __init__(self, text: str, problem: str, position: int | None = None) -> None:
        self.text = text
        self.problem = problem
        self.position = position
        where = "" if position is None else f", at character {position + 1}"
        pointer = "" if position is None else f"\n  {text}\n  {' ' * position}^"
        super().__init__(f"limit {text!r}{where}: {problem}{pointer}")


class UnknownLimit(ReconvergeError, LookupError):
    """Raised when a program uses a limit that it has not declared."""

    def __init__(self, name: str, declared: Iterable[str]) -> None:
        self.name = name
        self.declared = tuple(sorted(declared))
        known = ", ".join(self.declared) or "none yet; declare one with agent.limit(name, '100/minute')"
        super().__init__(f"no limit named {name!r}; declared: {known}{asked(name, self.declared)}")


class LimitConflict(ReconvergeError, ValueError):
    """Raised when a program declares two different limits under one name."""

    def __init__(self, name: str, declared: object, requested: object) -> None:
        self.name = name
        super().__init__(
            f"limit {name!r} is already declared as {declared}, and cannot also be {requested}; "
            "use another name, or declare it once and share the limiter"
        )


class InvalidKey(ReconvergeError, ValueError):
    """Raised when a key is not a valid string, or when no key can be formed for a request."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)


class InvalidCost(ReconvergeError, ValueError):
    """Raised when a cost is not a whole number of zero or more, or a correction of one exceeds the largest quota."""

    def __init__(self, cost: object, problem: str) -> None:
        self.cost = cost
        super().__init__(f"cost {shown(cost)} {problem}; a cost is a whole number of zero or more")


class CostExceedsQuota(ReconvergeError, ValueError):
    """Raised when a cost exceeds the most that the limit can admit at once, so that waiting would never help."""

    def __init__(self, limit: str, cost: int, quota: int) -> None:
        self.limit = limit
        self.cost = cost
        self.quota = quota
        super().__init__(
            f"limit {limit!r} admits at most {quota} at once, so a cost of {shown(cost)} can never be admitted; "
            "split the request, or raise the quota"
        )


class UnknownKind(ReconvergeError, LookupError):
    """Raised when the `costs` of a limit have no entry for the kind of a request, and none under "*" for all others."""

    def __init__(self, limit: str, kind: object, known: Iterable[str]) -> None:
        self.limit = limit
        self.kind = kind
        self.known = tuple(known)
        if self.known:
            names = ", ".join(repr(name) for name in self.known)
            advice = f"known: {names}; add it to costs, or add '*' with a cost for all other kinds"
        else:
            advice = "it has no costs by kind; declare it with costs={'GET': 1, 'POST': 2}"
        super().__init__(f"limit {limit!r} knows no kind {shown(kind)}; {advice}")


class InvalidSetting(ReconvergeError, ValueError):
    """Raised when a setting of the agent has a value that is not allowed."""

    def __init__(self, name: str, value: object, problem: str) -> None:
        self.name = name
        self.value = value
        self.problem = problem
        super().__init__(f"{name}={shown_setting(name, value)}: {problem}")


class NeedsSlot(ReconvergeError, TypeError):
    """Raised by a method that cannot handle slots, if the contract of the key limits requests in flight by slots."""

    def __init__(self, limit: str, method: str, problem: str = "needs a slot; write: with limiter.slot(key)") -> None:
        self.limit = limit
        self.method = method
        super().__init__(f"{method}() of {limit!r} {problem}")


class LeaseEnded(ReconvergeError, TimeoutError):
    """Raised by `async with limiter.slot(..., on_lease_end="cancel")` if the slot's lease ends while the block runs."""

    def __init__(self, limit: str, key: str) -> None:
        self.limit = limit
        self.key = key
        super().__init__(
            f"the hub has not answered for longer than the lease of {limit!r} lasts, so other nodes may have the slot "
            f"of {shown(key)} by now; the work was cancelled, so try it again"
        )


class UnknownHub(ReconvergeError, ValueError):
    """Raised when no installed hub supports the scheme of a URL."""

    def __init__(self, scheme: str, known: Iterable[str]) -> None:
        self.scheme = scheme
        self.known = tuple(sorted(known))
        known_ones = ", ".join(f"{name}://" for name in self.known)
        super().__init__(f"no hub is known for {scheme!r}; known: {known_ones}{asked(scheme, self.known)}")


class MissingExtra(ReconvergeError, ImportError):
    """Raised when a feature needs an optional package that is not installed; the message names the extra to install."""

    def __init__(self, part: str, package: str, extra: str) -> None:
        self.extra = extra
        name = package.partition(".")[0]  # a module is named by its package: redis.asyncio is in redis
        super().__init__(
            f"{part} needs the package {name!r}; install it with: pip install 'reconverge[{extra}]', or in a clone of "
            f"reconverge, as long as it is not on PyPI: pip install '.[{extra}]'"
        )


class WrongMoment(ReconvergeError, RuntimeError):
    """Raised by a call that cannot be made here and now: it would hold up an event loop, or what it needs is in use."""


class EventletPatched(ReconvergeError, RuntimeError):
    """Raised when an agent with a hub runs in a process in which eventlet has replaced Python's threads."""

    def __init__(self) -> None:
        super().__init__(
            "eventlet has replaced this process's threads, but an agent with a hub needs a thread of the operating "
            "system, which eventlet's locks do not support; use gevent or threads instead (gunicorn -k gevent, or "
            "-k gthread), leave out eventlet.monkey_patch(), or use memory://, which exchanges with no hub"
        )


MISCONFIGURED = frozenset({"auth", "denied", "permission", "script", "tls", "unknown-service"})
"""The kinds of hub failures that a wrong setting probably causes, so that waiting does not end them."""


class HubUnavailable(ReconvergeError):
    """Raised by a hub for every failure of the hub, and by `Agent.check`; never by a decision.

    `kind` is a short stable word for metrics ("timeout", "refused", "auth", ...), `problem` describes the failure in a
    sentence. `applied` is whether the hub may have applied the message all the same: False when it surely did not,
    None when that cannot be known. `misconfigured` is whether the failure looks like a wrong setting, here or at the
    hub, rather than like an outage; by default it follows from `kind`.
    """

    def __init__(
        self, kind: str, problem: str, *, applied: bool | None = None, misconfigured: bool | None = None
    ) -> None:
        self.kind = kind
        self.problem = problem
        self.applied = applied
        self.misconfigured = kind in MISCONFIGURED if misconfigured is None else misconfigured
        super().__init__(f"{kind}: {problem}")
