# SPDX-License-Identifier: Apache-2.0
"""Forecast of a node's resources with a layout, by the planner, from its Node alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from api.mig_mode_change import ModeChange
from base.errors import BadInput
from discovery.mig_state import MigGpu
from discovery.model import Mode
from forecast.node_gpus import NodeGpus, Offers
from mig.configs.config_choice import LayoutChoice
from mig.configs.known_gpus import possible_gpus
from mig.gpu_layout import GpuLayout
from mig.mode_permission import ModePermission
from mig.planned_layouts import planned_layouts
from mig.planner import MigPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutMeaning:
    """A desired layout, and whether it is known what its name means."""

    choice: LayoutChoice
    """With the configurations of the agents."""
    unknown: str = ""
    """Why the configuration behind a name is not known; empty where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceForecast:
    """Forecast for a node: its resources, or why its agent refuses, or why it is not known."""

    offers: Offers | None = None
    refused: str = ""
    unknown: str = ""
    gpus: tuple[int, ...] = ()
    """Places of the GPUs that change, or may."""
    sets_modes: bool = False
    """Whether MIG is turned on or off on each of these GPUs, so that no instance stays."""


def forecast_resources(
    meaning: LayoutMeaning, gpus: NodeGpus, mode_change: ModeChange = ModeChange.OFF
) -> ResourceForecast:
    """Forecast the node's resources with the desired layout.

    Nothing is guessed: where the boards that the product may be lead to different results, the
    forecast is unknown. ``mode_change``: what the agent may do about modes that need a reset.
    """
    if isinstance(meaning.choice.layout, str) and meaning.unknown:
        return ResourceForecast(unknown=meaning.unknown)
    if gpus.unknown:
        return ResourceForecast(unknown=gpus.unknown)
    boards = _boards(gpus)
    if not boards:
        return ResourceForecast(
            unknown=f"{gpus.product} is not in gpuscape's table of GPUs with MIG"
        )
    modes = ModePermission(by=mode_change)
    forecasts = [_board_forecast(meaning, gpus, board, modes) for board in boards]
    if any(forecast != forecasts[0] for forecast in forecasts):
        return ResourceForecast(
            unknown=f"boards of {gpus.product} differ in what this layout needs"
        )
    return forecasts[0]


def _boards(gpus: NodeGpus) -> list[tuple[MigGpu, ...]]:
    """Describe the node's GPUs, once for each board that the product may be."""
    boards_by_gpu = [
        possible_gpus(gpus.product, index=index, uuid=uuid, bus_id=bus_id, mig=bool(gpus.mig))
        for index, (uuid, bus_id) in enumerate(zip(gpus.ids, gpus.bus_ids, strict=True))
    ]
    return list(zip(*boards_by_gpu, strict=True))


def _board_forecast(
    meaning: LayoutMeaning, gpus: NodeGpus, board: Sequence[MigGpu], modes: ModePermission
) -> ResourceForecast:
    try:
        desired = meaning.choice.gpu_layouts(board)
    except BadInput as error:
        return ResourceForecast(refused=str(error))
    if len(desired) < len(board) and gpus.mig is not False:
        why = "it leaves some GPUs as they are, and the cluster does not know how these are"
        return ResourceForecast(unknown=why)
    changing = [
        gpu for gpu in board if gpu.uuid in desired and _may_change(gpus, desired[gpu.uuid])
    ]
    if gpus.mig is None:  # whether the mode has to change is the agent's to see
        board = [replace(gpu, mode=_mode(desired[gpu.uuid])) for gpu in board]
    planned = planned_layouts(board, desired, {}, strategy=gpus.strategy, modes=modes)
    plan_or_refusal = planned.plan_or_refusal
    if isinstance(plan_or_refusal, MigPlan):
        return ResourceForecast(
            offers=plan_or_refusal.allocatable or {},
            gpus=tuple(gpu.index for gpu in changing),
            sets_modes=gpus.mig is not None
            and all(desired[gpu.uuid].mig is not gpus.mig for gpu in changing),
        )
    return ResourceForecast(
        refused="; ".join(dict.fromkeys(obstacle.detail for obstacle in plan_or_refusal.obstacles))
    )


def _may_change(gpus: NodeGpus, layout: GpuLayout) -> bool:
    """Whether the layout may change a GPU: only whole GPUs are known to need no change."""
    return layout.mig or gpus.mig is not False


def _mode(layout: GpuLayout) -> Mode:
    return Mode(current=layout.mig, pending=layout.mig)
