# SPDX-License-Identifier: Apache-2.0
"""Policies on Nodes: which keys and fields each writer may change there."""

from __future__ import annotations

from api import keys, limits, mig_permit_annotation, names
from api.key_kinds import KeyLocation, Writer
from fleet.rollout_settings import PAUSED
from tools.access import cel, ownership
from tools.access.cel import Expression
from tools.access.policy import EVERYBODY, KUBELETS, Policy, Rule, none_of

NODES = ("nodes", "nodes/status")
"""A write of the status changes labels and annotations too."""

SERVICE_ACCOUNTS = "system:serviceaccounts"
"""The group of every service account."""

AGENT_LABELS = cel.owned(KeyLocation.NODE_LABEL, Writer.AGENT)
AGENT_ANNOTATIONS = cel.owned(KeyLocation.NODE_ANNOTATION, Writer.AGENT)


def changed_but(kind: str, allowed: Expression) -> Expression:
    """Changed keys ``k`` for which ``allowed`` does not hold; ``kind``: Labels or Annotations."""
    return f"variables.changed{kind}.filter(k, !(\n{allowed}\n))"


def removes(key: str) -> Expression:
    """Whether the changed annotation ``k`` is this one, and goes."""
    return f"(k == {cel.quoted(key)} && !(k in variables.annotations))"


def _label_count(labels: Expression) -> Expression:
    """How many labels have one of our prefixes, whoever wrote them."""
    ours = " || ".join(f"k.startsWith({cel.quoted(prefix)})" for prefix in limits.PREFIXES)
    return f"{labels}.filter(k, {ours}).size()"


def _annotation_size(annotations: Expression) -> Expression:
    """Characters of the agent's annotations together."""
    sizes = f"map(k, {annotations}[?k].orValue('').size())"
    return f"{cel.listed(key.name for key in AGENT_ANNOTATIONS)}.{sizes}.sum()"


METADATA = Rule(
    name="metadata",
    # an ownerReference to an owner that does not exist has the Node deleted
    holds=cel.same_but(
        "object.metadata", "oldObject.metadata", "labels", "annotations", "managedFields"
    ),
    message="nothing else in metadata may change: no finalizer, no owner",
)


AGENT_NODE = Policy(
    name=names.AGENT_NODE,
    holder=names.AGENT,
    group="",
    resources=NODES,
    operations=("UPDATE",),
    variables={
        "foreignLabels": changed_but("Labels", cel.one_of("k", AGENT_LABELS)),
        "foreignAnnotations": changed_but("Annotations", cel.one_of("k", AGENT_ANNOTATIONS)),
        **ownership.variables(),
    },
    rules=(
        Rule(
            name="own-node",
            holds="object.metadata.name == variables.node",
            message="an agent writes its own Node only",
        ),
        none_of("labels", "variables.foreignLabels", "not labels of the agent"),
        none_of(
            "annotations",
            # in a dry run the agent sees whether another policy holds everybody off the permit
            "variables.foreignAnnotations.filter(k,"
            f" k != {cel.quoted(keys.MIG_PERMIT)} || !request.?dryRun.orValue(false))",
            "not annotations of the agent",
        ),
        Rule(
            name="frozen",
            holds=cel.same_but("object", "oldObject", "metadata"),
            message="spec and status may not change",
        ),
        METADATA,
        ownership.APPLIERS,
        ownership.MANAGERS,
        Rule(
            name="label-count",
            holds=cel.bounded(_label_count, "labels", limits.MOST_LABELS),
            message=f"at most {limits.MOST_LABELS} labels under {' and '.join(limits.PREFIXES)}",
        ),
        Rule(
            name="annotation-size",
            holds=cel.bounded(_annotation_size, "annotations", limits.MOST_ANNOTATION_CHARACTERS),
            message=f"at most {limits.MOST_ANNOTATION_CHARACTERS} characters of annotations",
        ),
    ),
)

_CORDONED = f"r'{mig_permit_annotation.OWN_CORDON_PATTERN}'"
_NO_CORDON = ("variables.cordonedBefore", "!variables.cordoned")
_NO_UNCORDON = ("!variables.cordonedBefore", "variables.cordoned")


def _text_of(key: str, annotations: Expression) -> Expression:
    """An annotation's text; empty where there is none."""
    return f"{annotations}[?{cel.quoted(key)}].orValue('')"


