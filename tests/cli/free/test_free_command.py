# SPDX-License-Identifier: Apache-2.0
"""``gpuscape free``: what is free in a cluster in memory, and what a pod would get there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli import terminal
from kube.api import LEASES, NODES
from kube.api_errors import Forbidden
from tests.cli.conftest import Run
from tests.cli.free.free_cluster import GPU, PRODUCT, SLICE, Api, found, refused, said
from tests.fakes.api import Call


def test_each_node_has_its_free_gpus_and_the_largest_linked_set(run: Run, api: Api) -> None:
    api.with_node("split", {"p": 0b11110000, "q": 0b00001010})
    api.with_node("pair", {"p": 0b11111010, "q": 0b1})
    api.with_node("half", {"p": 0b11110001})
    nodes = found(run)["nodes"]
    assert (nodes["split"]["free"], nodes["split"]["linked"]) == ([0, 2], None)
    assert (nodes["pair"]["free"], nodes["pair"]["linked"]) == ([2], None)
    assert nodes["half"]["linked"] == {"gpus": [2, 3], "gbps": 300.0}
    lines = said(run).splitlines()
    assert lines[0].split() == ["NODE", "PRODUCT", "FREE", "GPUS", "LINKED", "STATE", "HELD", "BY"]
    (split,) = (line.split() for line in lines if line.startswith("split"))
    assert split[:5] == ["split", PRODUCT, "2/8", "0,2", "-"]
    (half,) = (line.split() for line in lines if line.startswith("half"))
    assert half == ["half", PRODUCT, "3/8", "1-3", "2", "at", "300", "GB/s", "1", "pod"]


def test_an_entirely_free_node_says_so(run: Run, api: Api) -> None:
    api.with_node("whole")
    assert "whole node free" in said(run).splitlines()[1]


def test_what_takes_no_pods_is_marked_and_not_in_the_sums(run: Run, api: Api) -> None:
    api.with_node("good", {"p": 0b111})
    api.with_node("shut", unschedulable=True)
    api.with_node("down", ready="Unknown")
    api.with_node("mute", age=181.0)
    api.with_node("bare", agent=False)
    document = found(run)
    nodes = document["nodes"]
    assert (nodes["shut"]["cordoned"], nodes["good"]["cordoned"]) == (True, False)
    assert (nodes["down"]["ready"], nodes["good"]["ready"]) == (False, True)
    assert nodes["mute"]["free"] is None
    assert "not renewed its Lease" in nodes["mute"]["why_unknown"]
    assert "does the agent run there?" in nodes["bare"]["why_unknown"]
    (total,) = document["totals"]
    assert total == {
        "product": PRODUCT,
        "nodes": 5,
        "out": 4,
        "gpus": 40,
        "free": 5,
        "whole_nodes": 0,
        "most_linked": 2,
        "mig": [],
    }
    states = {line.split()[0]: line for line in said(run).splitlines() if line}
    assert "cordoned" in states["shut"]
    assert "not ready" in states["down"]


def test_a_lease_counts_for_as_long_as_it_lasts_by_the_servers_clock(run: Run, api: Api) -> None:
    api.with_node("young", age=180.0)
    api.with_node("old", age=180.5)
    api.with_node("ahead", age=-500.0)  # by the agent's own clock
    nodes = found(run)["nodes"]
    assert nodes["ahead"]["free"] == list(range(8))
    assert nodes["young"]["free"] == list(range(8))
    assert nodes["old"]["free"] is None


def test_nodes_without_gpus_are_left_out(run: Run, api: Api) -> None:
    """Also where an agent runs there and has found none."""
    api.with_node("gpu")
    api.with_node("cpu", agent=False, gpus=0)
    api.with_node("empty", gpus=0, machine="empty")
    assert set(found(run)["nodes"]) == {"gpu"}


def test_all_gpus_of_a_node_are_those_that_its_agent_has_described(run: Run, api: Api) -> None:
    """A device plugin offers fewer where some are broken, and none before it has started."""
    api.with_node("broken", gpus=7)
    api.with_node("starting", gpus=0)
    api.with_node("bare", gpus=4, agent=False)
    nodes = found(run)["nodes"]
    assert {name: node["gpus"] for name, node in nodes.items()} == {
        "broken": 8,
        "starting": 8,
        "bare": 4,
    }


def test_as_many_free_gpus_of_two_nodes_alike_are_linked_on_the_one_and_not_on_the_other(
    run: Run, api: Api
) -> None:
    api.with_node("apart", {"p": 0b11111010})
    api.with_node("pair", {"p": 0b11111100})
    linked = {name: node["linked"] for name, node in found(run)["nodes"].items()}
    assert linked == {"apart": None, "pair": {"gpus": [0, 1], "gbps": 300.0}}


def test_everything_that_keeps_pods_off_a_node_stands_in_its_state(run: Run, api: Api) -> None:
    api.with_node("both", ready="False", unschedulable=True)
    assert "not ready, cordoned" in said(run).splitlines()[1]


def test_only_nodes_and_leases_are_read(run: Run, api: Api) -> None:
    read = []
    api.before("watch", lambda call: read.append(call.resource))
    api.with_node("a", {"p": 0b1}, mig=7)
    node = found(run)["nodes"]["a"]
    assert set(read) == {NODES, LEASES}
    assert node["mig"] == [{"resource": SLICE, "total": 7, "free": None}]
    (holder,) = node["holders"]
    assert (holder["pod"], holder["gpus"]) == (None, [0])
    assert "with --pods" in said(run).splitlines()[-1]


def test_what_pods_would_tell_is_said_where_any_node_has_holders_or_mig_devices(
    run: Run, api: Api
) -> None:
    api.with_node("empty")
    assert "--pods" not in said(run)
    api.with_node("held", {"p": 0b1})
    assert "--pods" in said(run).splitlines()[-1]
    assert "--pods" not in said(run, "--pods")


def test_with_pods_holders_have_names_and_mig_devices_are_counted(run: Run, api: Api) -> None:
    api.with_node("a", {"p": 0b11}, mig=7)
    api.with_pod("p", "a")
    api.with_pod("m", "a", SLICE, 3)
    node = found(run, "--pods")["nodes"]["a"]
    assert [holder["pod"] for holder in node["holders"]] == ["default/p"]
    assert node["mig"] == [{"resource": SLICE, "total": 7, "free": 4}]
    text = said(run, "--pods", "-o", "wide")
    assert "0-1 default/p" in text
    assert "4/7 1g.10gb" in text


def test_with_pods_one_that_the_agent_has_not_reported_yet_has_its_gpus(run: Run, api: Api) -> None:
    api.with_node("a")
    api.with_pod("new", "a", count=6)
    assert len(found(run)["nodes"]["a"]["free"]) == 8
    assert len(found(run, "--pods")["nodes"]["a"]["free"]) == 2


def test_taints_that_keep_pods_off_are_listed_without_those_of_kubernetes_own(
    run: Run, api: Api
) -> None:
    """Those of kubernetes.io say what the column STATE says: not ready, cordoned."""
    taints = [
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
        {"key": GPU, "effect": "NoExecute"},
        {"key": "preferred", "value": "x", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
        {"key": "my-node.kubernetes.io/x", "effect": "NoSchedule"},
    ]
    api.with_node("kept", taints=taints)
    api.with_node("open")
    nodes = found(run)["nodes"]
    assert nodes["kept"]["taints"] == ["dedicated=gpu", GPU, "my-node.kubernetes.io/x"]
    assert nodes["open"]["taints"] == []


def test_more_mig_devices_asked_for_than_there_are_leave_none_free(run: Run, api: Api) -> None:
    """A layout changed while pods were bound: they hold devices that are not offered any more."""
    api.with_node("a", mig=2)
    for name in ("m", "n"):
        api.with_pod(name, "a", SLICE, 2)
    assert found(run, "--pods")["nodes"]["a"]["mig"][0]["free"] == 0


def test_mig_devices_of_a_product_are_summed_over_nodes_that_take_pods(run: Run, api: Api) -> None:
    """How many are free is not known where pods were not read, also not in the sum."""
    api.with_node("a", mig=7)
    api.with_node("b", mig=5)
    api.with_node("shut", mig=3, unschedulable=True)
    api.with_pod("m", "a", SLICE, 7)
    api.with_pod("n", "b", SLICE, 1)
    for options, free in [((), None), (("--pods",), 4)]:
        (total,) = found(run, *options)["totals"]
        assert total["mig"] == [{"resource": SLICE, "total": 12, "free": free}]
    assert "?/12 1g.10gb" in said(run, "-o", "wide")


def test_of_linked_sets_of_one_size_the_fastest_is_shown(run: Run, api: Api) -> None:
    """GPU 1 of a DGX-1 has one NVLink to GPU 0, two to GPU 5, and those two none."""
    api.with_node("mesh", {"p": 0b11011100}, machine="dgx1-v100")
    node = found(run)["nodes"]["mesh"]
    assert node["free"] == [0, 1, 5]
    assert node["linked"] == {"gpus": [1, 5], "gbps": 50.0}


def test_a_pod_that_has_ended_holds_nothing(run: Run, api: Api) -> None:
    api.with_node("a", mig=7)
    api.with_pod("over", "a", count=6, phase="Succeeded")
    api.with_pod("failed", "a", SLICE, 3, phase="Failed")
    node = found(run, "--pods")["nodes"]["a"]
    assert (len(node["free"]), node["mig"][0]["free"]) == (8, 7)


def test_selectors_are_kubectls(run: Run, api: Api) -> None:
    api.with_node("a")
    api.with_node("b", pool="b")
    assert set(found(run, "-l", "pool in (b, c)")["nodes"]) == {"b"}
    assert said(run, "-l", "pool=none") == "No node with GPUs.\n"
    assert refused(run, "-l", "pool=a b")[0] == 2


def test_a_pod_of_n_gets_the_sets_that_the_scheduler_foresees_best_first(
    run: Run, api: Api
) -> None:
    api.with_node("broken", {"p": 0b11111010})
    api.with_node("pair", {"q": 0b11110011})
    api.with_node("full", {"r": 0xFF})
    document = json.loads(said(run, "2", "-o", "json"))
    assert [(it["node"], it["gbps"]) for it in document["nodes"]] == [
        ("pair", 300.0),
        ("broken", 20.0),
    ]
    assert document["nodes"][0]["sets"] == [{"gpus": [2, 3], "odds": 1.0}]
    assert [(it["node"], it["why"]) for it in document["left_out"]] == [
        ("full", "0 of 8 GPUs are free")
    ]
    assert said(run, "2") == said(run, "--gpus", "2")
    assert json.loads(said(run, "2", "--link", "nvlink", "-o", "json"))["link"] == "nvlink"
    assert said(run, "2").splitlines()[1].split()[:3] == ["pair", "10", "2,3"]


def test_where_a_pod_is_refused_stands_why(run: Run, api: Api) -> None:
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    own = {"key": GPU, "value": "present", "effect": "NoSchedule"}
    api.with_node("shut", unschedulable=True)
    api.with_node("kept", taints=[taint, own])
    api.with_node("mute", age=500.0)
    api.with_node("bare", agent=False, gpus=2)

    def answer(*more: str) -> dict[str, str]:
        document = json.loads(said(run, "4", "-o", "json", *more))
        return {it["node"]: it["why"] for it in (*document["nodes"], *document["left_out"])}

    why = answer()
    assert "unschedulable" in why["shut"]
    assert why["kept"] == "node(s) had untolerated taint {dedicated: gpu}"
    assert "not renewed" in why["mute"]
    assert "4 requested" in why["bare"]
    assert answer("--tolerate", "dedicated")["kept"] == "the best"
    assert answer("--tolerate", "dedicated=gpu")["kept"] == "the best"
    assert "untolerated" in answer("--tolerate", "dedicated=cpu")["kept"]


def test_a_toleration_with_an_empty_value_is_of_that_value_alone(run: Run, api: Api) -> None:
    """As kubectl taint writes a taint without a value."""
    api.with_node("empty", taints=[{"key": "dedicated", "effect": "NoSchedule"}])
    api.with_node("gpu", taints=[{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}])

    def places(tolerated: str) -> set[str]:
        document = json.loads(said(run, "4", "--tolerate", tolerated, "-o", "json"))
        return {it["node"] for it in document["nodes"]}

    assert places("dedicated") == {"empty", "gpu"}
    assert places("dedicated=") == {"empty"}
    assert places("dedicated=gpu") == {"gpu"}


def test_places_in_a_narrow_terminal_keep_every_column(
    run: Run, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reasons and sets are cut first; which node it is stands there in any case."""
    for number in range(3):
        api.with_node(f"gpu-node-{number}", {"p": 0b1111 << number})
    api.with_node("full", {"p": 0xFF})
    for width in (72, 80, 120):
        monkeypatch.setattr(terminal, "screen_width", lambda width=width: width)
        header, *rows = [line for line in said(run, "2").splitlines() if line][:5]
        assert header.split() == ["NODE", "RANK", "GPUS", "GB/S", "WHY"]
        assert {row.split()[0] for row in rows} == {"full", *(f"gpu-node-{n}" for n in range(3))}
        assert {row.split()[1] for row in rows} <= {*map(str, range(11)), "-"}


