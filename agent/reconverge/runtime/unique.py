"""A base for things that are taken and given back once, and so can neither be copied nor pickled."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class Unique:
    """One object for one thing that is held: a copy would give it back a second time, or another process would."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise TypeError, which `copy`, `deepcopy` and `pickle` pass on."""
        kind = type(self).__name__
        raise TypeError(
            f"a {kind} cannot be copied or pickled, as what it holds is given back once; pass on the {kind} itself"
        )
