# SPDX-License-Identifier: Apache-2.0
"""Expressions in the Common Expression Language, as admission policies take them.

Each fragment is built here once and is text about ``object``, ``oldObject``, ``request``
and the variables of :data:`VARIABLES`. Source: the API server's documentation on CEL and
its optional, list and string libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from api import keys
from api.key_kinds import Key, KeyLocation, Writer

Expression = str

NODE_CLAIM = "authentication.kubernetes.io/node-name"
"""What a token mounted into a pod says of the pod's node, and of the pod; each a list."""
POD_CLAIM = "authentication.kubernetes.io/pod-name"


def quoted(text: str) -> Expression:
    """A string."""
    return "'" + text.replace("\\", r"\\").replace("'", r"\'") + "'"


def listed(texts: Iterable[str]) -> Expression:
    """A list of strings, one a line where there are more than three."""
    items = [quoted(text) for text in texts]
    if len(items) <= 3:
        return f"[{', '.join(items)}]"
    return "[\n  " + ",\n  ".join(items) + "\n]"


def in_lines(texts: Iterable[str]) -> Expression:
    """A list of strings, one a line and a comma behind each, for those who change it."""
    return "[\n" + "".join(f"  {quoted(text)},\n" for text in texts) + "]"


def all_of(*parts: Expression) -> Expression:
    """Every part holds."""
    return " &&\n".join(parts)


def any_of(*parts: Expression) -> Expression:
    """At least one part holds."""
    return " ||\n".join(parts)


def matches(key: Expression, pattern: str) -> Expression:
    """The whole of ``key`` is as ``pattern`` says.

    Anchored here, once: without it ``xgpuscape.io/x`` would pass for one of ours.
    """
    return f"{key}.matches(r'^({pattern})$')"


def owned(place: KeyLocation, *writers: Writer) -> tuple[Key, ...]:
    """The keys at one place that one of ``writers`` alone may write."""
    return tuple(key for key in keys.KEYS if key.where is place and key.writer in writers)


def one_of(key: Expression, known: Iterable[Key]) -> Expression:
    """``key`` is one of the exact keys or of a family; a prefix would let others' keys in."""
    known = tuple(known)
    exact = [own.name for own in known if own.pattern is None]
    families = [own.pattern for own in known if own.pattern is not None]
    return any_of(f"{key} in {listed(exact)}", *(matches(key, family) for family in families))


def bounded(size: Callable[[Expression], Expression], variable: str, limit: int) -> Expression:
    """The size of the variable ``labels`` or ``annotations`` is within the limit, or did not grow.

    So what others put on an object never keeps its writer from taking away.
    """
    now, before = size(f"variables.{variable}"), size(f"variables.{variable}Before")
    return any_of(f"{now} <= {limit}", f"{now} <= {before}")


def same_but(new: Expression, old: Expression, *free: str) -> Expression:
    """Two objects are equal but for these fields. ``dyn``: typed objects cannot be walked."""
    is_free = f"k in {listed(free)}"
    return all_of(
        f"dyn({new}).all(k, {is_free} || (k in dyn({old}) && dyn({new})[k] == dyn({old})[k]))",
        f"dyn({old}).all(k, {is_free} || k in dyn({new}))",
    )


def _claims(name: str) -> Expression:
    """All values of one claim of the caller's token; an empty list where it has none."""
    return f"request.userInfo.?extra[?{quoted(name)}].orValue([])"


def _changed(new: Expression, old: Expression) -> Expression:
    """Keys of two maps that were added, removed, or have another value."""
    return (
        f"{new}.filter(k, !(k in {old}) || {new}[k] != {old}[k]) +\n{old}.filter(k, !(k in {new}))"
    )


VARIABLES: Mapping[str, Expression] = {
    "nodeClaims": _claims(NODE_CLAIM),
    "podClaims": _claims(POD_CLAIM),
    # empty where the token does not name one node: no object is called so
    "node": "variables.nodeClaims.size() == 1 ? variables.nodeClaims[0] : ''",
    "pod": "variables.podClaims.size() == 1 ? variables.podClaims[0] : ''",
    # written as kubectl writes it: UPDATE leases.coordination.k8s.io, CREATE pods/eviction
    "asked": (
        "request.operation + ' ' + request.resource.resource +\n"
        "(request.resource.group == '' ? '' : '.' + request.resource.group) +\n"
        "(request.?subResource.orValue('') == '' ? '' : '/' + request.subResource)"
    ),
    # on create, what was there before is an object without anything
    "before": "oldObject == null ? dyn({'metadata': {}}) : dyn(oldObject)",
    "labels": "object.metadata.?labels.orValue({})",
    "labelsBefore": "variables.before.metadata.?labels.orValue({})",
    "changedLabels": _changed("variables.labels", "variables.labelsBefore"),
    "annotations": "object.metadata.?annotations.orValue({})",
    "annotationsBefore": "variables.before.metadata.?annotations.orValue({})",
    "changedAnnotations": _changed("variables.annotations", "variables.annotationsBefore"),
    "cordoned": "object.spec.?unschedulable.orValue(false)",
    "cordonedBefore": "variables.before.spec.?unschedulable.orValue(false)",
    "subject": "dyn(object).regarding",  # of an Event
}
"""What more than one rule needs, each after those it uses. A policy states the ones it uses."""
