# SPDX-License-Identifier: Apache-2.0
"""Typical MIG changes on a real node, ours against the procedure for the whole node.

With ``--write-pages`` it writes docs/mig-figures.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pytest
from msgspec.structs import replace

from api.mig_resources import mig_resource
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MachineDescription
from tests.agent.agent_process import until
from tests.bench import mig_procedures, report
from tests.bench.page import Section, table
from tests.controlplane.plane import Object
from tests.node.gpu_cluster import PODS
from tests.node.mig_stage import LONG, REPLICA_SETS, MigStage, mig_stage, served
from tests.node.whole_node_procedure import apply_everything, change_whole_node

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

GPUS: Final = 4
LABEL: Final = "gpu-work=yes"
SEEN_SECONDS: Final = 15.0
"""By then an agent has seen that nothing is asked for; it says so later, since it writes seldom."""
OURS: Final = "ours"
WHOLE: Final = "the whole node"
SMALL, MIDDLE, HALF, FULL = "1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"
Layout = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedChange:
    """A change, and what is on the node before."""

    name: str
    there: Layout
    pods: Mapping[str, int]
    """Profile to pods with one device of it each."""
    wanted: Layout
    evicted: int
    """Pods that hold what goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What one procedure did."""

    evicted: int
    seconds: float
    """From the cordon to its end."""


REST: Final = {FULL: 1}
CHANGES: Final = (
    TriedChange(
        name=f"one GPU of {GPUS} re-cut, the others busy",
        there={"all": REST},
        pods={FULL: GPUS},
        wanted={"0": {SMALL: 7}},
        evicted=1,
    ),
    TriedChange(
        name="an idle instance of a shared GPU grows",
        there={"0": {MIDDLE: 1, SMALL: 1}, "1-3": REST},
        pods={SMALL: 1, FULL: 3},
        wanted={"0": {HALF: 1, SMALL: 1}},
        evicted=0,
    ),
    TriedChange(
        name="all GPUs to another layout, the node idle",
        there={"all": REST},
        pods={},
        wanted={"all": {HALF: 2}},
        evicted=0,
    ),
)


def four_gpus() -> MachineDescription:
    """With MIG on."""
    machine = load_machine("dgx-a100-mig-single")
    return replace(machine, gpus=machine.gpus[:GPUS])


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MigStage]:
    with mig_stage(tmp_path_factory.mktemp("figures"), four_gpus()) as found:
        until(lambda: [found.phase(node) for node in found.nodes] == ["idle"], LONG)
        yield found


def test_ours_evicts_those_alone_that_hold_what_goes(
    stage: MigStage, pytestconfig: pytest.Config
) -> None:
    """And the whole-node procedure everybody; both end with the same on offer."""
    found: dict[str, dict[str, Tried]] = {}
    for change in CHANGES:
        for way in (OURS, WHOLE):
            found.setdefault(change.name, {})[way] = tried(stage, change, way)
        assert found[change.name][OURS].evicted == change.evicted
        assert found[change.name][WHOLE].evicted == sum(change.pods.values())
    if pytestconfig.getoption("--write-pages"):
        sections = (section(found), mig_procedures.section())
        tables = "\n".join(map(table, sections))
        text = f"# What MIG changes cost\n\n{HOW} This run: {report.machine()}.\n\n{tables}"
        (report.DOCS / "mig-figures.md").write_text(text, encoding="utf-8")


def tried(stage: MigStage, change: TriedChange, way: str) -> Tried:
    """One change in one way, from its own beginning; nothing is left of it but the layout."""
    (node,) = stage.nodes
    there = whole(change.there)
    wanted = there | whole(change.wanted)
    offers = offered(wanted)
    stage.annotate(node, drain=None, mig_layout=None)
    time.sleep(SEEN_SECONDS)
    apply_everything(stage, node, specs_of(there), offered(there))  # the agent looks on
    for number, (profile, count) in enumerate(change.pods.items()):
        start_pods(stage, node, f"work-{number}", profile, count)
    before = uids(stage)
    since = stage.there.cluster.resource_version()
    if way == WHOLE:
        with ThreadPoolExecutor(1) as acting:
            ends = acting.submit(change_whole_node, stage, node, specs_of(wanted), offers, LABEL)
            seconds = watched(stage, node)
            ends.result()
    else:
        stage.annotate(node, drain="evict", mig_layout=json.dumps(change.wanted))
        seconds = watched(stage, node)
        until(lambda: stage.is_changed(node, offers), LONG)
    assert stage.offers(node) == offers
    gone = {
        it["metadata"]["uid"]
        for it in stage.there.cluster.versions(PODS, since=since)
        if "deletionTimestamp" in it["metadata"]
    }
    for number in range(len(change.pods)):
        path = f"{REPLICA_SETS}/work-{number}?propagationPolicy=Background"
        stage.plane.demand("DELETE", path)
    until(lambda: not uids(stage), LONG)
    return Tried(evicted=len(before & gone), seconds=seconds)


def watched(stage: MigStage, node: str) -> float:
    """How long the node was cordoned, from now on and once."""

    def closed() -> bool:
        return bool(stage.object(node)["spec"].get("unschedulable"))

    until(closed, LONG)
    began = time.monotonic()
    until(lambda: not closed(), LONG)
    return time.monotonic() - began


def specs_of(layout: Mapping[str, Mapping[str, int]]) -> list[Mapping[str, object]]:
    """As mig-parted has it."""
    return [
        {"devices": [int(gpu)], "mig-enabled": True, "mig-devices": dict(wanted)}
        for gpu, wanted in layout.items()
    ]


def start_pods(stage: MigStage, node: str, name: str, profile: str, count: int) -> None:
    """So many of one ReplicaSet; they run when this returns."""
    body = served(node, mig_resource(profile))
    labels = {"app": name, **dict([LABEL.split("=")])}
    body["metadata"]["name"] = name
    body["spec"] |= {"replicas": count, "selector": {"matchLabels": {"app": name}}}
    body["spec"]["template"]["metadata"]["labels"] = labels
    stage.plane.demand("POST", REPLICA_SETS, body)

    def runs() -> bool:
        phases = [it["status"]["phase"] for it in pods(stage, f"app%3D{name}")]
        return phases == ["Running"] * count

    until(runs, LONG)


def pods(stage: MigStage, selector: str) -> list[Object]:
    found: list[Object] = stage.plane.demand("GET", f"{PODS}?labelSelector={selector}")["items"]
    return found


def uids(stage: MigStage) -> set[str]:
    """Of all pods with GPUs that are there."""
    return {it["metadata"]["uid"] for it in pods(stage, LABEL.replace("=", "%3D"))}


def whole(layout: Layout) -> dict[str, Mapping[str, int]]:
    """By the index of each GPU."""
    found: dict[str, Mapping[str, int]] = {}
    for name, wanted in layout.items():
        first, _, last = ("0", "-", str(GPUS - 1)) if name == "all" else name.partition("-")
        found |= {str(gpu): wanted for gpu in range(int(first), int(last or first) + 1)}
    return found


def offered(layout: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """What a node with it offers by the strategy mixed."""
    found: dict[str, int] = {}
    for wanted in layout.values():
        for profile, count in wanted.items():
            name = mig_resource(profile)
            found[name] = found.get(name, 0) + count
    return found


HOW: Final = (
    "Written by `tests/node/test_mig_figures.py` with `--write-pages`. It compares two procedures "
    "for typical changes of one node: ours with `drain: evict`, and the usual one around NVIDIA's "
    "MIG manager, which empties the whole node. With `wait`, the default, ours evicts no pod."
)


def section(found: Mapping[str, Mapping[str, Tried]]) -> Section:
    """The table of what was tried."""
    rows = [
        (
            name,
            *(str(ways[way].evicted) for way in (OURS, WHOLE)),
            *(f"{ways[way].seconds:.0f}" for way in (OURS, WHOLE)),
        )
        for name, ways in found.items()
    ]
    text = (
        f"One real node (kubelet and containerd; {GPUS} simulated A100 with MIG on) with the "
        "shipped agent, actuator and coordinator and NVIDIA's device plugin 0.19.0. The other "
        "procedure is a script: `kubectl cordon`, `kubectl drain` of the pods with GPUs, "
        "`nvidia-mig-parted apply` 0.10.0, the plugin's restart, a wait until the node offers the "
        "new resources, `kubectl uncordon`. Pods end as soon as they get SIGTERM. Seconds are "
        "from the cordon to its end, each measured once. The simulated driver takes no time, so "
        "they show only the work around the change."
    )
    return Section(
        title="On a real node",
        text=text,
        rows=tuple(rows),
        columns=(
            "change",
            *(f"{what}, {way}" for what in ("evicted", "seconds") for way in (OURS, WHOLE)),
        ),
    )
