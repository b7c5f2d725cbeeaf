# SPDX-License-Identifier: Apache-2.0
"""A GPU that was lost stays expected after a restart: the Node knows of it, until another boot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from api import keys, known_gpus_annotation
from api.known_gpus_annotation import FORMAT
from simulator.simulation import Simulation
from tests.agent.agent_process import until
from tests.cluster.agents import Site, agent, has_topology

pytestmark = pytest.mark.cluster

QUICK = {"GPUSCAPE_DISCOVER_INTERVAL": "1s", "GPUSCAPE_SAMPLE_INTERVAL": "1s"}
GPU_COUNT = "nvidia.com/gpu.count"
PCI = "sys/bus/pci"
WRITE_SECONDS = 120.0
"""For a write of the Node that is not among the first three: one a minute."""


class Scene:
    """A node with four GPUs whose agent starts again and again, each time without a state file."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.folder = folder
        self.node = site.plane.make_node()
        self.simulation = Simulation.create("t4", folder / "machine")
        self.lost = list(self.simulation.state.gpus)[2]

    def hide_pci(self) -> None:
        """Have sysfs show no PCI function at all."""
        (self.simulation.host_root / PCI).rename(self.simulation.host_root / "hidden")

    def show_pci(self) -> None:
        """Have sysfs show all but the lost GPU."""
        (self.simulation.host_root / "hidden").rename(self.simulation.host_root / PCI)
        (self.simulation.host_root / PCI / "devices" / self.lost).unlink()

    def run_until_shown(self, *, events: int = 0, **labels: str) -> list[str]:
        """Run an agent until the Node shows these labels, and so many Events; its numbers then."""
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        names = {name: name.replace("_", "-") for name in labels}
        wanted = {f"gpuscape.io/gpu.{names[it]}": text for it, text in labels.items()}
        with agent(self.site, self.node, self.simulation, self.folder, options=QUICK):
            until(lambda: has_topology(self.site, self.node))
            until(lambda: wanted.items() <= self.labels.items(), WRITE_SECONDS)
            until(lambda: len(self.events()) >= events)
        return [self.labels[GPU_COUNT], self.labels[keys.EXPECTED]]

    @property
    def labels(self) -> dict[str, str]:
        return self.site.labels(self.node)

    def known(self) -> known_gpus_annotation.KnownGpusAnnotation:
        """What the Node gives its next agent."""
        text = self.site.annotations(self.node)[keys.KNOWN_GPUS]
        found = known_gpus_annotation.decode(text)
        assert found is not None
        return found

    def is_readable(self) -> bool:
        """Whether the Node's annotation can be read."""
        return FORMAT.readable(self.site.annotations(self.node)[keys.KNOWN_GPUS]) is not None

    def events(self) -> list[str]:
        """The notes of the Events about another number of GPUs."""
        events = self.site.plane.events_about(self.node)
        return [it["note"] for it in events if it["reason"] == "GPUCountChanged"]


def test_a_lost_gpu_is_expected_after_a_restart_without_a_state_file_until_another_boot(
    site: Site, tmp_path: Path
) -> None:
    scene = Scene(site, tmp_path)
    scene.hide_pci()
    assert scene.run_until_shown(found="4", health="unknown") == ["4", "4"]
    before = scene.known()
    assert (before.n, before.bus[2]) == (4, scene.lost)

    scene.simulation.remove_gpu(scene.lost)
    shown = scene.run_until_shown(found="3", health="unhealthy")
    assert shown == ["4", "4"]
    assert scene.labels[keys.HEALTH_REASON] == "gpu-lost"
    assert scene.known() == before
    assert scene.events() == []

    scene.simulation.reboot()
    scene.simulation.remove_gpu(scene.lost)
    shown = scene.run_until_shown(found="3", health="unhealthy", health_reason="gpu-unaddressable")
    assert shown == ["4", "4"]
    assert scene.known() == before

    scene.show_pci()
    assert scene.run_until_shown(expected="3", health="healthy", events=1) == ["3", "3"]
    assert (scene.known().n, scene.known().boot != before.boot) == (3, True)
    (note,) = scene.events()
    assert note.startswith("this Node has 3 GPUs, and had 4 before it was booted")


def test_an_annotation_that_somebody_broke_is_written_anew_and_takes_nothing_away(
    site: Site, tmp_path: Path
) -> None:
    scene = Scene(site, tmp_path)
    assert scene.run_until_shown(found="4", health="healthy") == ["4", "4"]
    before, labels = scene.known(), scene.labels
    many = ",".join(f'"0000:{place:02x}:00.0"' for place in range(256))
    for text in ("{", '{"v":2}', f'{{"v":1,"boot":"{before.boot}","n":9999,"bus":[{many}]}}'):
        site.edit(scene.node, annotations={keys.KNOWN_GPUS: text})
        with agent(site, scene.node, scene.simulation, tmp_path, options=QUICK) as process:
            until(lambda: any(it["message"] == "annotation not used" for it in process.logged))
            until(scene.is_readable)
        assert scene.known() == before
        time_of_start = {keys.TIMESTAMP}
        assert {it for it in labels if scene.labels.get(it) != labels[it]} <= time_of_start
