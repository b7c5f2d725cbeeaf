# SPDX-License-Identifier: Apache-2.0
"""NVLinks: which are up, which should be, what went over them."""

from __future__ import annotations

import pytest

from api.fabric_kind import FabricKind
from discovery.model import GpuSnapshot, NvLink
from discovery.nvml_terms import LinkPeer
from discovery.sample import LinkCounters, LinkError, NvLinkErrors
from exporters.gpuscape.families import GpuscapeFamilies
from tests import build
from tests.exporters.gpuscape_series import by_gpu, linked, told, value


def links(up: int, of: int = 4) -> tuple[NvLink, ...]:
    return tuple(NvLink(link=at, active=at < up) for at in range(of))


def expected(*gpus: GpuSnapshot, kind: FabricKind = FabricKind.SWITCH) -> dict[str, float]:
    topology = linked([[0] * len(gpus)] * len(gpus), kind)
    body = GpuscapeFamilies().render(build.node(gpus, topology=topology), ())
    return by_gpu(body, "gpuscape_gpu_nvlinks_expected")


def test_links_of_a_gpu_are_counted() -> None:
    gpu = build.gpu(links=links(3))

    assert value("gpuscape_gpu_nvlinks", gpu) == 4
    assert value("gpuscape_gpu_nvlinks_active", gpu) == 3


def test_links_that_could_not_all_be_read_are_not_counted() -> None:
    unread = NvLink(link=2)
    node = build.node([build.gpu(links=(*links(2), unread))])

    assert told("gpuscape_gpu_nvlinks_active", node) == {}
    assert told("gpuscape_gpu_nvlinks", build.node([build.gpu()])) == {}


def test_as_many_are_expected_as_the_best_of_its_model_has_up() -> None:
    other = build.gpu(2, links=links(2), model="OTHER")

    found = expected(build.gpu(0, links=links(4)), build.gpu(1, links=links(3)), other)

    assert list(found.values()) == [4, 4, 2]


@pytest.mark.parametrize("kind", [FabricKind.NONE, FabricKind.BRIDGE])
def test_where_not_all_should_be_linked_nothing_is_expected(kind: FabricKind) -> None:
    assert expected(build.gpu(links=links(4)), kind=kind) == {}


def test_under_mig_nothing_is_expected_of_a_gpu_nor_by_it() -> None:
    split, whole = build.gpu(0, links=links(4), mig=build.SPLIT), build.gpu(1, links=links(2))

    assert expected(split, whole) == {whole.bus_id: 2}


def test_each_link_is_up_or_down_and_has_its_rate_and_its_far_end() -> None:
    gpu = build.gpu(
        links=(
            NvLink(
                link=0,
                active=True,
                peer=LinkPeer.GPU,
                peer_bus_id="0000:1b:00.0",
                bytes_per_second=25 * 10**9,
            ),
            NvLink(link=1, active=True, peer=LinkPeer.SWITCH),
            NvLink(link=2, active=False),
        )
    )
    node = build.node([gpu])

    assert list(told("gpuscape_nvlink_up", node).values()) == [1, 1, 0]
    assert told("gpuscape_nvlink_line_rate_bytes_per_second", node) == {(("link", "0"),): 25e9}
    assert list(told("gpuscape_nvlink_info", node)) == [
        (("link", "0"), ("peer", "gpu"), ("peer_pci_bus_id", "0000:1b:00.0")),
        (("link", "1"), ("peer", "switch")),
    ]


def test_bytes_and_errors_are_counted_by_link() -> None:
    gpu = build.gpu()
    counters = (
        LinkCounters(
            link=0,
            received_bytes=10,
            sent_bytes=20,
            errors=((LinkError.BUFFER_OVERRUNS, 3), (LinkError.SYMBOL, 0)),
        ),
        LinkCounters(link=17, sent_bytes=30),
    )
    node, samples = build.node([gpu]), [build.sample(gpu, links=counters)]

    assert told("gpuscape_nvlink_received_bytes_total", node, samples) == {(("link", "0"),): 10}
    assert told("gpuscape_nvlink_sent_bytes_total", node, samples) == {
        (("link", "0"),): 20,
        (("link", "17"),): 30,
    }
    assert told("gpuscape_nvlink_errors_total", node, samples) == {
        (("error", "buffer_overruns"), ("link", "0")): 3,
        (("error", "symbol"), ("link", "0")): 0,
    }


def test_errors_over_all_links_are_told_by_kind_where_the_gpu_counts_them() -> None:
    gpu = build.gpu()
    errors = build.only(NvLinkErrors, crc_flit=1, recovery=0)

    found = told(
        "gpuscape_gpu_nvlink_errors_total",
        build.node([gpu]),
        [build.sample(gpu, nvlink_errors=errors)],
    )

    assert found == {(("error", "crc_flit"),): 1, (("error", "recovery"),): 0}


def test_errors_for_which_data_was_sent_again_are_one_sum_for_either_generation() -> None:
    gpu = build.gpu(links=links(2))
    old = build.only(NvLinkErrors, crc_flit=1000, crc_data=1, replay=20, recovery=None)
    new = tuple(
        LinkCounters(link=at, errors=tuple((error, 10**at) for error in LinkError))
        for at in range(2)
    )
    name = "gpuscape_gpu_nvlink_transfer_errors_total"

    assert value(name, gpu, build.sample(gpu, nvlink_errors=old)) == 21
    assert value(name, gpu, build.sample(gpu, links=new)) == 11 * (len(LinkError) - 2)
    assert told(name, build.node([gpu]), [build.sample(gpu, links=(LinkCounters(link=0),))]) == {}
