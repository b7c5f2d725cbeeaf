# SPDX-License-Identifier: Apache-2.0
"""Traces of the programs on a Node: those that are removed, and those that stay and why. Pure.

A key that another program may have written stays: gpu-feature-discovery has the same labels, and
who wrote a value is in the Node's managedFields. What an admin wrote stays unless he asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api import keys, names
from api.key_kinds import Key, KeyLocation, Writer, is_rule_key
from api.mig_status_annotation import MigPhase
from fleet import node_patches
from fleet.mig_node import MigNode, node_of
from fleet.new_rollback_records import record_from_permit
from fleet.rollback_record import RollbackRecord
from kube.api import Object
from labelers.decision import Value
from labelers.node_patch import nfd_labels, writers

OWN_PREFIX: Final = "gpuscape.io/"
_PARTS: Final = {KeyLocation.NODE_LABEL: "labels", KeyLocation.NODE_ANNOTATION: "annotations"}
_HELD: Final = "a MIG change could not be undone there: mend the GPUs first (docs/mig.md), then"
_ADMINS: Final = "you wrote it; --admin-keys removes it too"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A trace that stays in the cluster, and the reason."""

    subject: str
    """Key, object or other trace, as messages name it."""
    why: str
    """The reason, and what to do about it where that is not plain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTraces:
    """The traces on one Node: what goes and what stays."""

    node: str
    patch: Mapping[str, Any] | None
    """A merge patch for the Node as it was seen; None: nothing goes."""
    goes: tuple[str, ...] = ()
    """Keys that are removed; ``cordon`` for the Node's cordon."""
    stays: tuple[Kept, ...] = ()


def node_traces(node: Object, record: RollbackRecord | None, *, admin_keys: bool) -> NodeTraces:
    """Sort a Node's traces into removed and kept ones. ``record``: of a change left open there.

    ``admin_keys``: what an admin wrote goes as well, but for ``nvidia.com/mig.config``, which is
    NVIDIA's.
    """
    meta = node["metadata"]
    mig_node = node_of(node, ())
    undo_patch = _undone(mig_node, record)
    parts: dict[str, dict[str, str | None]] = {}
    stays: list[Kept] = []
    for location, part in _PARTS.items():
        present = meta.get(part) or {}
        restored = undo_patch["metadata"].get(part, {})
        changed: dict[str, str | None] = dict(restored)
        for key in sorted(present.keys() - restored.keys()):
            why = _reason_to_keep(meta, location, key, admin_keys=admin_keys)
            if why is None:
                changed[key] = None
            elif why:
                stays.append(Kept(subject=key, why=why))
        if changed:
            parts[part] = changed
    stays += _taints(node)
    spec, why = undo_patch.get("spec"), f"it is not ours: kubectl uncordon {meta['name']}"
    if spec and _is_held(mig_node):
        spec, why = None, f"{_HELD} kubectl uncordon {meta['name']}"
    goes = [key for part in parts.values() for key in part]
    if spec:
        goes.append("cordon")
    elif undo_patch["metadata"] and (node.get("spec") or {}).get("unschedulable"):
        stays.append(Kept(subject="cordon", why=why))
    patch = {"metadata": {"resourceVersion": meta["resourceVersion"], **parts}}
    return NodeTraces(
        node=meta["name"],
        patch=(patch | ({"spec": spec} if spec else {})) if goes else None,
        goes=tuple(goes),
        stays=tuple(stays),
    )


def _undone(mig_node: MigNode, record: RollbackRecord | None) -> dict[str, Any]:
    """The patch that the coordinator would write to end an open change."""
    if record is None and (mig_node.permit_text is not None or mig_node.cordoned_for):
        record = record_from_permit(mig_node)
    patch = None if record is None else node_patches.rollback_patch(mig_node, record)
    return {"metadata": {}, **(patch or {})}


def _reason_to_keep(
    meta: Mapping[str, Any], where: KeyLocation, key: str, *, admin_keys: bool
) -> str | None:
    """Why a key stays; None: it goes; empty: it has nothing to do with us."""
    known_key = _known(where, key)
    if known_key is None and where is KeyLocation.NODE_LABEL and is_rule_key(key):
        return _reason_to_keep_rule_label(meta, key)
    if key in keys.FORMER_MIG_KEYS:
        return None
    if known_key is None:
        strange = key.startswith(OWN_PREFIX)
        return "this version knows no such key: see who wrote it" if strange else ""
    if known_key.writer is Writer.ADMIN:
        if not key.startswith(OWN_PREFIX):
            return "NVIDIA's MIG manager reads it too"
        return None if admin_keys else _ADMINS
    if where is KeyLocation.NODE_LABEL and key in nfd_labels(meta, {}):
        return "nfd-master owns it: it goes with the NodeFeature that has it"
    if key.startswith(OWN_PREFIX):
        return None
    other_writers = [writer for writer in writers(meta, where, key) if writer != names.AGENT]
    if other_writers:
        return f"{', '.join(other_writers)} wrote it"
    return None if writers(meta, where, key) else "nothing says who wrote it"


def _reason_to_keep_rule_label(meta: Mapping[str, Any], key: str) -> str | None:
    """Why a label that a rule of the admin may have made stays; None: it goes; empty: not ours."""
    all_writers = writers(meta, KeyLocation.NODE_LABEL, key)
    if names.AGENT not in all_writers or key in nfd_labels(meta, {key: Value(text="")}):
        return ""
    other_writers = [writer for writer in all_writers if writer != names.AGENT]
    return f"{', '.join(other_writers)} wrote it too" if other_writers else None


def _known(where: KeyLocation, key: str) -> Key | None:
    matches = (known for known in keys.KEYS if known.where is where and known.matches(key))
    return next(matches, None)


def _taints(node: Object) -> Iterator[Kept]:
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("key") == keys.MIG_LAYOUT_PENDING:
            name = node["metadata"]["name"]
            why = f"it keeps pods away: kubectl taint node {name} {keys.MIG_LAYOUT_PENDING}-"
            yield Kept(subject=f"taint {keys.MIG_LAYOUT_PENDING}", why=why)


def _is_held(mig_node: MigNode) -> bool:
    return mig_node.status is not None and mig_node.status.phase == MigPhase.STUCK
