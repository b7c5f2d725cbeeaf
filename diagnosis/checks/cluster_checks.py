# SPDX-License-Identifier: Apache-2.0
"""The API server, our account there, and this Node as it shows it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agent.cluster.confinement import PolicyVerdict
from api import keys, names
from api.key_kinds import is_rule_key
from api.mig_resources import GPU_RESOURCE
from base.settings.version_skew import minor_version
from diagnosis.checks import image_checks
from diagnosis.checks.heartbeat_checks import (
    WRITES_STOPPED,
    lease_findings,
    released_findings,
)
from diagnosis.checks.version_numbers import kubelet_version
from diagnosis.facts.cluster_facts import STOPPED_WRITES, ClusterFacts, NoCluster, ServerFacts
from diagnosis.facts.local_facts import LocalFacts
from diagnosis.finding import (
    DoctorFinding,
    FindingKind,
    FindingSeverity,
    Unread,
    end_check_not_needed,
    end_check_unread,
    finding,
    require_fact,
)
from kube.api import Object
from labelers.compose import decide_labels
from labelers.node_patch import former_labels, plan_node_patch

API_UNREACHABLE: Final = FindingKind(
    name="api-unreachable",
    severity=FindingSeverity.ERROR,
    cause="The API server does not answer: labels and Lease are not updated, and MIG changes do"
    " not go on.",
    fix="Try `kubectl get --raw /livez` from this node; check network policies and the address.",
    page="operation.md#in-a-cluster",
)
API_REFUSED: Final = FindingKind(
    name="api-credentials-refused",
    severity=FindingSeverity.ERROR,
    cause="The API server answers, but does not accept our credentials (401) or gives our account"
    " no rights (403).",
    fix="Mount a fresh token of the account gpuscape-agent, or use another kubeconfig.",
    page="install.md#what-the-agent-gets-and-why",
)
RIGHT_MISSING: Final = FindingKind(
    name="api-right-missing",
    severity=FindingSeverity.ERROR,
    cause="The agent's account lacks a right that its settings need.",
    fix="`kubectl apply -f deploy/base/access.yaml`, and the access.yaml of the parts in use"
    " (pods, dra).",
    page="install.md#what-the-agent-gets-and-why",
)
RIGHT_EXCESS: Final = FindingKind(
    name="api-right-excess",
    severity=FindingSeverity.WARNING,
    cause="The agent's account has a right that no agent needs: an attacker on one node would have"
    " it.",
    fix="Find the binding: `kubectl get clusterrolebindings,rolebindings -A -o wide | grep"
    " gpuscape-agent`, and remove it.",
    page="security.md",
)
POLICY_OPEN: Final = FindingKind(
    name="policy-not-in-force",
    severity=FindingSeverity.ERROR,
    cause="An admission policy does not restrict this agent to its own node, so the agent writes"
    " no object that this policy checks.",
    fix="`kubectl apply -f deploy/base/access.yaml`, generated for the agent's namespace.",
    page="runbooks/GpuscapeConfinementNotEnforced.md",
)
PERMIT_OPEN: Final = FindingKind(
    name="permit-policy-not-in-force",
    severity=FindingSeverity.ERROR,
    cause="The admission policy that lets the coordinator alone permit MIG changes accepts a forged"
    " permit: agents that enforce layouts change none.",
    fix="`kubectl apply -f deploy/coordinator/access.yaml`, generated for its namespace; see that"
    " the binding denies and selects every Node.",
    page="security.md#who-may-permit-a-mig-change",
)
POLICY_UNKNOWN: Final = FindingKind(
    name="policy-not-confirmed",
    severity=FindingSeverity.WARNING,
    cause="It is unknown whether an admission policy restricts this agent.",
    fix="Exempt the account gpuscape-agent from the policy that refuses in its place.",
    page="runbooks/GpuscapeConfinementNotEnforced.md",
)
CLOCK_SKEW: Final = FindingKind(
    name="clock-skew",
    severity=FindingSeverity.WARNING,
    cause="The clocks of this node and of the API server differ: tokens and certificates may be"
    " refused, and times in Leases and metrics are wrong.",
    fix="Synchronise the node's clock: `chronyc tracking` or `timedatectl`.",
    page="doctor.md#clocks",
)
KUBERNETES_OLD: Final = FindingKind(
    name="kubernetes-too-old",
    severity=FindingSeverity.ERROR,
    cause="Kubernetes is older than 1.30: it has no admission policies, so agents are not"
    " confined.",
    fix="Upgrade to 1.32 or later.",
    page="install.md#in-a-cluster",
)
KUBERNETES_PARTLY: Final = FindingKind(
    name="kubernetes-not-tested",
    severity=FindingSeverity.NOTE,
    cause="Kubernetes 1.30 and 1.31 are not tested; no problem is known.",
    fix="Upgrade to 1.32 or later.",
    page="install.md#in-a-cluster",
)
KUBELET_SKEW: Final = FindingKind(
    name="kubelet-version-skew",
    severity=FindingSeverity.WARNING,
    cause="The kubelet is newer than the API server, or more than three minor versions older,"
    " which Kubernetes does not support.",
    fix="Upgrade the older one.",
    page="install.md#in-a-cluster",
)
NODE_UNKNOWN: Final = FindingKind(
    name="node-unknown",
    severity=FindingSeverity.ERROR,
    cause="The cluster has no Node with this node's name.",
    fix="Set NODE_NAME or --node-name to a name that `kubectl get nodes` lists.",
    page="configuration.md",
)
LABELS_MISSING: Final = FindingKind(
    name="labels-missing",
    severity=FindingSeverity.ERROR,
    cause="The Node does not have the labels of its GPUs.",
    fix="See the agent's log on this node, and `gpuscape labels --explain`.",
    page="runbooks/GpuscapeNodeWithoutAgent.md",
)
LABELS_DIFFER: Final = FindingKind(
    name="labels-differ",
    severity=FindingSeverity.WARNING,
    cause="Labels of the Node do not match this machine.",
    fix="See the agent's log on this node; `gpuscape labels --explain` has the reasons.",
    page="labels.md",
)
RULE_LABELS_DIFFER: Final = FindingKind(
    name="rule-labels-differ",
    severity=FindingSeverity.WARNING,
    cause="Labels of your rules are missing on the Node, or have other values than the rules"
    " produce.",
    fix="Allow their keys in the admission policies, and in nfd-master if labels go through it."
    " The agent logs broken rules after SIGHUP. `gpuscape labels --explain` has the reasons.",
    page="labels.md#labels-of-your-own",
)
KEYS_LEFT_ALONE: Final = FindingKind(
    name="keys-left-alone",
    severity=FindingSeverity.WARNING,
    cause="Another program owns labels that the agent would write, so it leaves them alone.",
    fix="Remove the other program's labels, or let the agent write through it (sink nodefeature).",
    page="runbooks/GpuscapeKeysLeftAlone.md",
)

KINDS: Final = (
    *image_checks.KINDS,
    *(API_UNREACHABLE, API_REFUSED, RIGHT_MISSING, RIGHT_EXCESS),
    *(POLICY_OPEN, PERMIT_OPEN, POLICY_UNKNOWN),
    *(CLOCK_SKEW, KUBERNETES_OLD, KUBERNETES_PARTLY, KUBELET_SKEW, NODE_UNKNOWN),
    *(LABELS_MISSING, LABELS_DIFFER, RULE_LABELS_DIFFER, KEYS_LEFT_ALONE),
)
MOST_SKEW_SECONDS: Final = 10.0
OLDEST: Final = (1, 30)
TESTED: Final = (1, 32)
MOST_BEHIND: Final = 3
"""Minor versions that a kubelet may be behind the API server. Source: Kubernetes documentation,
"Version Skew Policy", kubelet."""
_COMPARED: Final = tuple(
    f"{GPU_RESOURCE}.{suffix}" for suffix in (keys.PRODUCT, keys.COUNT, keys.MEMORY)
)
"""Labels that follow from the machine alone, whatever was known of it before."""


def check_api_server(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether the cluster answers, and takes our credentials."""
    if isinstance(facts.cluster, NoCluster):
        kind = API_REFUSED if facts.cluster.refused else API_UNREACHABLE
        yield finding(kind, "API server", facts.cluster.why)
    else:
        require_fact(facts.cluster)


