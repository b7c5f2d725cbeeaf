# SPDX-License-Identifier: Apache-2.0
"""A module that says Pure may not depend on more than arguments, nor change more than its own."""

from __future__ import annotations

import ast

import pytest

from tools.purity import impurities

PURE = '"""Adds numbers. Pure."""\n'


def found(text: str) -> list[str]:
    return list(impurities(ast.parse(text)))


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("import time\n", ["imports time"]),
        ("import os.path\n", ["imports os.path"]),
        ("from random import random\n", ["imports random.random"]),
        ("def now():\n    import time\n    return time.time()\n", ["imports time"]),
        ("seen = 0\ndef see():\n    global seen\n    seen += 1\n", ["changes seen"]),
        ("SEEN = []\ndef see(one):\n    SEEN.append(one)\n", ["changes SEEN"]),
        ("SEEN: dict = {}\ndef see(one):\n    SEEN[one] = 1\n", ["changes SEEN"]),
        ("SEEN = {}\nasync def see(one):\n    del SEEN[one]\n", ["changes SEEN"]),
    ],
)
def test_what_belies_the_word_is_named(text: str, reasons: list[str]) -> None:
    assert found(PURE + text) == reasons
    assert found('"""Adds numbers."""\n' + text) == []


@pytest.mark.parametrize(
    "text",
    [
        "from random import Random\n",
        "import math\nimport timeit\n",
        "from .time import now\n",
        "FOUND = [1]\ndef find(more):\n    FOUND = [*more]\n    FOUND.append(1)\n",
        "FOUND = [1]\ndef find(FOUND):\n    FOUND.append(1)\n",
        "FOUND = {}\nFOUND.update({1: 2})\nFOUND[3] = 4\n",
        "FOUND = {1: 2}\ndef find(key):\n    return FOUND.get(key), FOUND[key]\n",
        "import functools\n@functools.cache\ndef square(number):\n    return number * number\n",
    ],
)
def test_what_a_pure_module_may_do_is_no_fault(text: str) -> None:
    assert found(PURE + text) == []
