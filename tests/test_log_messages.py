# SPDX-License-Identifier: Apache-2.0
"""Operators search logs by message, so docs/operation.md lists every message of the product."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.pages import ROOT, page

LEVELS: Final = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
    "critical": "CRITICAL",
}
_NOT_PRODUCT: Final = {"tests", "tools", "docs", "deploy", "requirements"}
_ROW: Final = re.compile(r"^\| `(?P<message>[^`]+)` \| (?P<level>[^|]+) \| ", re.MULTILINE)


def product() -> Iterator[Path]:
    """Every module of the packages that are installed."""
    for package in sorted(ROOT.glob("*/__init__.py")):
        if package.parent.name not in _NOT_PRODUCT:
            yield from sorted(package.parent.rglob("*.py"))


def log_calls(tree: ast.AST) -> Iterator[tuple[str | None, ast.expr]]:
    """Level and message of each log call; None where the level is worked out by the program."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr="log"),
                args=[_, message, *_],
            ):
                yield None, message
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr=method),
                args=[message, *_],
            ) if method in LEVELS:
                yield LEVELS[method], message


def logged() -> dict[str, set[str | None]]:
    """The levels of each message that the product logs."""
    found = defaultdict[str, set[str | None]](set)
    for module in product():
        for level, message in log_calls(ast.parse(module.read_text("utf-8"))):
            if isinstance(message, ast.Constant):
                found[str(message.value)].add(level)
    return found


def listed() -> list[tuple[str, str]]:
    """Message and level of each row of the page."""
    section = page("docs/operation.md").partition("\n## Log messages\n")[2].partition("\n## ")[0]
    return [(row["message"], row["level"]) for row in _ROW.finditer(section)]


def test_every_message_that_is_logged_is_in_the_list_and_no_other() -> None:
    assert sorted(message for message, _ in listed()) == sorted(logged())


def test_the_list_is_sorted_and_names_the_level_of_each_message() -> None:
    levels = logged()
    assert [message for message, _ in listed()] == sorted(levels)
    wrong = {
        message: level
        for message, level in listed()
        if None not in levels[message] and {level} != levels[message]
    }
    assert wrong == {}


def test_messages_are_literals_without_placeholders() -> None:
    """What varies goes into fields: a message that varies cannot be searched for."""
    varying = [
        f"{module.relative_to(ROOT)}:{message.lineno}: {ast.unparse(message)}"
        for module in product()
        for _, message in log_calls(ast.parse(module.read_text("utf-8")))
        if not (isinstance(message, ast.Constant) and "%" not in str(message.value))
    ]
    assert varying == []


def test_a_logger_has_a_name_that_this_test_finds() -> None:
    """Else its messages would be in no list."""
    others = [
        f"{module.relative_to(ROOT)}:{node.lineno}"
        for module in product()
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and "logging.getLogger(__name__)" in ast.unparse(node.value)
        and ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        not in ("log", "_log")
    ]
    assert others == []
