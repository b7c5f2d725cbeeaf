# SPDX-License-Identifier: Apache-2.0
"""What is read of the scheduler's requests, and what it takes for an answer."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import BadInput
from scheduler.extender import extender_messages as messages
from tests.scheduler.calls import body, encoded, pod, whole_nodes

# Written by Go: k8s.io/kube-scheduler extender/v1, ExtenderArgs through encoding/json.
FROM_GO = b"""{"Pod":{"metadata":{"name":"p","namespace":"n","uid":"u","creationTimestamp":null},
"spec":{"containers":null},"status":{}},"Nodes":null,"NodeNames":["node-1","node-2"]}\n"""


def test_names_of_nodes_are_read() -> None:
    call = messages.read_extender_call(FROM_GO)
    assert call.nodes == ["node-1", "node-2"]
    assert call.pod.metadata.uid == "u"


def test_whole_nodes_are_read_for_their_names() -> None:
    call = messages.read_extender_call(
        encoded({"Pod": pod(), "Nodes": whole_nodes("ab"), "NodeNames": None})
    )
    assert call.nodes == ["a", "b"]


@pytest.mark.parametrize("nodes", [{"items": None}, {}, {"items": []}])
def test_an_empty_list_of_nodes_is_no_nodes(nodes: object) -> None:
    assert messages.read_extender_call(encoded({"Pod": pod(), "Nodes": nodes})).nodes == []


@pytest.mark.parametrize("left_out", [{}, {"Nodes": None}, {"Nodes": None, "NodeNames": None}])
def test_missing_and_null_are_the_same(left_out: dict[str, None]) -> None:
    assert messages.read_extender_call(encoded({"Pod": pod(), **left_out})).nodes is None


def test_a_name_that_comes_twice_counts_once() -> None:
    """The scheduler adds the scores of a host that an answer names twice."""
    assert messages.read_extender_call(body(["b", "a", "b"])).nodes == ["b", "a"]


def test_more_whole_nodes_than_are_worth_reading_are_refused_with_the_fix() -> None:
    names = [f"node-{at}" for at in range(messages.MOST_NODES + 1)]
    with pytest.raises(messages.TooLarge, match="nodeCacheCapable: true"):
        messages.read_extender_call(encoded({"Pod": pod(), "Nodes": whole_nodes(names)}))


def test_20000_long_names_are_read_and_one_more_is_refused() -> None:
    names = [f"node-{at:05}.example.com" for at in range(messages.MOST_NAMES + 1)]
    assert messages.read_extender_call(body(names[:-1])).nodes == names[:-1]
    with pytest.raises(messages.TooLarge, match="20001 names, more than 20000"):
        messages.read_extender_call(body(names))


def test_nodes_by_the_ten_thousand_are_refused_before_they_become_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "ExtenderArgs", None)  # nothing can be read
    listed = body(None, Nodes=whole_nodes(str(at) for at in range(20 * messages.MOST_NODES + 1)))
    with pytest.raises(messages.TooLarge, match="about 4002 whole Nodes, more than 200: set node"):
        messages.read_extender_call(listed)


def test_a_large_pod_and_large_nodes_are_read() -> None:
    big = pod(1, annotations={"text": "," * (256 << 10)})
    nodes = whole_nodes(f"node-{at}" for at in range(messages.MOST_NODES))
    nodes["items"][0]["metadata"]["annotations"] = {"text": "," * (256 << 10)}
    assert messages.read_extender_call(body(["a"], Pod=big)).nodes == ["a"]
    read = messages.read_extender_call(body(None, Nodes=nodes)).nodes
    assert read is not None
    assert len(read) == messages.MOST_NODES


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"", "truncated"),
        (b"[]", "array"),
        (b"{}", "Pod"),
        (b'{"Pod":null,"NodeNames":[]}', "missing required field `Pod`"),
        (b'{"Pod":{"metadata":{"name":1}},"NodeNames":[]}', r"\$\.Pod\.metadata\.name"),
        (b'{"Pod":{},"NodeNames":[1]}', r"\$\.NodeNames"),
        (b'{"Pod":{},"NodeNames":"a"}', r"\$\.NodeNames"),
        (b'{"Pod":{},"Nodes":{"items":[{}]}}', r"\$\.Nodes\.items"),
        (b'{"Pod":{},"NodeNames":["\xff"]}', "ExtenderArgs"),
        (b"[" * 100_000, "ExtenderArgs"),
        (b'{"Pod":' * 100_000, "ExtenderArgs"),
    ],
)
def test_what_is_malformed_is_refused_by_the_key(text: bytes, named: str) -> None:
    with pytest.raises(BadInput, match=named):
        messages.read_extender_call(text)


@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(encoded))
def test_whatever_comes_is_read_or_refused(text: bytes) -> None:
    try:
        messages.read_extender_call(text)
    except BadInput:
        return


def test_an_answer_is_a_list_of_hosts_with_capital_keys() -> None:
    assert (
        messages.answer(["a", "b"], [10, 0]) == b'[{"Host":"a","Score":10},{"Host":"b","Score":0}]'
    )


def test_scores_are_whole_and_within_ten_whatever_was_computed() -> None:
    """The scheduler drops an answer with 5.0 in it, and lets 500 outweigh everything."""
    answer = json.loads(messages.answer("abc", [5.0, 500, -3]))  # type: ignore[list-item]  # what is guarded against
    assert {entry["Host"]: entry["Score"] for entry in answer} == {"a": 5, "b": 10, "c": 0}
    assert all(type(entry["Score"]) is int for entry in answer)


def test_equal_ranks_say_nothing() -> None:
    assert messages.answer("abc", [10, 10, 10]) == b"[]"
    assert messages.answer("", []) == b"[]"


def totals(names: list[str], ranks: list[int], weight: int) -> dict[str, int]:
    """What a scheduler makes of the answer, less what it makes of the first node."""
    told = {entry["Host"]: entry["Score"] for entry in json.loads(messages.answer(names, ranks))}
    found = {name: told.get(name, 0) * weight * 10 for name in names}
    return {name: total - found[names[0]] for name, total in found.items()}


@pytest.mark.parametrize("weight", [1, 3, 10])
def test_of_many_nodes_the_differences_are_told_whatever_the_weight(weight: int) -> None:
    names = [f"node-{at}" for at in range(messages.SHORT + 1)]
    ranks = [10, 9, 8, 0, 1, *[4] * (messages.SHORT - 4)]
    found = totals(names, ranks, weight)
    assert found == {
        name: (rank - 10) * weight * 10 for name, rank in zip(names, ranks, strict=True)
    }


def test_of_many_nodes_those_with_the_most_frequent_rank_are_left_out() -> None:
    names = [f"node-{at}" for at in range(messages.SHORT + 1)]
    ranks = [10, 0, *[4] * (messages.SHORT - 1)]
    told = json.loads(messages.answer(names, ranks))
    assert told == [{"Host": "node-0", "Score": 6}, {"Host": "node-1", "Score": -4}]
    assert len(json.loads(messages.answer(names[:-1], ranks[:-1]))) == messages.SHORT


def test_an_answer_needs_a_rank_for_each_node() -> None:
    with pytest.raises(ValueError, match="zip"):
        messages.answer(["a", "b"], [10, 1, 0])


@given(st.lists(st.text(min_size=1), unique=True, min_size=2, max_size=20), st.data())
def test_names_go_back_as_they_came(names: list[str], data: st.DataObject) -> None:
    ranks = [data.draw(st.integers(0, 10)) for _ in names]
    call = messages.read_extender_call(json.dumps({"Pod": pod(), "NodeNames": names}).encode())
    told = {entry["Host"] for entry in json.loads(messages.answer(call.nodes or (), ranks))}
    assert told in (set(names), set())


FIRST = """
import sys, threading
from scheduler.extender import extender_messages
sys.setswitchinterval(1e-6)
start = threading.Barrier(16)
def first():
    start.wait()
    extender_messages.read_extender_call(sys.argv[1].encode())
threads = [threading.Thread(target=first) for _ in range(16)]
for one in threads: one.start()
for one in threads: one.join()
"""


@pytest.mark.parametrize("_time", range(3))
def test_the_first_requests_may_come_at_once(_time: int) -> None:
    """Types that msgspec had to look at then ended the extender by SIGSEGV, two times of three."""
    ended = subprocess.run([sys.executable, "-c", FIRST, FROM_GO], check=False, timeout=60)
    assert ended.returncode == 0
