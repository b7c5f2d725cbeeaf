# SPDX-License-Identifier: Apache-2.0
"""What is said, and what is not, where the agent may see less than everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.mig_resources import MigStrategy
from discovery.host.pci import DEVICES
from discovery.model import NodeSnapshot, Reason
from labelers.compose import decide_labels
from labelers.explanation import LabelExplanation, LabelOutcome, label_explanations
from labelers.label_settings import LabelSettings
from simulator.simulation import Simulation
from tests.observed import look_at


def without_mig_monitor(machine: str, folder: Path, *, listed: bool) -> NodeSnapshot:
    """A machine as a container without mig/monitor sees it.

    ``listed``: its MIG devices were there when the container was made, so that it was given
    each of them; later ones are not even listed.
    """
    simulation = Simulation.create(machine, folder)
    simulation.revoke("mig-monitor", *(() if listed else ("mig-access",)))
    return look_at(simulation, machine).snapshot


def explained(snapshot: NodeSnapshot, strategy: MigStrategy) -> dict[str, LabelExplanation]:
    labels = decide_labels(snapshot, LabelSettings(mig_strategy=strategy))
    return {row.key: row for row in label_explanations(labels)}


@pytest.mark.parametrize("listed", [True, False])
def test_mig_devices_that_may_not_be_seen_are_no_empty_list(listed: bool, tmp_path: Path) -> None:
    seen = without_mig_monitor("dgx-a100-mig-single", tmp_path, listed=listed)

    gaps = [gpu.gap("mig_devices") for gpu in seen.gpus]
    assert {gap.reason for gap in gaps if gap is not None} == {Reason.FORBIDDEN}
    assert None not in gaps


def test_a_gpu_that_has_no_mig_device_yet_leaves_no_gap(tmp_path: Path) -> None:
    """Looking up an instance that is not there is an answer, and MIG off is no question."""
    simulation = Simulation.create("dgx-a100-mig-mixed", tmp_path)
    simulation.revoke("mig-access")

    seen = look_at(simulation, "node-a").snapshot

    assert {gpu.mig_enabled for gpu in seen.gpus} == {True, False}
    assert [gap for gpu in seen.gpus for gap in gpu.gaps if gap.what == "mig_devices"] == []


@pytest.mark.parametrize(
    ("machine", "strategy", "key"),
    [
        ("dgx-a100-mig-single", MigStrategy.SINGLE, "nvidia.com/gpu.product"),
        ("dgx-a100-mig-mixed", MigStrategy.MIXED, "nvidia.com/mig-<profile>.count"),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_labels_of_mig_devices_are_kept_and_name_the_missing_capability(
    machine: str, strategy: MigStrategy, key: str, listed: bool, tmp_path: Path
) -> None:
    row = explained(without_mig_monitor(machine, tmp_path, listed=listed), strategy)[key]

    assert row.outcome is LabelOutcome.KEPT
    assert "mig/monitor is missing" in row.text


def test_labels_that_need_no_mig_device_are_as_with_the_capability(tmp_path: Path) -> None:
    machine = "dgx-a100-mig-mixed"
    full = look_at(Simulation.create(machine, tmp_path / "full"), machine).snapshot
    less = without_mig_monitor(machine, tmp_path / "less", listed=False)

    assert explained(less, MigStrategy.NONE) == explained(full, MigStrategy.NONE)


@pytest.mark.parametrize(
    ("machine", "present", "host_driver"),
    [("vgpu-guest", "true", LabelOutcome.KEPT), ("dgx-a100", "false", LabelOutcome.ABSENT)],
)
def test_nvml_tells_vgpus_where_pci_configuration_space_is_cut_short(
    machine: str, present: str, host_driver: LabelOutcome, tmp_path: Path
) -> None:
    simulation = Simulation.create(machine, tmp_path)
    simulation.revoke("pci-config")
    configs = (simulation.host_root / DEVICES).glob("*/config")
    assert {config.stat().st_size for config in configs} == {64}

    rows = explained(look_at(simulation, machine).snapshot, MigStrategy.NONE)

    assert (rows["nvidia.com/vgpu.present"].outcome, rows["nvidia.com/vgpu.present"].text) == (
        LabelOutcome.SET,
        present,
    )
    assert rows["nvidia.com/vgpu.host-driver-version"].outcome is host_driver
