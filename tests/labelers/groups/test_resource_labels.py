# SPDX-License-Identifier: Apache-2.0
"""What GPUs and MIG devices are called, counted and shared, by MIG strategy.

The cases are those of gpu-feature-discovery's own unit tests (v0.20.0, internal/lm
and cmd/gpu-feature-discovery), on its mock GPU: MOCKMODEL, 300 MiB, capability 8.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from api.mig_resources import MigStrategy
from discovery.model import GpuSnapshot, MigDevice, NodeSnapshot, Reason
from labelers.decision import Absent, Keep, Value
from labelers.diff import applied
from labelers.groups.resource_labels import family, resource_labels
from labelers.groups.sharing import NOTHING_SHARED, SharedResource, Sharing, SharingStrategy
from labelers.label_settings import LabelSettings
from tests import build

NONE, SINGLE, MIXED = MigStrategy.NONE, MigStrategy.SINGLE, MigStrategy.MIXED

ARCHITECTURE = {"family": "ampere", "compute.major": "8", "compute.minor": "0"}
NO_ENGINES = {
    "multiprocessors": "0",
    "engines.copy": "0",
    "engines.decoder": "0",
    "engines.encoder": "0",
    "engines.jpeg": "0",
    "engines.ofa": "0",
}


def cut(at: int, *devices: MigDevice, **facts: Any) -> GpuSnapshot:
    """A GPU with MIG on."""
    return build.gpu(at, mig=build.SPLIT, mig_devices=devices, **facts)


def shared(
    name: str = "nvidia.com/gpu",
    strategy: SharingStrategy = SharingStrategy.TIME_SLICING,
    **facts: Any,
) -> Sharing:
    """One resource cut into two shares."""
    resource = SharedResource(name=name, replicas=2, **facts)
    return Sharing(strategy=strategy, resources=(resource,))


def labels_of(
    node: NodeSnapshot, strategy: MigStrategy = NONE, sharing: Sharing = NOTHING_SHARED
) -> dict[str, str]:
    """The labels with a value, without their common prefix."""
    settings = LabelSettings(mig_strategy=strategy, sharing=sharing)
    decisions = resource_labels(node, settings)
    return {
        key.removeprefix("nvidia.com/"): decision.text
        for key, decision in decisions.items()
        if isinstance(decision, Value)
    }


def prefixed(resource: str, block: dict[str, str]) -> dict[str, str]:
    """The block's labels under the resource's name."""
    return {f"{resource}.{suffix}": text for suffix, text in block.items()}


def whole(
    product: str = "MOCKMODEL", count: str = "1", replicas: str = "1", sharing: str = "none"
) -> dict[str, str]:
    """The block of whole GPUs of the mock model."""
    block = {"product": product, "count": count, "replicas": replicas, "sharing-strategy": sharing}
    return prefixed("gpu", {**block, "memory": "300", **ARCHITECTURE})


def mig(
    product: str, count: str = "1", gi: str = "0", ci: str = "0", **other: str
) -> dict[str, str]:
    """The block of MIG devices of 100 MiB."""
    block = {"product": product, "count": count, "replicas": "1", "sharing-strategy": "none"}
    return {**block, "memory": "100", **NO_ENGINES, "slices.gi": gi, "slices.ci": ci, **other}


INVALID = {
    **whole("MOCKMODEL-MIG-INVALID", "0", "0", ""),
    "gpu.memory": "0",
    "mig.strategy": "single",
}

SMALL = build.mig_device("1g.100gb", gpu_instance_slices=1, compute_instance_slices=2)
THIRD = build.mig_device("3g.20gb", gi=2)
FIFTH = build.mig_device("1g.5gb", gi=1)
TINY = build.mig_device("1g.1gb")
RICH = build.mig_device(
    "1g.100gb",
    multiprocessors=1,
    gpu_instance_slices=2,
    compute_instance_slices=3,
    copy_engines=4,
    decoders=5,
    encoders=6,
    jpeg_engines=7,
    ofa_engines=8,
)
MPS = SharingStrategy.MPS


@dataclass(frozen=True)
class Case:
    """One of upstream's cases, and the whole set of resource labels expected."""

    promise: str
    gpus: tuple[GpuSnapshot, ...]
    labels: dict[str, str]
    strategy: MigStrategy = NONE
    sharing: Sharing = field(default=NOTHING_SHARED)


