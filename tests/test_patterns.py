# SPDX-License-Identifier: Apache-2.0
"""No regular expression of the product tries again and again on a long text from outside.

A pattern that can divide a text in many ways tries all of them where none fits: each character
doubles the work. Every compiled pattern of every module gets long texts of every kind of character
that it may repeat, with an end that does not fit; one that doubles would never end.
"""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.pages import ROOT
from tests.test_log_messages import product

SIZE: Final = 400
SEEDS: Final = (
    "a",
    "0",
    " ",
    "a.",
    "a-",
    "a,",
    "a=",
    "*",
    "\\",
    "\\n",
    '"',
    "a/",
    "0g.",
    ":",
    "-",
    "1m",
    "{",
    "}",
    "a b",
)
ENDS: Final = ("", "!", "\0", "\n", "é")


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Name and pattern of all that the product's modules hold, also in tuples and mappings."""
    for path in product():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if "__main__" in name or name.endswith("_pb2"):
            continue
        module = importlib.import_module(name)
        for key, value in vars(module).items():
            held = value.values() if isinstance(value, dict) else value
            for each in held if isinstance(value, dict | list | tuple) else (value,):
                if isinstance(each, re.Pattern):
                    yield f"{name}.{key}", each


FOUND: Final = {each.pattern: (name, each) for name, each in patterns()}


def test_there_are_patterns() -> None:
    assert len(FOUND) > 60


@pytest.mark.parametrize("name", sorted({name for name, _ in FOUND.values()}))
def test_a_pattern_ends_on_any_long_text(name: str) -> None:
    for pattern in (each for of, each in FOUND.values() if of == name):
        for seed, end in itertools.product(SEEDS, ENDS):
            text: Any = seed * (SIZE // len(seed)) + end
            if isinstance(pattern.pattern, bytes):
                text = text.encode()
            pattern.search(text)
            pattern.fullmatch(text)
