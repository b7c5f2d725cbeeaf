# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig cancel`` in each phase of a change: the node is as it was, or the change goes on.

Nodes are judged by what stands in the API server, and by the layouts that their GPUs have.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from api import keys, mig_status_annotation, names
from api.mig_status_annotation import MigStatusAnnotation
from base.text import rfc3339
from cli.failures import CommandFailure
from cli.mig.cluster.change_facts_reader import ChangeFactsReader
from cli.mig.cluster.mig_cancel import write_cancellation
from fleet.rollout_settings import PAUSED, RolloutSettings
from fleet.stages.cancellation import Cancellation, CancelVerdict, remaining
from kube.api import CONFIG_MAPS, LEASES, NODES
from kube.api_errors import Conflict, Forbidden
from tests.fakes.api import Call, FakeApi
from tests.fleet.simulated_fleet import violations
from tests.fleet.stages.asked_fleet import AskedFleet

TERMS: Final = RolloutSettings(
    canary_seconds=10.0, retry_seconds=10.0, settle_seconds=20.0, end_seconds=200.0
)
GUARDS: Final = {names.SCALE_DOWN_GUARDS[0]: "false"}
PLUGIN: Final = "nvidia.com/gpu.deploy.device-plugin"
SOON: Final = 20.0
CORDONED, PROCEED = '"phase":"cordoned"', '"phase":"proceed"'


def condition(asked: AskedFleet, name: str = "n0") -> dict[str, Any]:
    """What a change may touch, as it stands on the Node."""
    node = asked.node(name)
    notes = node["metadata"].get("annotations") or {}
    agents = (keys.MIG_STATUS, keys.MIG_REQUEST)
    return {
        "cordoned": asked.is_cordoned(name),
        "labels": node["metadata"]["labels"],
        "annotations": {key: text for key, text in notes.items() if key not in agents},
    }


def fleet(*, nodes: int = 1, modes: bool = False) -> tuple[AskedFleet, dict[str, Any]]:
    """A fleet with a coordinator that leads, and the first node's condition."""
    asked = AskedFleet(nodes=nodes, terms=TERMS)
    asked.edit("n0", {"metadata": {"annotations": GUARDS}})
    if modes:
        asked.edit("n0", {"metadata": {"labels": {PLUGIN: "true"}}})
        asked.agents["n0"].modes = True
    asked.pass_time(12)
    return asked, condition(asked)


def reach(asked: AskedFleet, words: str) -> None:
    """Until the permit has these words."""
    asked.pass_until(lambda: words in asked.notes("n0").get(keys.MIG_PERMIT, ""), within=300)


def cancel(asked: AskedFleet, *, dry_run: bool = False, api: FakeApi | None = None) -> Cancellation:
    """As the command does, without the wait."""
    person = api or FakeApi(asked.server, manager="gpuscape-mig-cancel")
    reader = ChangeFactsReader(person, names.NAMESPACE, wall=lambda: asked.now)
    return write_cancellation(person, reader, "n0", dry_run=dry_run)


def left(asked: AskedFleet) -> tuple[str, ...]:
    """What the command would still wait for."""
    reader = ChangeFactsReader(asked.person, names.NAMESPACE, wall=lambda: asked.now)
    return remaining(reader.read("n0", change_alone=True), asked.now)


def over(asked: AskedFleet, *, within: float = SOON) -> None:
    """Until the command would end its wait."""
    asked.pass_until(lambda: not left(asked), within=within)
    assert not asked.open_leases()


def stop_coordinator(asked: AskedFleet) -> None:
    """None acts any more."""
    asked.run_coordinator = lambda: None  # type: ignore[method-assign]  # it is gone
    asked.pass_time(130)


def test_nothing_is_written_where_no_layout_is_desired() -> None:
    asked, _ = fleet()
    before = asked.server.version
    assert cancel(asked).verdict is CancelVerdict.NOTHING
    assert asked.server.version == before


def test_a_layout_that_the_gpus_have_stays_desired() -> None:
    asked, _ = fleet()
    asked.wish("sevenths")
    asked.pass_until(lambda: asked.agents["n0"].layout == "sevenths", within=300)
    asked.pass_until(lambda: not asked.open_leases(), within=300)
    before = condition(asked)
    assert cancel(asked).verdict is CancelVerdict.NOTHING
    assert condition(asked) == before
    assert keys.MIG_LAYOUT in before["annotations"]


