# SPDX-License-Identifier: Apache-2.0
"""The same figures from files of both versions, as kernels write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.process_cgroup import ProcessCgroup

POD = "kubepods/pod7/container"
V1 = f"""\
9:name=systemd:/{POD}
5:memory:/{POD}
3:cpuset:/
2:cpu,cpuacct:/{POD}
0::/
"""
V2 = f"0::/{POD}\n"
FILES = {
    V1: {
        f"memory/{POD}/memory.limit_in_bytes": "201326592\n",
        f"memory/{POD}/memory.failcnt": "3\n",
        f"memory/{POD}/memory.max_usage_in_bytes": "4096\n",
        f"cpuacct/{POD}/cpuacct.usage": "1500000000\n",
        f"cpu/{POD}/cpu.cfs_quota_us": "1000\n",
        f"cpu/{POD}/../cpu.cfs_quota_us": "2000\n",
    },
    V2: {
        f"{POD}/memory.max": "201326592\n",
        f"{POD}/memory.events": "low 8\nhigh 7\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n",
        f"{POD}/memory.peak": "4096\n",
        f"{POD}/cpu.stat": "usage_usec 1500000\nuser_usec 1\nsystem_usec 2\n",
        f"{POD}/cpu.max": "1000 100000\n",
        f"{POD}/../cpu.max": "2000 100000\n",
    },
}


@pytest.fixture(params=[V1, V2], ids=["version-1", "version-2"])
def cgroup(request: pytest.FixtureRequest, tmp_path: Path) -> ProcessCgroup:
    for name, content in FILES[request.param].items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return ProcessCgroup(text=request.param, root=tmp_path)


def test_both_versions_say_the_same(cgroup: ProcessCgroup) -> None:
    assert cgroup.memory_limit_bytes == 192 << 20
    assert cgroup.memory_limit_hits == 3
    assert cgroup.memory_peak_bytes == 4096
    assert cgroup.cpu_seconds == 1.5


def test_a_limit_of_processor_time_is_lifted_from_container_and_pod(cgroup: ProcessCgroup) -> None:
    cgroup.lift_cpu_limit()

    name, most = ("cpu.max", "max") if cgroup.is_unified else ("cpu.cfs_quota_us", "-1")
    files = sorted(cgroup.root.rglob(name))
    assert len(files) == 2
    assert {it.read_text() for it in files} == {most}
