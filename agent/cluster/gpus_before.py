# SPDX-License-Identifier: Apache-2.0
"""GPUs that the own Node knew before this agent: taken once, and reported when replaced.

Within one boot it binds as a state file does: a GPU that was lost stays expected, though the
agent that knew it has ended and its file is gone. After a boot the number holds until sysfs and
NVML agree on another. A value that cannot be read is none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from api import keys, known_gpus_annotation
from api.known_gpus_annotation import FORMAT, KnownGpusAnnotation
from base.errors import BadInput
from base.log_once import LogOnce
from discovery.known_node_gpus import KnownGpus, KnownGpusRecord
from labelers.decision import Absent, Decision, Value

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountChange:
    """Another number of GPUs than before a boot."""

    before: int
    now: int

    @property
    def note(self) -> str:
        """A sentence for people."""
        return (
            f"this Node has {self.now} GPUs, and had {self.before} before it was booted:"
            " a board was added or taken out, or the machine was replaced under its name"
        )


class GpusBefore:
    """The annotation ``gpuscape.io/known-gpus`` as it stood on the Node when it was first seen."""

    def __init__(
        self, known_gpus: KnownGpus, boot: str, *, taken: Callable[[], None] = lambda: None
    ) -> None:
        """``boot``: of this host now; empty where it is not known, which is no boot of before.

        ``taken`` runs when ``known_gpus`` was offered what the Node has: it is to be read anew.
        """
        self._known_gpus = known_gpus
        self._boot = boot
        self._taken = taken
        self._was_seen = False
        self._reported = LogOnce()
        known_gpus.await_record()

    def observe(self, text: str | None) -> None:
        """Take the annotation as the Node has it now; once, for later it is our own."""
        if not self._was_seen and self._known_gpus.awaits_record:
            self._was_seen = True
            self._known_gpus.offer_record(self._record(text))
            self._taken()

    def change(self, text: str | None, decided: Decision | None) -> CountChange | None:
        """The change of the count if ``decided`` replaces the Node's ``text``, once; else None."""
        before = FORMAT.readable(text)
        if before is None or before.boot == self._boot:
            return None
        match decided:
            case Value(text=new):
                now = FORMAT.readable(new)
                count = before.n if now is None else now.n
            case Absent():
                count = 0
            case _:
                return None
        change = CountChange(before=before.n, now=count)
        is_new = before.n != count and self._reported.is_new(change)
        return change if is_new else None

    def _record(self, text: str | None) -> KnownGpusRecord:
        try:
            annotation = None if text is None else known_gpus_annotation.decode(text)
        except BadInput as error:
            log.warning("annotation not used", extra={"why": str(error)})
            return KnownGpusRecord()
        if annotation is None:
            if text is not None:
                why = f"annotation {keys.KNOWN_GPUS} is of another version of gpuscape"
                log.warning("annotation not used", extra={"why": why})
            return KnownGpusRecord()
        record = record_of(annotation)
        return record if annotation.boot == self._boot else record.of_earlier_boot


def record_of(known: KnownGpusAnnotation) -> KnownGpusRecord:
    """The annotation's GPUs, in the form in which those of a state file are known."""
    return KnownGpusRecord(
        places={bus_id: place for place, bus_id in enumerate(known.bus)},
        expected=frozenset(known.bus),
        unaddressed=known.n - len(known.bus),
    )
