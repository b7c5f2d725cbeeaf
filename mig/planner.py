# SPDX-License-Identifier: Apache-2.0
"""Plans the steps from a node's current layouts to the desired ones, or refuses. Pure and exact.

The plan disturbs as few device users as any plan can. Of those plans it destroys the fewest compute
instances next to a device user that stays in the same GPU instance; of those the fewest instances,
GPU instances and compute instances alike; so it has the fewest steps. That holds for all GPUs
together, up to the bound of :mod:`mig.least_ways`. Equal input gives the equal plan, and the plan
made after a step is the rest of the plan. It decides nothing that the caller must decide: a plan
that disturbs device users names them, and a plan with ``spare_busy`` never does.

Safety: an obstacle on one GPU refuses the whole plan, so that no node is left half changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from api.mig_mode_change import ModeChange
from api.mig_resources import MigStrategy
from discovery.mig_state import MigGpu
from discovery.model import Mode
from discovery.nvml_terms import Virtualization
from mig.configs.known_gpus import known_profiles
from mig.gpu_layout import GpuLayout, current_layout
from mig.gpu_plan import GpuPlan, gpu_plan
from mig.gpu_ways import gpu_ways
from mig.least_ways import least_ways
from mig.mode_permission import NO_RESETS, ModePermission
from mig.placement import Grid, Limit
from mig.plugin_resources import allocatable, unserved
from mig.steps import CreateInstance, DestroyInstance, MigStep
from mig.users.device_users import DeviceUser, DeviceUsers

_VGPU: Final = (Virtualization.VGPU, Virtualization.HOST_VGPU, Virtualization.HOST_VSGA)


class ObstacleKind(StrEnum):
    """Why a layout is refused."""

    UNKNOWN_GPU = "unknown-gpu"
    """The node has no such GPU."""
    NO_MIG = "no-mig"
    """The GPU has no MIG."""
    RESET_PENDING = "reset-pending"
    """A change of the mode waits for a reset: somebody is about to do something else."""
    RESET_NEEDED = "reset-needed"
    """The GPU changes the mode only with a reset, for which there is no permission."""
    VGPU = "vgpu"
    """The GPU is a vGPU, or its machine a host of vGPUs: the mode is the vGPU manager's."""
    PROFILES_UNKNOWN = "profiles-unknown"
    """The driver reports profiles only with MIG on, so nothing can be checked."""
    NO_PLACES = "no-places"
    """The driver chooses the places of instances itself, so neither the plan nor the way back is
    certain."""
    INFEASIBLE = "infeasible"
    """The instances do not fit the GPU, whatever is on it now."""
    BUSY = "busy"
    """The layout fits the GPU, but not next to the instances that are in use."""
    PLUGIN = "plugin"
    """The device plugin could not serve the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualReset:
    """A reset of GPUs, which is a person's to do."""

    bus_ids: tuple[str, ...]
    mode: bool | None = None
    """Whether MIG is to be on after the reset; None: the mode is set already."""

    @property
    def command(self) -> str:
        """Shell command for the node. Source: MIG user guide, "Enable MIG mode"; nvidia-smi(1)."""
        gpus = ",".join(self.bus_ids)
        turn = "" if self.mode is None else f"nvidia-smi -i {gpus} -mig {int(self.mode)} && "
        return f"{turn}nvidia-smi --gpu-reset -i {gpus}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """A reason why there is no plan."""

    kind: ObstacleKind
    gpu: str | None
    """UUID of the GPU; None if the obstacle is about the node."""
    detail: str
    limit: Limit | None = None
    """The limit that an infeasible layout exceeds."""
    nearest: GpuLayout | None = None
    """The largest part of an infeasible layout that fits."""
    users: frozenset[DeviceUser] = frozenset()
    """Device users that are in the way."""
    reset: ManualReset | None = None
    """The reset that removes the obstacle, if a reset does."""

    @property
    def command(self) -> str | None:
        """Command that removes the obstacle; None if there is none."""
        return joint_command((self,))


def joint_command(alike: Iterable[Obstacle]) -> str | None:
    """Command that removes all of these obstacles, of one kind and mode; None if there is none.

    GPUs that NVSwitches join can be reset only together.
    Source: MIG user guide, "Enable MIG mode".
    """
    resets = [obstacle.reset for obstacle in alike if obstacle.reset is not None]
    if not resets:
        return None
    bus_ids = tuple(bus_id for reset in resets for bus_id in reset.bus_ids)
    return replace(resets[0], bus_ids=bus_ids).command


@dataclass(frozen=True, slots=True, kw_only=True)
class MigPlan:
    """The steps from one state of a node to another."""

    gpus: tuple[GpuPlan, ...]
    """Plans of the GPUs that have a desired layout, in bus order."""
    allocatable: Mapping[str, int] | None
    """Resource to count after the plan; None if the plugin's strategy is not known."""

    @property
    def steps(self) -> tuple[MigStep, ...]:
        """Steps GPU by GPU in bus order; empty if every GPU has its desired layout."""
        return tuple(step for gpu in self.gpus for step in gpu.steps)

    @property
    def disturbed(self) -> frozenset[DeviceUser]:
        """Device users that must be gone before the first step."""
        return frozenset[DeviceUser]().union(*(gpu.disturbed for gpu in self.gpus))

    @property
    def after(self) -> dict[str, GpuLayout]:
        """GPU UUID to the layout at the end."""
        return {gpu.gpu.uuid: gpu.after for gpu in self.gpus}


