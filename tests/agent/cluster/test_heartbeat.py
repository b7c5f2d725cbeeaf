# SPDX-License-Identifier: Apache-2.0
"""The Lease: renewed, left and taken over so that no two agents write for one node."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.cluster.heartbeat import CHECK_SECONDS, RENEW_SECONDS, Heartbeat, State
from kube.api import LEASES, NODES, Object
from kube.api_errors import (
    AdmissionRefused,
    ApiError,
    Busy,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
    Unreachable,
)
from tests.fakes.api import Call, FakeApi, Server
from tests.fakes.thread_limit import allow_threads
from tests.log_lines import log_lines

NODE = "node-a"
NAME = "gpuscape-node-a"
TOPOLOGY = "gpuscape.io/topology"
STATE = "gpuscape.io/state"
START = 1000.0


def always(text: str) -> State:
    """A state that does not ask what stood there before."""
    return lambda _shown: text


@dataclass
class World:
    """An API server with one Node, and a clock for all of its agents."""

    server: Server = field(default_factory=Server)
    now: float = START
    wall: datetime = datetime(2026, 11, 20, 8, tzinfo=UTC)

    def __post_init__(self) -> None:
        shown = {TOPOLOGY: "{}"}  # an agent has been here
        self.server.create(NODES, {"metadata": {"name": NODE, "annotations": shown}})

    def agent(self, identity: str = "pod-1") -> Agent:
        """One that has done nothing yet."""
        return Agent(self, identity)

    def node(self) -> Object | None:
        """As a watch shows it."""
        return next(iter(self.server.objects(NODES)), None)

    @property
    def lease(self) -> Object:
        """As it is on the server."""
        return self.server.get(LEASES, NAME, "gpuscape")

    @property
    def state(self) -> str | None:
        """The annotation on it."""
        found: str | None = self.lease["metadata"].get("annotations", {}).get(STATE)
        return found

    def edit(self, patch: Object) -> None:
        """Somebody writes the Lease by hand."""
        self.server.patch(LEASES, NAME, patch, "gpuscape")


class Agent:
    """One agent's heartbeat, beaten when it asks to be."""

    def __init__(self, world: World, identity: str) -> None:
        self.world = world
        self.api = FakeApi(world.server)
        self.heart = Heartbeat(
            self.api,
            node_name=NODE,
            node=world.node,
            identity=identity,
            clock=lambda: world.now,
            wall=lambda: world.wall,
            uniform=lambda _, most: most,
        )
        self.due = world.now

    @property
    def holds(self) -> bool:
        """Whether it may write."""
        return self.heart.holds

    def beat(self) -> float:
        """One beat, now."""
        wait = self.heart.beat(self.world.now)
        self.due = self.world.now + wait
        return wait

    def run(self, seconds: float) -> None:
        """Beat whenever it is due within this time."""
        run([self], seconds)


def run(agents: list[Agent], seconds: float) -> None:
    """Let time go on, with each agent beating when it is due."""
    world = agents[0].world
    end = world.now + seconds
    while (first := min(agents, key=lambda agent: agent.due)).due <= end:
        pass_time(world, first.due - world.now)
        first.beat()
    pass_time(world, end - world.now)


def pass_time(world: World, seconds: float) -> None:
    """On all clocks alike."""
    world.now += max(0.0, seconds)
    world.wall += timedelta(seconds=max(0.0, seconds))


@pytest.fixture
def world() -> World:
    """Without a Lease."""
    return World()


# one agent


def test_a_lease_is_made_for_the_node(world: World) -> None:
    """With the node's UID, so that it goes with the node, and without blocking that."""
    agent = world.agent()
    agent.heart.show(always("{}"))

    wait = agent.beat()

    lease = world.lease
    node = world.node() or {}
    assert (wait, agent.holds) == (RENEW_SECONDS, True)
    assert lease["spec"] == {
        "holderIdentity": "pod-1",
        "leaseDurationSeconds": 180,
        "acquireTime": "2026-11-20T08:00:00.000000Z",
        "renewTime": "2026-11-20T08:00:00.000000Z",
        "leaseTransitions": 0,
    }
    assert lease["metadata"]["annotations"] == {STATE: "{}"}
    assert lease["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node["metadata"]["uid"]}
    ]


