# SPDX-License-Identifier: Apache-2.0
"""Requests drawn by a seed that turn MIG on and off on Ampere: whatever goes wrong, each GPU has
its desired layout, its previous one, or is named stuck; no other GPU is touched, nothing loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.actuator.ampere_node import ampere_node
from tests.actuator.drawn_modes import DrawnModes
from tests.actuator.mode_figures import ModeFigures
from tests.actuator.mode_judge import GpuTruth, ModeCase, mistakes, restored_mistakes
from tests.conftest import SCALE

SEED: Final = 20261128


def carried_out(drawn: DrawnModes, figures: ModeFigures) -> None:
    """Carry out one request, judge each GPU, then end what is stuck, and judge again."""
    result = drawn.run()
    cases = drawn.cases(result)
    waited = {i for i in drawn.desired if drawn.troubles[i] in ("client", "stays")}
    wrong = [
        f"GPU {index}: {why}"
        for index, case in cases.items()
        for why in mistakes(case, is_alone=waited <= {index})
    ]
    if result is not None and str(result.outcome) != "refused":
        named = {index for index, case in cases.items() if case.outcome is not None}
        wrong += [] if named == drawn.desired.keys() else [f"outcomes of {named}"]
    elif drawn.permits and not any(drawn.troubles[index] for index in drawn.desired):
        wrong.append(f"refused for nothing: {result}")
    assert not wrong, (drawn.seed, wrong, drawn, cases)
    _count(drawn, cases, figures)
    stuck = tuple(drawn.uuids[index] for index, case in cases.items() if case.outcome == "stuck")
    if not stuck and drawn.draw.random() < 0.8:
        return  # there is nothing to end
    give_up = stuck if drawn.draw.random() < 0.2 else ()
    drawn.restore(give_up=give_up)
    figures.given_up += len(give_up)
    unended = drawn.unended()
    wrong = [
        f"GPU {index}: {why}"
        for index, case in cases.items()
        for why in restored_mistakes(
            case,
            drawn.truth(index),
            unended=drawn.uuids[index] in unended,
            given_up=drawn.uuids[index] in give_up,
        )
    ]
    assert not wrong, (drawn.seed, wrong, drawn, cases)


def _count(drawn: DrawnModes, cases: Mapping[int, ModeCase], figures: ModeFigures) -> None:
    figures.requests += 1
    figures.kills += drawn.kills
    figures.boots += drawn.boots
    figures.brought += len(drawn.boot.brought)
    figures.hung += len(drawn.hung)
    figures.most_effects = max(figures.most_effects, drawn.most_effects)
    figures.most_seconds = max(figures.most_seconds, drawn.most_seconds)
    for index in drawn.desired:
        case = cases[index]
        figures.switches += case.desired is not None and case.desired[0] != case.before.mode
        figures.ended(f"{case.outcome} {drawn.troubles[index]}".strip())


def many(folder: Path, count: int, first: int = SEED) -> ModeFigures:
    """So many requests on one node, each with a journal and GPUs of its own."""
    figures = ModeFigures()
    with ampere_node(folder) as node:
        for number in range(count):
            carried_out(DrawnModes(node, first + number), figures)
    return figures


def test_gpus_whose_mode_is_switched_end_as_their_own_troubles_allow(tmp_path: Path) -> None:
    """And the outcomes of the usual troubles are among them."""
    figures = many(tmp_path, 40 * SCALE)

    expected = {"applied", "applied client", "applied reset-required", "rolled-back reset-required"}
    assert expected <= figures.ends.keys(), figures
    assert min(figures.kills, figures.boots, figures.switches) > 0


def test_modes_that_nobody_resets_come_with_a_boot_or_are_taken_back(tmp_path: Path) -> None:
    """The same with a seed of whose requests some wait."""
    assert many(tmp_path, 50 * SCALE, first=SEED + 30050).brought > 2


# the judge itself

ON, OFF = (
    GpuTruth(mode=True, pending=True, instances=frozenset()),
    GpuTruth(mode=False, pending=False, instances=frozenset()),
)
ONE: Final = frozenset({("1g.5gb", 0, (1,), 1)})
AGAIN: Final = frozenset({("1g.5gb", 0, (1,), 2)})
TURNED_ON: Final = ModeCase(
    before=OFF,
    after=ON,
    desired=(True, ()),
    troubles=frozenset(),
    client_seconds=0.0,
    used=frozenset(),
    is_lost=False,
    rebooted=False,
    outcome="applied",
    reason="",
    unended=False,
)


def _case(**values: object) -> ModeCase:
    return replace(TURNED_ON, **values)  # type: ignore[arg-type]  # the fields' own types


WAITS: Final = replace(OFF, pending=True)
STUCK: Final = _case(
    outcome="stuck", unended=True, reason="lost", after=OFF, troubles=frozenset({"fails"})
)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (_case(), ""),
        (_case(after=OFF), "without the desired mode"),
        (_case(after=WAITS), "without the desired mode"),
        (_case(after=replace(ON, instances=ONE)), "without the desired instances"),
        (_case(unended=True), "has not ended although it is not stuck"),
        (_case(outcome="rolled-back", after=OFF), "nothing kept it from its layout"),
        (
            _case(outcome="rolled-back", troubles=frozenset({"fails"})),
            "without the previous mode",
        ),
        (
            _case(outcome="rolled-back", after=OFF, troubles={"client"}, client_seconds=20.0),
            "nothing kept it from its layout",
        ),
        (_case(outcome="rolled-back", after=OFF, troubles={"client"}, client_seconds=50.0), ""),
        (
            _case(
                before=replace(ON, instances=ONE),
                desired=(False, ()),
                outcome="rolled-back",
                troubles=frozenset({"fails"}),
            ),
            "without the previous instances",
        ),
        (
            _case(
                before=replace(ON, instances=ONE),
                after=replace(ON, instances=AGAIN),
                desired=None,
                outcome=None,
            ),
            "a GPU was touched that had nothing to do",
        ),
        (_case(outcome="refused"), "the mode of a GPU was touched"),
        (_case(before=WAITS), "somebody else had asked for"),
        (_case(used=ONE), "an instance in use was destroyed"),
        (_case(desired=None, outcome="applied", after=OFF), "does not name"),
        (STUCK, ""),
        (replace(STUCK, reason=""), "without a reason"),
        (replace(STUCK, after=WAITS), "a mode waits"),
        (replace(STUCK, after=WAITS, reason="run nvidia-smi -i 0000:10:00.0 -mig 0"), ""),
    ],
)
def test_the_judge_names_what_is_wrong(case: ModeCase, expected: str) -> None:
    wrong = list(mistakes(case, is_alone=True))
    assert (wrong == []) is (expected == "")
    assert not expected or any(expected in why for why in wrong)


@pytest.mark.parametrize(
    ("case", "restored", "unended", "expected"),
    [
        (STUCK, OFF, False, ""),
        (STUCK, OFF, True, "has not ended"),
        (STUCK, WAITS, False, "without the previous mode"),
        (STUCK, replace(OFF, instances=ONE), False, "without the previous instances"),
        (_case(), ON, False, ""),
        (_case(), OFF, False, "was not stuck"),
    ],
)
def test_the_judge_names_what_is_wrong_after_a_restore(
    case: ModeCase, restored: GpuTruth, unended: bool, expected: str
) -> None:
    wrong = list(restored_mistakes(case, restored, unended=unended, given_up=False))
    assert (wrong == []) is (expected == "")
    assert not expected or any(expected in why for why in wrong)
