# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests that need the control plane, and what becomes of them where it is missing.

A test that cannot have it is skipped, and the run's last lines say so; with CI=true it fails.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.builds import NotPreparedError
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, MINORS

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane

RUN = "CONTROLPLANE_RUN"
"""Environment variable of a run's test processes: the process that ends last."""

WITHOUT = "without"
"""Name of a report's property: what a test went without, and how to get it."""


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Plane:
    """The newest Kubernetes, with controllers; shared, so make Nodes and namespaces of your own."""
    return _shared(CONTROLLER_MANAGER_MINOR, tmp_path_factory)


@pytest.fixture(scope="session", params=MINORS)
def any_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Plane:
    """Each Kubernetes that is served, one after the other; shared as ``plane`` is."""
    return _shared(request.param, tmp_path_factory)


def _shared(minor: str, folders: pytest.TempPathFactory) -> Plane:
    from tests.controlplane.shared import shared_plane  # heavy, and few tests need it

    folder = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # a worker's own folder lies in the run's
    return shared_plane(minor, folder, int(os.environ[RUN]))


def pytest_configure(config: pytest.Config) -> None:
    """Tell the workers which process the run ends with."""
    if not hasattr(config, "workerinput"):
        os.environ[RUN] = str(os.getpid())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that needs what is not built or not allowed here, unless CI=true."""
    report = yield
    if call.excinfo and isinstance(call.excinfo.value, NotPreparedError):
        reason = str(call.excinfo.value)
        report.user_properties.append((WITHOUT, reason))
        if os.environ.get("CI") != "true":
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {reason}")
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say last which tests went without the control plane or a node, and why."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    reports = [
        report for kind in ("skipped", "failed", "error") for report in reporter.stats.get(kind, ())
    ]
    for line in missing_lines(reports):
        reporter.write_line(line)


def missing_lines(reports: Sequence[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """What is said of the tests among these that went without; nothing where none did."""
    without = [
        (report.nodeid.split("::")[0], str(reason), report.failed)
        for report in reports
        if isinstance(report, pytest.TestReport)  # what could not be collected is here too
        for name, reason in report.user_properties
        if name == WITHOUT
    ]
    if not without:
        return []
    how = "failed" if any(failed for _, _, failed in without) else "skipped"
    files = Counter(file for file, _, _ in without)
    named = ", ".join(f"{file} ({count})" for file, count in sorted(files.items()))
    return [
        f"{len(without)} tests {how} for want of what they run on: {named}",
        *(f"  {reason}" for reason in sorted({reason for _, reason, _ in without})),
    ]
