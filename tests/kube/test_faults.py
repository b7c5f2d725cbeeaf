# SPDX-License-Identifier: Apache-2.0
"""A network that breaks and a server that goes away, between our client and a real API server."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kube.api import NODES, Api, Object
from kube.api_errors import AdmissionRefused, Forbidden, NotFound, Unreachable
from kube.client import ApiClient, Patience
from tests.fakes.proxy import Mode, Relay
from tests.kube.clusters import client
from tests.kube.listener import Listener

if TYPE_CHECKING:
    from tests.controlplane.own import OwnPlane
    from tests.controlplane.plane import Plane

pytestmark = pytest.mark.cluster

MERGE = "application/merge-patch+json"
ENFORCED_SECONDS = 60


@pytest.fixture
def relay(plane: Plane) -> Iterator[Relay]:
    """What our client takes for the API server."""
    with Relay(plane.port) as relay:
        yield relay


@pytest.fixture
def api(plane: Plane, relay: Relay) -> Iterator[ApiClient]:
    """A client through the relay, quick to notice silence."""
    patience = Patience(connect_seconds=2, read_seconds=2, silence_seconds=2)
    api = client("gpuscape-agent", plane.kubeconfig(), port=relay.port, patience=patience)
    yield api
    api.close()


@pytest.fixture
def node(plane: Plane) -> str:
    """A Node labelled 1."""
    name = f"node-{uuid.uuid4().hex[:10]}"
    make_node(plane, name)
    return name


@pytest.fixture
def listener(api: ApiClient, node: str) -> Iterator[Listener]:
    """Whoever follows the Node, synced."""
    listener = Listener(api, NODES, name=node)
    assert listener.until("CacheSynced") == ["WatchConnected", f"seen {node} 1", "CacheSynced"]
    yield listener
    listener.informer.close()


def make_node(plane: Plane, name: str, a: str = "1") -> None:
    """Somebody makes a Node."""
    plane.demand("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"a": a}}})


def label(plane: Plane, node: str, a: str) -> None:
    """Somebody changes the label, past the relay."""
    patch = {"metadata": {"labels": {"a": a}}}
    plane.demand("PATCH", f"/api/v1/nodes/{node}", patch, content_type=MERGE)


def labelled(a: str) -> Object:
    """Our patch."""
    return {"metadata": {"labels": {"a": a}}}


def test_a_write_whose_reply_is_lost_can_be_sent_again(
    plane: Plane, relay: Relay, api: ApiClient, node: str
) -> None:
    api.get(NODES, node)  # so that no handshake stands in the way of the reply
    relay.set(Mode.LOSE_REPLIES)
    with pytest.raises(Unreachable, match=f"patch Node {node}"):
        api.patch(NODES, node, labelled("2"))
    relay.set(Mode.PASS)

    after = plane.demand("GET", f"/api/v1/nodes/{node}")["metadata"]
    again = api.patch(NODES, node, labelled("2"))["metadata"]
    assert after["labels"]["a"] == "2"
    assert again["resourceVersion"] == after["resourceVersion"]


def test_requests_that_go_nowhere_are_given_up(relay: Relay, api: ApiClient, node: str) -> None:
    relay.set(Mode.STALL)
    with pytest.raises(Unreachable, match=f"get Node {node}"):
        api.get(NODES, node)


def test_a_half_open_watch_is_noticed_and_nothing_is_missed(
    plane: Plane, relay: Relay, node: str, listener: Listener
) -> None:
    before = relay.accepted
    relay.set(Mode.STALL)
    label(plane, node, "2")
    assert listener.until("down")[-1].endswith("nothing came for too long")
    assert relay.accepted <= before + 1
    relay.set(Mode.PASS)
    assert listener.until(f"seen {node} 2")[-2:] == ["WatchConnected", f"seen {node} 2"]


def test_a_reset_watch_begins_anew_with_all_objects(
    plane: Plane, relay: Relay, node: str, listener: Listener
) -> None:
    relay.cut()
    words = listener.until("CacheSynced")
    assert words[0].startswith("down ")
    assert words[-3:] == ["WatchConnected", f"seen {node} 1", "CacheSynced"]
    label(plane, node, "2")
    assert listener.until(f"seen {node} 2") == [f"seen {node} 2"]


def test_while_the_server_is_away_the_node_may_be_made_anew(
    plane: Plane, relay: Relay, node: str, listener: Listener
) -> None:
    relay.refuse()
    assert listener.until("down")
    plane.demand("DELETE", f"/api/v1/nodes/{node}")
    make_node(plane, node, "3")
    relay.accept()
    assert listener.until(f"seen {node} 3")[-2:] == [f"gone {node}", f"seen {node} 3"]


def test_closing_an_informer_ends_its_connection_within_a_second(
    plane: Plane, relay: Relay, node: str
) -> None:
    api = client("gpuscape-agent", plane.kubeconfig(), port=relay.port)
    listener = Listener(api, NODES, name=node)
    listener.until("CacheSynced")
    listener.informer.close()
    listener.thread.join(1)
    assert not listener.thread.is_alive()
    api.close()


def test_a_server_that_restarted_and_forgot_is_asked_for_everything(tmp_path: Path) -> None:
    """What it knows begins after the version that we ended with, so it answers 410."""
    with own_plane(tmp_path) as plane, following(plane) as listener:
        assert listener.until("CacheSynced") == ["WatchConnected", "seen n 1", "CacheSynced"]
        for name in ("others", "move", "the-version", "on"):
            make_node(plane, name)

        plane.stop_apiserver(signal.SIGKILL)
        assert listener.until("down")
        plane.start_apiserver()
        assert listener.until("CacheSynced")[-2:] == ["seen n 1", "CacheSynced"]
        label(plane, "n", "2")
        assert listener.until("seen n 2") == ["seen n 2"]


WITHOUT_WATCH_LIST = ("--feature-gates=WatchList=false",)


def test_a_server_that_marks_no_start_is_followed_all_the_same(tmp_path: Path) -> None:
    with own_plane(tmp_path, *WITHOUT_WATCH_LIST) as plane:
        with following(plane) as listener:
            assert listener.until("CacheSynced") == ["WatchConnected", "seen n 1", "CacheSynced"]
            label(plane, "n", "2")
            assert listener.until("seen n 2") == ["seen n 2"]
        with following(plane, "not-there") as listener:
            assert listener.until("CacheSynced") == ["WatchConnected", "CacheSynced"]
        with following(plane, None) as listener:
            assert listener.until("CacheSynced") == ["WatchConnected", "seen n 2", "CacheSynced"]


@contextmanager
def own_plane(folder: Path, *flags: str) -> Iterator[OwnPlane]:
    """An API server to kill, with the Node ``n`` labelled 1."""
    from tests.controlplane.plane import Plane

    with Plane.start(folder, controller_manager=False, apiserver_flags=flags) as plane:
        make_node(plane, "n")
        yield plane


@contextmanager
def following(plane: Plane, name: str | None = "n") -> Iterator[Listener]:
    """Whoever follows a Node there."""
    api = client("gpuscape-agent", plane.kubeconfig())
    listener = Listener(api, NODES, name=name)
    yield listener
    listener.informer.close()
    api.close()


# what only a real server says


def test_a_refusal_by_a_real_policy_names_it(any_plane: Plane) -> None:
    name = f"p-{uuid.uuid4().hex[:10]}"
    any_plane.demand("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    root = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"]}
    policy: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{**rule, "resources": ["nodes"]}]},
        "matchConditions": [{"name": "mine", "expression": f"object.metadata.name == '{name}'"}],
        "validations": [{"expression": "false", "message": "nothing may change"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    for kind, spec in (
        ("validatingadmissionpolicies", policy),
        ("validatingadmissionpolicybindings", binding),
    ):
        any_plane.demand("POST", f"{root}/{kind}", {"metadata": {"name": name}, "spec": spec})
    api = client("gpuscape-agent", any_plane.kubeconfig())

    refusal = refused(api, name)

    assert refusal.policy == name
    assert "nothing may change" in str(refusal)
    api.close()


def refused(api: Api, node: str) -> AdmissionRefused:
    """The refusal of a patch; a policy takes a moment to be enforced."""
    deadline = time.monotonic() + ENFORCED_SECONDS
    for at in range(10_000):
        try:
            api.patch(NODES, node, labelled(str(at)))
        except AdmissionRefused as refusal:
            return refusal
        assert time.monotonic() < deadline
        time.sleep(0.1)
    raise AssertionError


def test_who_may_not_is_named_by_the_server(any_plane: Plane) -> None:
    api = client("gpuscape-agent", any_plane.kubeconfig("nobody-special"))
    with pytest.raises(Forbidden, match=r'403: .*"nobody-special" cannot get'):
        api.get(NODES, "n")
    api.close()


def test_a_node_that_is_not_there_is_named_in_one_line(any_plane: Plane) -> None:
    api = client("gpuscape-agent", any_plane.kubeconfig())
    with pytest.raises(NotFound) as raised:
        api.get(NODES, "not-there")
    assert str(raised.value) == 'get Node not-there: 404: nodes "not-there" not found'
    api.close()
