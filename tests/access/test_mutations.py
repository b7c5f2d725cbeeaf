# SPDX-License-Identifier: Apache-2.0
"""Each rule is needed: without it, something gets through that nothing else holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.access.cases import only_by
from tests.access.stage import Roles, Stage
from tests.controlplane.plane import Plane
from tools.access.files import POLICIES
from tools.access.policy import Policy, Rule

RULES = [
    (policy, rule) for policies in POLICIES.values() for policy in policies for rule in policy.rules
]


def without(rule: Rule, policy: Policy) -> Iterable[Policy]:
    """The holder's policies, this one with a rule that always holds in the place of ``rule``."""
    rules = tuple(replace(it, holds="true") if it is rule else it for it in policy.rules)
    for each in POLICIES[policy.holder]:
        yield replace(each, rules=rules) if each is policy else each


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("policy", "rule"),
    [pytest.param(policy, rule, id=f"{policy.name}/{rule.name}") for policy, rule in RULES],
)
def test_without_the_rule_what_it_alone_refuses_gets_through(
    plane: Plane, policy: Policy, rule: Rule
) -> None:
    """Sent as dry runs, with the accounts bound to cluster-admin."""
    cases = only_by(f"{policy.name}/{rule.name}")
    stage = Stage(plane, Roles.DRIFT, without(rule, policy))
    try:
        stage.wait_until_enforced(besides=f"{policy.name}/{rule.name}")
        held = [
            (name, answer.body.get("message"))
            for name, case in cases
            if stage.is_refusal(answer := stage.answer(case, dry_run=True))
        ]
    finally:
        stage.close()

    assert cases, "no case is refused by this rule alone"
    assert held == []
