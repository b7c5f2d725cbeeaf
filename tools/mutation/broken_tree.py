# SPDX-License-Identifier: Apache-2.0
"""A copy of the source tree in which every function has its mutants next to it."""

from __future__ import annotations

import ast
import difflib
import functools
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name, mangled_name_from_mutant_name


def write_tree(root: Path, target: Path, modules: Iterable[str]) -> list[str]:
    """Copy what git knows of ``root`` to ``target`` with ``modules`` broken; names of the mutants.

    A name is that of the module, a dot, and mutmut's name of the mutant:
    ``kube.lease.x_is_expired__mutmut_3``. The copy runs as the original does until the variable
    ``MUTANT_UNDER_TEST`` has one of the names.
    """
    shutil.rmtree(target, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for path in filter(None, listed.split("\0")):
        if (root / path).is_file():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, target / path)
    names = []
    for path in modules:
        broken = mutate_file_contents(path, (root / path).read_text("utf-8"))
        (target / path).write_text(broken.code, "utf-8")
        names += [get_mutant_name(Path(path), name) for name in broken.mutant_names]
    return names


def difference(target: Path, name: str) -> str:
    """The lines that the mutant removes and adds, as in a diff."""
    functions = _functions(target / f"{name.rpartition('.')[0].replace('.', '/')}.py")
    mutant = name.rpartition(".")[2]
    before, after = (
        functions[function].split("\n")
        for function in (f"{mangled_name_from_mutant_name(mutant)}__mutmut_orig", mutant)
    )
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[3:]
    return "\n".join(line for line in lines if "__mutmut_" not in line and line[:2] != "@@")


@functools.cache
def _functions(path: Path) -> dict[str, str]:
    return {
        node.name: ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
