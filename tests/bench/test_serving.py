# SPDX-License-Identifier: Apache-2.0
"""The load that is measured reaches the agent, and its figures come out."""

from __future__ import annotations

import math

import pytest

from tests.bench import serving


@pytest.mark.timeout(120)
def test_scrapes_beside_slow_clients_are_answered_in_full() -> None:
    seen = serving.measure(slow=150, scrapes_each_second=20, seconds=2.0, settle_seconds=0.0)

    assert len(seen.quiet_seconds) == len(seen.seconds) == 40
    assert [each for each in (*seen.quiet_seconds, *seen.seconds) if math.isinf(each)] == []
    assert seen.slow_connections >= 150
    assert seen.text_bytes > 100_000
    assert min(seen.before_mib, seen.under_load_mib, seen.after_mib) > 0
