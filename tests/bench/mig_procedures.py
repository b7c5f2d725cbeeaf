# SPDX-License-Identifier: Apache-2.0
"""Typical MIG changes of a node by two procedures, counted: ours, and the whole node emptied.

Nothing is run: our plan is the planner's, with its steps taken by a simulated GPU that refuses what
hardware refuses, and the other procedure follows NVIDIA's MIG manager step by step. Its changes are
mig-parted's: a GPU that has its layout is left alone, on any other everything is destroyed. The
time of a change is the sum of its parts, with the same lengths for both. Pure.
Sources: mig-parted v0.10.0, pkg/mig/config and cmd/nvidia-mig-manager; NVIDIA/gpu-operator#262 for
what people do around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from discovery.mig_state import MigGpu
from discovery.model import Mode
from mig.gpu_layout import has_layout, layout_from_counts
from mig.planner import MigPlan, plan
from mig.steps import DestroyInstance
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind
from tests.bench.page import Section
from tests.mig.naive_gpu import NaiveGpu, mig_gpu

SETTLE_SECONDS: Final = 5
"""From our cordon to the second look at the pods: the coordinator's default."""
GRACE_SECONDS: Final = 30
"""A pod's default grace, which it takes whole."""
STEP_SECONDS: Final = 1
"""Of a call that makes, destroys or switches something; assumed, no real GPU was at hand."""
PLUGIN_SECONDS: Final = 15
"""The device plugin's restart, and what the kubelet publishes every 10 seconds."""

A100: Final = "a100-sxm4-40gb"
H100: Final = "h100-sxm5-80gb"
Placed = tuple[tuple[str, int], ...]
"""Profile and first memory unit of each instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypicalChange:
    """What an admin asks for, and what is on the node."""

    name: str
    model: str
    there: tuple[Placed | None, ...]
    """Instances of each GPU; None: MIG is off."""
    pods: tuple[tuple[int, int | None], ...]
    """GPU, and first memory unit of the instance, that each holds; None: the whole GPU."""
    wanted: Mapping[int, Mapping[str, int]]
    """Devices of the GPUs that a layout is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCost:
    """What one procedure costs."""

    evicted: int
    destroyed: int
    """GPU instances."""
    calls: int
    """To the driver, that change something."""
    seconds: int
    """From the cordon to its end."""


_SEVENTHS: Final[Placed] = tuple(("1g.5gb", at) for at in range(7))
_WHOLE: Final[Placed] = (("7g.40gb", 0),)
_SHARED: Final[Placed] = (("2g.10gb", 0), ("1g.5gb", 2), ("1g.5gb", 4), ("1g.5gb", 5))
_EIGHT: Final = range(8)

CHANGES: Final = (
    TypicalChange(
        name="one GPU of eight re-cut, the others busy",
        model=A100,
        there=(_WHOLE,) * 8,
        pods=tuple((gpu, 0) for gpu in _EIGHT),
        wanted={0: {"1g.5gb": 7}},
    ),
    TypicalChange(
        name="MIG turned on on one GPU of eight, the others busy",
        model=H100,
        there=(None,) * 8,
        pods=tuple((gpu, None) for gpu in _EIGHT),
        wanted={0: {"1g.10gb": 7}},
    ),
    TypicalChange(
        name="an idle instance of a shared GPU grows",
        model=A100,
        there=(_SHARED, *(_WHOLE,) * 7),
        pods=((0, 4), (0, 5), *((gpu, 0) for gpu in range(1, 8))),
        wanted={0: {"1g.5gb": 2, "3g.20gb": 1}},
    ),
    TypicalChange(
        name="all GPUs to another layout, all busy",
        model=A100,
        there=(_WHOLE,) * 8,
        pods=tuple((gpu, 0) for gpu in _EIGHT),
        wanted={gpu: {"3g.20gb": 2} for gpu in _EIGHT},
    ),
    TypicalChange(
        name="all GPUs to another layout, the node idle",
        model=A100,
        there=(_SEVENTHS,) * 8,
        pods=(),
        wanted={gpu: {"3g.20gb": 2} for gpu in _EIGHT},
    ),
)
"""The rows."""

