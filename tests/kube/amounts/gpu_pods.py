# SPDX-License-Identifier: Apache-2.0
"""Specs of pods with what they ask of GPUs, for the function and for a real API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

GPU: Final = "nvidia.com/gpu"
SHARED: Final = "nvidia.com/gpu.shared"
SLICE: Final = "nvidia.com/mig-1g.10gb"


def container(name: str = "c", **amounts: Any) -> dict[str, Any]:
    """A container; ``sidecar`` makes it one, ``limits`` and ``requests`` are its amounts."""
    policy = {"restartPolicy": "Always"} if amounts.pop("sidecar", False) else {}
    return {"name": name, "image": "i", "resources": amounts, **policy}


def limits(name: str = "c", *, sidecar: bool = False, **of: Any) -> dict[str, Any]:
    """A container that has limits alone, as charts write them; ``gpu``, ``shared``, ``slice``."""
    names = {"gpu": GPU, "shared": SHARED, "slice": SLICE}
    return container(name, limits={names[key]: it for key, it in of.items()}, sidecar=sidecar)


def spec(*containers: Any, first: tuple[Any, ...] = (), **more: Any) -> dict[str, Any]:
    """A v1.PodSpec."""
    its = {"containers": list(containers) or [container()], **more}
    return {**its, "initContainers": list(first)} if first else its


PODS: Final[Mapping[str, tuple[dict[str, Any], Mapping[str, int]]]] = {
    "nothing": (spec(), {}),
    "one GPU": (spec(limits(gpu=1)), {GPU: 1}),
    "a limit of 0, as charts render it for CPUs": (spec(limits(gpu="0")), {}),
    "requests and limits of 0": (
        spec(container(requests={GPU: "0"}, limits={GPU: "0"})),
        {},
    ),
    "0 written with a suffix": (spec(limits(gpu="0k")), {}),
    "amounts with suffixes": (spec(limits("a", gpu="2000m"), limits("b", gpu="1e0")), {GPU: 3}),
    "0 of one kind and 2 of another": (spec(limits(gpu="0", slice="2")), {SLICE: 2}),
    "two containers": (spec(limits("a", gpu=1), limits("b", gpu=2, shared=1)), {GPU: 3, SHARED: 1}),
    "an init container that needs more": (
        spec(limits(gpu=1), first=(limits("first", gpu=4),)),
        {GPU: 4},
    ),
    "an init container that needs less": (
        spec(limits(gpu=3), first=(limits("first", gpu=1),)),
        {GPU: 3},
    ),
    "a sidecar adds up": (
        spec(limits(gpu=1), first=(limits("side", sidecar=True, gpu=1),)),
        {GPU: 2},
    ),
    "an init container behind a sidecar": (
        spec(
            limits(gpu=1),
            first=(
                limits("side", sidecar=True, gpu=1),
                limits("first", gpu=4),
            ),
        ),
        {GPU: 5},
    ),
    "an init container in front of a sidecar": (
        spec(
            limits(gpu=1),
            first=(
                limits("first", gpu=4),
                limits("side", sidecar=True, gpu=1),
            ),
        ),
        {GPU: 4},
    ),
    "an init container that asks for 0": (spec(first=(limits("first", gpu="0"),)), {}),
    "memory and cores of a GPU, as HAMi counts them": (
        spec(container(limits={"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"})),
        {},
    ),
    "other vendors": (spec(container(limits={"amd.com/gpu": "1", "cpu": "4"})), {}),
}
"""What it is, the spec, and what it asks for."""
