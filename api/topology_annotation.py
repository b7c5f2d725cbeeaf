"""The topology annotation: one schema for the agent that writes it and all who read it.

Each key stands for what its description says; lengths follow from ``n``. Readers
ignore keys they do not know, and take another major version for no data at all.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from api import keys
from base.errors import BadInput
from discovery.model import FabricKind, NodeSnapshot
from discovery.topology import link_bytes_per_second, links_known

VERSION: Final = 1
_COUNTS = string.digits + string.ascii_lowercase + string.ascii_uppercase
_SYSTEM_LEVEL = 5
_GEN_DIGITS = 10
_GIGA = 10**9

# Upper bounds are far above what exists; they keep later arithmetic and encoding from overflow.
_MAX_GPUS = 1024
_MAX_NUMBER = 65535

_Counts = Annotated[str, Meta(pattern=r"^[0-9a-zA-Z]*$")]
_Levels = Annotated[str, Meta(pattern=r"^[0-5]*$")]


class NicLevels(msgspec.Struct, frozen=True, array_like=True):
    """One RDMA NIC: its name, its bus id, and its PCIe ancestor level to each GPU in order."""

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
            " one each; 0 where none tells."
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
    ids: Annotated[
        tuple[str, ...], Meta(description="UUID of each GPU; empty where it never told it.")
    ]
    bus: Annotated[tuple[str, ...], Meta(description="PCI bus id of each GPU.")]
    nic: Annotated[
        tuple[NicLevels, ...],
        Meta(description="RDMA NICs: name, bus id, and one PCIe ancestor level for each GPU."),
    ]
    miss: Annotated[
        tuple[Annotated[int, Meta(ge=0, lt=_MAX_GPUS)], ...],
        Meta(
            description="Places, from 0, of GPUs that never told their links or UUID: what is said"
            " of them in nv, pc and ids is not known."
        ),
    ] = ()

    def links(self, i: int, j: int) -> int:
        """NVLinks between GPUs i and j; 0 for a GPU and itself."""
        return 0 if i == j else _COUNTS.index(self.nv[_pair(self.n, i, j)])

    def level(self, i: int, j: int) -> int:
        """PCIe ancestor level between GPUs i and j; 0 for a GPU and itself."""
        return 0 if i == j else int(self.pc[_pair(self.n, i, j)])


class _Versioned(msgspec.Struct):
    v: int


def annotation(snapshot: NodeSnapshot) -> TopologyAnnotation:
    """The annotation of a node."""
    links = snapshot.topology
    n = len(links.gpus)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    ungenerated = TopologyAnnotation(
        v=VERSION,
        gen="0" * _GEN_DIGITS,
        n=n,
        fab=links.kind,
        lbw=_rates(snapshot),
        nv="".join(_count(links.effective(i, j)) for i, j in pairs),
        pc=_levels(links.pcie[i][j] for i, j in pairs),
        numa=tuple(-1 if gpu.numa_node is None else gpu.numa_node for gpu in snapshot.gpus),
        ids=tuple(gpu.uuid or "" for gpu in snapshot.gpus),
        bus=links.gpus,
        nic=tuple(
            NicLevels(nic.name, nic.bus_id, _levels(links.pcie[n + k][:n]))
            for k, nic in enumerate(snapshot.host.nics)
        ),
        miss=unknown_places(snapshot),
    )
    return msgspec.structs.replace(ungenerated, gen=generation(ungenerated))


def unknown_places(snapshot: NodeSnapshot) -> tuple[int, ...]:
    """Places of the GPUs of which this snapshot cannot tell links or UUID."""
    return tuple(
        place for place, gpu in enumerate(snapshot.gpus) if gpu.uuid is None or not links_known(gpu)
    )


def encode(snapshot: NodeSnapshot) -> str:
    """The annotation's text: compact JSON, the same for the same snapshot."""
    return msgspec.json.encode(annotation(snapshot)).decode()


def decode(text: str) -> TopologyAnnotation | None:
    """The annotation in ``text``; None for a major version other than ours.

    Raises BadInput naming the key that is missing, of the wrong kind, out of its
    range or of the wrong length; nothing else, whatever the text is.
    """
    try:
        if msgspec.json.decode(text, type=_Versioned).v != VERSION:
            return None
        found = msgspec.json.decode(text, type=TopologyAnnotation)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _damaged(str(error)) from error
    for key, entries, lengths in _sized(found):
        if len(entries) not in lengths:
            wanted = " or ".join(str(length) for length in lengths)
            raise _damaged(f"`{key}` has {len(entries)} entries, not {wanted}")
        if entries[-1:] == "\n":  # which a pattern's dollar sign lets through
            raise _damaged(f"`{key}` ends in a newline")
    return found


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


def json_schema() -> dict[str, Any]:
    """JSON Schema of the annotation, 2020-12; it cannot say how lengths follow from ``n``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Node annotation {keys.TOPOLOGY}",
        **msgspec.json.schema(TopologyAnnotation),
    }


def _rates(snapshot: NodeSnapshot) -> tuple[int, ...]:
    """One rate where the GPUs that tell theirs agree, else one each; none without GPUs."""
    rates = [rate and rate // _GIGA for rate in link_bytes_per_second(snapshot.gpus)]
    known = {rate for rate in rates if rate is not None}
    if len(known) > 1:
        return tuple(rate or 0 for rate in rates)
    return (max(known, default=0),) if rates else ()


def _count(links: int | None) -> str:
    return _COUNTS[min(links or 0, len(_COUNTS) - 1)]


def _levels(levels: Iterable[int | None]) -> str:
    return "".join(str(_SYSTEM_LEVEL if level is None else level) for level in levels)


def _pair(n: int, i: int, j: int) -> int:
    """Place of the pair in an upper triangle written row by row."""
    a, b = sorted((i, j))
    if not 0 <= a < b < n:
        raise IndexError(f"no pair ({i}, {j}) among {n} GPUs")
    return a * (2 * n - a - 1) // 2 + b - a - 1


def _sized(found: TopologyAnnotation) -> list[tuple[str, Sequence[object], tuple[int, ...]]]:
    """Key, its entries, and how many there may be."""
    n, pairs = found.n, found.n * (found.n - 1) // 2
    return [
        ("gen", found.gen, (_GEN_DIGITS,)),
        ("lbw", found.lbw, (n,) if n < 2 else (1, n)),
        ("nv", found.nv, (pairs,)),
        ("pc", found.pc, (pairs,)),
        ("numa", found.numa, (n,)),
        ("ids", found.ids, (n,)),
        ("bus", found.bus, (n,)),
        *((f"nic[{at}][2]", nic.levels, (n,)) for at, nic in enumerate(found.nic)),
    ]


def _damaged(why: str) -> BadInput:
    return BadInput(
        f"annotation {keys.TOPOLOGY} is damaged: {why}; delete it and the agent writes it again"
    )