def test_on_a_node_that_no_agent_has_touched_it_is_made_without_a_look(world: World) -> None:
    world.server.patch(NODES, NODE, {"metadata": {"annotations": None}})
    agent = world.agent()

    agent.beat()

    assert ([call.verb for call in agent.api.calls], agent.holds) == (["create"], True)


def test_one_that_is_there_all_the_same_is_then_looked_at(world: World) -> None:
    first = world.agent("pod-1")
    first.beat()
    world.server.patch(NODES, NODE, {"metadata": {"annotations": None}})
    second = world.agent("pod-2")

    second.beat()

    assert ([call.verb for call in second.api.calls], second.holds) == (["create", "get"], False)


def test_it_is_renewed_once_a_minute_and_nothing_else_is_asked(world: World) -> None:
    """Sixty requests in an hour, and the first one that finds no Lease."""
    agent = world.agent()
    agent.heart.show(always("{}"))

    agent.run(3599)

    assert [call.verb for call in agent.api.calls] == ["get", "create"] + ["patch"] * 59
    assert world.lease["spec"]["renewTime"] == "2026-11-20T08:59:00.000000Z"
    assert all(set(call.body or {}) == {"metadata", "spec"} for call in agent.api.writes()[1:])
    assert all(
        "annotations" not in (call.body or {})["metadata"] for call in agent.api.writes()[1:]
    )


def test_a_new_state_is_written_at_once_with_the_heartbeat(world: World) -> None:
    """One request for both; the next renewal is a minute later."""
    agent = world.agent()
    agent.run(10)

    agent.heart.show(always("one"))
    wait = agent.beat()

    assert (world.state, wait) == ("one", RENEW_SECONDS)
    assert world.lease["spec"]["renewTime"] == "2026-11-20T08:00:10.000000Z"


def test_states_are_written_two_seconds_apart_and_the_last_one_counts(world: World) -> None:
    """However often they change."""
    agent = world.agent()
    agent.beat()
    written = []
    for at in range(40):
        agent.heart.show(always(f"state {at}"))
        agent.due = world.now  # as whoever has a new state hastens the beat
        agent.run(0.125)
        written.append(world.state)

    agent.run(2)

    assert [state for state, _ in itertools.groupby(written)] == ["state 0", "state 15", "state 31"]
    assert world.state == "state 39"


def test_a_state_that_is_there_is_not_written_again(world: World) -> None:
    """After a restart of the agent, say; it is told, to follow on."""
    before = world.agent()
    before.heart.show(always("one"))
    before.beat()
    after = world.agent()

    after.beat()
    seen = after.heart.shown
    after.heart.show(always("one"))
    after.beat()

    assert seen == "one"
    assert [call.verb for call in after.api.calls] == ["get", "patch"]
    assert STATE not in str(after.api.writes()[0].body)


def test_a_container_started_anew_goes_on_at_once(world: World) -> None:
    """Its pod is the same, so the Lease is its own: no takeover, no waiting."""
    world.agent().beat()
    again = world.agent()

    again.beat()

    assert again.holds
    assert world.lease["spec"]["leaseTransitions"] == 0


def test_without_its_node_no_lease_is_made(world: World) -> None:
    """It would belong to nothing; it is made as soon as there is one."""
    agent = world.agent()
    node = world.server.delete(NODES, NODE)

    agent.beat()
    asked = list(agent.api.calls)
    world.server.create(NODES, {"metadata": {"name": node["metadata"]["name"]}})
    agent.run(CHECK_SECONDS)

    assert asked == []
    assert agent.holds


