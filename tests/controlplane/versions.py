# SPDX-License-Identifier: Apache-2.0
"""Versions of Kubernetes as parameters of tests that take long."""

from __future__ import annotations

from typing import Final

import pytest

from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, MINORS

VERSIONS: Final = [
    minor if minor == CONTROLLER_MANAGER_MINOR else pytest.param(minor, marks=pytest.mark.long)
    for minor in reversed(MINORS)
]
"""The newest Kubernetes; in ``make long`` the oldest one too."""