CASES = (
    Case("one whole GPU", (build.gpu(),), whole()),
    Case(
        "one GPU, time-sliced",
        (build.gpu(),),
        whole("MOCKMODEL-SHARED", "1", "2", "time-slicing"),
        sharing=shared(),
    ),
    Case(
        "two GPUs, time-sliced",
        (build.gpu(0), build.gpu(1)),
        whole("MOCKMODEL-SHARED", "2", "2", "time-slicing"),
        sharing=shared(),
    ),
    Case(
        "two GPUs, time-sliced and renamed",
        (build.gpu(0), build.gpu(1)),
        whole("MOCKMODEL", "2", "2", "time-slicing"),
        sharing=shared(renamed=True),
    ),
    Case(
        "MPS",
        (build.gpu(),),
        whole("MOCKMODEL-SHARED", "1", "2", "mps"),
        sharing=shared(strategy=MPS),
    ),
    Case(
        "sharing of another resource changes nothing",
        (build.gpu(),),
        whole(),
        sharing=shared("nvidia.com/other"),
    ),
    Case("none, one GPU cut", (cut(0),), whole(replicas="0"), sharing=shared()),
    Case(
        "none, two GPUs cut",
        (cut(0), cut(1, FIFTH)),
        whole(count="2", replicas="0"),
        sharing=shared(),
    ),
    Case(
        "none, one cut and one whole",
        (cut(0), build.gpu(1)),
        whole("MOCKMODEL-SHARED", "2", "2", "time-slicing"),
        sharing=shared(),
    ),
    Case(
        "single, whole GPUs only",
        (build.gpu(0), build.gpu(1)),
        {**whole(count="2"), "mig.strategy": "single"},
        SINGLE,
    ),
    Case(
        "single, one MIG device",
        (cut(0, SMALL),),
        {
            **whole(),
            **prefixed("gpu", mig("MOCKMODEL-MIG-1g.100gb", gi="1", ci="2")),
            "mig.strategy": "single",
        },
        SINGLE,
    ),
    Case(
        "single, two GPUs cut alike: attributes pass through",
        (cut(0, RICH), cut(1, RICH)),
        {
            **whole(),
            **prefixed(
                "gpu",
                {
                    "product": "MOCKMODEL-MIG-1g.100gb",
                    "count": "2",
                    "replicas": "1",
                    "sharing-strategy": "none",
                    "memory": "100",
                    "multiprocessors": "1",
                    "slices.gi": "2",
                    "slices.ci": "3",
                    "engines.copy": "4",
                    "engines.decoder": "5",
                    "engines.encoder": "6",
                    "engines.jpeg": "7",
                    "engines.ofa": "8",
                },
            ),
            "mig.strategy": "single",
        },
        SINGLE,
    ),
    Case("single, cut and empty", (cut(0),), INVALID, SINGLE),
    Case("single, two profiles", (cut(0, FIFTH, THIRD),), INVALID, SINGLE),
    Case("single, cut and whole", (cut(0, FIFTH), build.gpu(1)), INVALID, SINGLE),
    Case("single, cut and empty ones", (cut(0, FIFTH), cut(1)), {**INVALID}, SINGLE),
    Case(
        "single, cut, whole and empty",
        (cut(0, FIFTH), build.gpu(1), cut(2)),
        INVALID,
        SINGLE,
    ),
    Case(
        "single, MIG devices listed by a GPU with MIG off count for nothing",
        (build.gpu(0, mig_devices=(FIFTH,)),),
        {**whole(), "mig.strategy": "single"},
        SINGLE,
    ),
    Case(
        "mixed, two profiles on one GPU",
        (cut(0, THIRD, FIFTH),),
        {
            **whole(replicas="0"),
            "mig.strategy": "mixed",
            **prefixed("mig-3g.20gb", mig("MOCKMODEL-MIG-3g.20gb")),
            **prefixed("mig-1g.5gb", mig("MOCKMODEL-MIG-1g.5gb")),
        },
        MIXED,
    ),
    Case(
        "mixed, a GPU that is cut and empty is passed over",
        (cut(0, FIFTH), cut(1)),
        {
            **whole(count="2", replicas="0"),
            "mig.strategy": "mixed",
            **prefixed("mig-1g.5gb", mig("MOCKMODEL-MIG-1g.5gb")),
        },
        MIXED,
    ),
    Case(
        "mixed, MIG devices listed by a GPU with MIG off count for nothing",
        (build.gpu(0, mig_devices=(FIFTH,)),),
        {**whole(), "mig.strategy": "mixed"},
        MIXED,
    ),
    Case(
        "mixed, a profile's own sharing",
        (cut(0, TINY),),
        {
            **whole(replicas="0"),
            "mig.strategy": "mixed",
            **prefixed(
                "mig-1g.1gb",
                mig("MOCKMODEL-MIG-1g.1gb-SHARED")
                | {"replicas": "2", "sharing-strategy": "time-slicing"},
            ),
        },
        MIXED,
        shared("nvidia.com/mig-1g.1gb"),
    ),
    Case(
        "mixed, a profile's own sharing, renamed",
        (cut(0, TINY),),
        {
            **whole(replicas="0"),
            "mig.strategy": "mixed",
            **prefixed(
                "mig-1g.1gb",
                mig("MOCKMODEL-MIG-1g.1gb") | {"replicas": "2", "sharing-strategy": "time-slicing"},
            ),
        },
        MIXED,
        shared("nvidia.com/mig-1g.1gb", renamed=True),
    ),
    Case(
        "single, sharing is looked up under the name nvidia.com/gpu",
        (cut(0, FIFTH),),
        {
            **whole(),
            **prefixed(
                "gpu",
                mig("MOCKMODEL-MIG-1g.5gb-SHARED")
                | {"replicas": "2", "sharing-strategy": "time-slicing"},
            ),
            "mig.strategy": "single",
        },
        SINGLE,
        shared(),
    ),
    Case(
        "mixed, an attribute stands with a dot",
        (cut(0, build.mig_device("1g.5gb+me")),),
        {
            **whole(replicas="0"),
            "mig.strategy": "mixed",
            **prefixed("mig-1g.5gb.me", mig("MOCKMODEL-MIG-1g.5gb.me")),
        },
        MIXED,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.promise)
def test_resource_labels_are_upstreams(case: Case) -> None:
    assert labels_of(build.node(case.gpus), case.strategy, case.sharing) == case.labels


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((1, 3), "tesla"),
        ((2, 1), "fermi"),
        ((3, 7), "kepler"),
        ((4, 0), "undefined"),
        ((5, 2), "maxwell"),
        ((6, 1), "pascal"),
        ((7, 0), "volta"),
        ((7, 2), "volta"),
        ((7, 5), "turing"),
        ((8, 0), "ampere"),
        ((8, 6), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((10, 0), "blackwell"),
        ((10, 3), "blackwell"),
        ((11, 0), "undefined"),
        ((12, 1), "blackwell"),
        ((13, 0), "rubin"),
        ((14, 0), "undefined"),
        ((0, 0), "undefined"),
    ],
)
def test_the_family_follows_from_the_compute_capability(
    capability: tuple[int, int], name: str
) -> None:
    assert family(capability) == name


