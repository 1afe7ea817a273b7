"""A base class for objects that are taken and given back once, such as slots: they cannot be copied or pickled."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class Unique:
    """A base class for objects that hold a resource: a copy would release it a second time, or in another process."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raises TypeError, which `copy`, `deepcopy` and `pickle` pass on."""
        kind = type(self).__name__
        raise TypeError(
            f"a {kind} cannot be copied or pickled, as its resource may be released only once; pass the {kind} itself"
        )