_DEPLOY_SWITCH = cel.all_of(
    cel.matches("k", names.DEPLOY_LABELS),
    *(
        f"k in variables.{labels} && variables.{labels}[k] != 'false'"
        for labels in ("labelsBefore", "labels")
    ),
    # paused while a change is requested or permitted; given back whenever that is
    f"(variables.labelsBefore[k] == {cel.quoted(PAUSED)} ||\n"
    f" (variables.labels[k] == {cel.quoted(PAUSED)} &&"
    f" (variables.isAsked || variables.permitBefore != '')))",
)
_MARK, _MARK_BEFORE = (
    _text_of(keys.MIG_CORDON, f"variables.annotations{when}") for when in ("", "Before")
)

_OF_CHANGE = (keys.MIG_PERMIT, keys.MIG_CORDON)
"""Annotations that the coordinator writes on a Node: the permit, and the mark of its cordon."""
_OF_POLICY = (keys.MIG_LAYOUT, keys.MIG_POLICY)
"""What the fleet policy has written: the layout, and the mark that says so."""


_TAINTS, _TAINTS_BEFORE = (
    f"{version}.spec.?taints.orValue([])" for version in ("object", "oldObject")
)
_WITHOUT_PENDING = f"{_TAINTS_BEFORE}.filter(t, t.key != {cel.quoted(keys.MIG_LAYOUT_PENDING)})"

COORDINATOR_NODE = Policy(
    name=f"{names.COORDINATOR}-node",
    holder=names.COORDINATOR,
    group="",
    resources=NODES,
    operations=("UPDATE",),
    variables={
        "isAsked": f"{cel.quoted(keys.MIG_REQUEST)} in variables.annotationsBefore",
        "permit": _text_of(keys.MIG_PERMIT, "variables.annotations"),
        "permitBefore": _text_of(keys.MIG_PERMIT, "variables.annotationsBefore"),
        "foreignLabels": changed_but("Labels", _DEPLOY_SWITCH),
        "foreignAnnotations": changed_but(
            "Annotations",
            cel.any_of(
                f"k in {cel.listed((*_OF_CHANGE, *_OF_POLICY, *names.SCALE_DOWN_GUARDS))}",
                removes(keys.FORMER_MIG_PERMIT),
            ),
        ),
        **ownership.variables(),
    },
    rules=(
        none_of(
            "labels",
            "variables.foreignLabels",
            "not switches of the GPU operator that are paused for a change or given back after it",
        ),
        none_of(
            "annotations", "variables.foreignAnnotations", "not annotations of the coordinator"
        ),
        Rule(
            name="frozen",
            holds=cel.all_of(
                cel.same_but("object", "oldObject", "metadata", "spec"),
                cel.same_but("object.spec", "oldObject.spec", "unschedulable", "taints"),
            ),
            message="of spec and status only spec.unschedulable and a taint may change",
        ),
        Rule(
            name="taints",
            holds=cel.any_of(
                *(f"{_TAINTS} ==\n{before}" for before in (_TAINTS_BEFORE, _WITHOUT_PENDING))
            ),
            message=f"of taints only {keys.MIG_LAYOUT_PENDING} may go, and none may come",
        ),
        METADATA,
        ownership.APPLIERS,
        ownership.MANAGERS,
        Rule(
            name="permit-size",
            holds=f"variables.permit.size() <= {mig_permit_annotation.MOST_CHARACTERS}",
            message=f"{keys.MIG_PERMIT} has at most {mig_permit_annotation.MOST_CHARACTERS}"
            " characters",
        ),
        Rule(
            name="mark",
            holds=cel.any_of(f"{_MARK} == ''", cel.matches(_MARK, keys.REQUEST_ID)),
            message=f"{keys.MIG_CORDON} is the id of a request",
        ),
        Rule(
            name="request",
            holds=cel.any_of(
                "variables.isAsked",
                f"(({cel.any_of(*_NO_CORDON)}) &&\n"
                " (variables.permitBefore != '' || variables.permit == ''))",
            ),
            message=f"a cordon and a permit begin only on a Node that has {keys.MIG_REQUEST}",
        ),
        Rule(
            name="cordon",
            holds=cel.any_of(*_NO_CORDON, f"variables.permit.matches({_CORDONED})"),
            message=f"a cordon comes with {keys.MIG_PERMIT}, which says so",
        ),
        Rule(
            name="whose-cordon",
            # so that no cordon of another is ever ours to take off
            holds=cel.any_of(
                cel.all_of(
                    f"(!variables.permit.matches({_CORDONED}) ||"
                    f" variables.permitBefore.matches({_CORDONED}))",
                    f"({_MARK} == '' || {_MARK} == {_MARK_BEFORE})",
                ),
                "(variables.cordoned && !variables.cordonedBefore)",
            ),
            message=f"{keys.MIG_PERMIT} and {keys.MIG_CORDON} say that we cordoned a Node from the"
            " patch on that does it",
        ),
        Rule(
            name="uncordon",
            # people may delete the permit; our mark says it then
            holds=cel.any_of(
                *_NO_UNCORDON,
                f"variables.permitBefore.matches({_CORDONED})",
                f"({_MARK_BEFORE} != '' && {_MARK} == '')",
            ),
            message=f"only a Node is uncordoned whose {keys.MIG_PERMIT} or {keys.MIG_CORDON} says"
            " that we cordoned it",
        ),
        Rule(
            name="keep-cordoned",
            holds=cel.any_of(
                *_NO_UNCORDON, f"!({cel.quoted(keys.KEEP_CORDONED)} in variables.annotationsBefore)"
            ),
            message=f"a Node with {keys.KEEP_CORDONED} is not uncordoned",
        ),
        Rule(
            name="layout",
            holds=cel.any_of(
                f"!variables.changedAnnotations.exists(k, k in {cel.listed(_OF_POLICY)})",
                cel.all_of(
                    *(f"{cel.quoted(key)} in variables.annotations" for key in _OF_POLICY),
                    f"({cel.quoted(keys.MIG_POLICY)} in variables.annotationsBefore ||"
                    f" !({cel.quoted(keys.MIG_LAYOUT)} in variables.annotationsBefore))",
                ),
            ),
            message=f"{keys.MIG_LAYOUT} is written with {keys.MIG_POLICY}, and not in the place of"
            " one without it",
        ),
    ),
)

