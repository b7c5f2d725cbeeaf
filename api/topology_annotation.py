# SPDX-License-Identifier: Apache-2.0
"""The topology annotation on a Node: the links between its GPUs, for schedulers and tools.

The agent writes it. Each key means what its description says; lengths follow from ``n``.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api import keys
from api.fabric_kind import FabricKind
from api.limits import MOST_ANNOTATION_CHARACTERS
from api.versioned import VersionedFormat

VERSION: Final = 1
_COUNTS = string.digits + string.ascii_lowercase + string.ascii_uppercase
_SYSTEM_LEVEL = 5
_GEN_DIGITS = 10

# Upper bounds are far above what exists; they keep later arithmetic and encoding from overflow.
_MAX_GPUS = 1024
_MAX_NUMBER = 65535

_Counts = Annotated[str, Meta(pattern=r"^[0-9a-zA-Z]*$")]
_Levels = Annotated[str, Meta(pattern=r"^[0-5]*$")]


class NicLevels(msgspec.Struct, frozen=True, array_like=True):
    """An RDMA NIC: its name, its bus id, and its PCIe ancestor level to each GPU in order."""

    name: str
    bus_id: str
    levels: _Levels


class TopologyAnnotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The links between the GPUs and NICs of one node: GPUs by their places, NICs by PCI bus."""

    v: Annotated[Literal[1], Meta(description="Major version of this schema.")]
    gen: Annotated[
        str,
        Meta(
            pattern=rf"^[0-9a-f]{{{_GEN_DIGITS}}}$",
            description="Class of the topology: equal where all that scoring uses is equal.",
        ),
    ]
    n: Annotated[int, Meta(ge=0, le=_MAX_GPUS, description="Number of GPUs.")]
    fab: Annotated[FabricKind, Meta(description="How NVLink joins the GPUs.")]
    lbw: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=_MAX_NUMBER)], ...],
        Meta(
            description="GB/s of one NVLink in one direction, rounded down: one for all GPUs, or"
            " one each; 0 where no rate is known."
        ),
    ]
    nv: Annotated[
        _Counts,
        Meta(
            description="NVLinks of each pair, upper triangle row by row, one digit of 0-9a-zA-Z"
            " each; the smaller of both directions, Z for 61 or more, 0 where unknown."
        ),
    ]
    pc: Annotated[
        _Levels,
        Meta(
            description="PCIe ancestor level of each pair, in the order of nv: 0 same board, 1 one"
            " switch, 2 several, 3 same host bridge, 4 same NUMA node, 5 across or unknown."
        ),
    ]
    numa: Annotated[
        tuple[Annotated[int, Meta(ge=-1, le=_MAX_NUMBER)], ...],
        Meta(description="NUMA node of each GPU; -1 where unknown."),
    ]
    ids: Annotated[tuple[str, ...], Meta(description="UUID of each GPU; empty while unknown.")]
    bus: Annotated[tuple[str, ...], Meta(description="PCI bus id of each GPU.")]
    nic: Annotated[
        tuple[NicLevels, ...],
        Meta(description="RDMA NICs: name, bus id, and one PCIe ancestor level for each GPU."),
    ]
    miss: Annotated[
        tuple[Annotated[int, Meta(ge=0, lt=_MAX_GPUS)], ...],
        Meta(
            description="Places, from 0, of GPUs whose links or UUID are unknown: ignore"
            " their entries in nv, pc and ids."
        ),
    ] = ()
    more: Annotated[
        int,
        Meta(
            ge=0,
            le=_MAX_NUMBER,
            description="RDMA NICs that `nic` leaves out, the farthest from all GPUs: a Node's"
            " annotations have no room for them.",
        ),
    ] = 0

    def links(self, i: int, j: int) -> int:
        """NVLinks between GPUs i and j; 0 for a GPU and itself."""
        return 0 if i == j else _COUNTS.index(self.nv[_pair(self.n, i, j)])

    def level(self, i: int, j: int) -> int:
        """PCIe ancestor level between GPUs i and j; 0 for a GPU and itself."""
        return 0 if i == j else int(self.pc[_pair(self.n, i, j)])


def generation(annotation: TopologyAnnotation) -> str:
    """First ten hex digits of the SHA-256 over all that scoring uses: no names, no ids.

    The same GPUs and NIC places in another node give the same value. Readers that
    keep tables by class use this and not the ``gen`` they were sent, so that a
    wrong one cannot touch another node's table.
    """
    used = (
        annotation.n,
        annotation.fab,
        annotation.lbw,
        annotation.nv,
        annotation.pc,
        annotation.numa,
        sorted(nic.levels for nic in annotation.nic),
        *(None, None),  # kept for policies of the node, so that the classes of version 1 stay equal
    )
    return hashlib.sha256(msgspec.json.encode(used)).hexdigest()[:_GEN_DIGITS]


def with_generation(annotation: TopologyAnnotation) -> TopologyAnnotation:
    """The annotation with the ``gen`` that follows from its content."""
    return msgspec.structs.replace(annotation, gen=generation(annotation))


def link_digits(counts: Iterable[int | None]) -> str:
    """NVLink counts as ``nv`` has them; None, not known, as 0."""
    return "".join(_COUNTS[min(count or 0, len(_COUNTS) - 1)] for count in counts)


def level_digits(levels: Iterable[int | None]) -> str:
    """PCIe ancestor levels as ``pc`` and ``nic`` have them; None, not known, as the farthest."""
    return "".join(str(_SYSTEM_LEVEL if level is None else level) for level in levels)


def _pair(n: int, i: int, j: int) -> int:
    """Place of the pair in an upper triangle written row by row."""
    a, b = sorted((i, j))
    if not 0 <= a < b < n:
        raise IndexError(f"no pair ({i}, {j}) among {n} GPUs")
    return a * (2 * n - a - 1) // 2 + b - a - 1


def faults(annotation: TopologyAnnotation) -> Iterator[str]:
    """Lengths that do not fit the number of GPUs, each with its key."""
    for key, entries, lengths in _sized(annotation):
        if len(entries) not in lengths:
            expected = " or ".join(str(length) for length in lengths)
            yield f"`{key}` has {len(entries)} entries, not {expected}"


def _sized(annotation: TopologyAnnotation) -> list[tuple[str, Sequence[object], tuple[int, ...]]]:
    """Each key with its entries and the lengths that are allowed."""
    n, pairs = annotation.n, annotation.n * (annotation.n - 1) // 2
    return [
        ("gen", annotation.gen, (_GEN_DIGITS,)),
        ("lbw", annotation.lbw, (n,) if n < 2 else (1, n)),
        ("nv", annotation.nv, (pairs,)),
        ("pc", annotation.pc, (pairs,)),
        ("numa", annotation.numa, (n,)),
        ("ids", annotation.ids, (n,)),
        ("bus", annotation.bus, (n,)),
        *((f"nic[{index}][2]", nic.levels, (n,)) for index, nic in enumerate(annotation.nic)),
    ]


_FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.TOPOLOGY}",
    remedy="delete it and the agent writes it again",
    title=f"Node annotation {keys.TOPOLOGY}",
    content=TopologyAnnotation,
    version=VERSION,
    most_length=MOST_ANNOTATION_CHARACTERS,
    safe=True,
    faults=faults,
)
encode, decode, json_schema = _FORMAT.text, _FORMAT.decode, _FORMAT.json_schema
