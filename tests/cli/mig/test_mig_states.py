# SPDX-License-Identifier: Apache-2.0
"""States that a person must not overlook: half-made instances, pending modes, what is unread."""

from __future__ import annotations

import json

import pynvml
import pytest
import yaml

from simulator.simulation import Return, Simulation
from simulator.state import edits
from simulator.state.machine_state import ComputeInstance, GpuInstance
from tests.cli.mig.conftest import RunMig

UNUSED = GpuInstance(id=1, profile="3g.20gb", start=0)
"""A GPU instance without a compute instance, as a stopped change leaves it."""


def rows(output: str, starting: str) -> list[list[str]]:
    """Cells of the lines that begin with these."""
    lines = [line.split() for line in output.splitlines()]
    return [line for line in lines if line[: len(starting.split())] == starting.split()]


def holds(simulated: Simulation, bus_id: str, *instances: GpuInstance) -> None:
    simulated.edit(edits.with_gpu_changed(bus_id, instances=instances))


# status


def test_an_instance_without_a_compute_instance_is_marked(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    holds(simulated, bus_ids[6], UNUSED)
    output = run_mig("status", on=simulated).output
    assert rows(output, "6 on") == [["6", "on", "4", "of", "8", "1", "x", "3g.20gb", "-"]]
    assert "6    1         0-3    -        3g.20gb: no compute instance  -" in output


def test_programs_stand_next_to_what_they_use(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    """On a compute instance, on a GPU with MIG off, and one that the container cannot see."""
    simulated.add_process(bus_ids[7], 4242, gpu_instance_id=1, compute_instance_id=2)
    simulated.add_process(bus_ids[7], 0, gpu_instance_id=5, compute_instance_id=0)
    simulated.add_process(bus_ids[0], 777)
    output = run_mig("status", on=simulated).output
    programs = {
        line[:60].split()[4]: line.split()[-1]
        for line in output.splitlines()
        if line.startswith("7    ") and "of" not in line
    }
    assert programs == {
        "1c.4g.20gb": "-",
        "2c.4g.20gb": "4242",
        "2g.10gb": "hidden",
        "1g.5gb+me": "-",
    }
    assert rows(output, "0 off")[0][-1] == "777"
    assert rows(output, "7 on")[0][-2:] == ["hidden,", "4242"]


@pytest.mark.parametrize(
    ("now", "after", "cell", "note"),
    [
        (True, False, "on, off after reset", "MIG goes off when the GPU is reset"),
        (False, True, "off, on after reset", "MIG goes on when the GPU is reset"),
    ],
)
def test_a_pending_mode_is_shown_with_what_it_waits_for(
    run_mig: RunMig,
    simulated: Simulation,
    bus_ids: list[str],
    now: bool,
    after: bool,
    cell: str,
    note: str,
) -> None:
    simulated.edit(edits.with_gpu_changed(bus_ids[6], mig=now, mig_pending=after))
    result = run_mig("status", on=simulated)
    assert f"6    {cell}" in result.output
    assert f"GPU 6: {note}" in result.output
    exported = run_mig("export", on=simulated)
    assert (exported.exit_code, exported.stdout) == (2, "")
    assert "GPU 6: MIG is" in exported.stderr


def test_a_gpu_that_cannot_be_read_is_listed_with_the_reason_and_no_instances(
    run_mig: RunMig, simulated: Simulation
) -> None:
    simulated.revoke("mig-monitor")
    result = run_mig("status", on=simulated)
    assert result.exit_code == 0
    assert rows(result.output, "3 off")
    assert not rows(result.output, "4 on")
    assert "GPU 4 (0000:87:00.0): not read: nvmlDevice" in result.output
    assert "NVIDIA_MIG_MONITOR_DEVICES=all" in result.output
    data = json.loads(run_mig("status", "-o", "json", on=simulated).output)
    assert [gpu["index"] for gpu in data["gpus"]] == [0, 1, 2, 3]
    assert [gpu["index"] for gpu in data["unread"]] == [4, 5, 6, 7]
    assert "instances" not in data["unread"][0]


# explain


def test_what_is_in_the_way_is_named_with_its_programs(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    compute = ComputeInstance(id=0, slices=1, start=0)
    holds(simulated, bus_ids[6], GpuInstance(id=12, profile="1g.5gb", start=5, compute=(compute,)))
    simulated.add_process(bus_ids[6], 4242, gpu_instance_id=12, compute_instance_id=0)
    output = run_mig("explain", "3g.20gb", "--gpu", "6", on=simulated).output
    assert output.splitlines()[4:] == [
        "GPU 6: 1 more fit",
        "MEMORY UNIT  0  1  2  3  4  5  6  7",
        "there        .  .  .  .  .  a  .  .",
        "start 0      #  #  #  #  .  .  .  .  free",
        "start 4      .  .  .  .  x  x  x  x  taken by a",
        "",
        "   INSTANCE  PROFILE  UNITS  PROGRAMS",
        "a  12        1g.5gb   5      4242",
    ]


def test_an_instance_that_nobody_can_use_is_in_the_way_too(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    holds(simulated, bus_ids[6], UNUSED)
    output = run_mig("explain", "4g.20gb", "--gpu", "6", on=simulated).output
    assert "start 0      x  x  x  x  .  .  .  .  taken by a" in output
    assert "a  1         3g.20gb  0-3    no compute instance" in output


def test_a_part_is_explained_by_its_gpu_instance(run_mig: RunMig, simulated: Simulation) -> None:
    part = run_mig("explain", "1c.3g.20gb", on=simulated).output
    assert part == run_mig("explain", "3g.20gb", on=simulated).output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("2g.11gb",), 2, "no GPU has the profile '2g.11gb'; they have 1g.10gb, 1g.5gb"),
        (("two",), 2, "'two' is no MIG profile; they look like 1g.10gb"),
        (("--gpu", "8"), 2, "there is no GPU 8"),
        (
            ("2g.10gb", "--gpu", "0"),
            3,
            "GPU 0: this driver describes profiles only where MIG is on",
        ),
    ],
)
def test_what_cannot_be_explained_is_one_sentence_and_a_code(
    run_mig: RunMig, simulated: Simulation, arguments: tuple[str, ...], code: int, words: str
) -> None:
    simulated.edit(edits.with_gpu_changed(sorted(simulated.state.gpus)[0], mig_pending=False))
    if arguments[0] == "2g.11gb":
        for bus_id in sorted(simulated.state.gpus)[:4]:
            simulated.edit(edits.with_gpu_changed(bus_id, mig=True, mig_pending=True))
    result = run_mig("explain", *arguments, on=simulated)
    assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1)
    assert words in result.stderr


