"""The state annotation on the agent's Lease: one schema for its writer and its readers.

Masks are hex with one digit for every four GPUs begun; bit 0 is the first GPU of the
topology annotation. Readers ignore keys that they do not know, and take another
major version for no data at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from api import keys
from base.errors import BadInput
from discovery.model import NodeSnapshot
from labelers.groups.labelled_gpus import answering
from labelers.health import Health, gpu_verdict

VERSION: Final = 1
_POD_DIGITS = 8
_MAX_SEQ = 2**53 - 1  # what every JSON reader holds exactly

_Mask = Annotated[str, Meta(pattern=r"^[0-9a-f]+$", max_length=256)]
_Pod = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{_POD_DIGITS}}}$")]


class StateAnnotation(msgspec.Struct, frozen=True, kw_only=True):
    """Which GPUs of one node can be given to pods, and which pods have them."""

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
        dict[_Pod, _Mask],
        Meta(
            description=f"The GPUs of each pod, by the first {_POD_DIGITS} hex digits of the"
            " SHA-256 of namespace/name."
        ),
    ]

    @property
    def free(self) -> int:
        """Mask of the GPUs that can be given out whole now."""
        return int(self.ok, 16) & ~int(self.used, 16)


class _Versioned(msgspec.Struct):
    v: int


def state(
    snapshot: NodeSnapshot,
    *,
    gen: str,
    whole: Collection[str],
    pods: Mapping[tuple[str, str], Collection[str]],
    before: StateAnnotation | None = None,
) -> StateAnnotation:
    """The state now; equal to ``before`` where nothing changed, ``seq`` included.

    ``gen``: of the topology annotation on the Node. ``whole``: bus ids of the GPUs
    that device plugins offer undivided and unshared. ``pods``: (namespace, name) to
    the bus ids of the GPUs that the pod has all or part of.
    """
    order = [gpu.bus_id for gpu in snapshot.gpus]
    works = {
        gpu.bus_id
        for gpu in answering(snapshot)
        if not gpu.mig_enabled and gpu_verdict(gpu, snapshot).health < Health.UNHEALTHY
    }
    by_key: dict[str, set[str]] = {}
    for (namespace, name), gpus in pods.items():
        by_key.setdefault(pod_key(namespace, name), set()).update(gpus)
    now = StateAnnotation(
        v=VERSION,
        gen=gen,
        seq=0 if before is None else before.seq,
        ok=_mask(order, works.intersection(whole)),
        used=_mask(order, set().union(*by_key.values())),
        pods={key: _mask(order, gpus) for key, gpus in sorted(by_key.items())},
    )
    if before in (None, now):
        return now
    return msgspec.structs.replace(now, seq=(now.seq + 1) % (_MAX_SEQ + 1))


def pod_key(namespace: str, name: str) -> str:
    """What a pod is called in the annotation: the kubelet tells no UID, and names are long."""
    return hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:_POD_DIGITS]


def encode(state: StateAnnotation) -> str:
    """The annotation's text: compact JSON."""
    return msgspec.json.encode(state).decode()


def decode(text: str) -> StateAnnotation | None:
    """The annotation in ``text``; None for a major version other than ours.

    Raises BadInput naming the key that is missing, of the wrong kind, out of its
    range or of the wrong length; nothing else, whatever the text is.
    """
    try:
        if msgspec.json.decode(text, type=_Versioned).v != VERSION:
            return None
        found = msgspec.json.decode(text, type=StateAnnotation)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _damaged(str(error)) from error
    for key, entry in _patterned(found):
        if entry.endswith("\n"):  # which a pattern's dollar sign lets through
            raise _damaged(f"`{key}` ends in a newline")
    for key, mask in _masks(found):
        if len(mask) != len(found.ok):
            raise _damaged(f"`{key}` has {len(mask)} digits and `ok` has {len(found.ok)}")
    return found


def json_schema() -> dict[str, Any]:
    """JSON Schema of the annotation, 2020-12; it cannot say that all masks are of one length."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Lease annotation {keys.STATE}",
        **msgspec.json.schema(StateAnnotation),
    }


def _mask(order: list[str], gpus: Collection[str]) -> str:
    bits = sum(1 << at for at, bus_id in enumerate(order) if bus_id in gpus)
    return f"{bits:0{max(1, -(-len(order) // 4))}x}"


def _masks(found: StateAnnotation) -> Iterable[tuple[str, str]]:
    """Key and mask."""
    yield "used", found.used
    for pod, mask in found.pods.items():
        yield f"pods.{pod}", mask


def _patterned(found: StateAnnotation) -> Iterable[tuple[str, str]]:
    """Key and text."""
    yield "gen", found.gen
    yield "ok", found.ok
    yield from _masks(found)
    for pod in found.pods:
        yield "pods", pod


def _damaged(why: str) -> BadInput:
    return BadInput(
        f"annotation {keys.STATE} is damaged: {why}; delete it and the agent writes it again"
    )