HOW: Final = (
    "The figures are counted, not measured: our plan is the planner's, and a simulated GPU has "
    "taken its steps. The other procedure is the MIG manager's with the manual steps around it: "
    "cordon, drain all pods with GPUs, apply, restart the device plugin, uncordon. It applies as "
    "nvidia-mig-parted does: a GPU that has its layout is left alone, and everything on the "
    "others is destroyed. Pods leave by eviction in both; with `wait`, the default, ours evicts "
    f"none. Times are sums, from the cordon to its end: {SETTLE_SECONDS} s for our second check of "
    f"the pods, {GRACE_SECONDS} s of grace if a pod has to end, {STEP_SECONDS} s for each driver "
    f"call that changes something (assumed), {PLUGIN_SECONDS} s until the node offers the new "
    "resources. The time that the driver takes on a real GPU is not known."
)


def ours(change: TypicalChange) -> ChangeCost:
    """By the plan that disturbs the fewest. Raises AssertionError where a step is refused."""
    gpus = _gpus(change)
    wanted = {gpus[at].uuid: layout_from_counts(devices) for at, devices in change.wanted.items()}
    found = plan(gpus, wanted, _device_users(change, gpus))
    assert isinstance(found, MigPlan), found
    hardware = {gpu.uuid: NaiveGpu(gpu) for gpu in gpus}
    for step in found.steps:
        hardware[step.gpu].take(step)
    assert all(has_layout(hardware[uuid].gpu, layout) for uuid, layout in wanted.items())
    evicted = sum(user.kind is UserKind.POD for user in found.disturbed)
    return ChangeCost(
        evicted=evicted,
        destroyed=sum(isinstance(step, DestroyInstance) for step in found.steps),
        calls=len(found.steps),
        seconds=SETTLE_SECONDS + _seconds(evicted, len(found.steps)),
    )


def whole_node(change: TypicalChange) -> ChangeCost:
    """All pods leave; a GPU whose layout differs is wiped, and all that is wanted made."""
    gpus = _gpus(change)
    destroyed = calls = 0
    for at, devices in change.wanted.items():
        gpu, layout = gpus[at], layout_from_counts(devices)
        if has_layout(gpu, layout):
            continue
        destroyed += len(gpu.instances)
        switched = gpu.mode is not None and not gpu.mode.current
        made = sum(1 + len(one.compute) for one in layout.instances)
        calls += switched + sum(1 + len(one.compute) for one in gpu.instances) + made
    evicted = len(change.pods)
    return ChangeCost(
        evicted=evicted, destroyed=destroyed, calls=calls, seconds=_seconds(evicted, calls)
    )


def section() -> Section:
    """Both, row by row."""
    rows = []
    for change in CHANGES:
        costs = (ours(change), whole_node(change))
        figures = (
            " / ".join(str(getattr(cost, name)) for cost in costs)
            for name in ("evicted", "destroyed", "calls", "seconds")
        )
        rows.append((change.name, *figures))
    return Section(
        title="Simulated",
        text=f"Ours / the whole node. {HOW}",
        rows=tuple(rows),
        columns=("change", "pods evicted", "instances destroyed", "calls", "seconds in change"),
    )


def _seconds(evicted: int, calls: int) -> int:
    return (GRACE_SECONDS if evicted else 0) + calls * STEP_SECONDS + PLUGIN_SECONDS


def _gpus(change: TypicalChange) -> list[MigGpu]:
    off = Mode(current=False, pending=False)
    return [
        mig_gpu(change.model, uuid=f"GPU-{at}", index=at, mode=off, resetless=True)
        if placed is None
        else mig_gpu(change.model, *placed, uuid=f"GPU-{at}", index=at)
        for at, placed in enumerate(change.there)
    ]


def _device_users(change: TypicalChange, gpus: Sequence[MigGpu]) -> DeviceUsers:
    found: dict[MigPart, frozenset[DeviceUser]] = {}
    for number, (at, start) in enumerate(change.pods):
        pod = frozenset({DeviceUser(UserKind.POD, f"default/pod-{number}")})
        ids = [None] if start is None else [i.id for i in gpus[at].instances if i.start == start]
        for one in ids:
            found[MigPart(gpus[at].uuid, one)] = pod
    return found