def check_clock(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether this node's clock is the API server's."""
    yield from clock_findings(require_fact(facts.cluster).server)


def check_versions(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether Kubernetes and this kubelet are of versions that go together."""
    cluster = require_fact(facts.cluster)
    yield from version_findings(cluster.server.info.version)
    node = require_fact(cluster.node)
    server, kubelet = minor_version(cluster.server.info.version), kubelet_version(node or {})
    if server and kubelet and not 0 <= server[1] - kubelet[1] <= MOST_BEHIND:
        (major, minor), (server_major, server_minor) = kubelet, server
        sentence = f"the kubelet is {major}.{minor}, the API server {server_major}.{server_minor}"
        yield finding(KUBELET_SKEW, "kubelet", sentence)


def check_image(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether this program and the chart or manifests that started it go together."""
    if not facts.skew.manifests:
        end_check_not_needed("neither chart nor manifests started this")
    yield from image_checks.skew_findings("image", facts.skew)


def check_rights(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether the agent's account may do what it needs, and not much more."""
    cluster = require_fact(facts.cluster)
    for review in require_fact(cluster.rights):
        right = review.right
        if review.expected and not review.allowed:
            yield finding(RIGHT_MISSING, str(right), f"the agent may not {right}")
        if not review.expected and review.allowed:
            yield finding(RIGHT_EXCESS, str(right), f"the agent may {right}")


def check_policies(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether admission policies hold the agent to its node, seen by dry runs."""
    if facts.settings.allow_unconfined:
        end_check_not_needed("allow-unconfined: the agent does without the policies")
    trials = require_fact(require_fact(facts.cluster).confinement).trials
    for trial in trials:
        if trial.verdict is PolicyVerdict.OPEN:
            is_on_permits = names.is_clusterwide(names.MIG_PERMIT, trial.policy)
            kind = PERMIT_OPEN if is_on_permits else POLICY_OPEN
            yield finding(kind, trial.policy, trial.reason)
    unknown = [trial for trial in trials if trial.verdict is PolicyVerdict.UNKNOWN]
    stopped = names.clusterwide(STOPPED_WRITES, facts.settings.namespace)
    if any(stopped in trial.reason for trial in unknown):
        yield finding(WRITES_STOPPED, stopped, f"{stopped} is in force")
    elif unknown:  # most often all for one reason
        policies_named = ", ".join(trial.policy for trial in unknown)
        yield finding(POLICY_UNKNOWN, policies_named, unknown[0].reason)


def check_node_object(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether there is a Node of this name."""
    cluster = require_fact(facts.cluster)
    if require_fact(cluster.node) is None:
        sentence = f"the cluster has no Node {cluster.node_name}"
        yield finding(NODE_UNKNOWN, cluster.node_name, sentence)


def check_heartbeat(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether an agent holds the node's Lease and renews it."""
    cluster = require_fact(facts.cluster)
    require_fact(_node(cluster))
    server_now = cluster.server.info.unix_seconds or facts.now
    lease = require_fact(cluster.lease)
    yield from lease_findings(cluster.node_name, lease, server_now, facts.settings.pod_uid)


def check_release(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether somebody asks for the GPUs to be left alone."""
    yield from released_findings(require_fact(_node(require_fact(facts.cluster))))


def check_labels(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether the Node's labels are what this machine is, and those by rules what rules make."""
    if facts.settings.sink == "none":
        end_check_not_needed("the agent writes no labels (sink none)")
    node, snapshot = require_fact(_node(require_fact(facts.cluster))), require_fact(facts.machine)
    require_fact(facts.plugin_config)  # its file decides about labels too
    meta, decided = (
        node["metadata"],
        decide_labels(snapshot, require_fact(facts.label_settings)).decisions,
    )
    chosen = {
        key: decision for key, decision in decided.items() if key in _COMPARED or is_rule_key(key)
    }
    planned = plan_node_patch(node, {**chosen, **former_labels(meta, decided)}, {})
    present = (meta.get("labels") or {}).keys()
    by_rules = sorted(filter(is_rule_key, planned.labels))
    own = {key: text for key, text in planned.labels.items() if key not in by_rules}
    missing = [key for key, text in own.items() if text is not None and key not in present]
    differing = [key for key in own if key in present]
    if missing:
        sentence = f"it lacks {', '.join(sorted(missing))}"
        yield finding(LABELS_MISSING, meta["name"], sentence)
    if differing:
        sentence = f"values differ from this machine: {', '.join(sorted(differing))}"
        yield finding(LABELS_DIFFER, meta["name"], sentence)
    if by_rules:
        sentence = f"values differ from the rules: {', '.join(by_rules)}"
        yield finding(RULE_LABELS_DIFFER, meta["name"], sentence)
    if planned.left_alone and facts.settings.sink == "node":
        key, why = min(planned.left_alone.items())
        sentence = f"{', '.join(sorted(planned.left_alone))}: {why}"
        yield finding(KEYS_LEFT_ALONE, key, sentence)


CHECKS: Final = (
    *(check_api_server, check_clock, check_versions, check_image, check_rights, check_policies),
    *(check_node_object, check_heartbeat, check_release, check_labels),
)


def clock_findings(server: ServerFacts) -> Iterator[DoctorFinding]:
    """The finding about a skew of the clocks, if any. Raises FactMissing without a server time."""
    if server.skew_seconds is None:
        end_check_unread("the API server's answer has no date")
    if abs(server.skew_seconds) - server.unsure_seconds > MOST_SKEW_SECONDS:
        word = "ahead of" if server.skew_seconds > 0 else "behind"
        sentence = f"this clock is {abs(server.skew_seconds):.0f} s {word} the API server's"
        yield finding(CLOCK_SKEW, "clock", sentence)


def version_findings(version: str) -> Iterator[DoctorFinding]:
    """The finding about an old Kubernetes, if any. Raises FactMissing for an unknown version."""
    read = minor_version(version)
    if read is None:
        end_check_unread(f"the API server's version is {version!r}")
    elif read < OLDEST:
        yield finding(KUBERNETES_OLD, "API server", f"the API server is {version}")
    elif read < TESTED:
        yield finding(KUBERNETES_PARTLY, "API server", f"the API server is {version}")


def _node(cluster: ClusterFacts) -> Object | Unread:
    node = cluster.node
    return Unread(f"there is no Node {cluster.node_name}") if node is None else node
