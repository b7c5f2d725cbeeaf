# SPDX-License-Identifier: Apache-2.0
"""Errors of NVSwitches as series."""

from __future__ import annotations

from exporters.gpuscape.switch_errors import Severity, Sxid
from tests import build, exposition
from tests.exporters.gpuscape_series import told


def test_errors_are_counted_and_dated_by_switch_code_and_severity() -> None:
    sxid = Sxid(
        bus_id="0000:05:00.0",
        code=20034,
        severity=Severity.NON_FATAL,
        count=3,
        last_seen_seconds=1.5e9,
    )
    labels: exposition.Labels = (("severity", "non_fatal"), ("sxid", "20034"))

    errors = told("gpuscape_nvswitch_errors_total", build.node(), sxids=[sxid])
    last = told("gpuscape_nvswitch_error_last_timestamp_seconds", build.node(), sxids=[sxid])

    assert errors == {labels: 3}
    assert last == {labels: 1.5e9}
