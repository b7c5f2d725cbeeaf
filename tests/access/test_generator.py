# SPDX-License-Identifier: Apache-2.0
"""The generated roles and policies: exact, anchored, each fragment once; no API server needed."""

from __future__ import annotations

import re

import pytest

from api import mig_permit_annotation, names
from api.key_kinds import Key, KeyLocation, Writer
from api.keys import KEYS
from api.mig_permit_annotation import PermitPhase
from tools.access import __main__ as command
from tools.access import cel, grants, nodes
from tools.access.files import POLICIES, files, parts_of
from tools.access.policy import Policy

ALL = [policy for policies in POLICIES.values() for policy in policies]

EXAMPLES = {"<profile>": "1c.3g.20gb.me", "<model>": "NVIDIA-H100-80GB-HBM3"}
NOT_OURS = [
    "nvidia.com/gpu.deploy.driver",
    "nvidia.com/gpu.present",
    "nvidia.com/gpu.workload.config",
    "nvidia.com/gpu-driver-upgrade-state",
    "nvidia.com/device-plugin.config",
    "nvidia.com/mig.config",
    "xgpuscape.io/count.T4",
    "gpuscape.io.evil.com/count.T4",
    "gpuscapexio/count.T4",
    "nvidiaxcom/gpu.count",
    "nvidia.com/gpuxcount",
    "nvidia.com/mig-1g.5gb.count\n",
    "nvidia.com/mig-1g.5gb.countx",
]


def named(policy: str) -> Policy:
    """The policy of that name."""
    (found,) = [each for each in ALL if each.name == policy]
    return found


def example(key: Key) -> str:
    """A key as it stands in the cluster."""
    name = key.name
    for placeholder, text in EXAMPLES.items():
        name = name.replace(placeholder, text)
    return name


class Text(str):
    """A string with CEL's ``matches``, which finds a pattern anywhere unless it is anchored."""

    def matches(self, pattern: str) -> bool:
        """``$`` is the end in RE2, where Python would let a line break follow."""
        return re.search(pattern.replace("$", r"\Z"), self) is not None


def allows(place: KeyLocation, key: str) -> bool:
    """Whether the generated expression lets the agent change the key there.

    Lists, raw strings and ``in`` are the same in CEL and Python; ``||`` is ``or``.
    """
    what = {KeyLocation.NODE_LABEL: "Labels", KeyLocation.NODE_ANNOTATION: "Annotations"}[place]
    expression = named(names.AGENT_NODE).variables[f"foreign{what}"]
    head, tail = f"variables.changed{what}.filter(k, !(", "))"
    assert expression.startswith(head)
    assert expression.endswith(tail)
    body = expression.removeprefix(head).removesuffix(tail).replace("||", "or").strip()
    return bool(eval(f"({body})", {"__builtins__": {}}, {"k": Text(key)}))  # noqa: S307  # ours


ON_NODES = [
    key for key in KEYS if key.where in (KeyLocation.NODE_LABEL, KeyLocation.NODE_ANNOTATION)
]


@pytest.mark.parametrize("key", ON_NODES, ids=lambda key: key.name)
def test_the_agent_may_change_its_own_keys_and_no_other_writers(key: Key) -> None:
    assert allows(key.where, example(key)) is (key.writer is Writer.AGENT)


@pytest.mark.parametrize("key", NOT_OURS)
def test_no_key_of_others_passes_for_one_of_ours(key: str) -> None:
    assert not allows(KeyLocation.NODE_LABEL, key)
    assert not allows(KeyLocation.NODE_ANNOTATION, key)


@pytest.mark.parametrize("key", ON_NODES, ids=lambda key: key.name)
def test_no_longer_key_passes_by_its_beginning(key: Key) -> None:
    assert not allows(key.where, example(key) + "/x")
    assert not allows(key.where, "x" + example(key))


def test_a_kubelet_may_not_write_the_keys_of_the_admin_and_the_coordinator() -> None:
    assert {key.name for key in nodes.KUBELET_ANNOTATIONS} == {
        "gpuscape.io/mig-layout",
        "gpuscape.io/mig-layout-before",
        "gpuscape.io/mig-policy",
        "gpuscape.io/mig-permit",
        "gpuscape.io/mig-cordon",
        "gpuscape.io/mig-mode-change",
        "gpuscape.io/release",
        "gpuscape.io/clear-xids",
        "gpuscape.io/drain",
        "gpuscape.io/keep-cordoned",
    }
    kept = {"nvidia.com/mig.config", "gpuscape.io/mig-adopt"}
    assert {key.name for key in nodes.KUBELET_LABELS} == kept


