# SPDX-License-Identifier: Apache-2.0
"""Rules on managedFields: who owns which field may change only by the writes that a patch makes.

A patch may carry managedFields of its own, and the API server takes them: ``[{}]`` wipes all, and
any other list replaces what stood there. Policies see the result, next to what was there before.
A write of another kind than server-side apply moves the keys that it changes to its own manager,
takes them from every other, and touches nothing else. Past ten such managers the API server folds
the entries that are oldest into one of its own, whenever a manager comes that was not there.
Source: Kubernetes documentation, "Server-Side Apply"; apimachinery, util/managedfields; tried on
kube-apiserver 1.32 and 1.37.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tools.access import cel
from tools.access.cel import Expression
from tools.access.policy import Rule

_FOLDED: Final = "ancient-changes"
"""The API server's own manager."""
_MOST_MANAGERS: Final = 10
_MOST_FOLDED: Final = 2
"""Entries that it folds for one that comes: the two that are oldest, into a new one."""
_PARTS: Final = ("labels", "annotations")

APPLIERS: Final = Rule(
    name="appliers",
    holds=" ==\n".join(
        f"{version}.metadata.?managedFields.orValue([]).filter(f, f.operation == 'Apply')"
        for version in ("object", "oldObject")
    ),
    message="fields that others own by server-side apply may not change",
)


def _updates(version: Expression) -> Expression:
    """Entries of writers that do not apply. ``dyn``: fieldsV1 has no fields of known names."""
    return f"dyn({version}).metadata.?managedFields.orValue([]).filter(f, f.operation != 'Apply')"


def _is_same(entry: Expression, other_entry: Expression) -> Expression:
    """Whether two entries are of one manager, as the API server tells managers apart."""
    fields = ("manager", "subresource", "apiVersion")
    return " && ".join(f"{entry}.?{field} == {other_entry}.?{field}" for field in fields)


def _metadata(fields: Expression) -> Expression:
    return f"{fields}[?'f:metadata'].orValue({{}})"


def _keys(fields: Expression, part: str) -> Expression:
    return f"{_metadata(fields)}[?'f:{part}'].orValue({{}})"


def _has_changed(part: str) -> Expression:
    """Whether ``k`` is a label or an annotation that this request changes, or the map itself."""
    return f"(k == '.' || k.substring(2) in variables.changed{part.capitalize()})"


def _keys_within(
    inner: Expression, outer: Expression, free: Mapping[str, Expression]
) -> Expression:
    """Whether ``outer`` names every label and annotation that ``inner`` does, but for free ones."""
    return " &&\n".join(
        f"{_keys(inner, part)}.all(k, k in {_keys(outer, part)} || {free[part]})" for part in _PARTS
    )


def _fields_within(inner: Expression, outer: Expression, is_writer: Expression) -> Expression:
    """Whether ``outer`` owns all fields that ``inner`` owns, apart from labels, annotations and
    changed fields.

    A field of spec or of the metadata counts as changed as a whole: a manager that owned a part of
    it may own less.
    """
    listed = cel.listed(f"f:{part}" for part in _PARTS)
    changed = (
        "dyn(object)[?p.substring(2)][?k.substring(2)] !="
        " dyn(oldObject)[?p.substring(2)][?k.substring(2)]"
    )
    return (
        f"{inner}.all(p, {inner}[p].all(k, k == '.' || (p == 'f:metadata' && k in {listed}) ||\n"
        f"{outer}[?p].orValue({{}})[?k] == optional.of({inner}[p][k]) ||\n"
        f"(({is_writer} || k in {outer}[?p].orValue({{}})) && {changed})))"
    )


def _within(inner: Expression, outer: Expression, is_writer: Expression = "true") -> Expression:
    """Whether ``outer`` owns all that ``inner`` owns, but for what is changed; that is free where
    ``is_writer`` holds."""
    free = {part: f"({is_writer} && {_has_changed(part)})" for part in _PARTS}
    return cel.all_of(_fields_within(inner, outer, is_writer), _keys_within(inner, outer, free))


def _counterpart(entry: Expression, among: Expression, rule: Expression) -> Expression:
    """``rule`` about ``own``, the fields of ``entry``, and ``its``, those of its counterpart."""
    counterparts = (
        f"{among}.filter(o, {_is_same('o', entry)}).map(o, o.?fieldsV1.orValue({{}})) + [dyn({{}})]"
    )
    return f"[{entry}.?fieldsV1.orValue({{}})].all(own,\n[({counterparts})[0]].all(its,\n{rule}))"


def variables() -> Mapping[str, Expression]:
    """What :data:`MANAGERS` needs, for the variables of its policy."""
    now, before = "variables.owners", "variables.ownersBefore"
    return {
        "owners": _updates("object"),
        "ownersBefore": _updates("oldObject"),
        "foldedNow": f"({now}.filter(o, o.?manager.orValue('') == {cel.quoted(_FOLDED)})"
        ".map(o, o.?fieldsV1.orValue({})) + [dyn({})])[0]",
        "gone": f"{before}.filter(f, !{now}.exists(o, {_is_same('o', 'f')}))",
    }


def _managers() -> Rule:
    """The writer takes what it changes, and no entry of any manager changes otherwise.

    Entries that the API server folds as the writer's own comes may go where all their labels and
    annotations stand in the folded one. That the writer has its own name is for another rule.
    """
    is_writer = "f.?manager.orValue('') == request.?options.?fieldManager.orValue('')"
    kept = _counterpart("f", "variables.owners", _within("own", "its"))
    gained = _counterpart("f", "variables.ownersBefore", _within("own", "its", is_writer))
    folds = cel.all_of(
        f"variables.ownersBefore.size() >= {_MOST_MANAGERS}",
        f"!variables.ownersBefore.exists(f, {is_writer})",
        f"variables.gone.size() <= {_MOST_FOLDED}",
    )
    changed = {part: _has_changed(part) for part in _PARTS}
    into_folded = (
        "[f.?fieldsV1.orValue({})].all(own,\n"
        + _keys_within("own", "variables.foldedNow", changed)
        + ")"
    )
    once_of_the_gone = {
        part: f"variables.gone.exists(g, k in {_keys('g.?fieldsV1.orValue({})', part)})"
        for part in _PARTS
    }
    from_gone = _counterpart(
        "f", "variables.ownersBefore", _keys_within("own", "its", once_of_the_gone)
    )
    is_folded = f"f.?manager.orValue('') == {cel.quoted(_FOLDED)}"
    return Rule(
        name="managers",
        holds=cel.all_of(
            f"variables.ownersBefore.all(f,\n({kept}) ||\n(({folds}) &&\nf in variables.gone &&\n"
            f"{into_folded}))",
            f"variables.owners.all(f,\n({gained}) ||\n(({folds}) &&\n{is_folded} &&\n{from_gone}))",
        ),
        message="who owns which field may change by the keys that are changed alone",
    )


MANAGERS: Final = _managers()