def test_before_the_request_the_desired_layout_alone_goes() -> None:
    asked, before = fleet()
    asked.agents["n0"].is_away = True
    asked.annotate("n0", mig_layout="sevenths")
    decided = cancel(asked)
    assert decided.verdict is CancelVerdict.CANCELS
    assert decided.undone == (f"desired layout (annotation {keys.MIG_LAYOUT}): sevenths",)
    assert condition(asked) == before


def test_a_request_that_waits_for_a_slot_ends_as_cancelled() -> None:
    asked, before = fleet()
    asked.bind_pod("n0", "job", blocking=True)
    asked.wish("sevenths")
    asked.pass_time(20)
    assert cancel(asked).verdict is CancelVerdict.CANCELS
    over(asked)
    assert asked.agents["n0"].done[-1][1] == "cancelled"
    asked.end_pod("job")
    asked.pass_time(300)
    assert condition(asked) == before
    assert asked.agents["n0"].layout == "whole"


@pytest.mark.parametrize("modes", [False, True])
@pytest.mark.parametrize("agent", ["runs", "is away"])
def test_behind_the_cordon_all_is_put_back_also_without_its_agent(agent: str, modes: bool) -> None:
    asked, before = fleet(modes=modes)
    asked.wish("sevenths")
    reach(asked, CORDONED)
    if agent == "is away":
        asked.agents["n0"].is_away = True
        asked.pass_time(2)
    decided = cancel(asked)
    assert decided.verdict is CancelVerdict.CANCELS
    assert {"cordon", "slot mig-slot-0"} <= set(decided.undone)
    asked.pass_time(SOON)
    assert condition(asked) == before
    assert not asked.open_leases()
    asked.pass_time(400)
    assert condition(asked) == before
    assert asked.agents["n0"].layout == "whole"
    if agent == "is away":
        assert left(asked) == ()
    assert list(violations(asked)) == []


def test_paused_parts_of_the_gpu_operator_go_on() -> None:
    asked, before = fleet(modes=True)
    asked.wish("sevenths")
    asked.pass_until(
        lambda: asked.node("n0")["metadata"]["labels"][PLUGIN] == PAUSED, within=200, step=0.25
    )
    assert CORDONED in asked.notes("n0")[keys.MIG_PERMIT]
    decided = cancel(asked)
    assert f"paused label {PLUGIN}" in decided.undone
    over(asked)
    assert condition(asked) == before


@pytest.mark.parametrize("change_seconds", [20.0, 100.0])
@pytest.mark.parametrize("end", ["applied", "rolled-back"])
def test_a_change_that_has_begun_goes_on_to_its_end(end: str, change_seconds: float) -> None:
    asked, before = fleet()
    asked.agents["n0"].ends = [end]
    asked.agents["n0"].change_seconds = change_seconds
    asked.wish("sevenths")
    reach(asked, PROCEED)
    asked.pass_until(lambda: bool(asked.agents["n0"].changes_until), within=10)
    decided = cancel(asked)
    assert decided.verdict is CancelVerdict.BEGUN
    assert "(sevenths)" in decided.text
    assert PROCEED in asked.notes("n0")[keys.MIG_PERMIT], "it is never taken back"
    asked.pass_time(change_seconds / 2)
    assert left(asked)[0] == "the change goes on to its end"
    assert asked.is_cordoned("n0")
    over(asked, within=300)
    assert condition(asked) == before
    asked.pass_time(1000)
    assert [it for _, it in asked.agents["n0"].done] == [end], "no further attempt"
    assert asked.agents["n0"].layout == ("sevenths" if end == "applied" else "whole")
    assert list(violations(asked)) == []


def test_a_stuck_change_is_left_to_a_person() -> None:
    asked, _ = fleet()
    asked.agents["n0"].ends = ["stuck"]
    asked.wish("sevenths")
    asked.pass_until(lambda: bool(asked.agents["n0"].done), within=300)
    asked.pass_time(20)
    before = condition(asked)
    decided = cancel(asked)
    assert decided.verdict is CancelVerdict.STUCK
    assert condition(asked) == before
    assert before["cordoned"]


