# SPDX-License-Identifier: Apache-2.0
"""Every module names the licence in its first line, so that a copied file says whose it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LINE = "# SPDX-License-Identifier: Apache-2.0\n"


def test_every_module_that_is_not_generated_names_its_licence_first() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    modules = [
        module
        for folder in (*packages, "tests", "tools")
        for module in (REPOSITORY / folder).rglob("*.py")
        if not module.name.endswith("_pb2.py")
    ]

    assert modules
    assert [module for module in modules if not module.read_text().startswith(LINE)] == []
