# SPDX-License-Identifier: Apache-2.0
"""The real promtool on all that we name ourselves."""

from __future__ import annotations

import pytest

from discovery.model import Xid
from exporters.gpuscape.agent_metrics import AgentMetrics, ProgramUse
from exporters.gpuscape.families import FAMILIES, GpuscapeFamilies
from exporters.gpuscape.process_use import ProcessUse
from tests import build, exposition
from tests.exporters.gpuscape_series import HOSTILE, everything
from tests.monitoring import promtool

pytestmark = pytest.mark.cluster


def test_promtool_finds_nothing_in_our_own_families() -> None:
    shown = set[str]()
    for instances in (0, 2):
        snapshot, samples, about = everything(2, instances)
        body = GpuscapeFamilies().render(snapshot, samples, **about)
        shown |= exposition.parse(body).keys()

        assert promtool.check_metrics(body) == []
    assert shown == {family.name for family in FAMILIES}


def test_promtool_can_read_hostile_text() -> None:
    gpus = [build.gpu(at, uuid=text, model=text) for at, text in enumerate(HOSTILE.values())]
    uses = [ProcessUse(bus_id=gpu.bus_id, pid="1", name=gpu.uuid, memory_bytes=1) for gpu in gpus]

    body = GpuscapeFamilies().render(build.node(gpus), (), processes=uses)

    assert promtool.check_metrics(body) == []


def test_promtool_finds_nothing_in_what_the_agent_says_of_itself() -> None:
    own = AgentMetrics("1", clock=lambda: 0.0)
    own.snapshot_taken(build.node([build.gpu(xids=(Xid(code=79, count=1),))]), taken_at=0)
    own.samples_taken(0.0)
    own.source_answered("nvml", 1.0)
    own.cycle_done("sample", 0.2)
    own.unknown_devices("pod-resources", 1)
    own.labeler_failed("health")
    own.serving.refused("credentials")
    own.programs_use({"agent": ProgramUse(cpu_seconds=1.0, resident_bytes=1)})

    assert promtool.check_metrics(own.render() + own.render_now()) == []


def test_promtool_would_find_what_is_wrong() -> None:
    assert promtool.check_metrics("# HELP a_ms A.\n# TYPE a_ms counter\na_ms 1\n") != []
