# SPDX-License-Identifier: Apache-2.0
"""Whatever becomes of the extender, kube-scheduler goes on; the shipped profile says so to it."""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from api import keys, names
from tests.cluster.extender import Extender, extender
from tests.cluster.front import Front, Reply, silent, zeros
from tests.cluster.scheduling import GPU, Stage, configuration
from tests.controlplane.plane import MERGE_PATCH
from tests.controlplane.versions import VERSIONS

pytestmark = pytest.mark.cluster

DIRECT, FRONTED = "direct", "fronted"
"""Profiles of two schedulers: one asks the extender, the other what stands in its place."""

NODES = ("node-0", "node-1", "node-2")

GARBAGE = {
    "nothing": b"",
    "null": b"null",
    "an object": b"{}",
    "half a list": b'[{"Host": "node-0", "Sc',
    "no JSON": b"<html><body>Bad gateway</body></html>",
    "zeros": bytes(1 << 20),
    "a float": b'[{"Host": "node-0", "Score": 5.5}]',
    "a text": b'[{"Host": "node-0", "Score": "10"}]',
    "more than an int64": b'[{"Host": "node-0", "Score": 99999999999999999999}]',
    "a number that overflows": b'[{"Host": "node-0", "Score": 4611686018427387904}]',
    "less than nothing": b'[{"Host": "node-0", "Score": -7}]',
    "another's node": b'[{"Host": "elsewhere", "Score": 10}]',
    "a node twice": b'[{"Host": "node-0", "Score": 10}, {"Host": "node-0", "Score": 10}]',
}

ERRORS = {
    "bad request": Reply(body=b"[]", status=400),
    "not let in": Reply(body=b"[]", status=403),
    "broken": Reply(body=b"[]", status=500),
    "away": Reply(body=b"[]", status=503),
    "a dropped connection": None,
}


@pytest.fixture(scope="module", params=VERSIONS)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with Stage.running(tmp_path_factory.mktemp("stage"), request.param) as made:
        for name in NODES:
            made.plane.make_node(name, capacity={GPU: "1000"})
        yield made


@pytest.fixture(scope="module")
def front(stage: Stage) -> Iterator[Front]:
    made = Front(stage.server, silent)
    with made.serving() as address:
        configured = configuration(
            address, stage.client, profile=FRONTED, leads=False, timeout="1s"
        )
        stage.start_scheduler(configured, FRONTED)
        yield made