@pytest.mark.parametrize("modes", [False, True])
def test_where_no_coordinator_acts_the_command_puts_the_node_back(modes: bool) -> None:
    asked, before = fleet(modes=modes)
    asked.wish("sevenths")
    reach(asked, CORDONED)
    stop_coordinator(asked)
    decided = cancel(asked)
    assert decided.verdict is CancelVerdict.CANCELS
    assert condition(asked) == before
    asked.pass_time(10)
    assert left(asked) == ()
    del asked.run_coordinator
    asked.start_coordinator()
    asked.pass_time(100)
    assert condition(asked) == before
    assert not asked.open_leases()
    assert asked.agents["n0"].layout == "whole"


@pytest.mark.parametrize("minutes", [1, 200])
def test_a_cordon_that_kured_counts_on_is_left_to_the_next_coordinator(minutes: int) -> None:
    """As long as its announcement counts for a coordinator."""
    asked, _ = fleet()
    asked.wish("sevenths")
    reach(asked, CORDONED)
    stop_coordinator(asked)
    announced = rfc3339.whole_seconds(asked.now - 60.0 * minutes)
    asked.edit(
        "n0", {"metadata": {"annotations": {"weave.works/kured-reboot-in-progress": announced}}}
    )

    answer = cancel(asked)

    is_kept = minutes == 1
    assert asked.is_cordoned("n0") is is_kept
    assert any("kured" in note for note in answer.notes) is is_kept
    assert keys.MIG_LAYOUT not in asked.notes("n0")


def test_where_no_coordinator_acts_a_change_that_may_have_begun_is_left_alone() -> None:
    asked, _ = fleet()
    asked.wish("sevenths")
    reach(asked, CORDONED)
    asked.agents["n0"].is_away = True
    reach(asked, PROCEED)
    stop_coordinator(asked)
    decided = cancel(asked)
    assert decided.verdict is CancelVerdict.BEGUN
    assert asked.is_cordoned("n0")
    assert PROCEED in asked.notes("n0")[keys.MIG_PERMIT]


def test_what_may_not_be_known_is_left_alone() -> None:
    """Without the right to read Leases nobody knows whether a coordinator acts."""
    asked, _ = fleet()
    asked.wish("sevenths")
    reach(asked, CORDONED)
    stop_coordinator(asked)
    person = FakeApi(asked.server, manager="kubectl")
    person.fail("watch", Forbidden("no"), resource=LEASES, times=None)
    cancel(asked, api=person)
    assert asked.is_cordoned("n0")
    assert keys.MIG_LAYOUT not in asked.notes("n0")


@pytest.mark.parametrize("coordinator", ["acts", "is gone"])
def test_a_cordon_of_somebody_else_stays(coordinator: str) -> None:
    asked, _ = fleet()
    asked.cordon("n0")
    asked.annotate("n0", keep_cordoned="")
    asked.wish("sevenths")
    reach(asked, CORDONED)
    asked.annotate("n0", keep_cordoned=None)
    if coordinator == "is gone":
        stop_coordinator(asked)
    decided = cancel(asked)
    assert "cordon" not in decided.undone
    asked.pass_time(SOON)
    assert asked.is_cordoned("n0")
    assert keys.MIG_PERMIT not in asked.notes("n0")
    assert list(violations(asked)) == []


def write_policy(asked: AskedFleet, *, paused: bool = False) -> None:
    text = "version: v1\nlayouts:\n- {name: all, nodes: pool=a, layout: sevenths}\n"
    data = {"policy.yaml": text + ("paused: true\n" if paused else "")}
    body = {"metadata": {"name": names.MIG_POLICY}, "data": data}
    asked.server.create(CONFIG_MAPS, body, names.NAMESPACE)


def test_nothing_is_written_where_the_fleet_policy_would_write_it_again() -> None:
    asked, _ = fleet()
    write_policy(asked)
    asked.wish("sevenths")
    asked.pass_time(4)
    before = condition(asked)
    decided = cancel(asked)
    assert decided.verdict is CancelVerdict.REFUSED
    assert "entry all " in decided.text
    assert decided.command == "kubectl -n gpuscape edit configmap gpuscape-mig-policy"
    assert condition(asked) == before


