# SPDX-License-Identifier: Apache-2.0
"""The number of NVLinks that should be up, which health and a metric both read."""

from __future__ import annotations

from api.fabric_kind import FabricKind
from discovery.model import NvLink
from health.expected_links import expected_links
from health.gpu_health import gpu_verdict
from tests import build
from tests.exporters.gpuscape_series import linked


def links(up: int, unread: int = 0) -> tuple[NvLink, ...]:
    known = tuple(NvLink(link=number, active=number < up) for number in range(4 - unread))
    return (*known, *(NvLink(link=number) for number in range(4 - unread, 4)))


def test_a_peer_that_reported_only_some_links_raises_what_is_expected_by_those() -> None:
    gpu, peer = build.gpu(0, links=links(2)), build.gpu(1, links=links(3, unread=1))
    topology = linked([[0, 0], [0, 0]], FabricKind.SWITCH)
    node = build.node((gpu, peer), topology=topology)

    assert expected_links(gpu, node) == 3
    assert expected_links(peer, node) is None
    assert gpu_verdict(gpu, node).reason == "nvlink-inactive"
