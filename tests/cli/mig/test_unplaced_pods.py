# SPDX-License-Identifier: Apache-2.0
"""Pods that wait for a node are in the way of what would take a device that they may be given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.mig_resources import MigStrategy
from base.errors import BadInput
from cli.failures import REFUSED
from cli.mig.in_use.unplaced_pods import read_unplaced_pods
from tests.actuator.simulated_node import FIVE, node
from tests.cli.mig.test_mig_apply import run

TWO = "nvidia.com/mig-2g.10gb"


def pod(name: str, *resources: str, **more: Any) -> dict[str, Any]:
    """As kubectl prints it, with keys that are of no use here."""
    asked = dict.fromkeys(resources, "1")
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": {}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": asked}}]},
        "status": {"phase": "Pending"},
    } | more


def listed(folder: Path, *pods: dict[str, Any]) -> str:
    file = folder / "pods.json"
    file.write_text(json.dumps({"kind": "List", "items": pods}))
    return str(file)


def test_what_a_waiting_pod_asks_for_is_in_the_way(tmp_path: Path) -> None:
    """Of any program there is nothing to be seen; what it does not ask for may go."""
    on = node(tmp_path, *FIVE)
    before = on.found()
    pods = listed(tmp_path, pod("waits", TWO))
    taken, spared = ('{"0": {"1g.5gb": 3, "3g.20gb": 1}}', '{"0": {"2g.10gb": 2}}')
    more = ("--strategy", "mixed", "--unplaced-pods", pods)

    planned = run(on, "plan", taken, "--spare-busy", *more)
    refused = run(on, "apply", taken, "--yes", *more)

    for result in (planned, refused):
        assert result.exit_code == REFUSED
        assert result.stdout.endswith("  in the way: pending-pod ns/waits\n")
    assert on.found() == before
    assert run(on, "apply", spared, "--yes", *more).exit_code == 0
    assert on.found() == {one for one in before if one[0] == "2g.10gb"}


def test_the_worker_knows_them_too(tmp_path: Path) -> None:
    """With hooks the plan is made for their end; what waits still does."""
    on = node(tmp_path, *FIVE)
    before = on.found()
    hooks = tmp_path / "hooks.yaml"
    hooks.write_text("version: v1\nhooks: {}\n")
    more = ("--strategy", "mixed", "--unplaced-pods", listed(tmp_path, pod("waits", TWO)))

    result = run(on, "apply", '{"0": {"7g.40gb": 1}}', "--yes", "-k", str(hooks), *more)

    assert result.exit_code == REFUSED
    assert "in the way: pending-pod ns/waits" in result.stdout
    assert on.found() == before


def test_pods_that_wait_for_nothing_here_are_passed_over(tmp_path: Path) -> None:
    """Those that have a node, have ended, or ask for no GPU; an init container asks too."""
    spec = pod("x", TWO)["spec"]
    first = {"containers": [{}], "initContainers": spec["containers"]}
    nothing = {"containers": [{"resources": {"requests": {TWO: "0k", "nvidia.com/gpumem": "1"}}}]}
    file = listed(
        tmp_path,
        pod("placed", spec=spec | {"nodeName": "worker"}),
        pod("ended", TWO, status={"phase": "Failed"}),
        pod("other", spec=nothing),
        pod("first", spec=first),
    )

    assert read_unplaced_pods(file, MigStrategy.MIXED) == {"ns/first": {TWO}}
    assert read_unplaced_pods(None, None) == {}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"items": 1}', b'{"items": [{}]}', b"\xff"])
def test_what_is_no_list_of_pods_is_no_empty_one(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "pods.json"
    file.write_bytes(content)

    with pytest.raises(BadInput, match="no list of pods"):
        read_unplaced_pods(str(file), MigStrategy.MIXED)


def test_without_a_strategy_it_is_not_known_what_a_resource_has(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs --strategy"):
        read_unplaced_pods(listed(tmp_path), None)
