"""Classes of traffic, most important first, and how a request gets its class."""

# Theory of operation.
#
# Which requests matter is the one thing that a service cannot measure, so it is the one thing to configure. The default
# is the four classes that Stripe has published: critical methods, POST, GET, and test traffic. The method distinguishes
# POST and GET; a function of the application, or a header from a trusted proxy, marks requests as *critical* or *test*.
#
# A header comes from the client, and any client could call its requests critical, to be shed last. So a header can only
# make a request less important than its method does, unless the application says that the header is to be trusted,
# because a proxy sets or removes it.

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from reconverge.errors import InvalidSetting, asked

CRITICAL: Final = "critical"
POST: Final = "POST"
GET: Final = "GET"
TEST: Final = "test"
DEFAULT_CLASSES: Final = (CRITICAL, POST, GET, TEST)
HEADER: Final = "x-traffic-class"
READING: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""The HTTP methods that RFC 9110 calls safe: clients can repeat such requests without harm, so they are shed first."""
CLASSES_MAX: Final = 16
"""The most classes: each has metrics of its own, and decisions go through them one by one."""

Classify = Callable[[Any], "str | None"]
"""An application's function that returns the class of a request, given as ASGI scope or WSGI environment. If it returns
None, the method and the header field decide."""


class TrafficClasses:
    """The classes of traffic of one service.

    Args:
        names: most important first; by default "critical", "POST", "GET" and "test".
        classify: a function that returns the name of a request's class. If it returns None, method and header decide.
        header: the field in which a request may name its class; None ignores all fields.
        trust_header: whether the field may make a request more important than its method does.

    Raises:
        InvalidSetting: there are no names or more than 16, or a name occurs twice or is no text; or the names lack POST
            or GET, and there is neither `classify` nor a trusted header to select a class.
    """

    def __init__(
        self,
        names: Sequence[str] = DEFAULT_CLASSES,
        *,
        classify: Classify | None = None,
        header: str | None = HEADER,
        trust_header: bool = False,
    ) -> None:
        self.names = _checked_names(names)
        self._ranks = {name: rank for rank, name in enumerate(self.names)}
        if classify is not None and not callable(classify):
            raise InvalidSetting("classify", classify, "must be a function from a request to the name of its class")
        if inspect.iscoroutinefunction(classify):
            raise InvalidSetting(
                "classify", classify, "is a coroutine function, which nothing awaits; write a plain one"
            )
        if header is not None and (not isinstance(header, str) or not header.isascii() or not header.strip()):
            raise InvalidSetting("header", header, "must be the name of a header field, or None")
        by_method = POST in self._ranks and GET in self._ranks
        if not by_method and classify is None and not (header is not None and trust_header):
            problem = (
                "lack POST or GET, so a method selects no class; pass classify=..., or trust_header=True behind a proxy"
            )
            raise InvalidSetting("names", list(self.names), problem)
        self.classify = classify
        self.header = None if header is None else header.strip().lower()
        self._trusted = trust_header
        last = len(self.names) - 1
        self._reading = self._ranks.get(GET, last)
        self._writing = self._ranks.get(POST, last)

    def rank(self, name: str) -> int:
        """Returns the number of a class, 0 for the most important one. Raises InvalidSetting for an unknown name."""
        rank = self._ranks.get(name) if isinstance(name, str) else None
        if rank is None:
            known = ", ".join(self.names)
            problem = f"is none of {known}{asked(name, self.names)}; write one of these, or add it to TrafficClasses"
            raise InvalidSetting("traffic class", name, problem)
        return rank

    def rank_of(self, request: Any, method: str, field: str | None) -> int:
        """Returns the number of a request's class: by `classify`, or else by its method and its header field.

        The most important class has number 0. A field with an unknown name is ignored, as it comes from a client.
        Raises InvalidSetting for an unknown name that `classify` returns.
        """
        if self.classify is not None:
            name = self.classify(request)
            if name is not None:
                return self.rank(name)
        own = self._reading if method in READING else self._writing
        if field is None:
            return own
        said = self._ranks.get(field)
        if said is None:
            return own
        return said if self._trusted else max(own, said)


def _checked_names(names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidSetting("names", names, "must be a list of names, most important first")
    for name in names:
        if not isinstance(name, str) or not name or not name.isprintable() or not name.isascii():
            raise InvalidSetting("names", name, "is no name of a class; write a word in printable ASCII")
    if not names or len(names) > CLASSES_MAX:
        raise InvalidSetting("names", list(names), f"must be 1 to {CLASSES_MAX} names")
    if len(set(names)) < len(names):
        raise InvalidSetting("names", list(names), "has a name twice; give each class a name of its own")
    return tuple(names)
