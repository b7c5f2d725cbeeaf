# SPDX-License-Identifier: Apache-2.0
"""``gpuscape.io/known-gpus`` on a Node: which GPUs it has in this boot, for its next agent.

An agent that starts without a state file learns from it of a GPU that was lost before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api import keys
from api.versioned import VersionedFormat

VERSION: Final = 1
MOST_GPUS: Final = 128
"""Far more than a machine has; a larger number is damage."""
MOST_NAMED: Final = 32
"""Bus ids, so that the annotation stays small; of more GPUs there is the number alone."""
MOST_CHARACTERS: Final = 1024

_BOOT: Final = r"^[0-9a-f-]{36}$"
_BUS_ID: Final = r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"


class KnownGpusAnnotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Annotation on the Node: the GPUs that it has in one boot, silent ones too."""

    v: Annotated[Literal[1], Meta(description="Major version of this schema.")]
    boot: Annotated[
        str,
        Meta(pattern=_BOOT, description="The boot, as /proc/sys/kernel/random/boot_id names it."),
    ]
    n: Annotated[int, Meta(ge=0, le=MOST_GPUS, description="Number of GPUs.")]
    bus: Annotated[
        tuple[Annotated[str, Meta(pattern=_BUS_ID)], ...],
        Meta(
            max_length=MOST_NAMED,
            description="PCI bus ids by their places, of those GPUs whose bus id is known; none"
            f" where these are more than {MOST_NAMED}.",
        ),
    ] = ()


def known_gpus_of_boot(boot: str, bus_ids: Sequence[str], count: int) -> KnownGpusAnnotation:
    """The annotation for these GPUs of ``count``, in the order of their places."""
    fits = len(bus_ids) <= MOST_NAMED
    bus = tuple(bus_ids) if fits else ()
    return KnownGpusAnnotation(v=VERSION, boot=boot, n=min(count, MOST_GPUS), bus=bus)


def is_boot(text: str) -> bool:
    """Whether this names a boot."""
    return re.fullmatch(_BOOT, text) is not None


def _faults(known: KnownGpusAnnotation) -> Iterator[str]:
    if len(known.bus) > known.n:
        yield f"`bus` has {len(known.bus)} bus ids of {known.n} GPUs"
    if len(set(known.bus)) != len(known.bus):
        yield "`bus` has a bus id twice"


FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.KNOWN_GPUS}",
    remedy="the agent writes it anew",
    title=f"Node annotation {keys.KNOWN_GPUS}",
    content=KnownGpusAnnotation,
    version=VERSION,
    most_length=MOST_CHARACTERS,
    faults=_faults,
    safe=True,
)
encode, decode, json_schema = FORMAT.text, FORMAT.decode, FORMAT.json_schema
