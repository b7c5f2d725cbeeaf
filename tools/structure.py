# SPDX-License-Identifier: Apache-2.0
"""Figures of the source tree: ambiguous names, unclear words, long modules, import circles.

``python -m tools.structure`` prints the report, product and tests apart, and writes it into
``docs/structure.md``; with ``--check`` it prints the report and fails where the product is past
one of the limits below. Modules are read as text and not imported.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuscape.isolation import PACKAGES
from tools.purity import impurities
from tools.wording import Wording, wording

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "structure.md"
PRODUCT: Final = ("gpuscape", *PACKAGES)
TESTS: Final = ("tests", "tools")
MOST_LINES: Final = 400
"""Of a module."""
MOST_MODULES: Final = 20
"""Directly in one folder, ``__init__.py`` included."""
MOST_AMBIGUOUS: Final = 20
MOST_SHARED_FUNCTIONS: Final = 8
MOST_SHARED_FILES: Final = 0
"""Names that several modules have for public functions, and names of several files: both limits
only fall."""
MOST_PRONOUNS: Final = 0.005
"""Part of the names bound in functions that may be pronouns, and (below) of the docstrings that
may open without a subject: both only fall."""
MOST_OPENINGS: Final = 0.02
REASONS: Final[Mapping[str, str]] = {}
"""Why a public class name may stand for two things."""
_LISTED: Final = "python -m tools.wording lists them"
VAGUE: Final = ("told", "tell", "tells", "said", "heard", "beside")
"""Words of docstrings and comments for which the field has better ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One source file."""

    path: str
    name: str
    """As it is imported."""
    lines: int
    code_lines: int
    """Lines that hold neither a comment nor a docstring alone, nor nothing."""
    classes: tuple[str, ...]
    """Public ones, nested ones included."""
    functions: tuple[str, ...]
    """Public ones of the module itself."""
    imports: frozenset[str]
    """Full names that it imports anywhere: in functions and for types alone, too."""
    vague: Counter[str]
    impurities: tuple[str, ...]
    """What belies the word Pure in its docstring."""
    wording: Wording


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """Figures of some folders."""

    modules: int
    lines: int
    code_lines: int
    """Lines without comments, docstrings and blank ones."""
    classes: int
    ambiguous: Mapping[str, Sequence[str]]
    """Public class name to the modules that define it, where there are several."""
    shared_functions: int
    """Names of public functions that several modules define."""
    shared_files: int
    """Names that several files have, ``__init__.py`` aside."""
    long: Mapping[str, int]
    """Path of a module to its lines, above the limit."""
    circles: Sequence[Sequence[str]]
    """Modules that import each other, directly or by way of others."""
    large: Mapping[str, int]
    """Folder to the number of its modules, above the limit."""
    vague: Mapping[str, int]
    impure: Mapping[str, Sequence[str]]
    """Path of a module that says Pure to what belies that."""
    pronouns: float
    """Part of the names bound in functions that are pronouns; 0 to 1."""
    openings: float
    """Part of the docstrings that open without a subject; 0 to 1."""


def main() -> int:
    """Print the report and write the page; 1 where ``--check`` finds the product past a limit."""
    product, tests = (structure(modules(ROOT, folders)) for folders in (PRODUCT, TESTS))
    text = report(product, tests)
    print(text)
    if sys.argv[1:] != ["--check"]:
        PAGE.write_text(_PAGE.format(report=text), "utf-8")
        return 0
    found = list(faults(product))
    for fault in found:
        print(fault, file=sys.stderr)
    return bool(found)


def modules(root: Path, folders: Iterable[str]) -> list[Module]:
    """Every module below these folders of ``root``, but generated ones; in the order of paths."""
    found = (path for folder in folders for path in sorted((root / folder).rglob("*.py")))
    return [_module(path, root) for path in found if not path.stem.endswith("_pb2")]


def structure(modules: Sequence[Module]) -> Structure:
    """What holds for these modules together."""
    defined: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for name in module.classes:
            defined[name].append(module.name)
    folders = Counter(str(Path(module.path).parent) for module in modules)
    return Structure(
        modules=len(modules),
        lines=sum(module.lines for module in modules),
        code_lines=sum(module.code_lines for module in modules),
        classes=len(defined),
        ambiguous={name: where for name, where in sorted(defined.items()) if len(where) > 1},
        shared_functions=_shared(name for each in modules for name in {*each.functions}),
        shared_files=_shared(
            name for each in modules if (name := Path(each.path).name) != "__init__.py"
        ),
        long={each.path: each.lines for each in modules if each.lines > MOST_LINES},
        circles=circles(imports(modules)),
        large={path: count for path, count in sorted(folders.items()) if count > MOST_MODULES},
        vague=sum((module.vague for module in modules), Counter[str]()),
        impure={each.path: each.impurities for each in modules if each.impurities},
        pronouns=_ratio(
            sum(len(module.wording.pronouns) for module in modules),
            sum(module.wording.names for module in modules),
        ),
        openings=_ratio(
            sum(len(module.wording.openings) for module in modules),
            sum(module.wording.docstrings for module in modules),
        ),
    )


def imports(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Each module to those of the same tree that it imports itself."""
    known = {module.name for module in modules}
    return {
        module.name: {
            found
            for name in module.imports
            if (found := name if name in known else name.rpartition(".")[0]) in known
        }
        for module in modules
    }


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Groups of modules of which each reaches all others; the order is alphabetical."""
    reached = {name: _reached(graph, name) for name in graph}
    groups = {
        tuple(sorted({name, *(other for other in reached[name] if name in reached[other])}))
        for name in graph
        if name in reached[name]
    }
    return [list(group) for group in sorted(groups)]


def faults(product: Structure) -> Iterator[str]:
    """A sentence for each limit that is passed."""
    for name, where in product.ambiguous.items():
        if name not in REASONS:
            yield f"class {name} stands in {', '.join(where)}: rename it, or give the reason here"
    if len(product.ambiguous) > MOST_AMBIGUOUS:
        yield f"{len(product.ambiguous)} class names stand for several classes: rename some"
    for count, most, what in (
        (product.shared_functions, MOST_SHARED_FUNCTIONS, "public functions of several modules"),
        (product.shared_files, MOST_SHARED_FILES, "several files"),
    ):
        if count > most:
            yield f"{count} names are those of {what}, more than {most}: rename the newest"
    for ratio, limit, subject, example in (
        (product.pronouns, MOST_PRONOUNS, "the names in functions are pronouns", "each, found"),
        (product.openings, MOST_OPENINGS, "the docstrings open without a subject", "Of, The same"),
    ):
        if ratio > limit:
            yield f"{ratio:.2%} of {subject} ({example}), more than {limit:.1%}: {_LISTED}"
    for path, lines in product.long.items():
        yield f"{path} has {lines} lines: look for its second subject"
    for circle in product.circles:
        yield f"these modules import each other: {', '.join(circle)}"
    for folder, count in product.large.items():
        yield f"{folder} has {count} modules: give its subjects folders"
    for path, reasons in product.impure.items():
        yield f"{path} says Pure and {', '.join(reasons)}: mend it or its docstring"


def report(product: Structure, tests: Structure) -> str:
    """All figures as a Markdown table, and what is past a limit below it."""
    rows: list[tuple[str, object, Callable[[Structure], object]]] = [
        ("modules", "", lambda each: each.modules),
        ("lines", "", lambda each: each.lines),
        ("lines of code", "", lambda each: each.code_lines),
        ("public class names", "", lambda each: each.classes),
        ("of them defined several times", MOST_AMBIGUOUS, lambda each: len(each.ambiguous)),
        (
            "names of public functions in several modules",
            MOST_SHARED_FUNCTIONS,
            lambda each: each.shared_functions,
        ),
        ("names of several files", MOST_SHARED_FILES, lambda each: each.shared_files),
        (f"modules above {MOST_LINES} lines", 0, lambda each: len(each.long)),
        ("import circles", 0, lambda each: len(each.circles)),
        (f"folders above {MOST_MODULES} modules", 0, lambda each: len(each.large)),
        ("modules that say Pure and are not", 0, lambda each: len(each.impure)),
        (
            "names in functions that are pronouns",
            f"{MOST_PRONOUNS:.1%}",
            lambda each: f"{each.pronouns:.2%}",
        ),
        (
            "docstrings that open without a subject",
            f"{MOST_OPENINGS:.1%}",
            lambda each: f"{each.openings:.2%}",
        ),
        (f"{', '.join(VAGUE)} in text", "", lambda each: sum(each.vague.values())),
    ]
    lines = ["| figure | limit | product | tests and tools |", "| --- | --- | --- | --- |"]
    lines += [f"| {name} | {limit} | {of(product)} | {of(tests)} |" for name, limit, of in rows]
    lines += [
        "",
        *(
            f"- `{name}`: {', '.join(where)}. {REASONS.get(name, '')}".rstrip()
            for name, where in product.ambiguous.items()
        ),
    ]
    return "\n".join(lines).rstrip()


def _module(path: Path, root: Path) -> Module:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    relative = path.relative_to(root)
    return Module(
        path=str(relative),
        name=".".join(relative.with_suffix("").parts).removesuffix(".__init__"),
        lines=len(text.splitlines()),
        code_lines=_code_lines(text, tree),
        classes=tuple(
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        ),
        functions=tuple(
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("_")
        ),
        imports=frozenset(_imports(tree)),
        impurities=tuple(impurities(tree)),
        wording=wording(tree),
        vague=Counter(re.findall(rf"\b(?:{'|'.join(VAGUE)})\b", " ".join(_texts(text, tree)))),
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _code_lines(text: str, tree: ast.Module) -> int:
    docstrings = {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in docstrings
        for number, line in enumerate(text.splitlines(), start=1)
    )


def _shared(names: Iterable[str]) -> int:
    return sum(count > 1 for count in Counter(names).values())


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _texts(text: str, tree: ast.Module) -> Iterator[str]:
    """Every string and every comment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    yield from re.findall(r"(?m)(?:^|\s)#\s.*$", text)


def _reached(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


_PAGE: Final = """\
# Figures of the source tree

Written by `make docs`. `make check` prints the figures of the tree at hand, and fails where the
product is past a limit. [The architecture](architecture.md) has what each folder is for,
[the style](style.md) how code should read.

{report}

A class name counts once for each module that defines it; names that begin with an underscore do
not count. Imports within functions and for types alone count for circles too. The last row counts
words in docstrings, comments and texts for which there mostly are better ones.
"""


if __name__ == "__main__":
    sys.exit(main())
