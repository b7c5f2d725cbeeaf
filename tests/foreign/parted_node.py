# SPDX-License-Identifier: Apache-2.0
"""nvidia-mig-parted on a served machine, with an nvidia-smi that resets its GPUs."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from simulator.description.machine_catalog import (
    load_machine,
    load_models,
    machine_names,
)
from simulator.description.machine_schema import Gpu, MachineDescription
from simulator.simulation import Simulation
from simulator.smi.smi_server import PROGRAM_FOLDER
from tests.foreign.foreign_programs import Foreign, foreign

MODELS: Final = load_models()


WITHOUT_MACHINE: Final[Mapping[str, str]] = {
    "a800-sxm4-80gb": "a100-sxm4-80gb",
    "h20-96gb": "h200-sxm-141gb",
    "gh200-96gb": "h200-sxm-141gb",
    "b300-sxm-270gb": "b200-sxm-180gb",
    "gb300": "gb200",
}
"""Models that no machine has, and the model whose place they take."""


def _first_gpus() -> Mapping[str, tuple[str, int]]:
    """Of each model that can have MIG, the first machine with it or its like, and the place."""
    found: dict[str, tuple[str, int]] = {}
    for name in machine_names():
        machine = load_machine(name)
        for place, gpu in enumerate(machine.gpus if machine.driver else ()):
            if MODELS[gpu.model].mig and not gpu.excluded:
                found.setdefault(gpu.model, (name, place))
    return found | {model: found[like] for model, like in WITHOUT_MACHINE.items()}


FIRST_GPUS: Final = _first_gpus()


class PartedNode:
    """A served machine on which nvidia-mig-parted runs."""

    def __init__(self, there: Foreign, programs: Path, path: str, configs: Path) -> None:
        """``path`` is the program's PATH, ``configs`` its file of configurations."""
        self.there = there
        self.programs = programs
        self.configs = configs
        self._path = path

    def configure(self, text: str) -> None:
        """Let its file of configurations be another one."""
        self.configs.write_text(text, "utf-8")

    def run(self, verb: str, config: str, *options: str) -> subprocess.CompletedProcess[str]:
        """A verb with one of the configurations."""
        return self.there.run(
            self.programs / "nvidia-mig-parted",
            *(verb, "-f", str(self.configs), "-c", config, *options),
            covered=("sys", "proc"),
            path=self._path,
        )


@contextmanager
def parted_node(machine: MachineDescription, programs: Path, configs: str) -> Iterator[PartedNode]:
    """Serve a machine within; ``configs`` is the text of the file of configurations."""
    # the library's socket is reached by its path, which has room for 107 bytes
    with tempfile.TemporaryDirectory(prefix="gs-") as folder:
        simulation = Simulation.create(machine, Path(folder), models=MODELS)
        simulation.set_resets(mode_change="reset-required")  # so it starts nvidia-smi
        with foreign(simulation) as there:
            path = f"{there.machine.driver_root / PROGRAM_FOLDER}{os.pathsep}{os.environ['PATH']}"
            node = PartedNode(there, programs, path, Path(folder) / "configs.yaml")
            node.configure(configs)
            yield node


def with_gpus(name: str, gpus: Sequence[Gpu]) -> MachineDescription:
    """A machine with these of its GPUs, MIG off."""
    off = tuple(replace(gpu, mig=False, instances=()) for gpu in gpus)
    return replace(load_machine(name), gpus=off, direct=())


def with_one(model: str) -> MachineDescription:
    """A machine with one GPU of this model, MIG off."""
    name, place = FIRST_GPUS[model]
    return with_gpus(name, (replace(load_machine(name).gpus[place], model=model),))
