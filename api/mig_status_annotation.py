# SPDX-License-Identifier: Apache-2.0
"""``gpuscape.io/mig-status`` on a Node: how far the desired MIG layout is.

The agent of the node writes it, and people and the fleet's views read it.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api import keys
from api.mig_outcome import Outcome
from api.mig_resources import MOST_OFFERS
from api.versioned import VersionedFormat
from base.text import rfc3339

VERSION: Final = 2
MOST_CHARACTERS: Final = 2560
"""Share of the status in what the admission policy allows all annotations of a Node."""
MOST_DESIRED: Final = 256
"""Characters of the desired layout that are repeated in the status."""
MOST_REASON: Final = 400
MOST_PODS: Final = 8
"""Pods that a status names at most."""
TRIED_AGAIN_AT: Final = "; tried again at "
"""Words in a reason before the time of the next attempt, which ends it (RFC 3339)."""


class MigPhase(StrEnum):
    """How far the desired layout is. More may come: readers show an unknown one as it is."""

    IDLE = "idle"
    """No layout is desired."""
    UNADOPTED = "unadopted"
    """The label nvidia.com/mig.config is not obeyed: it was there before MIG was managed here."""
    UNCHANGED = "unchanged"
    """The GPUs have the desired layout."""
    PLANNED = "planned"
    """There is a plan, and no program carries it out."""
    REFUSED = "refused"
    """Nothing is done; ``reason`` says why."""
    UNREAD = "unread"
    """GPUs cannot be read now, so there is no plan yet."""
    WAITING = "waiting"
    """The change waits for a permit; ``reason`` says for whom or what."""
    CHANGING = "changing"
    """The GPUs are being changed."""
    FAILED = "failed"
    """The GPUs have the layouts from before; the next attempt is at the time in ``reason``."""
    STUCK = "stuck"
    """Neither the desired nor the previous layouts could be reached; a person decides."""


class RequestSource(StrEnum):
    """The key of a Node that states the desired layout."""

    ANNOTATION = "annotation"
    LABEL = "label"


class GpuChangeStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the plan does to one GPU."""

    gpu: Annotated[int, Meta(ge=0, description="Its index.")]
    keep: Annotated[int, Meta(ge=0, description="GPU instances that are not touched.")] = 0
    destroy: Annotated[int, Meta(ge=0, description="GPU instances that are destroyed.")] = 0
    create: Annotated[int, Meta(ge=0, description="GPU instances that are created.")] = 0
    mig: Annotated[bool, Meta(description="The MIG mode that is set.")] | None = None


class MigStatusAnnotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Annotation on the Node: how far the desired MIG layout is."""

    v: Annotated[Literal[2], Meta(description="Major version of this schema.")]
    phase: Annotated[
        str,
        Meta(
            pattern=r"^[a-z]([a-z-]{0,30}[a-z])?$",
            description=f"{', '.join(MigPhase)}; more may come.",
        ),
    ]
    since: Annotated[
        str, Meta(max_length=32, description="RFC 3339: when all but this became as it is.")
    ] = ""
    source: Annotated[RequestSource | None, Meta(description="The key that states the layout.")] = (
        None
    )
    desired: Annotated[
        str, Meta(max_length=MOST_DESIRED, description="The desired layout, cut where it is long.")
    ] = ""
    reason: Annotated[
        str, Meta(max_length=MOST_REASON, description="A sentence for people: why, or what next.")
    ] = ""
    plan: Annotated[
        str,
        Meta(
            pattern=r"^([0-9a-f]{16})?$",
            description="Digest of the desired layouts, GPU by GPU; equal for equal ones.",
        ),
    ] = ""
    gpus: Annotated[
        tuple[GpuChangeStatus, ...],
        Meta(max_length=64, description="GPUs that the plan changes."),
    ] = ()
    pods: Annotated[
        tuple[Annotated[str, Meta(max_length=320)], ...],
        Meta(
            max_length=MOST_PODS, description="namespace/name of pods that the plan would disturb."
        ),
    ] = ()
    more_pods: Annotated[int, Meta(ge=0, description="Number of pods that are not named.")] = 0
    request: Annotated[
        str,
        Meta(
            pattern=r"^([0-9a-f]{16})?$",
            description="Id of the newest request in gpuscape.io/mig-request.",
        ),
    ] = ""
    outcome: Annotated[
        str,
        Meta(
            pattern=r"^([a-z][a-z-]{0,30})?$",
            description=f"Outcome of that request: {', '.join(Outcome)}; more may come. Empty while"
            " it is open.",
        ),
    ] = ""
    reached: Annotated[
        str,
        Meta(
            pattern=r"^([0-9a-f]{16})?$",
            description="Digest of desired layouts that the GPUs had and have lost; empty where"
            " other layouts have been desired since.",
        ),
    ] = ""
    desired_digest: Annotated[
        str,
        Meta(
            pattern=r"^([0-9a-f]{16})?$",
            description="Digest of the whole desired layout, once the agent has evaluated it.",
        ),
    ] = ""
    allocatable: Annotated[
        dict[Annotated[str, Meta(max_length=64)], Annotated[int, Meta(ge=0)]],
        Meta(
            max_length=MOST_OFFERS,
            description="Resources that are to be allocatable with the current layouts; empty in"
            " other phases, and where the device plugin's strategy is not known.",
        ),
    ] = {}
    current_since: Annotated[
        str,
        Meta(
            max_length=32,
            description="RFC 3339: when the agent, since it runs, first read the current layouts;"
            " a device plugin that started before may not list their devices.",
        ),
    ] = ""
    unadopted: Annotated[
        str,
        Meta(
            max_length=63,
            description="Value that nvidia.com/mig.config had when MIG was first managed"
            " here: it is not obeyed while it stays.",
        ),
    ] = ""


def desired_digest(source: RequestSource, text: str) -> str:
    """The status' ``desired_digest`` for the layout that ``source`` states in this text."""
    return hashlib.sha256(f"{source}:{text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def retry_time(reason: str) -> float | None:
    """When the next attempt comes, by a status' reason; seconds since 1970, None: it has none."""
    _, words, moment = reason.rpartition(TRIED_AGAIN_AT)
    return rfc3339.unix_seconds(moment) if words else None


FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.MIG_STATUS}",
    remedy="delete it and the agent writes it again",
    title=f"Node annotation {keys.MIG_STATUS}",
    content=MigStatusAnnotation,
    version=VERSION,
    most_length=MOST_CHARACTERS,
    safe=True,
)
encode, decode, json_schema = FORMAT.text, FORMAT.decode, FORMAT.json_schema
