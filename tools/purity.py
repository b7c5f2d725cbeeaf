# SPDX-License-Identifier: Apache-2.0
"""Whether a module that says Pure in its docstring is: no clock, chance, system or state.

Chance may be an argument, so the class ``random.Random`` is allowed. Results may be kept by the
decorators of functools, since nothing else changes them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

IMPURE: Final = ("logging", "os", "random", "socket", "subprocess", "threading", "time")
"""Modules of Python by which a function depends on more than its arguments, or does more."""
ALLOWED: Final = ("random.Random",)
_CHANGES: Final = frozenset(
    (
        *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"),
        *("setdefault", "update"),
    )
)
"""Methods that change a list, a set or a dict."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def impurities(tree: ast.Module) -> Iterator[str]:
    """What belies the word, in a few words each; nothing where the module does not say it."""
    if re.search(r"\bPure\b", ast.get_docstring(tree) or "") is None:
        return
    yield from (f"imports {name}" for name in sorted({*_imported(tree)}))
    kept = {name for node in tree.body for name in _bound(node)}
    changed = {
        name
        for node in ast.walk(tree)
        if isinstance(node, _Function)
        for name in _changed(node, kept)
    }
    yield from (f"changes {name}" for name in sorted(changed))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{each.name}" for each in node.names]
        else:
            continue
        for name in names:
            if name.partition(".")[0] in IMPURE and name not in ALLOWED:
                yield name


def _bound(node: ast.stmt) -> Iterator[str]:
    """Names of the module that this statement gives a value."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    yield from (each.id for each in targets if isinstance(each, ast.Name))


def _changed(function: _Function, kept: set[str]) -> Iterator[str]:
    """Names of the module that the function binds anew, or whose value it changes."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    own = {each.arg for each in arguments}
    globals_: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            globals_.update(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
    yield from globals_
    shared = kept - own
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
                if name in shared and method in _CHANGES:
                    yield name
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                if name in shared:
                    yield name
