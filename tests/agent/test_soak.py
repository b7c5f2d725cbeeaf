# SPDX-License-Identifier: Apache-2.0
"""The agent at ten times its rate for hours: nothing of it grows, whatever comes and goes."""

from __future__ import annotations

import pytest

from tests.bench import soak
from tests.bench.report import machine

PERIODS = round(2 * 3600 / soak.PERIOD_SECONDS)
"""Two hours: in the first quarter of an hour caches fill by 3 MiB, which looks like a leak."""


def test_an_agent_serves_through_everything_that_the_soak_does_to_it() -> None:
    """One period for each event, too few to say anything about growth."""
    soaked = soak.soak(len(soak.EVENTS), period_seconds=1.5, options=("--deadline", "500ms"))

    assert soaked.failures == ()
    assert len(soaked.agent) == len(soaked.reader) == len(soak.EVENTS)
    assert min(look.memory_mib for look in (*soaked.agent, *soaked.reader)) > 0
    assert 'pod="pod-' in soaked.text
    assert soak.PROCESSES_SHOWN in soaked.text
    assert "| agent |" in soak.page(soaked, "")


@pytest.mark.long
@pytest.mark.timeout(PERIODS * soak.PERIOD_SECONDS + 600)
def test_memory_descriptors_and_threads_stay_as_they_are() -> None:
    soaked = soak.soak(PERIODS)

    soak.PAGE.write_text(soak.page(soaked, machine()), encoding="utf-8")
    assert soaked.failures == ()
    assert soak.flat(soaked.agent)
    assert soak.flat(soaked.reader)
    assert soaked.together.upper <= soak.TARGET_MIB_PER_HOUR