def test_key_policies_never_go_by_a_prefix() -> None:
    used = [policy.name for policy in ALL if "startsWith" in str(policy.variables)]

    assert used == []


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
def test_each_policy_states_the_variables_it_uses_after_those_they_use(policy: Policy) -> None:
    spec = policy.objects("gpuscape")[0]["spec"]
    known: set[str] = set()
    for variable in spec["variables"]:
        assert set(re.findall(r"variables\.(\w+)", variable["expression"])) <= known
        known.add(variable["name"])

    used = set(re.findall(r"variables\.(\w+)", str(spec)))

    assert used == known


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
def test_each_policy_fails_closed_is_bound_and_denies(policy: Policy) -> None:
    made, binding = policy.objects("gpuscape")

    assert made["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"] == {
        "policyName": made["metadata"]["name"],
        "validationActions": ["Deny", "Audit"],
    }


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
def test_no_rule_stands_twice_in_a_policy(policy: Policy) -> None:
    assert len({rule.name for rule in policy.rules}) == len(policy.rules)
    assert len({rule.holds for rule in policy.rules}) == len(policy.rules)


def test_rules_that_several_policies_need_are_one_value() -> None:
    """Two policies that say the same say it with the same text: it was written once."""
    texts: dict[str, set[int]] = {}
    for policy in ALL:
        for rule in policy.rules:
            if rule.name in {"metadata", "appliers", "managers", "finalizers", "owner"}:
                texts.setdefault(rule.name, set()).add(id(rule))

    assert {name: len(found) for name, found in texts.items()} == dict.fromkeys(texts, 1)


ACCOUNTS = (grants.AGENT, grants.COORDINATOR, grants.SCHEDULER, grants.CERTIFICATES)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_policies_hold_the_account_that_the_roles_are_bound_to(account: grants.Account) -> None:
    """A policy that names another account holds nobody."""
    for namespace in ("gpuscape", "gpu-system"):
        username = f"system:serviceaccount:{namespace}:{account.name}"
        for policy in POLICIES[account.name]:
            condition = policy.objects(namespace)[0]["spec"]["matchConditions"]
            assert condition == [
                {"name": "holder", "expression": f"request.userInfo.username == '{username}'"}
            ]
        for it in grants.role_objects(account, namespace):
            for subject in it.get("subjects", ()):
                assert (subject["namespace"], subject["name"]) == (namespace, account.name)


def test_roles_give_what_the_facts_say_and_nothing_else() -> None:
    given = {
        (account.name.removeprefix("gpuscape-"), grant.where.name, grant.resource): grant.verbs
        for account in ACCOUNTS
        for grant in account.grants
    }

    own = ("get", "create", "update", "patch")
    events = ("create", "patch")
    assert given == {
        ("agent", "CLUSTER", "nodes"): ("get", "watch", "patch"),
        ("agent", "HOME", "leases"): own,
        ("agent", "HOME", "nodefeatures"): own,
        ("agent", "HOME", "daemonsets"): ("get",),
        ("agent", "EVENTS", "events"): events,
        ("coordinator", "CLUSTER", "nodes"): ("get", "list", "watch", "patch"),
        ("coordinator", "CLUSTER", "pods"): ("get", "list", "watch"),
        ("coordinator", "CLUSTER", "pods/eviction"): ("create",),
        ("coordinator", "CLUSTER", "poddisruptionbudgets"): ("list", "watch"),
        ("coordinator", "CLUSTER", "jobs"): ("get",),
        ("coordinator", "CLUSTER", "jobsets"): ("get",),
        ("coordinator", "CLUSTER", "replicasets"): ("get",),
        ("coordinator", "CLUSTER", "statefulsets"): ("get",),
        ("coordinator", "HOME", "leases"): ("get", "list", "watch", "create", "update", "patch"),
        ("coordinator", "HOME", "configmaps"): ("get", "list", "watch"),
        ("coordinator", "HOME", "events"): events,
        ("coordinator", "EVENTS", "events"): events,
        ("scheduler", "CLUSTER", "nodes"): ("list", "watch"),
        ("scheduler", "CLUSTER", "pods"): ("list", "watch"),
        ("scheduler", "HOME", "leases"): ("list", "watch"),
        ("scheduler", "CLUSTER", "events"): events,
        ("certificates", "HOME", "secrets"): ("get", "patch"),
    }


