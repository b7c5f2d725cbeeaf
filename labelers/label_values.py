# SPDX-License-Identifier: Apache-2.0
"""Legal label keys and values, and the text that gpu-feature-discovery makes of names.

Source: Kubernetes, "Labels and Selectors", syntax and character set; for names
NVIDIA/k8s-device-plugin v0.20.0, internal/lm/resource.go (``sanitise``).
"""

from __future__ import annotations

import re

MAX_LENGTH = 63
"""Characters of a label value, and of the part of a key after its prefix, at most."""

_LEGAL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_NOT_KEPT = re.compile(r"[^A-Za-z0-9._ -]")


def sanitise(text: str) -> str:
    """The text as gpu-feature-discovery writes names: odd characters dropped, blanks to ``-``.

    Tabs and newlines are dropped too and separate nothing. The result may still
    be no legal label value: too long, or ending in a dot.
    """
    return "-".join(_NOT_KEPT.sub("", text).split())


def value_fault(text: str) -> str | None:
    """Why ``text`` cannot be a label value; None when it can. The empty text can."""
    return None if text == "" else _fault(text)


def key_fault(key: str) -> str | None:
    """Why ``key`` cannot be a label key with one of our prefixes; None when it can."""
    prefix, slash, name = key.partition("/")
    if not (prefix and slash):
        return "it has no prefix"
    return "it has no name after the prefix" if name == "" else _fault(name)


def _fault(text: str) -> str | None:
    if len(text) > MAX_LENGTH:
        return f"{len(text)} characters, above {MAX_LENGTH}"
    if _LEGAL.fullmatch(text):
        return None
    if re.search(r"[^A-Za-z0-9._-]", text):
        return "a character other than letters, digits, '-', '_' and '.'"
    return "the first and last character must be a letter or a digit"
