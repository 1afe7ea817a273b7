"""Which of the known words a misspelt one may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

ALIKE_MIN: Final = 0.7
"""How much of two words must agree, as `difflib` counts that: 'strikt' and 'strict' agree in 0.83."""
WORD_LENGTH_MAX: Final = 100
"""Longer words are no misspelling, and comparing them takes long."""


def nearest(word: object, known: Iterable[str], alike_min: float = ALIKE_MIN) -> str | None:
    """The known word that `word` is closest to, whatever its case; None if none is close."""
    if not isinstance(word, str) or len(word) > WORD_LENGTH_MAX:
        return None
    spelled = {each.lower(): each for each in known}
    found = get_close_matches(word.lower(), spelled, n=1, cutoff=alike_min)
    return spelled[found[0]] if found else None


def asked(word: object, known: Iterable[str]) -> str:
    """The end of a message: `; did you mean 'strict'?`, or nothing."""
    found = nearest(word, known)
    return "" if found is None else f"; did you mean {found!r}?"
