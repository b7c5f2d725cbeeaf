# SPDX-License-Identifier: Apache-2.0
"""What the containers of a rendered pod may do, in the words of docs/security.md; and what no pod
may have: folders that two containers write, mounts inside mounts, namespaces of the host. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any, Final

from tests import pages

Pod = Mapping[str, Any]
"""``spec`` of a pod's template."""

PAGE: Final = "docs/security.md"
GPU_LABELS: Final = frozenset({"nvidia.com/gpu.count", "nvidia.com/gpu.present"})
_TABLE: Final = re.compile(r"<!-- claims: containers -->\n\n(.*?)\n\n<!-- end -->", re.DOTALL)
_MANAGEMENT: Final = "management.nvidia.com/"
"""A CDI device of all GPUs and of both capabilities of MIG. Source: nvidia-ctk cdi generate
--mode=management."""
_CAPABILITIES: Final = {
    "NVIDIA_MIG_CONFIG_DEVICES": "`mig/config`",
    "NVIDIA_MIG_MONITOR_DEVICES": "`mig/monitor`",
}
_CONFINED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Fields of a security context that hold a container without a right of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A row of the page's table: what a container has with some part of the installation."""

    container: str
    right: str
    parts: frozenset[str]
    """With any of these, as ``base``."""
    but_not: frozenset[str]
    """And none of these."""


def claims(text: str | None = None) -> tuple[Claim, ...]:
    """The page's table, of its text or of ``text``. Raises ValueError where there is none."""
    found = _TABLE.search(pages.page(PAGE) if text is None else text)
    if found is None:
        raise ValueError(f"{PAGE} has no table of claims")
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in found[1].splitlines()[2:]
    ]
    return tuple(
        Claim(
            container=container.strip("`"),
            right=right,
            parts=_parts(parts),
            but_not=_parts(but_not),
        )
        for container, right, parts, but_not in rows
    )


def _parts(cell: str) -> frozenset[str]:
    return frozenset(re.findall(r"`deploy/([a-z-]+)`", cell))


def claimed(of: Sequence[Claim], container: str, parts: frozenset[str]) -> frozenset[str]:
    """Rights that the page names for a container where these parts are installed."""
    return frozenset(
        it.right
        for it in of
        if it.container == container and it.parts & parts and not it.but_not & parts
    )


def rights(pod: Pod) -> dict[str, frozenset[str]]:
    """By container, all that it has beyond a container that is held in every respect."""
    return {it["name"]: frozenset(_rights(pod, it)) for it in _containers(pod)}


def faults(pod: Pod) -> tuple[str, ...]:
    """What no pod of ours may have, in words; empty where there is nothing."""
    return (
        *(
            f"{it}: a namespace of the host"
            for it in ("hostNetwork", "hostPID", "hostIPC")
            if pod.get(it)
        ),
        *_nested(pod),
        *_shared(pod),
    )


def _containers(pod: Pod) -> list[Any]:
    return [*(pod.get("initContainers") or ()), *pod["containers"]]


def _rights(pod: Pod, of: Mapping[str, Any]) -> Iterator[str]:
    context = {**(pod.get("securityContext") or {}), **(of.get("securityContext") or {})}
    capabilities = context.get("capabilities") or {}
    privileged = bool(context.get("privileged"))
    if privileged:
        yield "privileged"
    if not context.get("runAsNonRoot"):
        yield f"user id {context.get('runAsUser', 'of the image')}"
    for field, value in _CONFINED.items():
        loose = context.get(field) != value
        if loose and not (privileged and field != "readOnlyRootFilesystem"):
            yield f"{field} {context.get(field)}"
    if not privileged and capabilities.get("drop") != ["ALL"]:
        yield "capabilities of the runtime"
    yield from (f"`CAP_{it}`" for it in capabilities.get("add") or ())
    if "seLinuxOptions" in context:
        yield f"the SELinux type `{context['seLinuxOptions']['type']}`"
    yield from _devices(of)
    if pod.get("automountServiceAccountToken", True):
        yield f"the token of `{pod['serviceAccountName']}`"
    for mount, volume in _mounts(pod, of):
        yield from _of_volume(pod, mount, volume)
    if _keeps_off_gpu_nodes(pod):
        yield "no node with GPUs"


def _devices(of: Mapping[str, Any]) -> Iterator[str]:
    values = {it["name"]: it.get("value", "") for it in of.get("env") or ()}
    visible = values.get("NVIDIA_VISIBLE_DEVICES", "")
    if visible == "void":  # the container toolkit leaves such a container alone
        return
    if visible not in ("none", ""):
        yield "the device nodes of GPUs"
    for name, capability in _CAPABILITIES.items():
        if values.get(name) or visible.startswith(_MANAGEMENT):
            yield capability


def _of_volume(pod: Pod, mount: Mapping[str, Any], volume: Mapping[str, Any]) -> Iterator[str]:
    if "hostPath" in volume:
        how = "read-only" if mount.get("readOnly") else "writable"
        yield f"the host's `{volume['hostPath']['path']}`, {how}"
    if "secret" in volume:
        yield f"the Secret `{volume['secret']['secretName']}`"
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            yield f"the token of `{pod['serviceAccountName']}`"
        if "secret" in source:
            yield f"the Secret `{source['secret']['name']}`"


def _keeps_off_gpu_nodes(pod: Pod) -> bool:
    """Whether each of the terms of its affinity leaves out the nodes with one of the labels."""
    node = ((pod.get("affinity") or {}).get("nodeAffinity")) or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    left_out = [
        {it["key"] for it in term.get("matchExpressions") or () if it["operator"] == "DoesNotExist"}
        for term in terms
    ]
    return bool(left_out) and all(keys >= GPU_LABELS for keys in left_out)


def _mounts(pod: Pod, of: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    volumes = {it["name"]: it for it in pod.get("volumes") or ()}
    return [(it, volumes[it["name"]]) for it in of.get("volumeMounts") or ()]


def _nested(pod: Pod) -> Iterator[str]:
    """Mounts of a container that lie in another of its mounts."""
    for of in _containers(pod):
        paths = sorted(PurePosixPath(mount["mountPath"]) for mount, _ in _mounts(pod, of))
        for outer, inner in combinations(paths, 2):
            if inner.is_relative_to(outer):
                yield f"{of['name']}: {inner} is mounted inside {outer}"


def _shared(pod: Pod) -> Iterator[str]:
    """Folders that a container writes and another one mounts.

    One that has the host's root has every folder by that, which the page says of it by name.
    """
    for one, other in combinations(_containers(pod), 2):
        for mount, volume in _mounts(pod, one):
            for other_mount, other_volume in _mounts(pod, other):
                writers = [
                    of["name"]
                    for of, it in ((one, mount), (other, other_mount))
                    if not it.get("readOnly")
                ]
                pair = (volume, other_volume)
                if len(writers) == 2 and volume["name"] == other_volume["name"]:
                    yield f"{' and '.join(writers)} write the volume {volume['name']}"
                elif writers and all("hostPath" in it for it in pair) and _overlap(*pair):
                    paths = " and ".join(it["hostPath"]["path"] for it in pair)
                    yield f"{' and '.join(writers)} may write what the other has: {paths}"


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    paths = [PurePosixPath(it["hostPath"]["path"]) for it in (one, other)]
    if PurePosixPath("/") in paths:
        return False
    return paths[0].is_relative_to(paths[1]) or paths[1].is_relative_to(paths[0])
