# SPDX-License-Identifier: Apache-2.0
"""What ``python -m tools.access`` takes, at its bounds, and what it makes of that."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import re
from typing import Any

import pytest
import yaml

from tools.access import __main__ as command
from tools.access.grants import Grant, Where

KUBE_SYSTEM_PLUGIN = "nvidia-device-plugin-daemonset-x7k2p"
"""As NVIDIA's static manifest names its pods; the operator's have the same beginning."""


Objects = list[dict[str, Any]]


@functools.cache
def printed(*words: str) -> Objects:
    """The objects that the command prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert command.main(list(words)) == 0
    return [it for it in yaml.load_all(out.getvalue(), yaml.CSafeLoader) if it]


def variable(objects: Objects, name: str) -> Any:
    """A variable of the policies; the lists and numbers of CEL are those of Python."""
    (text,) = {
        it["expression"]
        for one in objects
        for it in one.get("spec", {}).get("variables", ())
        if it["name"] == name
    }
    return ast.literal_eval(text)


@pytest.mark.parametrize("slots", ["0", "1", "99", "100"])
def test_as_many_slots_as_there_may_be_are_taken(
    slots: str,
) -> None:
    assert variable(printed("--slots", slots, "coordinator"), "slots") == int(slots)


LONGEST = "a" * 63


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a--b", LONGEST])
def test_a_namespace_that_kubernetes_takes_is_taken(
    name: str,
) -> None:
    objects = printed("--namespace", name, "--protected-namespace", name, "coordinator")

    (account,) = [it for it in objects if it["kind"] == "ServiceAccount"]
    assert account["metadata"]["namespace"] == name
    assert variable(objects, "protected")[-1] == name
    assert variable(objects, "home") == name


