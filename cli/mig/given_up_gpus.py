# SPDX-License-Identifier: Apache-2.0
"""GPUs that a person gives up: they are taken out of the changes that are open.

Names come from the journal, because the driver does not answer for a lost GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actuator.change_record import ChangeRecord
from actuator.past_changes import PastChanges
from base.errors import BadInput
from cli.mig.plan_text import layout_document
from discovery.bus_id import normal_bus_id


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUpGpu:
    """A GPU of an open change, or one whose layout comes back after a reboot."""

    uuid: str
    entry: ChangeRecord | None = None
    """The open change that the GPU is in; None where it is in none."""

    def __str__(self) -> str:
        """The GPU's UUID, with index and bus id of when the change began."""
        entry = self.entry
        return self.uuid if entry is None else f"{entry.index} {self.uuid} {entry.bus_id}"

    def text(self) -> str:
        """Consequence of giving the GPU up, in one line."""
        if self.entry is None:
            return f"GPU {self}: its layout does not come back after a reboot any more."
        return (
            f"GPU {self} is taken out of the change to {self.entry.origin}. Nothing is done to it"
            " now, and nothing is brought back on it later; the history keeps its layout from"
            f" before: {self.entry.previous}."
        )

    def document(self) -> dict[str, Any]:
        """UUID and previous layout as plain values."""
        previous = None if self.entry is None else layout_document(self.entry.previous)
        return {"gpu": self.uuid, "previous": previous}

    def is_named(self, word: str) -> bool:
        """Whether a word is the GPU's UUID, index or bus id."""
        if word == self.uuid:
            return True
        if self.entry is None:
            return False
        if word.isascii() and word.isdigit():
            return self.entry.index == int(word)
        try:
            return normal_bus_id(word) == self.entry.bus_id
        except ValueError:
            return False


def given_up_gpus(words: Sequence[str], history: PastChanges) -> tuple[GivenUpGpu, ...]:
    """Find the GPUs that ``words`` name by index, UUID or bus id, each once.

    Raises BadInput for a word that names none, or more than one.
    """
    candidates = gpus_to_give_up(history)
    chosen: dict[str, GivenUpGpu] = {}
    for word in words:
        matches = [gpu for gpu in candidates if gpu.is_named(word)]
        if len(matches) != 1:
            known_names = "; ".join(map(str, candidates)) or "none"
            no_match = "no GPU of an open change, and none whose layout is remembered"
            problem = f"more than one GPU: {'; '.join(map(str, matches))}" if matches else no_match
            raise BadInput(f"--give-up {word}: {problem}; there are: {known_names}")
        chosen[matches[0].uuid] = matches[0]
    return tuple(chosen.values())


def gpus_to_give_up(history: PastChanges) -> tuple[GivenUpGpu, ...]:
    """GPUs that can be given up: those of open changes, and those with a remembered layout."""
    in_changes = {entry.gpu: entry for entry in history.unended}
    uuids = dict.fromkeys((*in_changes, *history.remembered))
    return tuple(GivenUpGpu(uuid=uuid, entry=in_changes.get(uuid)) for uuid in uuids)
