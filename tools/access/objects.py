# SPDX-License-Identifier: Apache-2.0
"""Policies on what the programs keep in addition to the Node: Leases, NodeFeatures, Events."""

from __future__ import annotations

from collections.abc import Mapping

from api import keys, limits, names
from kube import api
from kube.events import DIGEST_DIGITS, STEM
from tools.access import cel
from tools.access.cel import Expression
from tools.access.nodes import AGENT_LABELS, changed_but
from tools.access.policy import EVERYTHING, Policy, Rule, none_of

LEASE_LABELS = tuple(
    f"app.kubernetes.io/{part}"
    for part in ("component", "instance", "managed-by", "name", "part-of", "version")
)

_UID = 64
"""Characters of an object's UID, which has 36."""
_LABEL = 63
"""Characters of a label's value. Source: Kubernetes documentation, "Labels and Selectors"."""

FINALIZERS = Rule(
    name="finalizers",
    holds=" ==\n".join(
        f"{version}.metadata.?finalizers.orValue([])" for version in ("object", "variables.before")
    ),
    message="no finalizer may be added or removed",
)
OWNER = Rule(
    name="owner",
    holds="object.metadata.?ownerReferences.orValue([]).all(o,"
    " o.apiVersion == 'v1' && o.kind == 'Node' && o.name == variables.node)",
    message="the owner is the agent's Node, or nobody",
)


def holder(max_characters: int) -> Rule:
    """Rule: the name of a Lease's holder has at most ``max_characters`` characters."""
    return Rule(
        name="holder",
        # the other field is of API servers with coordinated leader election
        holds="(object.?spec.?holderIdentity.orValue('')"
        f" + object.?spec.?preferredHolder.orValue('')).size() <= {max_characters}",
        message=f"the holder's name has at most {max_characters} characters",
    )


def _named(name: Expression, message: str) -> Rule:
    """Rule: the object has this name. ``generateName`` does not evade it: the API server fills in
    the name before policies run."""
    return Rule(name="name", holds=f"object.metadata.name == {name}", message=message)


def _of_own_node(prefix: str, message: str) -> Rule:
    """Rule: the object has the name that :mod:`api.names` makes for the agent's node.

    No expression can compute the hash in a cut name. So an object of such a name is the agent's
    own when its Node owns it, before the request and after it: two nodes whose names
    begin with the same 200 characters cannot write each other's.
    """
    whole = f"{cel.quoted(prefix)} + variables.node"
    start = f"{cel.quoted(prefix)} + variables.node.substring(0, {names.NODE_CHARACTERS_KEPT})"
    length = len(names.shortened_name(prefix, "n" * limits.MOST_NODE_NAME_CHARACTERS))
    return Rule(
        name="name",
        holds=(
            f"({whole}).size() <= {limits.MOST_NODE_NAME_CHARACTERS}\n"
            f"? object.metadata.name == {whole}\n"
            f": object.metadata.name.startsWith({start} + 'x') &&\n"
            f"object.metadata.name.size() == {length} &&\n"
            f"{_owned('object')} &&\n(oldObject == null || {_owned('variables.before')})"
        ),
        message=message,
    )


def _owned(version: Expression) -> Expression:
    return (
        f"{version}.metadata.?ownerReferences.orValue([])"
        ".exists(o, o.kind == 'Node' && o.name == variables.node)"
    )


def _state_size(annotations: Expression) -> Expression:
    return f"{annotations}[?{cel.quoted(keys.STATE)}].orValue('').size()"


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
        _of_own_node(names.LEASE_PREFIX, "an agent writes its own Lease only"),
        none_of("labels", "variables.foreignLabels", "not labels of a Lease of the agent"),
        none_of("annotations", "variables.foreignAnnotations", "not annotations of the agent"),
        Rule(
            name="state-size",
            holds=cel.bounded(_state_size, "annotations", limits.MOST_STATE_CHARACTERS),
            message=f"{keys.STATE} has at most {limits.MOST_STATE_CHARACTERS} characters",
        ),
        holder(limits.MOST_HOLDER_CHARACTERS),
        Rule(
            name="term",
            holds="object.?spec.?leaseDurationSeconds.orValue(0)"
            f" <= {limits.LONGEST_LEASE_SECONDS}",
            message=f"the Lease's term is at most {limits.LONGEST_LEASE_SECONDS} seconds",
        ),
        FINALIZERS,
        OWNER,
    ),
)


def published_but(allowed: Expression) -> Expression:
    """Labels ``k`` of a NodeFeature for which ``allowed`` does not hold."""
    return f"variables.published.filter(k, !(\n{allowed}\n))"


