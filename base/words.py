# SPDX-License-Identifier: Apache-2.0
"""Words that a person wrote, for messages: quotes and lists of them, and the known word that was
meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

MOST_QUOTED: Final = 60
"""Characters that a quote has at most."""

_CUT: Final = 3
"""Characters that the beginning of a word has at least, so that it is a hint."""
_LEAST_RATIO: Final = 0.6
"""Likeness of two words at least; difflib.get_close_matches has the same default."""


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like this one, capitals and kinds of dashes aside; None without one.

    A word that is the beginning of a known one is thought to be cut short.
    """
    by_form: dict[str, str] = {}
    for known_word in known:
        by_form.setdefault(_form(known_word), known_word)
    begun = _form(word)
    longer = [form for form in by_form if len(begun) >= _CUT and form.startswith(begun)]
    cutoff = 0.0 if longer else _LEAST_RATIO
    alike = difflib.get_close_matches(begun, longer or list(by_form), n=1, cutoff=cutoff)
    return by_form[alike[0]] if alike else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the known one it resembles, else nothing."""
    return meant(closest(word, known))


def meant(word: str | None) -> str:
    """The end of a message that proposes a word; nothing where there is none to propose."""
    return f": did you mean {word}?" if word else ""


def first_names(names: Sequence[str], most: int) -> str:
    """The first of these names, with commas, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def quoted(text: str) -> str:
    """A text as messages show it: in quotes, in ASCII, and cut so that it stays a short line."""
    return ascii(text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}…")


def _form(word: str) -> str:
    return word.strip().lower().replace("_", "-").replace(" ", "-")
