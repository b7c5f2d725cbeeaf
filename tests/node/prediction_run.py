# SPDX-License-Identifier: Apache-2.0
"""Predictions against real kubelets under each policy, for docs/scheduler-quality.md.

``python -m tests.node.prediction_run`` writes the section; ``make bench`` runs it. It takes root
and a quarter of an hour. Where no real node can run it says so and leaves the section as it is.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from placement.kubelet_model import TopologyManager
from tests.bench.page import REAL_NODES, with_section
from tests.bench.placement import PAGE
from tests.controlplane.builds import NotPreparedError
from tests.controlplane.prepare import say
from tests.node.predicted_gpus import GivenGpus, page, unexplained
from tests.node.prediction_trial import trials

MACHINES: Final = ("dgx1-v100", "a100-pcie-pairs")
"""With two NUMA nodes of four GPUs each, and links that are not all alike."""
PODS: Final = 40
"""On each machine, under each policy."""
POLICIES: Final = (
    TopologyManager.NONE,
    TopologyManager.BEST_EFFORT,
    TopologyManager.SINGLE_NUMA_NODE,
)


def run(policy: TopologyManager, pods: int = PODS) -> Iterator[GivenGpus]:
    """Pods on each of the machines, which stand next to each other."""
    with (
        tempfile.TemporaryDirectory(prefix="gs-") as folder,
        trials(Path(folder), policy, *MACHINES) as nodes,
        ThreadPoolExecutor(len(nodes)) as at_once,
    ):
        for found in at_once.map(lambda trial: list(trial.run(pods)), nodes):
            yield from found


def main() -> int:
    """Run all and write the section; the exit code."""
    found: list[GivenGpus] = []
    try:
        for policy in POLICIES:
            say(f"{PODS} pods on each of {', '.join(MACHINES)}, TopologyManager {policy}")
            found += run(policy)
    except NotPreparedError as error:
        say(str(error))
        return 0
    PAGE.write_text(
        with_section(PAGE.read_text("utf-8"), REAL_NODES, page(found)), encoding="utf-8"
    )
    for each in unexplained(found):
        say(f"unexplained: {each}")
    return int(bool(unexplained(found)))


if __name__ == "__main__":
    sys.exit(main())
