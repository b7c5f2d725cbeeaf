# SPDX-License-Identifier: Apache-2.0
"""GPUs that a person gives up: they are taken out of the changes that are open.

Names come from the journal, because the driver does not answer for a lost GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from actuator.past_changes import PastChanges
from base.errors import BadInput
from cli.mig.plan_text import layout_document
from discovery.bus_id import normal_bus_id
from mig.gpu_layout import GpuLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUpGpu:
    """A GPU of an open change, or one whose layout comes back after a reboot."""

    uuid: str
    index: int | None = None
    """Index of the GPU when the change began; None where the journal does not have it."""
    bus_id: str | None = None
    change_title: str | None = None
    """Layout of the open change that the GPU is in, for people; None where it is in none."""
    previous: GpuLayout | None = None
    """Layout of the GPU before the change."""

    def __str__(self) -> str:
        """The GPU's index, UUID and bus id, as far as they are known."""
        names = (None if self.index is None else str(self.index), self.uuid, self.bus_id)
        return " ".join(name for name in names if name is not None)

    def text(self) -> str:
        """Consequence of giving the GPU up, in one line."""
        if self.change_title is None or self.previous is None:
            return f"GPU {self}: its layout does not come back after a reboot any more."
        return (
            f"GPU {self} is taken out of the change to {self.change_title}. Nothing is done to it"
            " now, and nothing is brought back on it later; the history keeps its layout from"
            " before:"
            f" {self.previous}."
        )

    def document(self) -> dict[str, Any]:
        """UUID and previous layout as plain values."""
        previous = None if self.previous is None else layout_document(self.previous)
        return {"gpu": self.uuid, "previous": previous}


def given_up_gpus(words: Sequence[str], history: PastChanges | None) -> tuple[GivenUpGpu, ...]:
    """Find the GPUs that ``words`` name by index, UUID or bus id, each once.

    Raises BadInput for a word that names none, or more than one.
    """
    candidates = gpus_to_give_up(history)
    chosen: dict[str, GivenUpGpu] = {}
    for word in words:
        matches = [gpu for gpu in candidates if _is_named(gpu, word)]
        if len(matches) != 1:
            known_names = "; ".join(map(str, candidates)) or "none"
            no_match = "no GPU of an open change, and none whose layout is remembered"
            problem = f"more than one GPU: {'; '.join(map(str, matches))}" if matches else no_match
            raise BadInput(f"--give-up {word}: {problem}; there are: {known_names}")
        chosen[matches[0].uuid] = matches[0]
    return tuple(chosen.values())


def gpus_to_give_up(history: PastChanges | None) -> tuple[GivenUpGpu, ...]:
    """GPUs that can be given up: those of open changes, and those with a remembered layout."""
    return () if history is None else tuple(_known(history))


def _known(history: PastChanges) -> Iterator[GivenUpGpu]:
    for entry in history.unended:
        yield GivenUpGpu(
            uuid=entry.gpu,
            index=entry.index,
            bus_id=entry.bus_id,
            change_title=entry.origin,
            previous=entry.previous,
        )
    in_changes = {entry.gpu for entry in history.unended}
    for uuid in history.remembered:
        if uuid not in in_changes:
            yield GivenUpGpu(uuid=uuid)


def _is_named(gpu: GivenUpGpu, word: str) -> bool:
    if word.isascii() and word.isdigit():
        return gpu.index == int(word)
    if word == gpu.uuid:
        return True
    try:
        return normal_bus_id(word) == gpu.bus_id
    except ValueError:
        return False