def test_capability_zero_is_no_capability() -> None:
    """Upstream's mock of a MIG parent gives 0.0, and then has none of the three."""
    labels = labels_of(build.node([build.gpu(compute_capability=(0, 0))]))

    assert labels.keys() & {"gpu.family", "gpu.compute.major", "gpu.compute.minor"} == set()


def test_on_a_mixed_node_the_most_frequent_model_speaks() -> None:
    node = build.node(
        [
            build.gpu(0, model="Aaa", memory_bytes=100 * build.MIB),
            build.gpu(1, model="Bbb", memory_bytes=200 * build.MIB, compute_capability=(9, 0)),
            build.gpu(2, model="Bbb", memory_bytes=200 * build.MIB, compute_capability=(9, 0)),
        ]
    )

    labels = labels_of(node)

    told = [labels[f"gpu.{suffix}"] for suffix in ("product", "count", "memory", "family")]
    assert told == ["Bbb", "2", "200", "hopper"]


@pytest.mark.parametrize("order", [("Aaa", "Bbb"), ("Bbb", "Aaa")])
def test_between_models_as_frequent_the_lower_name_speaks(order: tuple[str, str]) -> None:
    labels = labels_of(build.node([build.gpu(at, model=name) for at, name in enumerate(order)]))

    assert (labels["gpu.product"], labels["gpu.count"]) == ("Aaa", "1")


