# SPDX-License-Identifier: Apache-2.0
"""One browser for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import chromium
from tests.browser.chromium import Chromium


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """It has no history."""
    with chromium.running(tmp_path_factory.mktemp("browser")) as running:
        yield running
