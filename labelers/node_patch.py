# SPDX-License-Identifier: Apache-2.0
"""The patch that brings a Node's labels and annotations to the decisions, within our own keys.

One key of another owner in a patch may have the whole of it refused: an admission policy
freezes what server-side apply owns, and so every other label in it would be lost too. Labels
that nfd-master owns would be accepted, and go as soon as their NodeFeature goes. So both
are found in the Node itself and left out.

Source: Kubernetes documentation, "Server-Side Apply", field management; nfd-master's
bookkeeping annotation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from api import keys, limits, names
from api.key_kinds import KeyLocation, Writer, is_rule_key
from labelers import label_rules
from labelers.decision import Decisions, Value
from labelers.diff import changes, decided

Changes = dict[str, str | None]
"""Key to its new text, None to remove it."""

_PARTS = {KeyLocation.NODE_LABEL: "labels", KeyLocation.NODE_ANNOTATION: "annotations"}
_OF_NFD = (
    f"nfd-master owns it (annotation {names.FEATURE_LABELS}) and has it from a NodeFeature or"
    " feature file, such as gpu-feature-discovery's"
)
_TOO_MANY = (
    f"the Node would have more than {limits.MOST_LABELS} labels under"
    f" {' and '.join(limits.PREFIXES)}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePatch:
    """A step that brings a Node's labels and annotations to what was decided for it."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    """New text of each label to change, None for one to remove."""
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    left_alone: Mapping[str, str] = field(default_factory=dict)
    """Keys of ours that another owner holds, and who that is."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Keys for which there is no room, and why."""

    @property
    def changed(self) -> Mapping[str, str | None]:
        """Labels and annotations to change; empty when there is nothing to do."""
        return {**self.labels, **self.annotations}

    @property
    def patch(self) -> dict[str, Any]:
        """The JSON merge patch of the Node; empty when there is nothing to do."""
        parts = {"labels": dict(self.labels), "annotations": dict(self.annotations)}
        metadata = {part: texts for part, texts in parts.items() if texts}
        return {"metadata": metadata} if metadata else {}

    def without(self, keys: Collection[str]) -> NodePatch:
        """This patch without these keys, which stay as they are on the Node."""
        labels = {key: text for key, text in self.labels.items() if key not in keys}
        annotations = {key: text for key, text in self.annotations.items() if key not in keys}
        return replace(self, labels=labels, annotations=annotations)


def plan_node_patch(
    node: Mapping[str, Any],
    labels: Decisions,
    annotations: Decisions,
    *,
    leave: Mapping[str, str] | None = None,
) -> NodePatch:
    """Plan the patch of ``node``, with our own keys in it and no others, and only changed ones.

    ``leave``: keys not to touch for now, and why. A key owned by server-side apply is
    left alone where its value would change: whoever the applier is, for we never apply.
    A key that nfd-master owns is left alone in any case, for its value is not ours to keep.
    A label by a rule is removed only where we wrote it: an admin may have had it before.
    """
    meta = node["metadata"]
    nfd = dict.fromkeys(nfd_labels(meta, labels), _OF_NFD)
    own_labels, left_labels = _split(meta, KeyLocation.NODE_LABEL, labels, {**(leave or {}), **nfd})
    own, left_annotations = _split(meta, KeyLocation.NODE_ANNOTATION, annotations, leave or {})
    no_room = dict.fromkeys(_surplus(meta.get("labels") or {}, own_labels), _TOO_MANY)
    fitting, too_large = _fitting(meta.get("annotations") or {}, own)
    held = {key: why for key, why in nfd.items() if isinstance(decided(key, labels), Value)}
    return NodePatch(
        labels={key: text for key, text in own_labels.items() if key not in no_room},
        annotations=fitting,
        left_alone={**held, **left_labels, **left_annotations},
        dropped={**no_room, **too_large},
    )


def former_labels(meta: Mapping[str, Any], decisions: Decisions) -> Decisions:
    """Labels that a rule may have made once and none makes now.

    :func:`plan_node_patch` removes those that are our own.

    Empty where ``decisions`` are: labels go elsewhere then.
    """
    return label_rules.former_rule_labels(meta.get("labels") or {}, decisions) if decisions else {}


def writers(meta: Mapping[str, Any], where: KeyLocation, key: str) -> tuple[str, ...]:
    """Managers that own the key's value by the object's managedFields, in their order."""
    return tuple(
        entry.get("manager", "?")
        for entry in meta.get("managedFields") or ()
        if key in _owned(entry, where)
    )