AGENT_NODE_FEATURE = Policy(
    name=names.AGENT_NODE_FEATURE,
    holder=names.AGENT,
    group=api.NODE_FEATURES.group,
    resources=(api.NODE_FEATURES.plural,),
    versions=EVERYTHING,  # one that is served no more would leave the others to nobody
    variables={
        "published": "object.?spec.?labels.orValue({})",
        "foreignLabels": published_but(cel.one_of("k", AGENT_LABELS)),
    },
    rules=(
        _of_own_node(names.NODE_FEATURE_PREFIX, "an agent writes its own NodeFeature only"),
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
            name="value-size",
            # the kind itself bounds none of them
            holds=f"variables.published.all(k, variables.published[k].size() <= {_LABEL})",
            message=f"a value has at most {_LABEL} characters, as a label's",
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


BARE = Rule(
    name="bare",
    holds=cel.all_of(
        *(
            f"object.metadata.?{part}.orValue({empty}) =="
            f" variables.before.metadata.?{part}.orValue({empty})"
            for part, empty in (
                ("labels", "{}"),
                ("annotations", "{}"),
                ("finalizers", "[]"),
                ("ownerReferences", "[]"),
            )
        )
    ),
    message="an Event has no labels, annotations, finalizers or owners",
)


def events(account: str, *own: Rule, variables: Mapping[str, Expression] | None = None) -> Policy:
    """What an account may say in Events.

    The API server itself bounds their texts, and lets only the series of one that exists
    change: through events.k8s.io, which is all that accounts are granted. Source: Kubernetes
    API events.k8s.io/v1.
    """
    return Policy(
        name=f"{account}-event",
        holder=account,
        group=api.EVENTS.group,
        resources=(api.EVENTS.plural,),
        variables=variables or {},
        rules=(
            *own,
            Rule(
                name="reporter",
                holds=f"object.?reportingController.orValue('') == {cel.quoted(account)}",
                message=f"the reporting controller is {account}",
            ),
            Rule(
                name="related",
                holds="!has(object.related)",
                message="an Event names no second object",
            ),
            BARE,
        ),
    )


AGENT_EVENT = events(
    names.AGENT,
    Rule(
        name="subject",
        holds=cel.all_of(
            "variables.subject == {'apiVersion': 'v1', 'kind': 'Node', 'name': variables.node,"
            " 'uid': variables.uid}",
            f"variables.uid.size() <= {_UID}",
        ),
        message="an agent's Events are about its own Node",
    ),
    Rule(
        name="name",
        # of Nodes a and a.b each writes under its own name, though one begins with the other's
        holds=cel.all_of(
            "object.metadata.name.startsWith(variables.stem)",
            cel.matches(
                "object.metadata.name.substring(variables.stem.size())",
                f"[0-9a-f]{{{DIGEST_DIGITS}}}",
            ),
        ),
        message="an agent's Events are named by its own Node and a hash",
    ),
    variables={
        "uid": "string(variables.subject.?uid.orValue(''))",
        "stem": f"variables.node.find(r'^{STEM}') + '.'",
    },
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

_SECRETS = (names.SCHEDULER_CA, names.SCHEDULER_TLS, names.KUBE_SCHEDULER_TLS)
_SECRET_KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")

CERTIFICATES_SECRET = Policy(
    name=f"{names.CERTIFICATES}-secret",
    holder=names.CERTIFICATES,
    group=api.SECRETS.group,
    resources=(api.SECRETS.plural,),
    variables={
        "held": "object.?data.orValue({})",
        "heldBefore": "variables.before.?data.orValue({})",
    },
    rules=(
        Rule(
            name="name",
            holds=f"object.metadata.name in {cel.listed(_SECRETS)}",
            message="only the Secrets of the extender's certificates are written",
        ),
        Rule(
            name="keys",
            holds="variables.held.all(k, "
            f"k in {cel.listed(_SECRET_KEYS)} ||\n"
            "(k in variables.heldBefore && variables.heldBefore[k] == variables.held[k])) &&\n"
            "variables.heldBefore.all(k, k in variables.held)",
            message="only certificates and keys are written, and nothing is taken away",
        ),
        Rule(
            name="size",
            holds="variables.held.all(k, variables.held[k].size() "
            f"<= {limits.MOST_CERTIFICATE_CHARACTERS})",
            message=f"a value has at most {limits.MOST_CERTIFICATE_CHARACTERS} characters, in"
            " base64",
        ),
        Rule(
            name="frozen",
            holds=cel.all_of(
                cel.same_but("object", "variables.before", "metadata", "data"),
                cel.same_but("object.metadata", "variables.before.metadata", "managedFields"),
            ),
            message="nothing else of a Secret may change",
        ),
    ),
)