@pytest.fixture(scope="module")
def direct(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    with extender(stage, tmp_path_factory.mktemp("extender")) as made:
        configured = configuration(made.address, stage.client, profile=DIRECT, leads=False)
        stage.start_scheduler(configured, DIRECT)
        yield made


def test_the_extender_decides_among_nodes_that_are_alike(stage: Stage, front: Front) -> None:
    """Or else the tests below would say nothing."""
    best = iter((*NODES, *NODES))

    def answer(_path: str, _body: bytes) -> Reply:
        return Reply(body=json.dumps([{"Host": next(best), "Score": 10}]).encode())

    front.answer = answer

    assert [stage.placed(stage.add_pod(1, scheduler=FRONTED)) for _ in range(6)] == [*NODES, *NODES]


def test_scores_below_0_count_against_a_node_and_those_left_out_are_0(
    stage: Stage, front: Front
) -> None:
    """So an answer about very many nodes may have the differences alone."""
    best = iter((*NODES, *NODES))

    def answer(_path: str, _body: bytes) -> Reply:
        chosen = next(best)
        others = [{"Host": node, "Score": -4} for node in NODES if node != chosen]
        return Reply(body=json.dumps(others).encode())

    front.answer = answer

    assert [stage.placed(stage.add_pod(1, scheduler=FRONTED)) for _ in range(6)] == [*NODES, *NODES]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_senseless_answer_stops_no_pod(stage: Stage, front: Front, garbage: str) -> None:
    front.answer = lambda _path, _body: Reply(body=GARBAGE[garbage])

    pod = stage.add_pod(1, scheduler=FRONTED)

    assert stage.placed(pod) in NODES
    assert front.called_for(pod)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_stops_no_pod(stage: Stage, front: Front, error: str) -> None:
    front.answer = lambda _path, _body: ERRORS[error]

    pod = stage.add_pod(1, scheduler=FRONTED)

    assert stage.placed(pod) in NODES
    assert front.called_for(pod)


def test_an_answer_that_never_comes_stops_no_pod(stage: Stage, front: Front) -> None:
    over = threading.Event()

    def answer(path: str, body: bytes) -> Reply | None:
        over.wait()
        return zeros(path, body)

    front.answer = answer
    try:
        pods = [stage.add_pod(1, scheduler=FRONTED) for _ in range(3)]

        assert {stage.placed(pod) for pod in pods} <= set(NODES)
        assert all(front.called_for(pod) for pod in pods)
    finally:
        over.set()


def test_a_pod_without_gpus_is_none_of_its_business(stage: Stage, front: Front) -> None:
    front.answer = silent

    pod = stage.add_pod(0, scheduler=FRONTED)

    assert stage.placed(pod) in NODES
    assert not front.called_for(pod)


def test_a_node_that_is_the_only_one_left_is_taken_unasked(stage: Stage, front: Front) -> None:
    front.answer = silent

    pod = stage.add_pod(
        1, scheduler=FRONTED, spec={"nodeSelector": {"kubernetes.io/hostname": NODES[1]}}
    )

    assert stage.placed(pod) == NODES[1]
    assert not front.called_for(pod)


def test_pods_are_bound_while_the_extender_is_dead_and_when_it_is_back(
    stage: Stage, direct: Extender
) -> None:
    before = stage.placed(stage.add_pod(2, scheduler=DIRECT))
    direct.kill()
    meanwhile = [stage.placed(stage.add_pod(2, scheduler=DIRECT)) for _ in range(3)]
    direct.start_again()
    after = stage.placed(stage.add_pod(2, scheduler=DIRECT))

    assert {before, *meanwhile, after} <= set(NODES)


def test_pods_are_bound_while_the_extender_is_stopped(stage: Stage, direct: Extender) -> None:
    """It holds its connections then, and answers nothing."""
    direct.signal(signal.SIGSTOP)
    try:
        pods = [stage.add_pod(2, scheduler=DIRECT) for _ in range(3)]

        assert {stage.placed(pod) for pod in pods} <= set(NODES)
    finally:
        direct.signal(signal.SIGCONT)


def test_pods_are_bound_while_the_extender_is_sent_garbage(stage: Stage, direct: Extender) -> None:
    """A busy machine's limits of time may end a request too, but none is taken."""
    over = threading.Event()
    said: set[int | str] = set()

    def pour() -> None:
        while not over.is_set():
            for body in GARBAGE.values():
                try:
                    said.add(direct.ask("POST", "/v1/prioritize", body)[0])
                except (OSError, http.client.HTTPException) as error:
                    said.add(repr(error))

    pouring = threading.Thread(target=pour)
    pouring.start()
    try:
        pods = [stage.add_pod(2, scheduler=DIRECT) for _ in range(5)]

        assert {stage.placed(pod) for pod in pods} <= set(NODES)
    finally:
        over.set()
        pouring.join()
    assert HTTPStatus.BAD_REQUEST in said
    assert HTTPStatus.OK not in said
    assert {direct.ask("POST", "/v1/prioritize", body)[0] for body in GARBAGE.values()} == {400}


@pytest.mark.parametrize(
    "text", ["", "{", '{"v":2}', '{"v":1,"gen":"0123456789","n":-1}', "\u0000" * 9]
)
def test_pods_are_bound_while_annotations_are_damaged(
    stage: Stage, direct: Extender, text: str
) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/gpuscape/leases"
    for node in NODES:
        damaged = {"metadata": {"annotations": {keys.TOPOLOGY: text}}}
        path = f"/api/v1/nodes/{node}"
        stage.plane.demand("PATCH", path, damaged, content_type=MERGE_PATCH)
        lease = {"name": names.agent_lease(node), "annotations": {keys.STATE: text}}
        stage.plane.request("DELETE", f"{leases}/{names.agent_lease(node)}")
        stage.plane.demand("POST", leases, {"metadata": lease})

    assert stage.placed(stage.add_pod(2, scheduler=DIRECT)) in NODES
    assert direct.ask("GET", "/livez")[0] == HTTPStatus.OK
