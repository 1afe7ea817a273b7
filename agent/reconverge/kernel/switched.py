"""The answers that are no ordinary decisions, whichever of the twins makes those."""

from __future__ import annotations

from typing import ClassVar

from reconverge.kernel.engine import Decision


class Unlimited(Decision):
    """The answer of a limit that is off: nothing was decided, and nothing charged."""

    __slots__ = ()
    switch: ClassVar[str] = "off"


class Reentered(Decision):
    """The refusal of what asks for admission in the middle of another decision, on the same thread."""

    __slots__ = ()
    reentered: ClassVar[bool] = True


class Shadowed(Decision):
    """The answer of a limit in shadow that would have been the same without."""

    __slots__ = ()
    switch: ClassVar[str] = "shadow"


class WouldRefuse(Shadowed):
    """The answer of a limit in shadow that would have been a refusal, with its grounds; nothing was charged."""

    __slots__ = ()
    would_refuse: ClassVar[bool] = True