@pytest.mark.parametrize("width", [80, 200])
def test_why_it_is_not_known_what_is_free_begins_with_what_is_wrong(
    run: Run, api: Api, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """In 80 columns the reason is cut, and still says which it is."""
    api.with_node("mute", age=500.0)
    api.with_node("bare", agent=False)
    api.with_node("ok-with-a-long-name", {"p": 0b1}, mig=7)
    monkeypatch.setattr(terminal, "screen_width", lambda: width)

    lines = {line.split()[0]: line for line in said(run).splitlines() if line}

    assert "agent silent" in lines["mute"]
    assert "no agent" in lines["bare"]
    assert ("has not renewed its Lease" in lines["mute"]) is (width == 200)


def test_agents_whose_leases_are_elsewhere_are_there_and_silent(run: Run, api: Api) -> None:
    """Their annotations say that they are installed: nobody is told to install them."""
    api.with_node("a")
    node = found(run, "-n", "elsewhere")["nodes"]["a"]
    assert (node["gpus"], node["free"]) == (8, None)
    assert node["why_unknown"]


def test_holders_come_in_the_order_of_their_gpus(run: Run, api: Api) -> None:
    masks = {f"pod-{at}": 1 << at for at in range(7)}
    api.with_node("a", masks)
    held = [holder["gpus"] for holder in found(run)["nodes"]["a"]["holders"]]
    assert held == [[at] for at in range(7)]


def test_a_cluster_without_agents_says_how_to_install_one(run: Run, api: Api) -> None:
    api.with_node("bare", agent=False)
    code, line = refused(run)
    assert code == 4
    assert "docs/install.md" in line


def test_a_missing_right_is_named(run: Run, api: Api) -> None:
    def forbid(call: Call) -> None:
        if call.resource is LEASES:
            raise Forbidden("watch leases in gpuscape: forbidden")

    api.before("watch", forbid)
    api.with_node("a")
    code, line = refused(run)
    assert code == 4
    assert "watch leases in gpuscape: forbidden" in line
    assert "get, list and watch" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("0",),
        ("2", "--gpus", "3"),
        ("--tolerate", "x"),
        ("--link", "nvlink"),
        ("--watch",),
        ("4", "-w", "-o", "json"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, api: Api, arguments: tuple[str, ...]) -> None:
    api.with_node("a")
    assert run("free", *arguments).exit_code == 2


@pytest.mark.parametrize("text", ["1", "1024", "0004"])
def test_a_pod_may_ask_for_1_to_1024_gpus(run: Run, api: Api, text: str) -> None:
    api.with_node("a")
    gpus = int(text)
    for arguments in [(text,), ("--gpus", text)]:
        assert json.loads(said(run, *arguments, "-o", "json"))["pod"] == (
            f"a pod of {gpus} GPU{'s' if gpus > 1 else ''}"
        )


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize(
    "text", ["four", "0", "1025", "2.5", "gpu-node-7", "", "+2", "²", "٤", "9" * 5000]
)
@pytest.mark.parametrize("option", [(), ("--gpus",)])
def test_what_is_no_number_of_gpus_is_named_with_what_to_give(
    run: Run, text: str, option: tuple[str, ...]
) -> None:
    """In one line, in the words of the command and not of the parser of arguments."""
    assert refused(run, *option, text) == (
        2,
        f"Error: '{text}' is no number of GPUs for a pod: give a whole number from 1 to 1024,"
        " as in gpuscape free 4\n",
    )


def test_without_a_cluster_it_says_where_it_looked(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    code, line = refused(run)
    assert code == 2
    assert "no kubeconfig" in line or "no such file" in line


def test_every_line_fits_a_terminal(run: Run, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.with_node("a-node-with-a-name-as-clouds-give-them.example", {"p": 0b1}, mig=7)
    api.with_node("mute", age=500.0)
    for width in (60, 80, 120, 200):
        monkeypatch.setattr(terminal, "screen_width", lambda width=width: width)
        assert max(map(len, said(run).splitlines())) <= width
