# SPDX-License-Identifier: Apache-2.0
"""A Prometheus that scrapes the simulated fleet, with the shipped rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.monitoring import fleet as simulated
from tests.monitoring import prometheus as real
from tests.monitoring.fleet import Fleet
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.shipped import RULES


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Nine nodes with pods and some trouble; see fleet.py."""
    with simulated.running(tmp_path_factory.mktemp("fleet")) as running:
        yield running


@pytest.fixture(scope="package")
def prometheus(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It has scraped the fleet and evaluated the rules on it."""
    config = real.configuration(fleet.jobs(), rule_files=[RULES])
    with real.running(tmp_path_factory.mktemp("prometheus"), config) as running:
        running.wait_for("instance:gpuscape_gpu_active:avg offset 10s")
        yield running
