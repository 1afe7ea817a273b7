"""A base class for objects that are taken and given back once, such as slots: they cannot be copied or pickled."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class Unique:
    """Base class of objects that stand for one held resource: a copy would give the resource back a second time."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise TypeError, which `copy`, `deepcopy` and `pickle` pass on."""
        kind = type(self).__name__
        raise TypeError(
            f"a {kind} cannot be copied or pickled, as what it holds is given back once; pass on the {kind} itself"
        )
