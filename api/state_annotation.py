# SPDX-License-Identifier: Apache-2.0
"""The state annotation on the Lease of a node's agent: which GPUs are usable, and who has them.

Masks are hex with one digit for every four GPUs begun; bit 0 is the first GPU of the
topology annotation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api import keys
from api.limits import MOST_STATE_CHARACTERS
from api.versioned import VersionedFormat

VERSION: Final = 1
_POD_DIGITS = 8
_MAX_SEQ = 2**53 - 1  # what every JSON reader holds exactly

_Mask = Annotated[str, Meta(pattern=r"^[0-9a-f]+$", max_length=256)]
PodKey = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{_POD_DIGITS}}}$")]
"""A pod as :func:`pod_key` names it."""


class StateAnnotation(msgspec.Struct, frozen=True, kw_only=True):
    """Annotation on the Lease: GPUs that can be allocated to pods, and the pods that have them."""

    v: Annotated[Literal[1], Meta(description="Major version of this schema.")]
    gen: Annotated[
        str,
        Meta(
            pattern=r"^[0-9a-f]{10}$",
            description="gen of the topology annotation whose order of GPUs the masks follow.",
        ),
    ]
    seq: Annotated[
        int, Meta(ge=0, le=_MAX_SEQ, description="One more with every change of the rest.")
    ]
    ok: Annotated[
        _Mask,
        Meta(
            description="GPUs that work (healthy or degraded) and that a device plugin offers"
            " whole: MIG off, not shared; in use or not."
        ),
    ]
    used: Annotated[_Mask, Meta(description="GPUs that some pod has all or part of.")]
    pods: Annotated[
        dict[PodKey, _Mask],
        Meta(
            description=f"The GPUs of each pod, by the first {_POD_DIGITS} hex digits of the"
            " SHA-256 of namespace/name."
        ),
    ]

    @property
    def free(self) -> int:
        """Mask of the GPUs that can be allocated whole now."""
        return int(self.ok, 16) & ~int(self.used, 16)


def pod_key(namespace: str, name: str) -> str:
    """Key of a pod in the annotation: the kubelet reports no UID, and names are long."""
    return hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:_POD_DIGITS]


def hex_mask(places: Iterable[int], gpus: int) -> str:
    """The mask of the GPUs at these places, from 0, on a node with so many GPUs."""
    bits = sum(1 << place for place in places)
    return f"{bits:0{max(1, -(-gpus // 4))}x}"


def numbered(state: StateAnnotation, before: StateAnnotation | None) -> StateAnnotation:
    """``state`` with the ``seq`` that follows ``before``: the same where nothing else changed."""
    if before is None:
        return state
    state = msgspec.structs.replace(state, seq=before.seq)
    if state == before:
        return state
    return msgspec.structs.replace(state, seq=(state.seq + 1) % (_MAX_SEQ + 1))


def _faults(state: StateAnnotation) -> Iterator[str]:
    for key, mask in _masks(state):
        if len(mask) != len(state.ok):
            yield f"`{key}` has {len(mask)} digits and `ok` has {len(state.ok)}"


def _masks(state: StateAnnotation) -> Iterator[tuple[str, str]]:
    """The place of each mask, such as ``used`` or ``pods.1a2b3c4d``, and the mask."""
    yield "used", state.used
    for pod, mask in state.pods.items():
        yield f"pods.{pod}", mask


_FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.STATE}",
    remedy="delete it and the agent writes it again",
    title=f"Lease annotation {keys.STATE}",
    content=StateAnnotation,
    version=VERSION,
    most_length=MOST_STATE_CHARACTERS,
    safe=True,
    faults=_faults,
)
encode, decode, json_schema = _FORMAT.text, _FORMAT.decode, _FORMAT.json_schema