@pytest.mark.parametrize(
    "words",
    [
        *(("--namespace", name) for name in ("", "-a", "a-", "A", "a.b", "a_b", f"{LONGEST}a")),
        *(("--protected-namespace", name) for name in ("", "a/b", f"{LONGEST}a")),
        *(("--slots", number) for number in ("", "-1", "1.5", "101", "1000", "²")),
        *(
            ("--plugin-pod", pod)
            for pod in ("a", "a/", "/a", "a/-x", "a/.x", "a/X", "a/b/c", "A/b", f"{LONGEST}a/b")
        ),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_refused_and_nothing_is_printed(
    capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    option, text = words

    with pytest.raises(SystemExit) as ended:
        command.main([f"{option}={text}", "coordinator"])

    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert repr(text if option != "--plugin-pod" else text.partition("/")[0])[1:-1] in err


def test_without_a_word_it_is_the_part_that_everybody_installs() -> None:
    objects = printed()

    assert objects == printed("base", "--namespace", "gpuscape")
    assert objects != printed("coordinator")


def may_be_evicted(objects: Objects, namespace: str, pod: str) -> bool:
    """By the lists of the policy on evictions, as the security page explains them."""
    kept = {*variable(objects, "protected"), variable(objects, "home")}
    plugins = tuple(variable(objects, "plugins"))
    return namespace not in kept or f"{namespace}/{pod}".startswith(plugins)


EVICTIONS = [
    ("default", "training-0", True),
    ("kube-system-x", "training-0", True),
    ("kube-system", "coredns-5d78c9869d-abcde", False),
    ("kube-system", KUBE_SYSTEM_PLUGIN, True),
    ("kube-system", "nvdp-nvidia-device-plugin-4qk8z", True),
    ("kube-system", "nvidia-dcgm-exporter-4qk8z", False),
    ("kube-system", "nvdp-gpu-feature-discovery-4qk8z", False),
    ("gpu-operator", "gpu-operator-7bd9f9f5b-abcde", False),
    ("gpu-operator", "nvidia-operator-validator-4qk8z", False),
    ("gpu-operator", KUBE_SYSTEM_PLUGIN, True),
    ("gpu-operator", "nvdp-nvidia-device-plugin-4qk8z", False),
    ("gpuscape", "gpuscape-coordinator-5d78c9869d-abcde", False),
    ("monitoring", "prometheus-0", True),
]


@pytest.mark.parametrize(("namespace", "pod", "evicted"), EVICTIONS)
def test_by_default_pods_of_the_cluster_itself_stay_but_for_a_device_plugins(
    namespace: str, pod: str, *, evicted: bool
) -> None:
    assert may_be_evicted(printed("coordinator"), namespace, pod) is evicted


@pytest.mark.parametrize(
    ("namespace", "pod", "evicted"),
    [
        *(it for it in EVICTIONS if it[0] != "monitoring"),
        ("monitoring", "prometheus-0", False),
        ("monitoring", "my-plugin-4qk8z", True),
        ("monitoring", "my-plugi", False),
        ("kueue-system", "kueue-0", False),
        ("kueue-system", "other-4qk8z", True),
        ("kube-system", "my-plugin-4qk8z", False),
    ],
)
def test_what_an_admin_adds_comes_on_top_of_what_is_protected_by_default(
    namespace: str, pod: str, *, evicted: bool
) -> None:
    objects = printed(
        *("--protected-namespace", "monitoring", "--protected-namespace", "kueue-system"),
        *("--plugin-pod", "monitoring/my-plugin-", "--plugin-pod", "kueue-system/other-"),
        "coordinator",
    )

    assert may_be_evicted(objects, namespace, pod) is evicted


@pytest.mark.parametrize(
    ("resource", "group", "verbs", "operations"),
    [
        ("nodes", "", ("get", "watch", "patch"), ("UPDATE nodes",)),
        ("nodes", "", ("get", "list", "watch"), ()),
        (
            "leases",
            "coordination.k8s.io",
            ("get", "create", "update", "patch"),
            ("CREATE leases.coordination.k8s.io", "UPDATE leases.coordination.k8s.io"),
        ),
        ("pods/eviction", "", ("create",), ("CREATE pods/eviction",)),
        (
            "deployments/scale",
            "apps",
            ("update",),
            ("UPDATE deployments.apps/scale",),
        ),
    ],
)
def test_verbs_reach_admission_as_operations_on_the_resource_with_its_group(
    resource: str, group: str, verbs: tuple[str, ...], operations: tuple[str, ...]
) -> None:
    """Written as kubectl writes resources, a subresource last."""
    grant = Grant(where=Where.CLUSTER, resource=resource, group=group, verbs=verbs)

    assert grant.operations == operations


@pytest.mark.parametrize(
    "part", ["base", "coordinator", "scheduler", "certificates", "dra", "pods"]
)
def test_what_is_printed_reads_as_kubernetes_pages_write_objects(part: str) -> None:
    """Fields in their usual order, nothing by reference, expressions over several lines."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        command.main([part])
    written = out.getvalue()

    assert written.startswith("---\napiVersion: ")
    assert not re.search(r"[:-] [&*]id\d+", written)
    assert "\\n" not in written
    for it in printed(part):
        fields = list(it)
        known = ["apiVersion", "kind", "metadata", "spec", "roleRef", "subjects", "rules"]
        known.append("automountServiceAccountToken")
        assert fields == sorted(fields, key=known.index)
        if it["kind"] == "ValidatingAdmissionPolicy":
            assert list(it["spec"]) == [
                *("failurePolicy", "matchConstraints", "matchConditions", "variables"),
                "validations",
            ]


@pytest.mark.parametrize("part", ["base", "coordinator"])
def test_a_refusal_of_keys_names_them(part: str) -> None:
    """People read it in the agent's log, and the agent finds in it which key was refused."""
    refusals = [
        it
        for one in printed(part)
        if one["kind"] == "ValidatingAdmissionPolicy"
        for it in one["spec"]["validations"]
        if it["expression"].endswith(".size() == 0")
    ]

    assert len(refusals) > 3
    for it in refusals:
        begin, keys = it["messageExpression"].split(" + ", 1)
        assert begin == f"'{it['message']}: '"
        assert keys.endswith(".join(', ')")
        named = keys.removesuffix(".join(', ')")
        assert it["expression"].endswith(f"{named}.size() == 0")