def test_a_model_with_a_whole_gpu_speaks_before_one_that_is_all_cut() -> None:
    labels = labels_of(
        build.node([cut(0, model="Aaa"), cut(1, model="Aaa"), build.gpu(2, model="Bbb")])
    )

    assert (labels["gpu.product"], labels["gpu.replicas"]) == ("Bbb", "1")


def test_of_gpus_of_one_model_the_last_that_tells_speaks() -> None:
    """As upstream; memory differs where ECC is on for some."""
    sizes = (300, 290)
    gpus = [build.gpu(at, memory_bytes=size * build.MIB) for at, size in enumerate(sizes)]
    node = build.node([*gpus, build.lacking(build.gpu(2), "memory_bytes", Reason.FAILED)])

    assert labels_of(node)["gpu.memory"] == "290"


def test_memory_never_comes_from_another_model() -> None:
    node = build.node(
        [
            build.lacking(build.gpu(0, model="Aaa"), "memory_bytes"),
            build.gpu(1, model="Bbb", memory_bytes=200 * build.MIB),
        ]
    )

    labels = labels_of(node)

    assert labels["gpu.product"] == "Aaa"
    assert "gpu.memory" not in labels


@pytest.mark.parametrize(
    ("reason", "kind"),
    [(Reason.UNSUPPORTED, Absent), (Reason.FAILED, Keep), (Reason.GARBAGE, Keep)],
)
def test_memory_is_removed_only_when_the_gpu_has_none(reason: Reason, kind: type) -> None:
    node = build.node([build.lacking(build.gpu(), "memory_bytes", reason)])

    decision = resource_labels(node, LabelSettings())["nvidia.com/gpu.memory"]

    assert isinstance(decision, kind)


def test_a_reading_that_is_missing_without_a_reason_is_not_known_to_be_gone() -> None:
    node = build.node([build.gpu(memory_bytes=None)])

    decision = resource_labels(node, LabelSettings())["nvidia.com/gpu.memory"]

    assert decision == Keep(reason="memory_bytes was not read")


IDS: dict[str, Any] = {"pci_device_id": 0x20B010DE, "pci_subsystem_id": 0x134F10DE}
"""What the driver takes a model's name from, and sysfs has of GPUs that never answered, too."""


def gpu_count(
    silent: GpuSnapshot, on_node: str | None = None, *, settling: bool = False
) -> str | None:
    """The count on a node of seven GPUs that answer and one that does not."""
    node = build.node([*(build.gpu(at, **IDS) for at in range(7)), silent], settling=settling)
    before = {} if on_node is None else {"nvidia.com/gpu.count": on_node}
    return applied(before, resource_labels(node, LabelSettings())).get("nvidia.com/gpu.count")


@pytest.mark.parametrize(
    "silent",
    [
        pytest.param(build.silent(7, model="MOCKMODEL"), id="known before"),
        pytest.param(build.silent(7, **IDS), id="never answered, same PCI ids"),
    ],
)
def test_a_gpu_that_does_not_answer_counts_as_what_it_is(silent: GpuSnapshot) -> None:
    """gpuscape.io/gpu.found has the number of those that answered."""
    assert gpu_count(silent, settling=True) == "8"


@pytest.mark.parametrize(
    "silent",
    [build.silent(7), build.silent(7, pci_device_id=0x1EB810DE, pci_subsystem_id=0x12A210DE)],
)
def test_while_the_model_of_a_gpu_is_not_known_the_count_stays_as_it_was(
    silent: GpuSnapshot,
) -> None:
    assert gpu_count(silent, on_node="8") == "8"
    assert gpu_count(silent, settling=True) is None
    assert gpu_count(silent) == "7"