def test_profiles_of_a_gpu_with_mig_off_are_those_of_the_table(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    """The driver describes them with MIG on; until then the source is named, and the next step."""
    simulated.edit(edits.with_gpu_changed(bus_ids[0], mig_pending=False))

    lines = run_mig("explain", "--gpu", "0", on=simulated).output.splitlines()
    one = run_mig("explain", "2g.10gb", "--gpu", "0", on=simulated).stderr

    assert lines[2] == "NVIDIA A100-SXM4-40GB (GPU 0), by the table of known models:"
    cells = [line.split() for line in lines[3:-1]]
    assert cells[:2] == [["PROFILE", "FIT", "UNITS"], ["1g.5gb", "(7)", "1"]]
    assert cells[-1] == ["7g.40gb", "(1)", "8"]
    assert lines[-1] == "gpuscape mig plan LAYOUT shows what it takes to turn MIG on."
    assert one.endswith("; by the table of known models 3 fit\n")


def test_a_profile_is_not_called_unknown_where_a_gpu_could_not_be_read(
    run_mig: RunMig, simulated: Simulation
) -> None:
    simulated.revoke("mig-monitor")
    result = run_mig("explain", "2g.11gb", on=simulated)
    assert result.exit_code == 3
    assert "not read" in result.stderr


# export


def test_what_the_format_cannot_say_is_refused_unless_allowed(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    holds(simulated, bus_ids[6], UNUSED)
    words = "GPU 6: GPU instance 1 (3g.20gb at 0) has no compute instance"

    refused = run_mig("export", on=simulated)
    allowed = run_mig("export", "--allow-loss", on=simulated)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert words in refused.stderr
    assert "with --allow-loss" in refused.stderr
    assert (allowed.exit_code, allowed.stderr) == (0, f"not exported: {words}\n")
    entries = yaml.safe_load(allowed.stdout)["mig-configs"]["current"]
    empty = [one for one in entries if one["mig-enabled"] and not one["mig-devices"]]
    assert [one["devices"] for one in empty] == [[6]]


def test_parts_that_are_spread_otherwise_than_the_file_would_make_them_are_refused(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    """1c.3g.20gb twice is made as one GPU instance; here there are two."""
    part = ComputeInstance(id=0, slices=1, start=0)
    two = [
        GpuInstance(id=1 + at, profile="3g.20gb", start=4 * at, compute=(part,)) for at in (0, 1)
    ]
    holds(simulated, bus_ids[6], *two)
    result = run_mig("export", on=simulated)
    assert result.exit_code == 2
    assert "GPU 6: compute instances are spread" in result.stderr


@pytest.mark.parametrize("extra", [(), ("--allow-loss",)])
def test_a_gpu_that_cannot_be_read_is_never_exported_as_undivided(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str], extra: tuple[str, ...]
) -> None:
    simulated.fault(
        Return(code=pynvml.NVML_ERROR_UNKNOWN), "nvmlDeviceGetGpuInstances", bus_id=bus_ids[4]
    )
    result = run_mig("export", *extra, on=simulated)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "GPU 4 (0000:87:00.0): not read: nvmlDeviceGetGpuInstances" in result.stderr


def test_the_label_names_the_configuration(run_mig: RunMig, simulated: Simulation) -> None:
    data = yaml.safe_load(run_mig("export", "--label", "before", on=simulated).output)
    assert list(data["mig-configs"]) == ["before"]