def last_writer(meta: Mapping[str, Any], where: KeyLocation, key: str) -> tuple[str, str] | None:
    """The manager that owns the key's value, and the RFC 3339 time of its newest write of any key.

    None where managedFields name none; of several the one that wrote last.
    """
    entries = [
        (str(entry.get("time", "")), str(entry.get("manager", "?")))
        for entry in meta.get("managedFields") or ()
        if key in _owned(entry, where)
    ]
    return max(entries)[::-1] if entries else None


def _split(
    meta: Mapping[str, Any], where: KeyLocation, decisions: Decisions, leave: Mapping[str, str]
) -> tuple[Changes, dict[str, str]]:
    """Our changes of labels or of annotations, and the keys to leave out with the reason."""
    claims = {**_appliers(meta, where), **leave}
    changed = changes(meta.get(_PARTS[where]) or {}, decisions)
    ours = {
        key: text
        for key, text in changed.items()
        if _is_ours(key, where)
        or (_by_rule(key, where, decisions) and (text is not None or _is_written(meta, key)))
    }
    free = {key: text for key, text in ours.items() if key not in claims}
    return free, {key: claims[key] for key in ours if key in claims}


def _is_ours(key: str, where: KeyLocation) -> bool:
    return any(
        known.where is where and known.writer is Writer.AGENT and known.matches(key)
        for known in keys.KEYS
    )


def _by_rule(key: str, where: KeyLocation, decisions: Decisions) -> bool:
    """Whether a rule of the admin decides this label."""
    return where is KeyLocation.NODE_LABEL and key in decisions and is_rule_key(key)


def _is_written(meta: Mapping[str, Any], key: str) -> bool:
    """Whether a label's value is ours by the Node's managedFields."""
    return names.AGENT in writers(meta, KeyLocation.NODE_LABEL, key)


def _appliers(meta: Mapping[str, Any], where: KeyLocation) -> dict[str, str]:
    """Keys that server-side apply owns, with who applied them."""
    return {
        key: f"{entry.get('manager', '?')} owns it by server-side apply"
        for entry in meta.get("managedFields") or ()
        if entry.get("operation") == "Apply"
        for key in _owned(entry, where)
    }


def _owned(entry: Mapping[str, Any], where: KeyLocation) -> set[str]:
    """Keys of one part that an entry of managedFields names."""
    fields = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
    named = fields.get(f"f:{_PARTS[where]}") or {}
    return {key.removeprefix("f:") for key in named if key.startswith("f:")}


def nfd_labels(meta: Mapping[str, Any], decisions: Decisions) -> Iterator[str]:
    """Labels of ours that nfd-master owns; of labels by rules only those in ``decisions``.

    nfd-master's list leaves out the prefix of its own labels only. With an instance name it puts
    that, and a dot, before the annotation's name.
    """
    for name, text in (meta.get("annotations") or {}).items():
        if name == names.FEATURE_LABELS or name.endswith(f".{names.FEATURE_LABELS}"):
            yield from (key for key in text.split(",") if _is_label(key, decisions))


def _is_label(key: str, decisions: Decisions) -> bool:
    place = KeyLocation.NODE_LABEL
    return _is_ours(key, place) or _by_rule(key, place, decisions)


def _surplus(present: Mapping[str, str], changed: Changes) -> list[str]:
    """The new labels for which there is no room, the last by name.

    Labels by rules are not counted here: their number has a limit of its own.
    """
    kept = [key for key in present if key.startswith(limits.PREFIXES) and _stays(key, changed)]
    new = [
        key
        for key, text in changed.items()
        if text is not None and key not in present and key.startswith(limits.PREFIXES)
    ]
    return new[max(0, limits.MOST_LABELS - len(kept)) :]


def _stays(key: str, changed: Changes) -> bool:
    return changed.get(key, "") is not None


def _fitting(present: Mapping[str, str], changed: Changes) -> tuple[Changes, dict[str, str]]:
    """The changes of annotations that fit, and the reasons why others do not.

    An annotation that does not fit is removed, for its old text is known to be wrong. Those of MIG
    changes come first by name, so they get the room first.
    """
    after = {
        key: text
        for key, text in sorted({**present, **changed}.items())
        if text is not None and _is_ours(key, KeyLocation.NODE_ANNOTATION)
    }
    changing = keys.MIG_REQUEST in after or keys.MIG_STATUS in after
    max_bytes = limits.MOST_ANNOTATION_CHARACTERS if changing else limits.MOST_IDLE_ANNOTATION_BYTES
    fitting, too_large, total = dict(changed), {}, 0
    for key, text in after.items():
        size = len(text.encode())
        if key in changed and total + size > max_bytes:
            too_large[key] = f"{size} bytes: all our annotations may have {max_bytes} together"
            fitting[key] = None
        else:
            total += size
    return {key: text for key, text in fitting.items() if text != present.get(key)}, too_large
