# SPDX-License-Identifier: Apache-2.0
"""``gpuscape.io/mig-status`` on a Node: how far the desired MIG layout is.

The agent of the node writes it, and people and the fleet's views read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api import keys
from api.mig_outcome import Outcome
from api.mig_resources import MOST_OFFERS
from api.versioned import VersionedFormat
from base.text import rfc3339
from base.text.number_ranges import number_ranges
from base.text.safe_text import short_line

VERSION: Final = 2
MOST_CHARACTERS: Final = 2560
"""Share of the status in what the admission policy allows all annotations of a Node."""
MOST_DESIRED: Final = 256
"""Characters of the desired layout that are repeated in the status."""
MOST_REASON: Final = 400
MOST_GPU_REASON: Final = 120
"""Characters of the reason for one GPU."""
MOST_PODS: Final = 8
"""Pods that a status names at most."""
NEVER_ADOPTED: Final = "never"
"""Value of ``gpuscape.io/mig-adopt`` on a Node whose layout label belongs to another program."""
DESIRED_BY: Final = "desired by "
"""Words that begin the notes of Events about a desired layout."""
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
    REBOOTING = "rebooting"
    """The change waits for a boot of the node, which brings a MIG mode; ``reason`` has the file
    that asks for it."""
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


class GpuOutcomeStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a change ended on one GPU."""

    gpu: Annotated[int, Meta(ge=0, description="Its index when the change began.")]
    outcome: Annotated[
        str,
        Meta(
            pattern=r"^[a-z][a-z-]{0,30}$",
            description=f"{Outcome.APPLIED}, {Outcome.ROLLED_BACK}, {Outcome.STUCK}; more may"
            " come.",
        ),
    ]
    reason: Annotated[
        str, Meta(max_length=MOST_GPU_REASON, description="Why, cut where there is no room.")
    ] = ""


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
    outcomes: Annotated[
        tuple[GpuOutcomeStatus, ...],
        Meta(
            max_length=64,
            description="Outcome on each GPU that the request changed, if it failed on one, and"
            " GPUs that are stuck since earlier requests; the worst where not all fit.",
        ),
    ] = ()
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


def admin_layout(
    labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[RequestSource, str] | None:
    """Source and text of the layout that the admin's keys of a Node state; None where none does.

    No agent may write these keys. A label that belongs to another program states none.
    """
    if keys.MIG_LAYOUT in annotations:
        return RequestSource.ANNOTATION, annotations[keys.MIG_LAYOUT]
    label = labels.get(keys.MIG_CONFIG)
    is_anothers = labels.get(keys.MIG_ADOPT) == NEVER_ADOPTED
    return (RequestSource.LABEL, label) if label and not is_anothers else None


def admin_digest(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Digest of the layout that the admin's keys of a Node state; empty where none does."""
    stated = admin_layout(labels, annotations)
    return desired_digest(*stated) if stated else ""


def desired_words(status: MigStatusAnnotation) -> str:
    """How the note of an Event about this status begins: which layout, and where it stands."""
    return f"{DESIRED_BY}{status.source}: {status.desired}: "


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

_LATER_CHARACTERS: Final = 160
"""Room for since, current_since and unadopted, which a status gets last."""
_BADNESS: Final = (Outcome.STUCK, Outcome.ROLLED_BACK)


def instance_counts(gpus: Sequence[GpuChangeStatus]) -> tuple[int, int, int]:
    """GPU instances that the plan keeps, destroys and creates on these GPUs together."""
    kept, destroyed = sum(gpu.keep for gpu in gpus), sum(gpu.destroy for gpu in gpus)
    return kept, destroyed, sum(gpu.create for gpu in gpus)


def failed_gpus(status: MigStatusAnnotation) -> tuple[GpuOutcomeStatus, ...]:
    """The GPUs that are stuck or were rolled back, the stuck ones first."""
    return tuple(gpu for bad in _BADNESS for gpu in status.outcomes if gpu.outcome == bad)


def failed_text(status: MigStatusAnnotation) -> str:
    """The GPUs that failed, by index: ``GPU 3 stuck, GPU 0-2 rolled-back``; empty for none."""
    failed = failed_gpus(status)
    indices = {bad: [gpu.gpu for gpu in failed if gpu.outcome == bad] for bad in _BADNESS}
    return ", ".join(f"GPU {number_ranges(gpus)} {bad}" for bad, gpus in indices.items() if gpus)


def with_fitting_outcomes(status: MigStatusAnnotation) -> MigStatusAnnotation:
    """The status with as much of its GPUs' outcomes as an annotation has room for.

    Their reasons are cut first; then fewer pods are named, which are counted instead; then GPUs are
    left out, those that failed least and last.
    """
    shorter = status
    for outcomes, most_pods in _ever_shorter(status.outcomes):
        pods = status.pods[:most_pods]
        more_pods = status.more_pods + len(status.pods) - len(pods)
        shorter = msgspec.structs.replace(status, outcomes=outcomes, pods=pods, more_pods=more_pods)
        if len(encode(shorter)) <= MOST_CHARACTERS - _LATER_CHARACTERS:
            return shorter
    return msgspec.structs.replace(status, outcomes=())


def _ever_shorter(
    outcomes: tuple[GpuOutcomeStatus, ...],
) -> Iterator[tuple[tuple[GpuOutcomeStatus, ...], int]]:
    """Outcomes, and the number of pods beside them."""
    yield outcomes, MOST_PODS
    for most in (60, 24):
        yield tuple(_with_reason(gpu, short_line(gpu.reason, most)) for gpu in outcomes), MOST_PODS
    bare = [_with_reason(gpu, "") for gpu in outcomes]
    yield tuple(bare), MOST_PODS
    while bare:
        yield tuple(bare), MOST_PODS // 4
        bare.remove(max(reversed(bare), key=lambda gpu: _rank(gpu.outcome)))


def _with_reason(gpu: GpuOutcomeStatus, reason: str) -> GpuOutcomeStatus:
    return msgspec.structs.replace(gpu, reason=reason)


def _rank(outcome: str) -> int:
    """0 for the worst outcome."""
    return next((rank for rank, bad in enumerate(_BADNESS) if bad == outcome), len(_BADNESS))