def test_a_node_made_anew_gets_the_lease_over(world: World) -> None:
    """The garbage collector removes what belongs to the old one."""
    agent = world.agent()
    agent.run(10)
    old = world.lease["metadata"]["uid"]
    world.server.delete(NODES, NODE)
    uid = world.server.create(NODES, {"metadata": {"name": NODE}})["metadata"]["uid"]

    agent.beat()

    assert world.lease["metadata"]["uid"] == old
    assert [owner["uid"] for owner in world.lease["metadata"]["ownerReferences"]] == [uid]


def test_a_lease_removed_with_its_node_is_made_anew(world: World) -> None:
    """Until then nobody may write. The state is on it from the start."""
    agent = world.agent()
    agent.heart.show(always("one"))
    agent.run(10)
    world.server.delete(NODES, NODE)
    world.server.delete(LEASES, NAME, "gpuscape")
    world.server.create(NODES, {"metadata": {"name": NODE}})

    agent.run(RENEW_SECONDS - 10)
    held = agent.holds
    agent.run(1)

    assert (held, agent.holds) == (False, True)
    assert world.lease["spec"]["holderIdentity"] == "pod-1"
    made = agent.api.writes()[-1]
    assert (made.verb, world.state) == ("create", "one")


def test_what_somebody_wrote_into_the_lease_is_put_right(world: World) -> None:
    """Within a minute: state, duration and owner."""
    agent = world.agent()
    agent.heart.show(always("right"))
    agent.beat()
    good = world.lease
    world.edit(
        {
            "metadata": {"annotations": {STATE: "wrong"}, "ownerReferences": None},
            "spec": {"leaseDurationSeconds": 5},
        }
    )

    agent.run(RENEW_SECONDS + 1)

    assert world.state == "right"
    assert world.lease["spec"]["leaseDurationSeconds"] == 180
    assert world.lease["metadata"]["ownerReferences"] == good["metadata"]["ownerReferences"]
    assert agent.holds


# failures


@pytest.mark.parametrize("verb", ["get", "create", "patch"])
@pytest.mark.parametrize(
    "error",
    [
        Unreachable("no route"),
        Busy("429", retry_after_seconds=7),
        Busy("503"),
        Unauthorized("401"),
        NotFound('namespaces "gpuscape" not found'),
        Forbidden("403"),
        AdmissionRefused("denied", policy="gpuscape-agent-lease"),
        Invalid("422"),
    ],
)
def test_after_any_failure_the_lease_is_held_in_the_end(
    world: World, verb: str, error: ApiError
) -> None:
    """Tried again after a wait, which the server may ask to be longer; no failure is raised."""
    agent = world.agent()
    agent.api.fail(verb, error, times=3, resource=LEASES)

    agent.run(200)

    assert (agent.holds, agent.heart.failure) == (True, None)
    assert world.lease["spec"]["holderIdentity"] == "pod-1"


def test_waits_double_up_to_a_minute_with_what_the_server_asks_on_top(world: World) -> None:
    """The longest that may be drawn, here; told once."""
    agent = world.agent()
    agent.api.fail("*", Busy("429", retry_after_seconds=7), times=None)

    waits = [agent.beat() for _ in range(8)]

    assert waits == [8, 9, 11, 15, 23, 39, 67, 67]
    assert str(agent.heart.failure) == "429"


def test_a_failure_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """And so is its end."""
    caplog.set_level(logging.INFO, "agent.cluster.heartbeat")
    agent = world.agent()
    agent.api.fail("*", Unreachable("no route"), times=5)

    agent.run(300)

    assert caplog.messages == ["Lease not written", "Lease acquired"]
    assert getattr(caplog.records[0], "why", None) == "no route"


