# SPDX-License-Identifier: Apache-2.0
"""Memory and processor time of the agent's container on a real node, as its kubelet has them."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.agent.agent_process import until
from tests.bench.page import Section
from tests.node import full_machine, needs
from tests.node.container_agents import Agent, agents
from tests.node.real_cluster import RealCluster
from tests.node.real_node import SOON

SETTLE_SECONDS: Final = 40.0
"""Start and first reads are over then."""
MEASURED_SECONDS: Final = 60.0
SCRAPE_SECONDS: Final = 15.0
MIB: Final = 1 << 20
TITLE: Final = "The agent's container on a real node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one container takes."""

    series: int
    working_set_mib: float
    rss_mib: float
    peak_mib: float
    cpu_ratio: float
    """Of one core."""


def section() -> Section:
    """Run a cluster of one node; where none can run, give the reason in place of figures."""
    if reason := needs.why_not():
        text = f"Not measured in this run: no real node can run here ({reason})."
        return Section(title=TITLE, text=text, rows=())
    with (
        tempfile.TemporaryDirectory() as folder,
        RealCluster.start(Path(folder), nodes=1) as cluster,
    ):
        cluster.install()
        (agent,) = agents(cluster).values()
        shipped = measured(cluster, agent)
        (agent,) = full_machine.give(cluster).values()
        full = measured(cluster, agent)
    rows = (
        ("memory limit", "256 MiB", f"{full_machine.LIMIT_MIB} MiB"),
        ("series", f"{shipped.series:,}", f"{full.series:,}"),
        *(
            (what, f"{getattr(shipped, field):.1f} MiB", f"{getattr(full, field):.1f} MiB")
            for what, field in (
                ("working set", "working_set_mib"),
                ("of it not files", "rss_mib"),
                ("highest use since the start, files included", "peak_mib"),
            )
        ),
        ("share of one core", f"{shipped.cpu_ratio:.1%}", f"{full.cpu_ratio:.1%}"),
    )
    return Section(
        title=TITLE,
        text=(
            "The shipped DaemonSet in a container under kubelet 1.37 and containerd: uid 0 without "
            "capabilities, read-only root, seccomp RuntimeDefault. Once as it is, on a simulated "
            "DGX A100, and once with 16 GPUs, all DCGM and all gpuscape families, within "
            f"{full_machine.LIMIT_MIB} MiB. Memory is as the kubelet's /metrics/cadvisor has it, "
            "which counts each page for the cgroup that touched it first: what several readers "
            "and programs of the image map is in it once and whole. Processor time is the "
            f"cgroup's over {MEASURED_SECONDS:g} s, with a scrape every {SCRAPE_SECONDS:g} s. The "
            "simulator runs in the container and is counted, in both; a section above has what it "
            "takes."
        ),
        columns=("", "as shipped, 8 GPUs", "16 GPUs, everything read"),
        rows=rows,
    )


def measured(cluster: RealCluster, agent: Agent) -> Use:
    """What an agent's container takes, some time after its start."""
    until(lambda: "\nDCGM_FI_DEV_GPU_TEMP{" in agent.metrics(), SOON)
    time.sleep(SETTLE_SECONDS)
    before, began = agent.cgroup.cpu_seconds, time.monotonic()
    while time.monotonic() - began < MEASURED_SECONDS:
        text = agent.metrics()
        time.sleep(SCRAPE_SECONDS)
    used, seconds = agent.cgroup.cpu_seconds - before, time.monotonic() - began
    return Use(
        series=sum(not line.startswith("#") for line in text.splitlines()),
        working_set_mib=full_machine.kubelets_figure(
            cluster, agent, "container_memory_working_set_bytes"
        )
        / MIB,
        rss_mib=full_machine.kubelets_figure(cluster, agent, "container_memory_rss") / MIB,
        peak_mib=agent.cgroup.memory_peak_bytes / MIB,
        cpu_ratio=used / seconds,
    )
