# SPDX-License-Identifier: Apache-2.0
"""Requests that the accounts may and may not make, tried on real API servers.

Each is tried with the shipped roles, and with the accounts bound to cluster-admin, where
the admission policies alone must hold.
"""

from __future__ import annotations

import pytest

from tests.access import permit_cases
from tests.access.ask import Case
from tests.access.cases import ALLOWED, REFUSED
from tests.access.stage import ALL_POLICIES, Roles, Stage
from tests.controlplane.plane import Plane

pytestmark = pytest.mark.cluster


def cases(named: tuple[tuple[str, Case], ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in named])


@cases(REFUSED)
def test_the_request_is_refused(stage: Stage, case: Case) -> None:
    answer = stage.answer(case)

    if stage.roles is Roles.SHIPPED:
        assert answer.status in (401, 403) or stage.is_refusal_to(case, answer), answer
    elif case.drift == 422:
        assert stage.is_refusal_to(case, answer), answer
    else:
        assert answer.status == case.drift, answer


CONNECTIONS = ("/proxy", "/exec", "/attach", "/portforward")
"""They cannot be dry runs."""


@cases(
    tuple(
        (name, case)
        for name, case in REFUSED
        if case.drift == 422
        and not case.actor.startswith("kubelet")  # other installations in the cluster hold them
        and not any(part in case.ask.path for part in CONNECTIONS)
    )
)
def test_without_policies_cluster_admin_could(bare_stage: Stage, case: Case) -> None:
    """The request is sound: it is for the policies alone that it is refused."""
    answer = bare_stage.answer(case, dry_run=True)

    assert answer.status in (200, 201), answer


@cases(ALLOWED)
def test_the_request_is_let_through(stage: Stage, case: Case) -> None:
    answer = stage.answer(case)

    assert answer.status in (200, 201), answer


def test_between_attacks_on_mig_changes_everybody_is_served(stage: Stage) -> None:
    """One request after another, as a compromised node and its neighbours would: half of the
    attacks with the shipped roles, the others with the accounts bound to cluster-admin."""
    attacks = permit_cases.ATTACKS[list(Roles).index(stage.roles) :: 2]
    for at, attack in enumerate(attacks):
        served = permit_cases.SERVED[at % len(permit_cases.SERVED)]

        assert stage.answer(attack).status in (403, 422), attack.name
        assert stage.answer(served).status in (200, 201), served.name

    assert len(attacks) >= 25


def test_the_cluster_warns_of_no_expression(plane: Plane) -> None:
    """The controllers check each policy against the types of what it looks at.

    Those for every kind, or every version of one, they cannot.
    """
    made = Stage(plane, Roles.SHIPPED)
    try:
        warned = {policy.name: made.warnings(policy) for policy in ALL_POLICIES}
    finally:
        made.close()

    assert warned == {policy.name: [] for policy in ALL_POLICIES}


def test_there_are_as_many_cases_as_were_asked_for() -> None:
    assert len(REFUSED) > 150
    assert len(ALLOWED) > 30
    for named in (REFUSED, ALLOWED):
        assert len({name for name, _ in named}) == len(named)