def test_a_policy_that_is_paused_is_named_and_writes_nothing() -> None:
    asked, before = fleet()
    write_policy(asked, paused=True)
    asked.wish("sevenths")
    decided = cancel(asked)
    assert decided.verdict is CancelVerdict.CANCELS
    assert any("the fleet policy is paused" in it for it in decided.notes)
    asked.pass_time(SOON)
    assert condition(asked) == before


def test_a_policy_that_may_not_be_read_refuses() -> None:
    asked, _ = fleet()
    asked.wish("sevenths")
    person = FakeApi(asked.server, manager="kubectl")
    person.fail("get", Forbidden("no"), resource=CONFIG_MAPS, times=None)
    decided = cancel(asked, api=person)
    assert decided.verdict is CancelVerdict.REFUSED
    assert "get configmaps" in decided.text
    assert keys.MIG_LAYOUT in asked.notes("n0")


@pytest.mark.parametrize(
    ("labels", "unadopted", "goes"),
    [
        ({keys.MIG_CONFIG: "all-balanced"}, "", True),
        ({keys.MIG_CONFIG: "all-balanced"}, "all-balanced", False),
        ({keys.MIG_CONFIG: "all-balanced", keys.MIG_ADOPT: "never"}, "", False),
    ],
)
def test_a_label_that_would_be_obeyed_next_goes_too(
    labels: dict[str, str], unadopted: str, goes: bool
) -> None:
    asked, _ = fleet()
    asked.agents["n0"].is_away = True
    status = MigStatusAnnotation(v=2, phase="planned", unadopted=unadopted)
    notes = {
        keys.MIG_LAYOUT: "sevenths",
        keys.MIG_STATUS: mig_status_annotation.encode(status),
    }
    asked.edit("n0", {"metadata": {"annotations": notes, "labels": labels}})
    assert cancel(asked).verdict is CancelVerdict.CANCELS
    assert keys.MIG_LAYOUT not in asked.notes("n0")
    assert (keys.MIG_CONFIG not in asked.node("n0")["metadata"]["labels"]) is goes


def test_a_dry_run_writes_nothing() -> None:
    asked, _ = fleet()
    asked.wish("sevenths")
    reach(asked, CORDONED)
    before = asked.server.version
    assert cancel(asked, dry_run=True).verdict is CancelVerdict.CANCELS
    assert asked.server.version == before


def test_a_permit_that_comes_at_the_same_time_is_not_passed_over() -> None:
    """The write is for the Node as it was read: then all is decided anew."""
    asked, before = fleet()
    asked.wish("sevenths")
    reach(asked, CORDONED)
    person = FakeApi(asked.server, manager="kubectl")
    raced: list[str] = []

    def race(_call: Call) -> None:
        if not raced:
            raced.append("once")
            reach(asked, PROCEED)
            asked.pass_until(lambda: bool(asked.agents["n0"].changes_until), within=10)

    person.before("patch", race, resource=NODES)
    decided = cancel(asked, api=person)
    assert raced
    assert decided.verdict is CancelVerdict.BEGUN
    asked.pass_until(lambda: not asked.open_leases(), within=300)
    assert condition(asked) == before
    assert asked.agents["n0"].layout == "sevenths"


def test_a_missing_right_is_named() -> None:
    asked, _ = fleet()
    asked.wish("sevenths")
    person = FakeApi(asked.server, manager="kubectl")
    person.fail("patch", Forbidden("nodes is forbidden"), resource=NODES)
    with pytest.raises(CommandFailure, match="you may not patch nodes: nodes is forbidden"):
        cancel(asked, api=person)


def test_a_node_that_changes_all_the_time_ends_the_command() -> None:
    asked, _ = fleet()
    asked.wish("sevenths")
    person = FakeApi(asked.server, manager="kubectl")
    person.fail("patch", Conflict("409"), resource=NODES, times=None)
    with pytest.raises(Exception, match="changes too often"):
        cancel(asked, api=person)
