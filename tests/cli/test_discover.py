# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a machine as tables and as data; what is missing is marked and explained."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import msgspec
import pytest
import yaml

from discovery.model import Gap, GpuState, Mode, NodeSnapshot, NvidiaFacts, NvLink, Reason
from tests import build
from tests.cli import nodes
from tests.cli.conftest import Run

LOST = Gap(what="memory_bytes", reason=Reason.LOST, source="nvmlDeviceGetMemoryInfo", detail="Lost")
UNSUPPORTED = Gap(what="ecc", reason=Reason.UNSUPPORTED, source="nvmlDeviceGetEccMode")


def row(output: str, starts: str) -> list[str]:
    """The cells of the first table row that starts like this."""
    line = next(line for line in output.splitlines() if line.startswith(starts))
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_the_first_line_tells_machine_driver_and_gpus(run: Run) -> None:
    first = run("discover", sees=nodes.bridged()).output.splitlines()[0]
    assert first == ("node-a: Some Machine, driver 400.300, CUDA 8.0, 3 x MOCKMODEL, 1 x RDMA NIC")


def test_a_gpu_is_one_row(run: Run) -> None:
    links = tuple(NvLink(link=i, active=i != 1) for i in range(4))
    gpu = build.gpu(1, numa_node=1, links=links, ecc=Mode(current=True, pending=False))
    cells = row(run("discover", sees=build.node([gpu])).output, "1 ")
    assert cells[:5] == ["1", "MOCKMODEL", "0000:11:00.0", "0.3 GiB", "1"]
    assert cells[5:] == ["3 of 4", "off", "on, off after reset", "ok"]


def test_mig_devices_are_counted_by_profile_and_listed_in_wide(run: Run) -> None:
    devices = (build.mig_device(gi=7), build.mig_device(gi=8), build.mig_device("2g.10gb", gi=3))
    node = build.node([build.gpu(mig=build.SPLIT, mig_devices=devices)])
    assert "2 x 1g.5gb, 1 x 2g.10gb" in row(run("discover", sees=node).output, "0 ")
    wide = run("discover", "-o", "wide", sees=node).output
    assert row(wide, "0    2g.10gb") == ["0", "2g.10gb", "3", "0", "-", "0.1 GiB", devices[2].uuid]


@pytest.mark.parametrize(
    ("current", "pending", "cell"),
    [
        (True, False, "on, off after reset"),
        (False, True, "off, on after reset"),
        (False, False, "off"),
        (True, True, "1 x 1g.5gb"),
    ],
)
def test_a_mig_mode_that_waits_for_a_reset_shows_before_what_the_gpu_is_divided_into(
    run: Run, *, current: bool, pending: bool, cell: str
) -> None:
    mode = Mode(current=current, pending=pending)
    node = build.node([build.gpu(mig=mode, mig_devices=(build.mig_device(),))])
    assert cell in row(run("discover", sees=node).output, "0 ")


def test_a_gpu_with_mig_on_and_no_device_is_empty(run: Run) -> None:
    node = build.node([build.gpu(mig=build.SPLIT)])
    assert "on, empty" in row(run("discover", sees=node).output, "0 ")


def test_what_a_gpu_does_not_have_and_what_it_did_not_tell_look_different(run: Run) -> None:
    gpu = build.gpu(memory_bytes=None, gaps=(LOST, UNSUPPORTED))
    cells = row(run("discover", sees=build.node([gpu])).output, "0 ")
    assert cells[3] == "?"
    assert cells[7] == "-"


def test_missing_readings_are_counted_and_wide_tells_why(run: Run) -> None:
    node = build.node([build.gpu(memory_bytes=None, gaps=(LOST, UNSUPPORTED))])
    assert "Missing readings: 1; -o wide lists them." in run("discover", sees=node).output
    wide = run("discover", "-o", "wide", sees=node).output
    assert row(wide, "GPU 0") == [
        "GPU 0",
        "memory_bytes",
        "lost",
        "nvmlDeviceGetMemoryInfo",
        "Lost",
    ]
    assert "nvmlDeviceGetEccMode" not in wide


@pytest.mark.parametrize("state", [GpuState.HUNG, GpuState.LOST, GpuState.UNREADABLE])
def test_a_broken_gpu_is_listed_with_its_state_beside_the_others(run: Run, state: GpuState) -> None:
    broken = build.gpu(1, index=None, model=None, memory_bytes=None, state=state)
    result = run("discover", sees=build.node([build.gpu(0), broken]))
    assert result.exit_code == 0
    assert row(result.output, "0 ")[-1] == "ok"
    assert row(result.output, "? ")[-1] == state.value
    assert "1 x MOCKMODEL, 1 x unknown model" in result.output


def test_json_is_the_snapshot_with_null_for_what_is_missing(run: Run) -> None:
    node = build.node([build.gpu(memory_bytes=None, gaps=(LOST,))])
    data = json.loads(run("discover", "-o", "json", sees=node).output)
    assert data["gpus"][0]["memory_bytes"] is None
    assert data["gpus"][0]["gaps"][0]["reason"] == "lost"
    for gpu in data["gpus"]:  # facts of NVIDIA's stand among the others
        gpu["nvidia"] = {field.name: gpu.pop(field.name) for field in fields(NvidiaFacts)}
    assert msgspec.convert(data, NodeSnapshot) == node


def test_yaml_is_the_same_data(run: Run) -> None:
    from_json = json.loads(run("discover", "-o", "json", sees=nodes.bridged()).output)
    assert yaml.safe_load(run("discover", "-o", "yaml", sees=nodes.bridged()).output) == from_json


def test_names_that_look_like_markup_are_printed_as_they_are(run: Run) -> None:
    node = build.node([build.gpu(model="A [bold]100[/bold] :smile:")])
    assert "A [bold]100[/bold] :smile:" in run("discover", sees=node).output


def test_a_machine_with_a_driver_and_no_gpu_is_an_answer(run: Run) -> None:
    node = build.node()
    node = replace(node, host=replace(node.host, machine_type=None))
    result = run("discover", sees=node)
    assert (result.exit_code, result.output) == (
        0,
        "node-a, driver 400.300, CUDA 8.0, no NVIDIA GPU\n",
    )
