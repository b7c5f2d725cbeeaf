# SPDX-License-Identifier: Apache-2.0
"""``gpuscape.io/mig-request`` on a Node: its agent asks for a permit to change MIG layouts.

The coordinator reads it. A request keeps its id until it has ended, which
``gpuscape.io/mig-status`` reports; pods come and go meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api import keys
from api.mig_resources import MOST_OFFERS
from api.state_annotation import PodKey
from api.versioned import VersionedFormat

VERSION: Final = 2
MOST_CHARACTERS: Final = 1536
"""Share of the request in what the admission policy allows all annotations of a Node."""
MOST_PODS: Final = 64
"""Pods in the way and other pods together."""
MOST_PROGRAMS: Final = 4
MOST_PROGRAM: Final = 80
"""Characters of a program's name."""
_ID_DIGITS: Final = 16

RequestId = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{_ID_DIGITS}}}$")]
"""Id of one attempt at a change; the actuator has the same id for the change."""


class MigRequestAnnotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Annotation on the Node: a change of MIG layouts that waits for a permit."""

    v: Annotated[Literal[2], Meta(description="Major version of this schema.")]
    request: Annotated[RequestId, Meta(description="Id of this attempt.")]
    plan: Annotated[
        str,
        Meta(
            pattern=r"^[0-9a-f]{16}$",
            description="Digest of the desired layouts, GPU by GPU; equal for equal ones.",
        ),
    ]
    since: Annotated[
        str, Meta(max_length=32, description="RFC 3339: when this attempt was first requested.")
    ] = ""
    gpus: Annotated[
        tuple[Annotated[int, Meta(ge=0)], ...],
        Meta(min_length=1, max_length=64, description="Indices of the GPUs that change."),
    ]
    modes: Annotated[bool, Meta(description="MIG is turned on or off on one of them.")] = False
    drift: Annotated[
        bool,
        Meta(
            description="The GPUs had these layouts and lost them, and they are still desired: no"
            " pod is evicted for it."
        ),
    ] = False
    pods: Annotated[
        tuple[PodKey, ...],
        Meta(
            max_length=MOST_PODS,
            description="Pods in the way: they use what would be destroyed. By the first 8 hex"
            " digits of the SHA-256 of namespace/name.",
        ),
    ] = ()
    other_pods: Annotated[
        tuple[PodKey, ...],
        Meta(
            max_length=MOST_PODS,
            description="All other pods to which the kubelet has given a GPU or a MIG device.",
        ),
    ] = ()
    programs: Annotated[
        tuple[Annotated[str, Meta(max_length=MOST_PROGRAM)], ...],
        Meta(
            max_length=MOST_PROGRAMS,
            description="Programs in the way that are of no pod by the kubelet, the first few:"
            " nothing begins while there is one.",
        ),
    ] = ()
    unlisted: Annotated[int, Meta(ge=0, description="Pods that do not fit into the two lists.")] = 0
    allocatable: Annotated[
        dict[Annotated[str, Meta(max_length=64)], Annotated[int, Meta(ge=0)]],
        Meta(
            max_length=MOST_OFFERS,
            description="Resources that are to be allocatable afterwards; empty where the device"
            " plugin's strategy is not known.",
        ),
    ] = {}


def new_request_id() -> str:
    """An id that no other request has."""
    return secrets.token_hex(_ID_DIGITS // 2)


def _faults(request: MigRequestAnnotation) -> Iterator[str]:
    if len(request.pods) + len(request.other_pods) > MOST_PODS:
        yield f"pods and other_pods are more than {MOST_PODS} together"


FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.MIG_REQUEST}",
    remedy="delete it and the agent asks anew",
    title=f"Node annotation {keys.MIG_REQUEST}",
    content=MigRequestAnnotation,
    version=VERSION,
    most_length=MOST_CHARACTERS,
    safe=True,
    faults=_faults,
)
encode, decode, json_schema = FORMAT.text, FORMAT.decode, FORMAT.json_schema
