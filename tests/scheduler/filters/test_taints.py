# SPDX-License-Identifier: Apache-2.0
"""Tolerations are for the taints that kube-scheduler says they are for."""

from __future__ import annotations

import pytest

from kube.objects.node import Taint
from kube.objects.pod_constraints import Toleration
from scheduler.filters.taints import is_tolerated, toleration_faults, untolerated

TAINT = Taint(key="gpu", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration(key="gpu", operator="Equal", value="yes", effect="NoSchedule"), True),
        (Toleration(key="gpu", value="yes"), True),
        (Toleration(key="gpu", operator="Equal", value="no"), False),
        (Toleration(key="gpu", operator="Equal"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="gpu", operator="Exists", effect="PreferNoSchedule"), False),
        (Toleration(key="cpu", operator="Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoSchedule"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key="gpu", operator="Gt", value="0"), False),
        (Toleration(key="gpu", operator="exists"), False),
    ],
)
def test_a_toleration_is_for_a_taint_by_key_value_and_effect(
    toleration: Toleration, tolerates: bool
) -> None:
    assert is_tolerated(TAINT, [toleration]) is tolerates


def test_a_taint_without_a_value_is_tolerated_by_an_equal_without_one() -> None:
    bare = Taint(key="gpu", effect="NoExecute")
    assert is_tolerated(bare, [Toleration(key="gpu")])
    assert not is_tolerated(bare, [Toleration(key="gpu", value="yes")])


def test_one_of_several_tolerations_is_enough() -> None:
    assert is_tolerated(TAINT, [Toleration(key="x"), Toleration(operator="Exists")])
    assert not is_tolerated(TAINT, [])


@pytest.mark.parametrize(
    ("effect", "keeps_off"),
    [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False), ("", False)],
)
def test_only_two_effects_keep_pods_off(effect: str, keeps_off: bool) -> None:
    taint = Taint(key="gpu", effect=effect)
    assert untolerated([taint], []) == ((taint,) if keeps_off else ())


def test_the_taints_that_are_not_tolerated_are_the_reason_in_their_order() -> None:
    soft = Taint(key="soft", effect="PreferNoSchedule")
    second, third = (Taint(key=key, effect="NoExecute") for key in ("second", "third"))
    tolerations = [Toleration(key="gpu", operator="Exists")]
    assert untolerated([soft, TAINT, second, third], tolerations) == (second, third)
    assert untolerated([soft, TAINT], tolerations) == ()


@pytest.mark.parametrize(
    ("toleration", "fault"),
    [
        (Toleration(key="a", operator="Exist"), "operator is 'Exist', not Exists or Equal: did"),
        (Toleration(value="x"), "key is missing: only operator Exists goes without"),
        (Toleration(operator="Equal"), "key is missing"),
        (Toleration(key="a", operator="Exists", value="x"), "operator Exists takes none"),
        (Toleration(key="a", effect="NoSchedul"), "did you mean NoSchedule?"),
    ],
)
def test_a_fault_is_named_with_its_key(toleration: Toleration, fault: str) -> None:
    (found,) = toleration_faults([Toleration(operator="Exists"), toleration])
    assert found.startswith("spec.tolerations[1].")
    assert fault in found


def test_what_the_api_server_takes_has_no_fault() -> None:
    good = [
        Toleration(operator="Exists"),
        Toleration(key="a"),
        Toleration(key="a", operator="Gt", value="3", effect="NoExecute"),
        Toleration(key="a", operator="Equal", value="x", effect="PreferNoSchedule"),
    ]
    assert not list(toleration_faults(good))