@pytest.mark.parametrize("known", [{"pci_device_id": 0x20B0}, {"pci_subsystem_id": 0x134F}])
def test_one_pci_id_of_the_two_does_not_name_a_model(known: dict[str, Any]) -> None:
    """Boards of several models share a device id or a subsystem id."""
    node = build.node([build.gpu(0, **known), build.silent(1, **known)])
    decision = resource_labels(node, LabelSettings())["nvidia.com/gpu.count"]
    assert decision == Keep(
        reason="the model of 0000:11:00.0 is not known: it did not answer", otherwise="1"
    )


def test_a_resource_that_is_not_shared_has_its_name_and_one_share() -> None:
    assert NOTHING_SHARED.resource("nvidia.com/gpu") == SharedResource(
        name="nvidia.com/gpu", replicas=1
    )


def test_a_silent_gpu_of_another_model_is_not_counted() -> None:
    assert gpu_count(build.silent(7, model="OTHER", **IDS)) == "7"


@pytest.mark.parametrize(
    ("strategy", "key"), [(SINGLE, "nvidia.com/gpu.count"), (MIXED, "nvidia.com/mig-1g.5gb.count")]
)
def test_mig_devices_of_a_silent_gpu_are_not_counted_away(strategy: MigStrategy, key: str) -> None:
    node = build.node([cut(0, FIFTH), build.silent(1, model="MOCKMODEL")])

    decisions = resource_labels(node, LabelSettings(mig_strategy=strategy))

    assert applied({key: "2"}, decisions)[key] == "2"
    assert applied({}, decisions)[key] == "1"


def test_the_most_frequent_model_leads_though_most_of_it_is_silent() -> None:
    two = [build.gpu(0), build.silent(1, model="MOCKMODEL")]
    node = build.node([*two, build.gpu(2, model="ALPHA")])

    assert labels_of(node)["gpu.product"] == "MOCKMODEL"


def test_a_gpu_that_hides_its_mig_mode_still_counts() -> None:
    node = build.node([build.gpu(0), build.lacking(build.gpu(1), "mig", Reason.FORBIDDEN)])

    assert labels_of(node, SINGLE)["gpu.count"] == "2"


@pytest.mark.parametrize("strategy", MigStrategy)
@pytest.mark.parametrize("what", ["model", "mig"])
def test_when_no_gpu_tells_its_model_or_mode_every_label_is_kept(
    strategy: MigStrategy, what: str
) -> None:
    node = build.node([build.lacking(build.gpu(), what, Reason.FORBIDDEN, "nvmlAsked")])

    decisions = resource_labels(node, LabelSettings(mig_strategy=strategy))

    assert set(decisions.values()) == {Keep(reason="nvmlAsked: forbidden")}


@pytest.mark.parametrize("what", ["mig_devices", "max_mig_devices"])
def test_mig_devices_that_cannot_be_listed_do_not_make_a_layout_invalid(what: str) -> None:
    """Without the right to monitor MIG a cut GPU looks empty."""
    node = build.node([build.lacking(cut(0, FIFTH), what, Reason.FORBIDDEN)])

    decisions = resource_labels(node, LabelSettings(mig_strategy=SINGLE))

    assert {type(decision) for decision in decisions.values()} == {Keep}


def test_profiles_are_gone_only_when_every_gpu_told_its_own() -> None:
    whole_node = build.node([cut(0, FIFTH), cut(1)])
    broken_node = build.node([cut(0, FIFTH), build.silent(1)])
    settings = LabelSettings(mig_strategy=MIXED)
    key = "nvidia.com/mig-<profile>.count"

    assert isinstance(resource_labels(whole_node, settings)[key], Absent)
    assert isinstance(resource_labels(broken_node, settings)[key], Keep)


def test_an_invalid_layout_says_why_the_attributes_are_missing() -> None:
    node = build.node([cut(0, FIFTH, THIRD)])

    decisions = resource_labels(node, LabelSettings(mig_strategy=SINGLE))

    assert decisions["nvidia.com/gpu.slices.gi"] == Absent(
        reason="there are MIG devices of several profiles: 1g.5gb, 3g.20gb"
    )
