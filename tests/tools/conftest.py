# SPDX-License-Identifier: Apache-2.0
"""The tools are scripts beside the packages; tests load them by path."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_tool() -> ModuleType:
    """tools/run.py."""
    return _tool("run")


@pytest.fixture
def generate_tool() -> ModuleType:
    """tools/generate.py."""
    return _tool("generate")


@pytest.fixture
def image_tool() -> ModuleType:
    """tools/image_root.py."""
    return _tool("image_root")