# NodeRestriction lets a kubelet write annotations, and labels without a reserved prefix, of its
# own Node: a stolen credential could permit itself a MIG change.
KUBELET_ANNOTATIONS = cel.owned(KeyLocation.NODE_ANNOTATION, Writer.ADMIN, Writer.COORDINATOR)
KUBELET_LABELS = cel.owned(KeyLocation.NODE_LABEL, Writer.ADMIN)

NODE_KEYS = Policy(
    name="gpuscape-node-keys",
    holder=KUBELETS,
    group="",
    resources=NODES,
    variables={
        "reservedAnnotations": "variables.changedAnnotations.filter(k, "
        f"{cel.one_of('k', KUBELET_ANNOTATIONS)})",
        "reservedLabels": f"variables.changedLabels.filter(k, {cel.one_of('k', KUBELET_LABELS)})",
    },
    rules=(
        none_of(
            "annotations",
            "variables.reservedAnnotations",
            "a kubelet may not write these annotations",
        ),
        Rule(
            name="labels",
            # some clusters set the layout's name by kubelet flag, when the Node registers
            holds="request.operation == 'CREATE' || variables.reservedLabels.size() == 0",
            message="a kubelet may not write these labels",
            culprits="variables.reservedLabels",
        ),
    ),
)


_BEFORE = f"({cel.VARIABLES['before']})"


def _differs(key: str) -> Expression:
    """Whether an annotation changes, in a condition, where there are no variables."""
    now, before = (
        f"{node}.metadata.?annotations[?{cel.quoted(key)}]" for node in ("object", _BEFORE)
    )
    return f"{now} !=\n{before}"


def _changed_of_change(condition: Expression) -> Expression:
    """Changed ones ``k`` of the coordinator's two annotations for which ``condition`` holds."""
    return f"variables.changedAnnotations.filter(k, k in {cel.listed(_OF_CHANGE)} && {condition})"


# An agent in enforce mode acts on the permit. Accounts of DaemonSets that have nothing to do with
# us may patch every Node, and NodeRestriction is for kubelets alone.
MIG_PERMIT = Policy(
    name=names.MIG_PERMIT,
    holder=EVERYBODY,
    exempt=names.COORDINATOR,
    group="",
    resources=NODES,
    conditions={
        # all other writes of Nodes, heartbeats among them, end here
        "touches-permit": cel.any_of(*(f"({_differs(key)})" for key in _OF_CHANGE))
    },
    variables={
        "written": _changed_of_change("k in variables.annotations"),
        "removed": _changed_of_change("!(k in variables.annotations)"),
    },
    rules=(
        none_of(
            "permit",
            "variables.written",
            f"only {names.COORDINATOR} writes them; people may delete",
        ),
        Rule(
            name="removal",
            holds=cel.any_of(
                "variables.removed.size() == 0",
                f"!({cel.quoted(SERVICE_ACCOUNTS)} in request.userInfo.?groups.orValue([]))",
                # of another installation: it undoes what it has begun
                cel.matches(
                    "request.userInfo.username", names.username(names.COORDINATOR, "[^:]+")
                ),
            ),
            message=f"people may delete them, and no service account but {names.COORDINATOR}",
            culprits="variables.removed",
        ),
    ),
)
