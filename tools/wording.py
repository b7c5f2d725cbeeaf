# SPDX-License-Identifier: Apache-2.0
"""Words that say nothing by themselves: pronouns as names, docstrings that open without a subject.

``python -m tools.wording FOLDER...`` lists them with their places. A name counts once for each
function that binds it, as a parameter or in its body; a function within another counts by itself.
Texts below attributes and constants are docstrings too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PRONOUNS: Final = frozenset(
    (
        *("one", "each", "it", "its", "their", "who", "whom", "what", "which", "there", "others"),
        *("found", "made", "said", "told", "left", "asked", "wanted", "many", "most"),
        *("by", "at", "of"),
    )
)
"""Pronouns, bare participles and prepositions: as a name they hide what the value is."""
OPENINGS: Final = ("Of", "The same", "As", "That", "One", "Where", "Those", "Which")
"""First words of docstrings that continue a line which an editor's hover does not show."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Names and docstrings of one module."""

    names: int
    """Names that functions bind, each once for each function."""
    pronouns: tuple[tuple[int, str], ...]
    """Line of the function, and the name, for those of the names that are a pronoun."""
    docstrings: int
    openings: tuple[tuple[int, str], ...]
    """Line and first line of each docstring that opens with one of :data:`OPENINGS`."""


def main(folders: Sequence[str]) -> int:
    """Print ``path:line: text`` for every unclear word of these folders; always 0."""
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*.py")):
        module = wording(ast.parse(path.read_text("utf-8")))
        for line, text in sorted((*module.pronouns, *module.openings)):
            print(f"{path}:{line}: {text}")
    return 0


def wording(tree: ast.Module) -> Wording:
    """Count the names and the docstrings of one module."""
    names = [
        (node.lineno, name)
        for node in ast.walk(tree)
        if isinstance(node, Function)
        for name in sorted({*bound_names(node)})
    ]
    docstrings = [*docstrings_of(tree)]
    openings = tuple(f"{words} " for words in OPENINGS)
    return Wording(
        names=len(names),
        pronouns=tuple((line, name) for line, name in names if name in PRONOUNS),
        docstrings=len(docstrings),
        openings=tuple((line, text) for line, text in docstrings if text.startswith(openings)),
    )


def bound_names(function: Function) -> Iterator[str]:
    """Parameters of a function and names that its own body binds, some of them several times."""
    arguments = function.args
    for argument in (
        *(*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs),
        *(extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None),
    ):
        yield argument.arg
    body = function.body
    waiting: list[ast.AST] = [body] if isinstance(body, ast.expr) else [*body]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
        if not isinstance(node, Function | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def docstrings_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and first line of every text that stands as a statement."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text.strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
