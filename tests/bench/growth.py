# SPDX-License-Identifier: Apache-2.0
"""How the agent grows with GPUs and MIG devices, beside an exporter built on prometheus_client."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MachineDescription
from simulator.simulation import Simulation
from tests.bench import clock, programs
from tests.bench.exporters import CLIENT, FAMILY, OURS, check_same, count_series
from tests.bench.page import Section
from tests.bench.programs import Program

GPUS = (1, 2, 4, 8, 16)
INSTANCES = (0, 1, 3, 7)
SPLIT = "dgx-a100-mig-single"
SAMPLE_SECONDS = 1.0
SETTLE_SECONDS = 3.0
"""So that rates have two samples to come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One exporter on one machine."""

    series: int
    text_bytes: int
    render_seconds: float
    memory_mib: float
    """Of the exporter itself: both have the same device reader beside it."""


def machine(gpus: int, instances: int) -> MachineDescription:
    """So many A100, each with so many GPU instances of one slice, or whole where there are none."""
    base = load_machine(SPLIT)
    model = base.gpus[0]
    return msgspec.structs.replace(
        base,
        gpus=tuple(
            msgspec.structs.replace(
                model,
                bus_id=f"0000:{0x10 + at:02x}:00.0",
                path=(),
                mig=instances > 0,
                instances=model.instances[:instances],
            )
            for at in range(gpus)
        ),
    )


def measure(gpus: int, instances: int, rounds: int = clock.ROUNDS) -> dict[str, Measured]:
    """Both exporters at once on the same machine."""
    with _running(gpus, instances) as both:
        memory = {program.name: programs.pss_mib(program.pid) for program in both}
        texts = {program.name: program.text() for program in both}
        check_same(texts[OURS], texts[CLIENT])
        return {
            program.name: Measured(
                series=count_series(texts[program.name]),
                text_bytes=len(texts[program.name]),
                render_seconds=program.render_seconds(rounds),
                memory_mib=memory[program.name],
            )
            for program in both
        }


@contextlib.contextmanager
def _running(gpus: int, instances: int) -> Iterator[list[Program]]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        state_file = Simulation.create(machine(gpus, instances), Path(folder)).state_file
        both = [
            ending.enter_context(programs.running(name, state_file, SAMPLE_SECONDS))
            for name in (OURS, CLIENT)
        ]
        for program in both:
            program.await_family(FAMILY[program.name])
        time.sleep(SETTLE_SECONDS)
        yield both


def section() -> Section:
    """All sizes, one after the other."""
    found = {(gpus, each): measure(gpus, each) for gpus in GPUS for each in INSTANCES}
    return Section(
        title="Growth with GPUs and MIG devices",
        text=(
            "Each cell: the agent / the exporter built on `prometheus_client` of the section "
            "above, at once on one simulated machine of A100. Both have the same DCGM series; the "
            "agent has its own families besides. Rendering is the whole text once, the median of "
            f"{clock.ROUNDS}; memory is proportional set size without the device reader, which is "
            "the same beside both."
        ),
        columns=("GPUs, MIG devices each", "series", "text", "rendering", "memory"),
        rows=tuple(
            _row(f"{gpus}, {each or 'no MIG'}", measured[OURS], measured[CLIENT])
            for (gpus, each), measured in found.items()
        ),
    )


def _row(size: str, ours: Measured, client: Measured) -> tuple[str, ...]:
    return (
        size,
        f"{ours.series:,} / {client.series:,}",
        f"{ours.text_bytes / 1024:,.0f} / {client.text_bytes / 1024:,.0f} KiB",
        f"{ours.render_seconds * 1000:.2f} / {client.render_seconds * 1000:.2f} ms",
        f"{ours.memory_mib:.1f} / {client.memory_mib:.1f} MiB",
    )
