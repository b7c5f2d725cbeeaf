# SPDX-License-Identifier: Apache-2.0
"""The doctor's tests see no program that happens to run on the machine of whoever runs them."""

from __future__ import annotations

import pytest

from diagnosis.facts import local_facts


@pytest.fixture(autouse=True)
def idle_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with nothing but the kernel's own threads."""
    monkeypatch.setattr(local_facts, "read_program_names", lambda: frozenset({"kthreadd"}))