@dataclass(frozen=True, slots=True, kw_only=True)
class MigRefusal:
    """The obstacles because of which there is no plan."""

    obstacles: tuple[Obstacle, ...]
    """Obstacles in bus order; at least one."""


def plan(
    gpus: Sequence[MigGpu],
    desired: Mapping[str, GpuLayout],
    users: DeviceUsers,
    *,
    strategy: MigStrategy | None = None,
    spare_busy: bool = False,
    modes: ModePermission = NO_RESETS,
) -> MigPlan | MigRefusal:
    """The best plan to the layouts ``desired`` by GPU UUID; other GPUs stay as they are.

    ``strategy`` is the device plugin's, None if there is no plugin. With ``spare_busy`` a plan that
    disturbs a device user is refused, with those in the way. ``modes``: what may be done about
    modes that change only with a reset.
    """
    assumed = {
        gpu.uuid for gpu in gpus if gpu.uuid in desired and _is_assumed(gpu, desired[gpu.uuid])
    }
    gpus = [
        replace(gpu, profiles=known_profiles(gpu.device_id)) if gpu.uuid in assumed else gpu
        for gpu in gpus
    ]
    targets = [gpu for gpu in gpus if gpu.uuid in desired]
    obstacles = [
        *map(_unknown, sorted(desired.keys() - {gpu.uuid for gpu in gpus})),
        *(obstacle for gpu in targets for obstacle in _obstacles(gpu, desired[gpu.uuid], modes)),
    ]
    after = [(gpu, desired.get(gpu.uuid) or current_layout(gpu)) for gpu in gpus]
    if strategy is not None and not obstacles and (why := unserved(after, strategy)) is not None:
        detail = f"the device plugin could not start: {why}"
        obstacles.append(Obstacle(kind=ObstacleKind.PLUGIN, gpu=None, detail=detail))
    if obstacles:
        return MigRefusal(obstacles=tuple(obstacles))
    ways = least_ways([gpu_ways(gpu, desired[gpu.uuid], users) for gpu in targets])
    plans = tuple(
        gpu_plan(gpu, desired[gpu.uuid], way, users, assumed=gpu.uuid in assumed)
        for gpu, way in zip(targets, ways, strict=True)
    )
    if unplaced := tuple(_no_places(part.gpu) for part in plans if _needs_places(part)):
        return MigRefusal(obstacles=unplaced)
    if spare_busy and (busy := tuple(_busy(part) for part in plans if part.disturbed)):
        return MigRefusal(obstacles=busy)
    return MigPlan(
        gpus=plans,
        allocatable=None if strategy is None else allocatable(after, strategy),
    )


def _is_assumed(gpu: MigGpu, desired: GpuLayout) -> bool:
    """Whether the profiles of the GPU's model stand in for those that its driver reports later.

    Drivers report no profiles of an Ampere GPU while its MIG is off.
    """
    return (
        bool(desired.instances)
        and not gpu.profiles
        and not gpu.resetless
        and gpu.mode is not None
        and not gpu.mode.current
    )


