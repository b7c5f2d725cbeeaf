# SPDX-License-Identifier: Apache-2.0
"""A GPU of another vendor: everything neutral shows it, and nothing of NVIDIA's does."""

from __future__ import annotations

from dataclasses import replace

from api import keys as registered
from api.mig_resources import MigStrategy
from cli.discover import gpu_facts_table, identity_table, mig_table
from cli.terminal import NONE
from cli.topo.topo_command import link_matrix, matrix_document
from discovery.model import Gap, GpuSnapshot, GpuState, Reason
from discovery.remember import gpu_with_kept_facts
from discovery.shared_identities import without_shared
from discovery.snapshot_document import snapshot_document
from discovery.topology import can_peer, links_known, node_topology
from exporters.dcgm.render import Renderer, SeriesIdentity
from exporters.gpuscape.families import GpuscapeFamilies
from health.gpu_health import gpu_verdict
from health.health_verdict import Health
from labelers.annotations import node_annotations, state_of, topology_of
from labelers.compose import decide_labels
from labelers.decision import Value
from labelers.label_settings import LabelSettings
from tests import build, exposition
from tests import expected_keys as keys
from tests.exporters import everything

OTHER = build.gpu(
    1,
    uuid="a-serial-of-the-other-vendor",
    model="Other Accelerator",
    architecture=None,
    nvidia=None,
    memory_bus_bits=8192,
)
CUT = everything.gpu(mig=build.SPLIT, mig_devices=(build.mig_device(),))
MIXED = (CUT, OTHER)
SETTINGS = LabelSettings(mig_strategy=MigStrategy.MIXED, timestamp_seconds=1_700_000_000)


def labels(*gpus: GpuSnapshot) -> dict[str, str]:
    decided = decide_labels(build.node(gpus), SETTINGS)
    assert (decided.failures, decided.illegal) == ((), ())
    return decided.values


def nvidia_labels(*gpus: GpuSnapshot) -> dict[str, str]:
    return {key: text for key, text in labels(*gpus).items() if key.startswith("nvidia.com/")}


def dcgm(*gpus: GpuSnapshot) -> bytes:
    samples = [everything.sample(gpu) for gpu in gpus]
    identity = SeriesIdentity(hostname="node-a")
    return Renderer().render(build.node(gpus), samples, samples, identity)


def test_a_node_without_an_nvidia_gpu_has_nvidias_labels_of_an_empty_node() -> None:
    assert nvidia_labels(OTHER) == nvidia_labels()
    assert nvidia_labels(OTHER).keys() <= keys.NO_GPU


def test_nvidias_labels_describe_the_nvidia_gpus_of_a_mixed_node_alone() -> None:
    assert nvidia_labels(*MIXED) == nvidia_labels(CUT)


def test_our_own_labels_count_the_gpus_of_all_vendors() -> None:
    own = labels(*MIXED)
    assert (own[registered.EXPECTED], own[registered.FOUND]) == ("2", "2")
    assert own["gpuscape.io/count.Other-Accelerator"] == "1"
    assert labels(OTHER)[registered.HEALTH] == "healthy"
    assert labels(OTHER)[registered.MEMORY_TYPE] == "hbm"
    assert labels(OTHER)[registered.NVLINK_CLASS] == "none"


def test_it_has_no_dcgm_series() -> None:
    assert dcgm(OTHER) == b""
    assert dcgm(*MIXED) == dcgm(CUT)


def test_our_own_series_show_it_and_claim_no_fact_of_nvidias() -> None:
    body = GpuscapeFamilies().render(build.node([OTHER]), [build.sample(OTHER)])
    names = {name for name, _ in exposition.series(body)}
    ((labels_of_it, _),) = [
        (dict(series), value)
        for (name, series), value in exposition.series(body).items()
        if name == "gpuscape_gpu_info"
    ]
    assert "gpuscape_gpu_up" in names
    assert {"minor", "compute_capability", "virtualization"}.isdisjoint(labels_of_it)
    assert not [name for name in names if "mig" in name or "fabric" in name or "remap" in name]
    assert "gpuscape_gpu_nvlinks" not in names


def test_its_links_are_known_to_be_none_and_its_place_comes_from_sysfs() -> None:
    topology = node_topology(MIXED, (), {})
    assert (can_peer(OTHER), links_known(OTHER)) == (True, True)
    assert topology.nvlinks == ((0, 0), (0, 0))
    assert topology_of(build.node(MIXED)).n == 2


def test_the_annotations_have_a_place_for_it() -> None:
    node = build.node([OTHER])
    assert isinstance(node_annotations(node)[registered.TOPOLOGY], Value)
    state = state_of(node, gen="", whole={OTHER.bus_id}, pods={})
    assert state.ok == "1"


def test_it_is_healthy_until_it_is_lost() -> None:
    for gpu, health in ((OTHER, Health.HEALTHY), (lost(OTHER), Health.UNHEALTHY)):
        assert gpu_verdict(gpu, build.node([gpu])).health is health


def lost(gpu: GpuSnapshot) -> GpuSnapshot:
    gap = Gap(what="state", reason=Reason.LOST, source="sysfs")
    return replace(gpu, state=GpuState.LOST, gaps=(gap,))


def test_tables_show_it_with_what_it_has_not_left_out() -> None:
    node = build.node([OTHER])
    ((*_, links, mig, _ecc, _state),) = gpu_facts_table(node).rows
    ((_, _, _, minor, *_),) = identity_table(node).rows
    assert (links, mig, minor) == (NONE, NONE, NONE)
    assert mig_table(node).rows == ()
    assert len(link_matrix(node).rows) == 1
    assert matrix_document(node)


def test_the_document_has_every_key_of_it() -> None:
    nvidia, other = snapshot_document(build.node(MIXED))["gpus"]
    assert list(other) == list(nvidia)
    assert (other["mig"], other["minor"], other["links"], other["xids"]) == (None, None, (), ())


def test_a_gpu_of_another_vendor_in_the_same_slot_inherits_nothing() -> None:
    nvidia = build.gpu(1, serial="1", memory_bytes=5)
    gap = Gap(what="memory_bytes", reason=Reason.FAILED, source="sysfs")
    now = replace(OTHER, uuid=None, memory_bytes=None, gaps=(gap,))  # no identity differs
    assert gpu_with_kept_facts(now, nvidia) is now
    assert gpu_with_kept_facts(now, OTHER).memory_bytes == OTHER.memory_bytes
    assert gpu_with_kept_facts(lost(OTHER), OTHER).nvidia is None


def test_one_uuid_of_two_vendors_is_nobodys() -> None:
    """Other numbers of device files are no identity of it."""
    assert without_shared(MIXED) == MIXED
    both = without_shared((CUT, replace(OTHER, uuid=CUT.uuid)))
    assert [gpu.uuid for gpu in both] == [None, None]
