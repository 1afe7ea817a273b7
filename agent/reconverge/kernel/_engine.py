"""Which of the twins is in use: the compiled parts where they were built, or else those in Python, their definition.

`RECONVERGE_NO_EXTENSIONS=1` in the environment has Python do it all.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from typing import TYPE_CHECKING, Final

from reconverge.kernel import _cell, _decision, _fields, _store

if TYPE_CHECKING or os.environ.get("RECONVERGE_NO_EXTENSIONS"):
    native = None
else:
    try:
        from reconverge.kernel import _native as native
    except ImportError:
        native = None

COMPILED: Final = native is not None
"""Whether the compiled parts are in use."""
IMPLEMENTATION: Final = "native" if COMPILED else "pure"
"""Which of the twins is in use."""

if TYPE_CHECKING or not COMPILED:
    Cell = _cell.Cell
    Decision = _decision.Decision
    Store = _store.Store
    ShardFields = _fields.ShardFields
    TallyFields = _fields.TallyFields
    Lock = threading.Lock
else:
    Cell = native.Cell
    Decision = native.Decision
    Store = native.Store
    ShardFields = native.ShardFields
    TallyFields = native.TallyFields
    Lock = native.Lock
    # So that dataclasses.replace, asdict and fields take it for what it stands for.
    for name in ("__dataclass_fields__", "__dataclass_params__", "__match_args__"):
        setattr(Decision, name, getattr(_decision.Decision, name))
    assert dataclasses.is_dataclass(Decision)
