# SPDX-License-Identifier: Apache-2.0
"""When the state file is written, and what its last write has."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.gpu_records import GpuRecords
from agent.records_file import RecordsFile
from agent.stored_records import FORMAT
from base.defects import Defects
from exporters.gpuscape.waste import GpuUse
from tests.agent.agent_process import until

ENTITY = ("0000:10:00.0", None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host that has been started."""
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("one\n")
    return tmp_path


def allocated(file: Path) -> list[float]:
    """Seconds for which each GPU was held, as the file has them."""
    found = FORMAT.decode(file.read_bytes())
    return [] if found is None else [it.allocated for it in found.waste]


def test_the_last_write_has_the_times_that_grew_since_the_one_before(root: Path) -> None:
    file, records = root / "state.json", GpuRecords()
    holder = frozenset({("team", "alice", "main")})
    with RecordsFile(file, root, records).kept(Defects()):
        until(file.exists)
        for at in (0.0, 10.0):
            use = GpuUse(entity=ENTITY, at_seconds=at, held_by=holder, busy_ratio=0.5)
            records.waste.add([use])
    until(lambda: allocated(file) == [10.0])  # where the disk is slow, soon after the block
