# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig`` as an admin runs it on a real node, over the driver's library as on hardware.

The simulated driver's ``/proc`` and ``/dev`` are below a folder of the node, where device nodes are
real ones; the kubelet's folders are the node's own.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.clibrary.compiler import LIBRARY_NAME
from simulator.clibrary.served_machine import LIBRARY_FOLDER
from tests.agent.agent_process import GPUSCAPE
from tests.controlplane.programs import ROOT as REPOSITORY
from tests.node.node_gpus import NodeGpus
from tests.node.real_node import GPUS

HOST: Final = GPUS / "root"
"""On the node: the host's root, as far as it is about GPUs."""
MACHINE: Final = ("--host-root", str(HOST), "--library", str(HOST / LIBRARY_FOLDER / LIBRARY_NAME))
"""Options of programs that change it."""
GPU_MAJOR: Final = 195
CAPABILITY_MAJOR: Final = 237
"""As the simulated /proc/devices has them."""
UVM_MAJOR: Final = 510
_NODES_OWN: Final = ("var/lib/kubelet", "var/log/pods")
"""What of the host's root is not below that folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A command that has ended."""

    code: int
    output: str
    """What it printed, both streams."""


@dataclass(frozen=True, slots=True)
class NodeMig:
    """The commands on one node, and what its driver has."""

    gpus: NodeGpus

    @classmethod
    def on(cls, gpus: NodeGpus) -> NodeMig:
        """Make the node's device nodes real, and the kubelet's folders be where they are looked
        for."""
        root = gpus.simulation.host_root
        for file in (*(root / "dev").glob("nvidia*"), *(root / "dev/nvidia-caps").iterdir()):
            if stat.S_ISREG(file.lstat().st_mode):
                file.unlink()
                os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(*_numbers(file.name)))
        for name in _NODES_OWN:
            place = root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.is_symlink():
                place.symlink_to(f"/{name}")
        return cls(gpus)

    def show_cgroups(self) -> None:
        """Have the node's own cgroups where programs look for the host's."""
        cgroups = Path("sys/fs/cgroup")
        self.gpus.node.run("mount", "--rbind", Path("/", cgroups), HOST / cgroups)

    def run(self, *arguments: str, first: Sequence[str] = ()) -> Finished:
        """``gpuscape mig …``, as root on the node; ``first``: what starts it."""
        try:
            printed = self.gpus.node.run(*first, GPUSCAPE, "mig", *arguments, *MACHINE)
        except subprocess.CalledProcessError as error:
            return Finished(code=error.returncode, output=f"{error.stdout}{error.stderr}")
        return Finished(code=0, output=printed)

    def apply(self, layout: Mapping[str, Any], *more: str) -> Finished:
        """Without a question."""
        both_streams = ("sh", "-c", 'exec "$@" 2>&1', "sh")
        return self.run("apply", json.dumps(layout), "--yes", *more, first=both_streams)

    def devices(self) -> dict[str, tuple[int, str, int]]:
        """MIG device to index of its GPU, its profile, and its instance's first memory unit."""
        return {
            compute["uuid"]: (gpu["index"], _name(instance, compute), instance["start"])
            for gpu in self._read()
            for instance in gpu["instances"]
            for compute in instance["compute"]
        }

    def births(self) -> frozenset[tuple[str, int, int, int]]:
        """Every instance that there is; one that was made anew at its place is another.

        From the state file: profile, start and birth, and its GPU by the place among all.
        """
        state = self.gpus.simulation.state
        return frozenset(
            (one.profile, at, one.start, one.birth)
            for at, gpu in enumerate(state.gpus.values())
            for one in gpu.instances
        )

    def uuids(self) -> tuple[str, ...]:
        """Of the GPUs, by index."""
        return tuple(gpu["uuid"] for gpu in self._read())

    def programs(self) -> frozenset[int]:
        """Ids on the node of the processes that the driver lists on a GPU."""
        return frozenset(one["pid"] for gpu in self._read() for one in gpu["processes"])

    def in_containers(self, process: int) -> frozenset[str]:
        """Names of the capability nodes that a process of the node sees, by its id there."""
        root = Path(f"/proc/{self.gpus.node.first_process}/root/proc/{process}/root")
        folder = root / "dev/nvidia-caps"
        return frozenset(one.name for one in folder.iterdir()) if folder.is_dir() else frozenset()

    def nodes_of(self, device: str) -> frozenset[str]:
        """Names of the two capability nodes of a MIG device, by what the driver publishes."""
        index, _, start = self.devices()[device]
        (instance,) = (
            one["id"] for one in self._read()[index]["instances"] if one["start"] == start
        )
        folder = self.gpus.simulation.host_root / "proc/driver/nvidia/capabilities"
        at = folder / f"gpu{index}/mig/gi{instance}"
        texts = [(at / name).read_text() for name in ("access", "ci0/access")]
        numbers = [text.split("DeviceFileMinor: ")[1].split()[0] for text in texts]
        return frozenset(f"nvidia-cap{number}" for number in numbers)

    def wipe_and_permute(self, bus_id: str, wanted: Mapping[str, int]) -> str:
        """What is done without a plan: everything on a GPU destroyed, then created."""
        state = GPUS / self.gpus.simulation.state_file.name
        python, layout = GPUSCAPE.with_name("python"), json.dumps(dict(wanted))
        return self.gpus.node.run(
            *("env", f"PYTHONPATH={REPOSITORY}", "PYTHONDONTWRITEBYTECODE=1"),
            *(python, "-c", _NAIVE, str(state), bus_id, layout),
        )

    def _read(self) -> list[dict[str, Any]]:
        done = self.run("status", "-o", "json")
        assert done.code == 0, done.output
        found: list[dict[str, Any]] = json.loads(done.output)["gpus"]
        return found


_NAIVE: Final = """
import json, sys
from pathlib import Path
import pynvml
from simulator.simulation import Simulation
from tests.bench.mig_changes.wipe_and_permute import wipe_and_permute
with Simulation.open(Path(sys.argv[1])):
    pynvml.nvmlInit()
    print(wipe_and_permute(sys.argv[2], json.loads(sys.argv[3])))
    pynvml.nvmlShutdown()
"""


def _numbers(name: str) -> tuple[int, int]:
    """Major and minor of a device node. Source: NVIDIA's driver, nv-frontend.h; that of nvidia-uvm
    is any that is free."""
    fixed = {"nvidiactl": (GPU_MAJOR, 255), "nvidia-uvm": (UVM_MAJOR, 0)}
    if name in fixed:
        return fixed[name]
    number = int(name.removeprefix("nvidia-cap").removeprefix("nvidia"))
    return CAPABILITY_MAJOR if "cap" in name else GPU_MAJOR, number


def _name(instance: Mapping[str, Any], compute: Mapping[str, Any]) -> str:
    """``1g.5gb``; ``1c.4g.20gb`` for a part of a GPU instance."""
    profile: str = instance["profile"]
    slices = compute["slices"]
    return profile if profile.startswith(f"{slices}g.") else f"{slices}c.{profile}"
