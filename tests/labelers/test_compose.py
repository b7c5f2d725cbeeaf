# SPDX-License-Identifier: Apache-2.0
"""All labelers together: owners, isolation, legality."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api import keys
from api.mig_resources import MigStrategy
from discovery.model import (
    Fabric,
    GpuSnapshot,
    GpuState,
    Host,
    Mode,
    NodeSnapshot,
    Reason,
    Vgpu,
    Xid,
)
from labelers.compose import LABELERS, Labeler, decide_labels
from labelers.decision import Absent, Decisions, Keep, Value
from labelers.groups.health_labels import health_labels
from labelers.groups.sharing import SharedResource, Sharing, SharingStrategy
from labelers.label_settings import LabelSettings
from labelers.label_values import value_fault
from tests import build

MODE_KEY = "nvidia.com/gpu.mode"


def broken(_: NodeSnapshot, __: LabelSettings) -> Decisions:
    raise KeyError("oops")


def test_each_label_has_exactly_one_owner() -> None:
    owned = [key for labeler in LABELERS for key in labeler.keys]

    assert sorted(key.name for key in owned) == sorted(key.name for key in keys.LABELS)


def test_every_key_is_decided_and_rows_are_sorted() -> None:
    rows = decide_labels(build.node([build.gpu()]), LabelSettings()).rows

    assert [row.key for row in rows] == sorted({row.key for row in rows})
    assert {key.name for key in keys.LABELS} <= {row.key for row in rows}


def test_a_labeler_that_fails_keeps_its_own_labels_and_hides_no_others() -> None:
    labelers = (
        Labeler("links", keys.LINKS, broken),
        Labeler("health", keys.HEALTHS, health_labels),
    )

    labels = decide_labels(build.node([build.gpu()]), LabelSettings(), labelers)

    assert {type(labels.decisions[key.name]) for key in keys.LINKS} == {Keep}
    assert labels.values["gpuscape.io/gpu.health"] == "healthy"
    assert [(failure.labeler, failure.error) for failure in labels.failures] == [
        ("links", "KeyError: 'oops'")
    ]


def test_a_labeler_that_takes_another_ones_key_has_failed() -> None:
    def greedy(_: NodeSnapshot, __: LabelSettings) -> Decisions:
        return {**{key.name: Absent(reason="") for key in keys.LINKS}, MODE_KEY: Value(text="x")}

    labels = decide_labels(build.node(), LabelSettings(), (Labeler("links", keys.LINKS, greedy),))

    assert MODE_KEY not in labels.decisions
    assert [failure.labeler for failure in labels.failures] == ["links"]


def test_a_labeler_that_forgets_a_key_has_failed() -> None:
    def lazy(_: NodeSnapshot, __: LabelSettings) -> Decisions:
        return {}

    labels = decide_labels(build.node(), LabelSettings(), (Labeler("links", keys.LINKS, lazy),))

    assert "gpuscape.io/nvlink.class" in labels.failures[0].error


def test_what_went_wrong_in_a_labeler_names_it_its_keys_and_its_error() -> None:
    def odd(_: NodeSnapshot, __: LabelSettings) -> Decisions:
        island = Value(text="1")
        return {keys.NVLINK_CLASS: island, keys.NVLINK_ISLAND: island, MODE_KEY: island}

    labelers = (
        Labeler("links", keys.LINKS, odd),
        Labeler("health", keys.HEALTHS, broken),
    )

    labels = decide_labels(build.node(), LabelSettings(), labelers)

    links = f"decided foreign keys ['{MODE_KEY}'], left out ['{keys.CLIQUE}']"
    assert [(failure.labeler, failure.error) for failure in labels.failures] == [
        ("links", f"ValueError: {links}"),
        ("health", "KeyError: 'oops'"),
    ]
    assert labels.decisions == {
        **{key.name: Keep(reason=f"the labeler links failed: {links}") for key in keys.LINKS},
        **{key.name: Keep(reason="the labeler health failed: 'oops'") for key in keys.HEALTHS},
    }
    assert {row.labeler for row in labels.rows if row.key == keys.HEALTH} == {"health"}


def test_an_illegal_value_drops_its_own_label_only_and_says_why() -> None:
    host = Host(name="node-a", machine_type="To Be Filled By O.E.M.")

    labels = decide_labels(build.node([build.gpu()], host=host), LabelSettings())

    assert labels.illegal == ("nvidia.com/gpu.machine",)
    assert labels.decisions["nvidia.com/gpu.machine"] == Absent(
        reason="'To-Be-Filled-By-O.E.M.' is not a legal label value:"
        " the first and last character must be a letter or a digit"
    )
    assert labels.values["nvidia.com/gpu.product"] == "MOCKMODEL"


def test_a_product_too_long_with_its_mig_profile_is_dropped() -> None:
    gpu = build.gpu(
        model="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        mig=build.SPLIT,
        mig_devices=(build.mig_device("1g.24gb"),),
    )

    labels = decide_labels(build.node([gpu]), LabelSettings(mig_strategy=MigStrategy.SINGLE))

    assert labels.illegal == ("nvidia.com/gpu.product",)
    assert labels.values["nvidia.com/gpu.count"] == "1"


def texts() -> st.SearchStrategy[str]:
    return st.text(max_size=70) | st.sampled_from(["NVIDIA A100", "Tesla T4", "O.E.M."])


def maybe(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | of


@st.composite
def gpus(draw: st.DrawFn, at: int) -> GpuSnapshot:
    devices = st.builds(
        build.mig_device,
        st.sampled_from(["1g.5gb", "1g.5gb+me", "3g.20gb", "1c.2g.10gb", "1g.10gb-me"]),
        gi=st.integers(0, 6),
    )
    gpu = build.gpu(
        at,
        state=draw(st.sampled_from(GpuState)),
        model=draw(maybe(texts())),
        memory_bytes=draw(maybe(st.integers(0, 1 << 40))),
        memory_bus_bits=draw(maybe(st.integers(0, 9000))),
        compute_capability=draw(maybe(st.tuples(st.integers(0, 15), st.integers(0, 9)))),
        pci_class=draw(maybe(st.sampled_from([0x030000, 0x030200]))),
        mig=draw(maybe(st.builds(Mode, current=st.booleans(), pending=st.booleans()))),
        mig_devices=tuple(draw(st.lists(devices, max_size=3))),
        fabric=draw(
            maybe(
                st.builds(
                    Fabric,
                    state=st.integers(0, 3),
                    status=st.sampled_from([0, 999]),
                    cluster_uuid=st.uuids().map(str),
                    clique_id=st.integers(0, 2**32 - 1),
                    health_mask=maybe(st.integers(0, 2**32 - 1)),
                )
            )
        ),
        recovery_action=draw(maybe(st.integers(0, 9))),
        xids=tuple(
            draw(st.lists(st.builds(Xid, code=st.integers(0, 200), count=st.just(1)), max_size=2))
        ),
    )
    missing = draw(st.lists(st.sampled_from(["model", "mig", "fabric", "links"]), max_size=2))
    for what in missing:
        gpu = build.lacking(gpu, what, draw(st.sampled_from(Reason)))
    return gpu


@st.composite
def nodes(draw: st.DrawFn) -> NodeSnapshot:
    node = build.node([draw(gpus(at)) for at in range(draw(st.integers(0, 3)))])
    vgpu = Vgpu(present=True, host_driver_version=draw(texts()), host_driver_branch=draw(texts()))
    host = replace(node.host, machine_type=draw(maybe(texts())), vgpu=vgpu)
    driver = replace(node.driver, version=draw(maybe(texts())))
    return replace(node, host=host, driver=driver)


SHARED = Sharing(
    strategy=SharingStrategy.MPS, resources=(SharedResource(name="nvidia.com/gpu", replicas=9),)
)


@given(
    nodes(),
    st.builds(
        LabelSettings,
        mig_strategy=st.sampled_from(MigStrategy),
        sharing=st.sampled_from([Sharing(), SHARED]),
        timestamp_seconds=maybe(st.just(1_700_000_000)),
    ),
)
def test_whatever_a_node_says_labels_are_legal_and_of_their_format(
    node: NodeSnapshot, settings: LabelSettings
) -> None:
    labels = decide_labels(node, settings)

    assert labels.failures == ()
    for key, text in labels.values.items():
        registered = keys.label(key)
        assert registered is not None
        assert registered.value is not None
        assert re.fullmatch(registered.value, text), (key, text)
        assert value_fault(text) is None
