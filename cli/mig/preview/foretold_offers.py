# SPDX-License-Identifier: Apache-2.0
"""What a node would offer with a layout, by the planner and what the cluster knows of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from base.errors import BadInput
from cli.mig.preview.node_gpus import NodeGpus, Offers
from discovery.mig_state import MigGpu
from discovery.model import Mode
from mig.configs.config_choice import named_layouts
from mig.configs.known_gpus import known_gpus
from mig.configs.layout_annotation import InlineLayout, inline_layouts
from mig.configs.mig_configs import MigConfigs
from mig.gpu_layout import GpuLayout
from mig.planner import MigPlan, plan


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutMeaning:
    """What is asked for, and by what its name is looked up."""

    asked: str | InlineLayout
    configs: MigConfigs | None = None
    """None: the default ones for the node's GPUs."""
    unknown: str = ""
    """Why a name's meaning is not known; empty where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """One of three: what the node would offer, why its agent would refuse, what is not known."""

    offers: Offers | None = None
    refused: str = ""
    unknown: str = ""
    gpus: tuple[int, ...] = ()
    """Places of the GPUs that change, or may."""
    sets_modes: bool = False
    """MIG is turned on or off on each of them, so nothing of them stays."""


def foretold(meaning: LayoutMeaning, gpus: NodeGpus) -> Foretold:
    """What becomes of the node's resources.

    Nothing is guessed: where two readings of what is known differ, it is unknown.
    """
    if isinstance(meaning.asked, str) and meaning.unknown:
        return Foretold(unknown=meaning.unknown)
    if gpus.unknown:
        return Foretold(unknown=gpus.unknown)
    boards = _boards(gpus)
    if not boards:
        return Foretold(unknown=f"{gpus.product} is not in gpuscape's table of GPUs with MIG")
    found = [_of_board(meaning, gpus, board) for board in boards]
    if any(each != found[0] for each in found):
        return Foretold(unknown=f"boards of {gpus.product} differ in what this asks for")
    return found[0]


def _boards(gpus: NodeGpus) -> list[tuple[MigGpu, ...]]:
    """The node's GPUs, once for each board that the product may be."""
    each = [
        known_gpus(gpus.product, index=at, uuid=uuid, bus_id=bus_id, mig=bool(gpus.mig))
        for at, (uuid, bus_id) in enumerate(zip(gpus.ids, gpus.bus_ids, strict=True))
    ]
    return list(zip(*each, strict=True))


def _of_board(meaning: LayoutMeaning, gpus: NodeGpus, board: Sequence[MigGpu]) -> Foretold:
    try:
        wanted = _wanted(meaning, board)
    except BadInput as error:
        return Foretold(refused=str(error))
    if len(wanted) < len(board) and gpus.mig is not False:
        why = "it leaves some GPUs as they are, and the cluster does not know how these are"
        return Foretold(unknown=why)
    changing = [gpu for gpu in board if gpu.uuid in wanted and _may_change(gpus, wanted[gpu.uuid])]
    if gpus.mig is None:  # whether the mode has to change is the agent's to see
        board = [replace(gpu, mode=_mode(wanted[gpu.uuid])) for gpu in board]
    found = plan(board, wanted, {}, strategy=gpus.strategy)
    if isinstance(found, MigPlan):
        return Foretold(
            offers=found.allocatable or {},
            gpus=tuple(gpu.index for gpu in changing),
            sets_modes=gpus.mig is not None
            and all(wanted[gpu.uuid].mig is not gpus.mig for gpu in changing),
        )
    return Foretold(refused="; ".join(dict.fromkeys(one.detail for one in found.obstacles)))


def _wanted(meaning: LayoutMeaning, board: Sequence[MigGpu]) -> Mapping[str, GpuLayout]:
    if isinstance(meaning.asked, InlineLayout):
        return inline_layouts(meaning.asked, board)
    return named_layouts(meaning.configs, meaning.asked, board)


def _may_change(gpus: NodeGpus, wanted: GpuLayout) -> bool:
    """Only of whole GPUs it is known that they are as they should be."""
    return wanted.mig or gpus.mig is not False


def _mode(layout: GpuLayout) -> Mode:
    return Mode(current=layout.mig, pending=layout.mig)
