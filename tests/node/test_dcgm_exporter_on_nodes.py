# SPDX-License-Identifier: Apache-2.0
"""gpuscape in dcgm-exporter's place on a real node, by the page's lines, and back.

dcgm-exporter itself is a stand-in (:mod:`tests.node.dcgm_exporter`). A real Prometheus finds both
by one and the same Service and scrapes each second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import pytest

from tests import pages
from tests.agent.agent_process import until
from tests.controlplane.plane import Object
from tests.monitoring.prometheus import Prometheus, Series
from tests.node import prometheus_pod
from tests.node.chart_cluster import ChartCluster, chart_cluster
from tests.node.container_agents import is_ready
from tests.node.dcgm_exporter import (
    COUNTERS,
    NAME,
    OURS,
    SERVICE,
    STAND_IN,
    write_chart,
    write_images,
)
from tests.node.gpu_cluster import NAMESPACE, PODS
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1200)]

PAGE: Final = pages.page("docs/dcgm-exporter.md")
MACHINE: Final = "a100-pcie-pairs"
MOST_GAP_SECONDS: Final = 15.0
"""As for an upgrade, with its scrapes each second."""
SERIES: Final = '{__name__=~"DCGM_FI_DEV_.+"}'
AT: Final = "timestamp(DCGM_FI_DEV_GPU_TEMP)"
OF_THE_POD: Final = {"instance", "endpoint", "pod", "container", "namespace", "service"}
"""Labels that name the scraped pod, or the one that holds the GPU; another pod has others."""
Identity = tuple[tuple[str, str], ...]


def test_dashboards_have_their_series_while_the_image_changes_and_changes_back(
    tmp_path: Path,
) -> None:
    with chart_cluster(tmp_path / "cluster", MACHINE) as stage:
        ((name, gpus),) = stage.gpus.items()
        node, lines = stage.cluster.nodes[name], tmp_path / "lines"
        python = str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined] # typeshed lacks it
        node.import_image(write_images(tmp_path / "images.tar", gpus.simulation, python))
        write_chart(lines)
        stage.type(f"helm install {NAME} gpu-helm-charts/{NAME}", tree=lines)
        until(lambda: runs(stage, STAND_IN), SOON)
        with prometheus_pod.running(
            stage.cluster, node, tmp_path / "prometheus", job=SERVICE, scraped=NAMESPACE
        ) as prometheus:
            until(lambda: shown(prometheus) != set(), SOON)
            before = shown(prometheus)
            assert len(before) == len(COUNTERS) * 8

            with no_gap(prometheus, before):
                stage.type(pages.marked(PAGE, "chart"), tree=lines)
                until(lambda: runs(stage, OURS), SOON)
                until(lambda: shown(prometheus) == before, SOON)
            with no_gap(prometheus, before):
                stage.type(pages.marked(PAGE, "chart-back"), tree=lines)
                until(lambda: runs(stage, STAND_IN), SOON)
                until(lambda: shown(prometheus) == before, SOON)


def runs(stage: ChartCluster, image: str) -> bool:
    """Whether the exporter's one pod is ready with that image."""
    path = f"{PODS}?labelSelector=app.kubernetes.io%2Fname%3D{NAME}"
    found: list[Object] = stage.cluster.plane.demand("GET", path)["items"]
    images = [pod["spec"]["containers"][0]["image"] for pod in found]
    return images == [image] and is_ready(found[0])


def shown(prometheus: Prometheus) -> set[Identity]:
    """Series that there are now, as dashboards tell them apart."""
    return {identity(it) for it in prometheus.query(SERIES) if it.labels["__name__"] in COUNTERS}


def identity(series: Series) -> Identity:
    """All labels but those of the pod, with the metric's name."""
    return tuple(sorted(it for it in series.labels.items() if it[0] not in OF_THE_POD))


@contextmanager
def no_gap(prometheus: Prometheus, wanted: set[Identity]) -> Iterator[None]:
    """What happens in the block leaves each series without a gap, and without a second one beside
    it, which would double a sum."""
    began = time.time()
    yield
    ended = time.time()
    until(lambda: newest(prometheus) > ended, SOON)
    by_pod: dict[Identity, list[list[float]]] = {each: [] for each in wanted}
    for found in prometheus.samples(SERIES, time.time() - began):
        if (each := identity(found)) in by_pod:
            by_pod[each].append([at for at, _ in found.points if at > began])
    for each, its in by_pod.items():
        moments = [began, *chain.from_iterable(sorted(its))]
        gaps = [after - before for before, after in pairwise(moments)]
        assert max(gaps) < MOST_GAP_SECONDS, each
        assert moments == sorted(moments), each  # of two pods beside each other they are mixed


def newest(prometheus: Prometheus) -> float:
    """When the series that was scraped longest ago was."""
    return min((it.value for it in prometheus.query(AT)), default=0.0)
