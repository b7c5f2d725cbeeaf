# SPDX-License-Identifier: Apache-2.0
"""GPUs that a person takes out of the changes that are open: which ones, and what that means.

Names come from the journal, not from the driver: a GPU that is lost answers to none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from actuator.past_changes import PastChanges
from base.errors import BadInput
from cli.mig.planned_words import layout_document, layout_words
from discovery.model import normal_bus_id
from mig.gpu_layout import GpuLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUpGpu:
    """A GPU of an open change, or one whose layout comes back after a reboot."""

    uuid: str
    index: int | None = None
    """When the change began; None where that was not kept."""
    bus_id: str | None = None
    asked: str | None = None
    """The change that it is in; None where it is in none."""
    previous: GpuLayout | None = None
    """The layout that it had before the change."""

    def __str__(self) -> str:
        """As a person may name it."""
        names = (None if self.index is None else str(self.index), self.uuid, self.bus_id)
        return " ".join(name for name in names if name is not None)

    def words(self) -> str:
        """What becomes of it, in one line."""
        if self.asked is None or self.previous is None:
            return f"GPU {self}: its layout does not come back after a reboot any more."
        return (
            f"GPU {self} is taken out of the change to {self.asked}. Nothing is done to it now, and"
            " nothing is brought back on it later; the history keeps its layout from before:"
            f" {layout_words(self.previous)}."
        )

    def document(self) -> dict[str, Any]:
        """As plain values."""
        previous = None if self.previous is None else layout_document(self.previous)
        return {"gpu": self.uuid, "previous": previous}


def given_up_gpus(words: Sequence[str], found: PastChanges | None) -> tuple[GivenUpGpu, ...]:
    """The GPUs that ``words`` name by index, UUID or bus id, each once.

    Raises BadInput for a word that names none, or more than one.
    """
    known = known_gpus(found)
    chosen: dict[str, GivenUpGpu] = {}
    for word in words:
        fitting = [gpu for gpu in known if _is_named(gpu, word)]
        if len(fitting) != 1:
            there = "; ".join(map(str, known)) or "none"
            many = "no GPU of an open change, and none whose layout is remembered"
            why = f"more than one GPU: {'; '.join(map(str, fitting))}" if fitting else many
            raise BadInput(f"--give-up {word}: {why}; there are: {there}")
        chosen[fitting[0].uuid] = fitting[0]
    return tuple(chosen.values())


def known_gpus(found: PastChanges | None) -> tuple[GivenUpGpu, ...]:
    """Those that can be given up."""
    return () if found is None else tuple(_known(found))


def _known(found: PastChanges) -> Iterator[GivenUpGpu]:
    in_changes: set[str] = set()
    for one in found.unended:
        for uuid, previous in one.previous.items():
            name = one.gpus.get(uuid)
            in_changes.add(uuid)
            yield GivenUpGpu(
                uuid=uuid,
                index=None if name is None else name.index,
                bus_id=None if name is None else name.bus_id,
                asked=one.asked,
                previous=previous,
            )
    for uuid in found.remembered:
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