def test_what_becomes_of_the_lease_is_logged_once_each(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agent.cluster.heartbeat")
    first, second = world.agent("pod-1"), world.agent("pod-2")
    first.beat()
    second.run(30)
    first.run(120)
    second.run(30)
    second.run(180 + CHECK_SECONDS)
    first.run(2 * RENEW_SECONDS)
    first.beat()
    found = log_lines(caplog)
    assert [line for line in found if line[1] != "Lease not written"] == [
        ("INFO", "Lease acquired", {"lease": NAME}),
        ("WARNING", "Lease held by another agent", {"lease": NAME, "holder": "pod-1"}),
        ("INFO", "Lease acquired", {"lease": NAME}),
        ("WARNING", "Lease held by another agent", {"lease": NAME, "holder": "pod-2"}),
    ]
    (lost,) = [line for line in found if line[1] == "Lease not written"]
    assert (lost[0], set(lost[2])) == ("WARNING", {"lease", "why"})
    assert "version" in lost[2]["why"]


def test_a_lease_that_cannot_be_emptied_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agent.cluster.heartbeat")
    agent = world.agent()
    agent.beat()
    agent.api.fail("patch", Unreachable("no route"))
    agent.heart.leave()
    assert log_lines(caplog)[1:] == [("INFO", "Lease not released", {"why": "no route"})]
    assert agent.beat() == RENEW_SECONDS  # and nothing is asked any more
    assert len(agent.api.writes()) == 2


@pytest.mark.parametrize("verb", ["create", "patch"])
def test_a_write_whose_answer_was_lost_is_looked_at_before_the_next(
    world: World, verb: str
) -> None:
    """It happened: nothing is written twice over, and the Lease stays ours."""
    agent = world.agent()
    agent.api.lose_reply(verb)
    agent.heart.show(always("one"))

    agent.run(RENEW_SECONDS + 5)

    assert agent.holds
    assert world.state == "one"
    verbs = [call.verb for call in agent.api.calls]
    assert verbs[verbs.index(verb) + 1] == "get"


def test_the_right_to_write_ends_before_another_may_take_it(world: World) -> None:
    """150 seconds after the last renewal was sent; others wait 180 from when they saw it."""
    agent = world.agent()
    agent.beat()
    agent.api.fail("*", Unreachable("no route"), times=None)

    agent.run(149)
    before = agent.holds
    agent.run(2)

    assert (before, agent.holds) == (True, False)


def test_the_right_to_write_counts_from_the_request_and_not_from_its_answer(world: World) -> None:
    """Others saw the renewal when it arrived, which may have been long before."""
    agent = world.agent()
    agent.api.after("create", slow(world, 100))
    agent.beat()

    pass_time(world, 49)
    before = agent.holds
    pass_time(world, 2)

    assert (before, agent.holds) == (True, False)


def slow(world: World, seconds: float) -> Callable[[Call], None]:
    """A request, or its answer, takes time."""
    return lambda _: pass_time(world, seconds)


def test_after_an_outage_the_lease_is_ours_again(world: World) -> None:
    """An hour of it, and nobody else took it: within a minute."""
    agent = world.agent()
    agent.beat()
    agent.api.fail("*", Unreachable("no route"), times=None)
    agent.run(3600)
    agent.api.heal()

    agent.run(60)

    assert agent.holds


def test_a_state_that_is_refused_does_not_stop_the_heartbeat(world: World) -> None:
    """It is tried again now and then, since the policy may be what is wrong."""
    agent = world.agent()
    agent.api.refuse("gpuscape-agent-lease", lambda call: "too long" in str(call.body))
    agent.heart.show(always("too long"))

    agent.run(600)
    renewed, held = world.lease["spec"]["renewTime"], agent.holds
    agent.api.heal()
    agent.run(120)

    assert held
    assert renewed > "2026-11-20T08:08:00"
    assert world.state == "too long"


# several agents


def test_a_second_agent_only_reads(world: World) -> None:
    """As long as the first one renews; it says whose turn it is."""
    first, second = world.agent("pod-1"), world.agent("pod-2")
    first.beat()
    second.heart.show(always("other"))

    run([first, second], 1000)

    assert (first.holds, second.holds) == (True, False)
    assert second.heart.other == "pod-1"
    assert {call.verb for call in second.api.calls} == {"get"}


def test_a_conflict_ends_the_right_to_write_at_once(world: World) -> None:
    """Somebody wrote the Lease since it was read, perhaps to take it: it is read before more."""
    agent = world.agent()
    agent.beat()
    before = agent.holds
    world.edit({"spec": {"holderIdentity": "pod-2"}})

    agent.heart.show(always("mine"))
    agent.beat()

    assert isinstance(agent.heart.failure, Conflict)
    assert (before, agent.holds, world.state) == (True, False, None)


def test_a_conflict_over_a_lease_that_is_still_ours_costs_the_right_for_one_beat(
    world: World,
) -> None:
    """Somebody wrote into it and left the holder as it was."""
    agent = world.agent()
    agent.beat()
    world.edit({"metadata": {"annotations": {"note": "mine"}}})

    agent.heart.show(always("one"))
    wait = agent.beat()
    between = agent.holds
    agent.run(wait)

    assert (between, agent.holds, world.state) == (False, True, "one")


def test_reading_its_own_lease_after_a_failure_costs_no_right_to_write(world: World) -> None:
    """Nobody else holds it: the right ends with its time alone."""
    agent = world.agent()
    agent.beat()
    agent.api.fail("patch", Unreachable("no route"), times=None)

    agent.run(RENEW_SECONDS + 60)

    assert "get" in [call.verb for call in agent.api.calls[-2:]]
    assert agent.holds


def test_who_left_is_followed_at_the_next_look(world: World) -> None:
    """The Lease is empty then; the state on it stays until there is a newer one."""
    first, second = world.agent("pod-1"), world.agent("pod-2")
    first.heart.show(always("one"))
    run([first, second], 30)

    first.heart.leave()
    left = world.lease["spec"]["holderIdentity"]
    second.run(CHECK_SECONDS)

    assert (left, first.holds, second.holds) == ("", False, True)
    assert world.lease["spec"]["holderIdentity"] == "pod-2"
    assert world.lease["spec"]["leaseTransitions"] == 1
    assert (world.state, second.heart.shown) == ("one", "one")


def test_who_left_writes_nothing_more(world: World) -> None:
    """Not even for a beat that is still due."""
    agent = world.agent()
    agent.beat()
    agent.heart.leave()
    asked = len(agent.api.calls)

    agent.run(500)

    assert (agent.holds, len(agent.api.calls)) == (False, asked)


def test_who_does_not_hold_the_lease_leaves_it_alone(world: World) -> None:
    """When it ends: there is nothing to ask."""
    first, second = world.agent("pod-1"), world.agent("pod-2")
    run([first, second], 1)
    asked = len(second.api.calls)

    second.heart.leave()

    assert len(second.api.calls) == asked
    assert world.lease["spec"]["holderIdentity"] == "pod-1"


def test_a_lease_that_was_taken_away_meanwhile_is_not_emptied(world: World) -> None:
    """It is looked at after a failure, and is somebody else's."""
    agent = world.agent()
    agent.beat()
    agent.api.fail("patch", Unreachable("no route"))
    agent.run(RENEW_SECONDS)
    world.edit({"spec": {"holderIdentity": "somebody"}})

    agent.heart.leave()

    assert world.lease["spec"]["holderIdentity"] == "somebody"


def test_leaving_during_a_failure_looks_first(world: World) -> None:
    """What is known of the Lease may be old."""
    agent = world.agent()
    agent.beat()
    agent.api.lose_reply("patch")
    agent.run(RENEW_SECONDS)

    agent.heart.leave()

    assert world.lease["spec"]["holderIdentity"] == ""


def test_leaving_takes_no_longer_than_it_may(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server does not answer at all."""
    monkeypatch.setattr("agent.cluster.heartbeat.LEAVE_SECONDS", 0.05)
    agent = world.agent()
    agent.beat()
    answered = threading.Event()

    def hang(_: Call) -> None:
        answered.wait()

    agent.api.before("patch", hang)

    agent.heart.leave()
    held = world.lease["spec"]["holderIdentity"]
    answered.set()

    assert (held, agent.holds) == ("pod-1", False)


def test_leaving_while_the_first_request_is_on_its_way_empties_what_it_made(world: World) -> None:
    """Else nobody would hold the Lease, and the next agent wait for its 180 seconds."""
    agent = world.agent()
    asked, answer = threading.Event(), threading.Event()

    def hang(_: Call) -> None:
        asked.set()
        answer.wait()

    agent.api.before("create", hang)
    beating = threading.Thread(target=agent.beat)
    beating.start()
    asked.wait()
    leaving = threading.Thread(target=agent.heart.leave)
    leaving.start()
    answer.set()
    for thread in (beating, leaving):
        thread.join()

    assert (world.lease["spec"]["holderIdentity"], agent.holds) == ("", False)


def test_leaving_without_a_thread_for_it_leaves_the_lease_to_expire(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent = world.agent()
    agent.beat()
    allow_threads(monkeypatch, 0)

    with caplog.at_level(logging.INFO):
        agent.heart.leave()

    assert (world.lease["spec"]["holderIdentity"], agent.holds) == ("pod-1", False)
    assert [record.message for record in caplog.records] == ["Lease not released"]


def test_a_dead_agents_lease_is_taken_after_its_silence(world: World) -> None:
    """180 seconds from when the other saw its last renewal, not from when it was made."""
    first, second = world.agent("pod-1"), world.agent("pod-2")
    first.run(50)
    second.beat()

    second.run(180)
    before = second.holds
    second.run(CHECK_SECONDS)

    assert (before, second.holds) == (False, True)


def test_silence_counts_from_when_the_answer_came(world: World) -> None:
    """The Lease may have been renewed after the question was sent."""
    first, second = world.agent("pod-1"), world.agent("pod-2")
    first.beat()
    second.api.before("get", slow(world, 30), times=1)
    second.beat()

    second.run(180 - 30)
    before = second.holds
    second.run(30 + CHECK_SECONDS)

    assert (before, second.holds) == (False, True)


def test_a_deleted_lease_leaves_its_holder_the_time_to_notice(world: World) -> None:
    """The other knows that somebody held it lately."""
    first, second = world.agent("pod-1"), world.agent("pod-2")
    run([first, second], 30)
    world.server.delete(LEASES, NAME, "gpuscape")

    second.run(100)
    at_first = second.holds
    second.run(100)

    assert (at_first, second.holds) == (False, True)


@pytest.mark.parametrize("after_a_failure", [False, True])
def test_a_lease_that_was_taken_away_is_given_up_at_the_next_beat(
    world: World, after_a_failure: bool
) -> None:
    """By whom does not matter: the server refuses the renewal, or the Lease is looked at first."""
    agent = world.agent()
    agent.beat()
    if after_a_failure:
        agent.api.fail("patch", Unreachable("no route"))
        agent.run(RENEW_SECONDS)
    world.edit({"spec": {"holderIdentity": "somebody"}})

    agent.run(RENEW_SECONDS + 1)

    assert (agent.holds, agent.heart.other) == (False, "somebody")
    assert world.lease["spec"]["holderIdentity"] == "somebody"


@pytest.mark.parametrize("racing", ["create", "patch"])
def test_of_two_that_act_in_the_same_moment_one_gets_it(world: World, racing: str) -> None:
    """The other is refused by the server, and waits."""
    first, second = world.agent("pod-1"), world.agent("pod-2")
    if racing == "patch":
        third = world.agent("pod-3")
        third.beat()
        third.heart.leave()

    def overtake(_: Call) -> None:
        second.beat()

    first.api.before(racing, overtake, times=1, resource=LEASES)
    first.beat()
    between = (first.holds, second.holds)
    run([first, second], 100)

    assert between == (False, True)
    assert (first.holds, second.holds) == (False, True)


class Race(RuleBasedStateMachine):
    """Agents of one node start, beat, fail, die and leave in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.agents: list[Agent] = []
        self.asking: list[Agent] = []
        """In a request that takes its time."""
        self.started = itertools.count()

    @precondition(lambda self: len(self.agents) < 3)
    @rule()
    def start(self) -> None:
        """Another pod's agent."""
        self.agents.append(self.world.agent(f"pod-{next(self.started)}"))

    @precondition(lambda self: self.agents)
    @rule(seconds=st.sampled_from([0.5, 5, 29, 61, 150, 181]))
    def go_on(self, seconds: float) -> None:
        """All beat when they are due; between any two, none may write beside another."""
        end = self.world.now + seconds
        while self.world.now < end:
            run(self.agents, 0.5)
            self.one_holder_at_most()

    @precondition(lambda self: self.agents)
    @rule(data=st.data())
    def lose_requests(self, data: st.DataObject) -> None:
        """The link of one breaks, for requests or for their answers."""
        agent = data.draw(st.sampled_from(self.agents))
        times = data.draw(st.integers(1, 8))
        if data.draw(st.booleans()):
            agent.api.fail("*", Unreachable("no route"), times=times)
        else:
            agent.api.lose_reply(data.draw(st.sampled_from(["create", "patch"])), times=times)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), verb=st.sampled_from(["get", "create", "patch"]), late=st.booleans())
    def delay(self, data: st.DataObject, verb: str, late: bool) -> None:
        """A request of one takes half a minute, and the others go on meanwhile."""
        agent = data.draw(st.sampled_from(self.agents))

        def others_go_on(_: Call) -> None:
            self.asking.append(agent)
            free = [other for other in self.agents if other not in self.asking]
            run(free, 29) if free else pass_time(self.world, 29)
            self.asking.remove(agent)
            self.one_holder_at_most()

        plan = agent.api.after if late else agent.api.before
        plan(verb, others_go_on, times=1)

    @precondition(lambda self: self.agents)
    @rule(data=st.data())
    def hang(self, data: st.DataObject) -> None:
        """One does nothing for a while, and goes on as if nothing had been."""
        agent = data.draw(st.sampled_from(self.agents))
        agent.due = self.world.now + data.draw(st.sampled_from([10, 100, 200, 400]))

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), politely=st.booleans())
    def end(self, data: st.DataObject, politely: bool) -> None:
        """One ends, with or without leaving; the dead write nothing."""
        agent = data.draw(st.sampled_from(self.agents))
        self.agents.remove(agent)
        if politely:
            agent.heart.leave()

    @rule(seconds=st.integers(-100_000, 100_000))
    def set_the_clock(self, seconds: int) -> None:
        """Of the wall, which decides nothing."""
        self.world.wall += timedelta(seconds=seconds, microseconds=1)

    @invariant()
    def one_holder_at_most(self) -> None:
        """May write, that is."""
        assert sum(agent.holds for agent in self.agents) <= 1

    def teardown(self) -> None:
        """With a working link, whoever is left gets the Lease in the end."""
        if not self.agents:
            return
        for agent in self.agents:
            agent.api.heal()
            agent.due = self.world.now
        run(self.agents, 400)
        assert sum(agent.holds for agent in self.agents) == 1


TestRace = Race.TestCase


@pytest.mark.parametrize("was_there", [True, False])
def test_a_store_that_was_put_back_is_found_at_the_next_renewal(
    world: World, was_there: bool, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[float] = []
    agent = world.agent()
    agent.heart = Heartbeat(
        agent.api,
        node_name=NODE,
        node=world.node,
        identity="pod-1",
        rolled_back=lambda: found.append(world.now),
        clock=lambda: world.now,
        wall=lambda: world.wall,
        uniform=lambda _, most: most,
    )
    backup = world.server.backup()
    agent.run(10)
    if was_there:
        backup = world.server.backup()
    agent.run(5 * RENEW_SECONDS)
    assert found == []

    world.server.restore(backup)
    agent.run(RENEW_SECONDS + 5)
    assert len(found) == 1
    assert agent.holds
    agent.run(10 * RENEW_SECONDS)

    assert len(found) == 1
    assert [text for _, text, _ in log_lines(caplog)].count("API server's store rolled back") == 1
