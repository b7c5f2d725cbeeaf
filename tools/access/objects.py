"""Policies on what the programs keep beside the Node: Leases, NodeFeatures, Events."""

from __future__ import annotations

from kube import api
from labelers import keys, limits, names
from tools.access import cel
from tools.access.cel import Expression
from tools.access.nodes import AGENT_LABELS, changed_but
from tools.access.policy import EVERYTHING, Policy, Rule, none_of

LEASE_LABELS = tuple(
    f"app.kubernetes.io/{part}"
    for part in ("component", "instance", "managed-by", "name", "part-of", "version")
)

FINALIZERS = Rule(
    name="finalizers",
    holds=" ==\n".join(
        f"{of}.metadata.?finalizers.orValue([])" for of in ("object", "variables.before")
    ),
    message="no finalizer may be added or removed",
)
OWNER = Rule(
    name="owner",
    holds="object.metadata.?ownerReferences.orValue([]).all(o,"
    " o.apiVersion == 'v1' && o.kind == 'Node' && o.name == variables.node)",
    message="the owner is the agent's Node, or nobody",
)


def _named(name: Expression, message: str) -> Rule:
    """``generateName`` does not get around it: the name is filled in before policies run."""
    return Rule(name="name", holds=f"object.metadata.name == {name}", message=message)


AGENT_LEASE = Policy(
    name=names.AGENT_LEASE,
    holder=names.AGENT,
    group=api.LEASES.group,
    resources=(api.LEASES.plural,),
    variables={
        "foreignLabels": changed_but("Labels", f"k in {cel.listed(LEASE_LABELS)}"),
        "foreignAnnotations": changed_but("Annotations", f"k == {cel.quoted(keys.STATE)}"),
    },
    rules=(
        _named(
            f"{cel.quoted(names.lease(''))} + variables.node", "an agent writes its own Lease only"
        ),
        none_of("labels", "variables.foreignLabels", "not labels of a Lease of the agent"),
        none_of("annotations", "variables.foreignAnnotations", "not annotations of the agent"),
        Rule(
            name="state-size",
            holds=f"variables.annotations[?{cel.quoted(keys.STATE)}].orValue('').size()"
            f" <= {limits.MOST_STATE_CHARACTERS}",
            message=f"{keys.STATE} has at most {limits.MOST_STATE_CHARACTERS} characters",
        ),
        FINALIZERS,
        OWNER,
    ),
)

AGENT_NODE_FEATURE = Policy(
    name=f"{names.AGENT}-nodefeature",
    holder=names.AGENT,
    group=api.NODE_FEATURES.group,
    resources=(api.NODE_FEATURES.plural,),
    versions=EVERYTHING,  # one that is served no more would leave the others to nobody
    variables={
        "published": "object.?spec.?labels.orValue({})",
        "foreignLabels": f"variables.published.filter(k, !(\n{cel.one_of('k', AGENT_LABELS)}\n))",
    },
    rules=(
        _named(
            f"{cel.quoted(names.node_feature(''))} + variables.node",
            "an agent writes its own NodeFeature only",
        ),
        Rule(
            name="node-label",
            holds="variables.labels =="
            f" {{{cel.quoted(names.NODE_FEATURE_NODE_LABEL)}: variables.node}}",
            message=f"its one label is {names.NODE_FEATURE_NODE_LABEL} with the agent's node",
        ),
        none_of("labels", "variables.foreignLabels", "not labels of the agent"),
        Rule(
            name="label-count",
            holds=f"variables.published.size() <= {limits.MOST_LABELS}",
            message=f"at most {limits.MOST_LABELS} labels",
        ),
        Rule(
            name="values",
            # nfd-master would put a feature's value in place of @its.name
            holds="variables.published.all(k, !variables.published[k].startsWith('@'))",
            message="no value may start with @",
        ),
        Rule(
            name="features",
            # they could trigger the NodeFeatureRules of others
            holds="dyn(object.?spec.?features.orValue({}))"
            ".all(k, dyn(object.spec.features)[k].size() == 0)",
            message="features are left empty",
        ),
        none_of("annotations", "variables.changedAnnotations", "no annotation may change"),
        FINALIZERS,
        OWNER,
    ),
)

COORDINATOR_LEASE = Policy(
    name=f"{names.COORDINATOR}-lease",
    holder=names.COORDINATOR,
    group=api.LEASES.group,
    resources=(api.LEASES.plural,),
    rules=(
        Rule(
            name="name",
            holds=cel.any_of(
                f"object.metadata.name == {cel.quoted(names.COORDINATOR_LEASE)}",
                cel.matches("object.metadata.name", f"{names.SLOT_LEASE_PREFIX}[0-9]+"),
            ),
            message="the coordinator writes its slots and its own Lease only",
        ),
    ),
)


def events(account: str, *own: Rule) -> Policy:
    """What an account may say in Events.

    Both APIs of Events store the same objects; ``Equivalent`` has each request shown
    to the policy in the core group's form, so that the rules stand once.
    """
    kept = cel.all_of(
        "variables.before.involvedObject == variables.subject",
        "variables.before.?reportingComponent.orValue('') == variables.reporter",
    )
    known = cel.listed(("", account))
    return Policy(
        name=f"{account}-event",
        holder=account,
        group="",
        resources=("events",),
        rules=(
            *own,
            Rule(
                name="reporter",
                holds=cel.all_of(
                    f"variables.reporter == {cel.quoted(account)}",
                    f"variables.event.?source.?component.orValue('') in {known}",
                ),
                message=f"the reporting controller is {account}",
            ),
            Rule(
                name="kept",
                holds=cel.any_of("oldObject == null", f"{kept}"),
                message="an Event keeps its subject and its reporter",
            ),
        ),
    )


AGENT_EVENT = events(
    names.AGENT,
    Rule(
        name="subject",
        holds=cel.any_of(
            "variables.subject.?kind.orValue('') == 'Node' &&"
            " variables.subject.?name.orValue('') == variables.node",
            "variables.subject.?kind.orValue('') == 'Pod' &&"
            " variables.subject.?name.orValue('') == variables.pod &&"
            " variables.subject.?namespace.orValue('') == variables.home",
        ),
        message="an agent's Events are about its own Node or its own pod",
    ),
)
COORDINATOR_EVENT = events(
    names.COORDINATOR,
    Rule(
        name="subject",
        holds=f"variables.subject.?kind.orValue('') in {cel.listed(('Node', 'Pod'))}",
        message="the coordinator's Events are about Nodes and pods",
    ),
)
SCHEDULER_EVENT = events(
    names.SCHEDULER,
    Rule(
        name="subject",
        holds="variables.subject.?kind.orValue('') == 'Pod'",
        message="the scheduler's Events are about pods",
    ),
    _named(
        f"{cel.quoted(names.pod_event(''))} + variables.subject.?uid.orValue('')",
        "the scheduler's Event about a pod is named by the pod's UID",
    ),
)