def _unknown(uuid: str) -> Obstacle:
    detail = "the driver lists no such GPU"
    return Obstacle(kind=ObstacleKind.UNKNOWN_GPU, gpu=uuid, detail=detail)


def _obstacles(gpu: MigGpu, desired: GpuLayout, modes: ModePermission) -> Iterator[Obstacle]:
    """Obstacles on one GPU, apart from its device users."""
    if gpu.mode is None:
        if desired.mig:
            yield Obstacle(kind=ObstacleKind.NO_MIG, gpu=gpu.uuid, detail=f"{gpu.model} has no MIG")
        return
    # first, so that nobody resets a GPU for a layout that no reset makes possible
    if (infeasible := _infeasible(gpu, desired)) is not None:
        yield infeasible
        return
    yield from _mode_obstacles(gpu, gpu.mode, desired, modes)
    if desired.instances and not gpu.profiles:
        detail = "the driver does not report the GPU's profiles; most report them with MIG on alone"
        yield Obstacle(kind=ObstacleKind.PROFILES_UNKNOWN, gpu=gpu.uuid, detail=detail)


def _mode_obstacles(
    gpu: MigGpu, mode: Mode, desired: GpuLayout, modes: ModePermission
) -> Iterator[Obstacle]:
    """Why the mode cannot become, or be sure to stay, that of the layout."""
    is_pending = mode.current != mode.pending and gpu.uuid not in modes.begun
    if not gpu.resetless and is_pending:
        yield Obstacle(
            kind=ObstacleKind.RESET_PENDING,
            gpu=gpu.uuid,
            detail=f"MIG will be {_state(mode.pending)} after a reset that has not happened yet",
            reset=ManualReset(bus_ids=(gpu.bus_id,)),
        )
    elif mode.current == desired.mig:
        return
    elif gpu.virtualization in _VGPU:
        detail = (
            f"MIG is not turned {_state(desired.mig)} on a GPU of a vGPU host, or a vGPU itself:"
            " the vGPU manager has its mode"
        )
        yield Obstacle(kind=ObstacleKind.VGPU, gpu=gpu.uuid, detail=detail)
    elif not gpu.resetless and modes.by is ModeChange.OFF:
        # Ampere needs a reset for either direction. Source: MIG user guide, "Enable MIG mode"
        detail = (
            f"{gpu.model} turns MIG {_state(desired.mig)} by a reset of the whole GPU, and"
            " mig-mode-change is off"
        )
        reset = ManualReset(bus_ids=(gpu.bus_id,), mode=desired.mig)
        yield Obstacle(kind=ObstacleKind.RESET_NEEDED, gpu=gpu.uuid, detail=detail, reset=reset)


def _infeasible(gpu: MigGpu, desired: GpuLayout) -> Obstacle | None:
    """Why the instances never fit the GPU; None if they fit, or its profiles are not known.

    If the driver reports no profiles yet, the profiles of the model decide, so that nobody resets
    GPUs for a layout that is refused afterwards.
    """
    grid = Grid(gpu.profiles or known_profiles(gpu.device_id))
    misfit = grid.misfit(desired.instances) if grid.profiles else None
    if misfit is None:
        return None
    return Obstacle(
        kind=ObstacleKind.INFEASIBLE,
        gpu=gpu.uuid,
        detail=misfit.detail,
        limit=misfit.limit,
        nearest=replace(desired, instances=grid.nearest(desired.instances)),
    )


def _state(on: bool) -> str:
    return "on" if on else "off"


def _needs_places(part: GpuPlan) -> bool:
    """Whether the plan, or its rollback, creates instances while the driver chooses their place."""
    placed = (CreateInstance, DestroyInstance)
    return not part.gpu.places and any(isinstance(step, placed) for step in part.steps)


def _no_places(gpu: MigGpu) -> Obstacle:
    return Obstacle(
        kind=ObstacleKind.NO_PLACES,
        gpu=gpu.uuid,
        detail="this driver chooses the places of instances itself"
        " (nvmlDeviceCreateGpuInstanceWithPlacement is missing): upgrade it",
    )


def _busy(part: GpuPlan) -> Obstacle:
    names = ", ".join(map(str, sorted(part.disturbed)))
    return Obstacle(
        kind=ObstacleKind.BUSY,
        gpu=part.gpu.uuid,
        detail=f"no way leaves alone what is in use; the least would disturb {names}",
        users=part.disturbed,
    )