def test_roles_are_narrowed_to_the_objects_that_are_meant() -> None:
    rules = [
        rule
        for part in parts_of().values()
        for it in part
        if it["kind"].endswith("Role")
        for rule in it["rules"]
        if rule["resources"] == ["daemonsets"] or "resourceNames" in rule
    ]
    assert rules == [
        {
            "apiGroups": ["apps"],
            "resources": ["daemonsets"],
            "resourceNames": ["gpuscape-agent"],
            "verbs": ["get"],
        },
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["gpuscape-mig-policy"],
            "verbs": ["get", "list", "watch"],
        },
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [
                "gpuscape-scheduler-ca",
                "gpuscape-scheduler-tls",
                "gpuscape-kube-scheduler-tls",
            ],
            "verbs": ["get", "patch"],
        },
    ]


def test_nobody_else_may_read_or_write_a_secret() -> None:
    """Nor everything of a group, or everything of all groups."""
    others = [
        rule
        for name, part in parts_of().items()
        if name != "certificates"
        for it in part
        if it["kind"].endswith("Role")
        for rule in it["rules"]
    ]
    assert others
    for rule in others:
        assert not {"secrets", "*"} & set(rule["resources"])


def test_what_is_opted_into_is_read_only() -> None:
    for part, verbs in (("dra", ["get", "list", "watch"]), ("pods", ["list", "watch"])):
        role, binding = parts_of()[part]
        assert [rule["verbs"] for rule in role["rules"]] == [verbs]
        assert [it["name"] for it in binding["subjects"]] == [names.AGENT]


def test_two_installations_share_no_object_but_the_namespace_of_events() -> None:
    def placed(namespace: str) -> set[tuple[str, str, str]]:
        return {
            (it["kind"], it["metadata"].get("namespace", ""), it["metadata"]["name"])
            for part in parts_of(namespace).values()
            for it in part
        }

    assert placed("gpuscape") & placed("gpu-system") == set()


def test_the_files_name_each_part_and_how_to_make_them_again() -> None:
    assert list(files()) == [
        f"deploy/{part}/access.yaml"
        for part in ("base", "coordinator", "scheduler", "certificates", "dra", "pods")
    ]
    for text in files().values():
        assert text.startswith("# Generated by `make docs` from api/keys.py and api/na")


def test_the_part_that_everybody_installs_holds_nobodys_coordinator() -> None:
    """So that a second installation, without one, leaves the first one's alone."""
    assert [it for it in parts_of()["base"] if names.COORDINATOR in str(it)] == []
    with_it = [it["metadata"]["name"] for it in parts_of()["coordinator"]]
    assert with_it.count(names.MIG_PERMIT) == 2


def test_a_policy_for_everybody_exempts_the_coordinator_of_its_installation_alone() -> None:
    made, _ = nodes.MIG_PERMIT.objects("gpu-system")
    holder, touching = made["spec"]["matchConditions"]

    assert holder["expression"] == (
        "request.userInfo.username != 'system:serviceaccount:gpu-system:gpuscape-coordinator'"
    )
    assert "variables." not in touching["expression"]


def test_a_permit_as_it_is_written_says_to_the_policy_who_cordoned() -> None:
    pattern = mig_permit_annotation.OWN_CORDON_PATTERN
    for cordoned in (True, False):
        permit = mig_permit_annotation.MigPermitAnnotation(
            v=2, request="00112233445566aa", phase=PermitPhase.CORDONED, owns_cordon=cordoned
        )

        assert bool(re.search(pattern, mig_permit_annotation.encode(permit))) is cordoned


def test_another_namespace_is_printed_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--namespace", "gpu-system", "coordinator"]) == 0

    text = capsys.readouterr().out
    assert "system:serviceaccount:gpu-system:gpuscape-coordinator" in text
    assert "namespace: gpuscape\n" not in text


def test_a_namespace_that_cannot_be_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--namespace", "Gpu_System"])

    assert ended.value.code == 2
    assert "'Gpu_System' is no namespace: up to 63" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("nvidia.com/gpu-type", "nvidia.com is reserved: use a domain of yours"),
        ("gpu-type", "it has no prefix: put a domain of yours before it"),
        ("Example.com/gpu-type", "the part before the slash is no domain"),
        ("example.com/gpu'type", "the part after the slash has up to 63 letters"),
    ],
)
def test_a_key_that_no_rule_can_have_is_refused_in_one_line_and_nothing_is_printed(
    capsys: pytest.CaptureFixture[str], key: str, why: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--label-key", "example.com/gpu-type", "--label-key", key, "base"])

    assert ended.value.code == 2
    said = capsys.readouterr()
    assert f"{key!r} cannot be a label of a rule: {why}" in said.err.splitlines()[-1]
    assert said.out == ""


def test_expressions_quote_what_they_are_given() -> None:
    assert cel.quoted("it's a \\ ") == r"'it\'s a \\ '"
