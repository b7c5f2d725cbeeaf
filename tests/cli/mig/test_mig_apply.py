# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig apply`` and ``restore``: one of three ends, each with words and a code.

Each change runs in a worker process on a simulated machine's state file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
from click.testing import CliRunner, Result

from actuator.change_record import ChangeRecord
from actuator.journal import CHANGE, Journal
from cli import agreement
from cli.failures import REFUSED, UNDONE, UNFINISHED
from cli.main import main
from mig.gpu_layout import has_layout, layout_from_counts
from simulator.simulation import Crash, Delay, Return
from simulator.smi.smi_server import served_smi
from tests import machines
from tests.actuator.simulated_node import FIVE, H100, SimulatedNode, node
from tests.agent.agent_process import until
from tests.cli.mig.mig_process import CREATE, ended, journal, running
from tests.kubelet_nodes.checkpoint_file import write_checkpoint, write_claims

WANTED = '{"0": {"3g.20gb": 1, "1g.5gb": 3}}'
LAYOUT = layout_from_counts({"3g.20gb": 1, "1g.5gb": 3})
"""Of the five instances there are, those of 1g.5gb at 0 and 1 can stay."""
LOST = "MIG-00000000-0000-0000-0000-000000000009"
"""No such device."""


@pytest.fixture
def on(tmp_path: Path) -> SimulatedNode:
    """One A100, full."""
    return node(tmp_path, *FIVE)


def unended(on: SimulatedNode) -> ChangeRecord | None:
    with Journal(journal(on)) as opened:
        return next(iter(opened.content().unended), None)


def run(on: SimulatedNode, *arguments: str, answer: str | None = None) -> Result:
    simulated = ("--simulate", str(on.simulation.state_file))
    return CliRunner().invoke(main, ("mig", *arguments, *simulated), input=answer)


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        ({"2c.4g.20gb": 2}, [2, 2]),
        ({"3c.7g.40gb": 1, "2c.7g.40gb": 2}, [3, 2, 2]),
        ({"4c.7g.40gb": 1, "3c.7g.40gb": 1}, [4, 3]),
        ({"1c.4g.20gb": 2, "2c.4g.20gb": 1}, [2, 1, 1]),
    ],
)
def test_compute_instances_of_several_sizes_share_a_gpu_instance(
    on: SimulatedNode, layout: dict[str, int], sizes: list[int]
) -> None:
    """The layouts that a person asked for, and the end that the state file shows."""
    result = run(on, "apply", json.dumps({"0": layout}), "--yes")

    assert result.exit_code == 0, result.output
    ((_, _, _, compute),) = on.found()
    assert sorted((slices for slices, _ in compute), reverse=True) == sizes
    assert unended(on) is None


def test_a_size_that_the_driver_does_not_have_is_undone_and_the_next_layout_is_made(
    on: SimulatedNode,
) -> None:
    """Before there is a 4g to ask, only the driver knows that it has no 3c."""
    before = {one[:2] for one in on.found()}

    failed = run(on, "apply", '{"0": {"3c.4g.20gb": 1}}', "--yes")

    assert failed.exit_code == UNDONE, failed.output
    assert "no places for 3c in one 4g.20gb; it may have 1c, 2c, 4c" in failed.output
    assert {one[:2] for one in on.found()} == before
    assert run(on, "apply", WANTED, "--yes").exit_code == 0


def test_a_layout_is_applied_and_what_can_stay_is_not_touched(on: SimulatedNode) -> None:
    """The second time nothing is done, and no change is written down."""
    before = on.found()
    caps = on.simulation.host_root / "dev/nvidia-caps"
    for one in caps.glob("nvidia-cap*"):
        one.unlink()
    result = run(on, "apply", WANTED, "--yes", "--verbose")

    assert result.exit_code == 0
    assert "GPU 0 (NVIDIA A100-SXM4-40GB): 2 kept, 3 destroyed, 2 created" in result.stdout
    assert result.stdout.endswith("\nDone: every GPU has the desired layout.\n")
    assert "MIG step: CreateInstance(" in result.stderr
    assert has_layout(on.gpus()[0], LAYOUT)
    assert {one for one in before if one[1] in (0, 1)} <= on.found()  # born before
    assert ended(on) == [(WANTED, "applied")]
    assert len(list(caps.glob("nvidia-cap*"))) == 2 * len(on.found())

    [shown] = json.loads(run(on, "history", "-o", "json").stdout)["changes"]
    assert (shown["origin"], shown["outcome"]) == (WANTED, "applied")

    again = run(on, "apply", WANTED, "--yes", "-o", "json")
    assert again.exit_code == 0
    data = json.loads(again.stdout)
    assert (data["result"], data["outcome"]) == ("nothing", "unchanged")
    assert len(ended(on)) == 1


def test_a_file_whose_entries_overlap_is_applied_by_the_last_one(
    on: SimulatedNode, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "version: v1\nmig-configs:\n  migrated:\n"
        "  - {devices: all, mig-enabled: true, mig-devices: {7g.40gb: 1}}\n"
        "  - {devices: [0], mig-enabled: true, mig-devices: {3g.20gb: 2}}\n"
    )
    before = on.found()

    refused = run(on, "apply", "-f", str(file), "--yes")
    assert (refused.exit_code, on.found()) == (2, before)
    assert run(on, "apply", "-f", str(file), "--overlap", "last", "--yes").exit_code == 0
    assert has_layout(on.gpus()[0], layout_from_counts({"3g.20gb": 2}))


def test_what_is_in_use_is_in_the_way(on: SimulatedNode) -> None:
    on.simulation.add_process("0000:10:00.0", 71, gpu_instance_id=4, compute_instance_id=0)
    before = on.found()

    result = run(on, "apply", WANTED, "--yes")

    assert result.exit_code == REFUSED
    assert result.stdout.endswith("  in the way: process 71\n")
    assert on.found() == before
    assert not journal(on).exists()


def test_a_pod_that_was_given_a_device_is_in_the_way_though_no_program_runs(
    on: SimulatedNode,
) -> None:
    """As an init container that crashes. What it does not hold may change beside it."""
    held, before = on.gpus()[0].instances[-1].compute[0].uuid, on.found()
    assert held is not None
    write_checkpoint(on.simulation.host_root, {"idle": [held]}, offered={"r": [held]})
    for command in (("plan", "--spare-busy"), ("apply", "--yes")):
        result = run(on, command[0], '{"0": {"3g.20gb": 2}}', command[1])
        assert result.exit_code == REFUSED
        assert result.stdout.endswith("  in the way: pod default/idle\n")
    assert on.found() == before

    spared = run(on, "apply", '{"0": {"1g.5gb": 1}}', "--yes")

    assert spared.exit_code == 0
    assert [one.compute[0].uuid for one in on.gpus()[0].instances] == [held]


def test_a_pod_whose_gpu_is_not_known_is_in_the_way_of_what_would_take_one(
    on: SimulatedNode,
) -> None:
    """What only adds is nobody's loss, whichever GPU it has."""
    before = on.found()
    write_checkpoint(on.simulation.host_root, {"sliced": ["slice-3"]})

    result = run(on, "apply", WANTED, "--yes")

    assert result.exit_code == REFUSED
    assert "pod default/sliced has the GPU 'slice-3'" in result.stderr
    assert result.stdout.endswith("  in the way: pod default/sliced\n")
    assert on.found() == before


def test_a_pod_that_has_an_instance_by_a_claim_is_in_the_way(on: SimulatedNode) -> None:
    """By the name that NVIDIA's driver gives it: minor number, profile, its number, start."""
    before = on.found()
    write_claims(on.simulation.host_root, {"claimed": ["gpu-0-mig-2g10gb-14-4"]})
    minor = on.gpus()[0].minor
    assert minor == 0

    result = run(on, "apply", '{"0": {"3g.20gb": 2}}', "--yes")

    assert result.exit_code == REFUSED
    assert result.stdout.endswith("  in the way: pod default/claimed\n")
    assert on.found() == before
    assert run(on, "apply", '{"0": {"2g.10gb": 1}}', "--yes").exit_code == 0
    assert {one[:2] for one in on.found()} == {("2g.10gb", 4)}


def test_what_the_kubelet_has_given_to_whom_must_be_known(on: SimulatedNode) -> None:
    before = on.found()
    write_checkpoint(on.simulation.host_root, {}).write_text("garbage")

    result = run(on, "apply", WANTED, "--yes")

    assert result.exit_code == 2
    assert "no checkpoint of a kubelet" in result.stderr
    assert on.found() == before


def test_the_device_plugin_s_list_and_pods_without_device_are_named(on: SimulatedNode) -> None:
    """Also by who only looks."""
    write_checkpoint(on.simulation.host_root, {"lost": [LOST]}, offered={"r": [LOST]})
    status = json.loads(run(on, "status", "-o", "json").stdout)
    assert [len(status["problems"]), status["problems"][1].partition(",")[0]] == [
        2,
        f"pod default/lost holds {LOST}",
    ]
    assert f"\nLook at this: pod default/lost holds {LOST}," in run(on, "status").stdout

    result = run(on, "apply", WANTED, "--yes")

    assert result.exit_code == 0
    assert "offers 1 MIG devices that are gone, and not 4 that are there: restart" in result.stdout
    assert f"pod default/lost holds {LOST}, which is gone: delete the pod" in result.stdout


def test_without_a_yes_nothing_is_done(on: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    before = on.found()
    nobody = run(on, "apply", WANTED)
    assert nobody.exit_code == 2
    assert "no terminal for the question: add --yes" in nobody.stderr

    monkeypatch.setattr(agreement, "is_interactive", lambda: True)
    refused = run(on, "apply", WANTED, answer="n\n")
    assert refused.exit_code == REFUSED
    assert refused.stdout.endswith("Nothing was changed.\n")
    assert run(on, "apply", WANTED, "-o", "json", answer="y\n").exit_code == 2
    assert on.found() == before

    assert run(on, "apply", WANTED, answer="y\n").exit_code == 0
    assert on.found() != before


def test_a_change_that_fails_is_undone_and_one_that_cannot_be_is_held(on: SimulatedNode) -> None:
    """Until the cause is mended and restore has been run."""
    before = on.gpus()[0]
    on.simulation.fault(Return(code=pynvml.NVML_ERROR_NO_PERMISSION), CREATE, times=1)
    undone = run(on, "apply", WANTED, "--yes", "-o", "json")
    data = json.loads(undone.stdout)
    assert (undone.exit_code, data["outcome"]) == (UNDONE, "rolled-back")
    assert "permission" in data["reason"].lower()
    places = {(one.profile, one.start) for one in before.instances}
    assert {(one.profile, one.start) for one in on.gpus()[0].instances} == places

    on.simulation.fault(Return(code=pynvml.NVML_ERROR_NO_PERMISSION), CREATE)
    held = run(on, "apply", WANTED, "--yes")
    assert held.exit_code == UNFINISHED
    assert f"then run gpuscape mig restore --journal {journal(on)}" in held.stdout
    refused = run(on, "apply", WANTED, "--yes")
    assert (refused.exit_code, refused.stdout) == (REFUSED, "")
    assert "is stuck on GPU GPU-" in refused.stderr
    assert "run gpuscape mig restore to end it" in refused.stderr

    assert run(on, "restore").exit_code == UNFINISHED
    on.simulation.clear()
    restored = run(on, "restore")
    assert restored.exit_code == 0
    assert "Rolled back, every GPU has the previous layout" in restored.stdout
    assert {(one.profile, one.start) for one in on.gpus()[0].instances} == places
    assert ended(on) == [(WANTED, "rolled-back")] * 2


def test_a_change_whose_worker_died_is_ended_by_restore(on: SimulatedNode) -> None:
    on.simulation.fault(Crash(ending="kill"), "nvmlGpuInstanceDestroy", times=1)
    died = run(on, "apply", WANTED, "--yes")
    assert died.exit_code == UNFINISHED
    assert "gpuscape mig restore goes on from there" in died.stderr
    refused = run(on, "apply", WANTED, "--yes").stderr
    assert "runs, or was stopped, on GPU GPU-" in refused

    restored = run(on, "restore", "-o", "json")
    assert (restored.exit_code, json.loads(restored.stdout)["outcome"]) == (0, "applied")
    assert has_layout(on.gpus()[0], LAYOUT)
    nothing = run(on, "restore")
    assert (nothing.exit_code, unended(on)) == (0, None)
    assert nothing.stdout == (
        "Nothing to do: no change is open, and no GPU lost its layout since the last one.\n"
    )


def test_what_keeps_programs_from_new_instances_is_said(on: SimulatedNode) -> None:
    """A CDI file that names a device that the change ends; nobody writes it anew."""
    spec = on.simulation.host_root / "etc/cdi/nvidia.json"
    spec.parent.mkdir(parents=True)
    gone = next(c.uuid for one, c in on.gpus()[0].devices() if one.profile == "2g.10gb")
    device: dict[str, object] = {"name": gone, "containerEdits": {}}
    spec.write_text(
        json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]})
    )

    result = run(on, "apply", WANTED, "--yes")

    assert result.exit_code == 0
    assert result.stdout.count("Look at this: /etc/cdi/nvidia.json") == 1
    assert "CDI specification stale" not in result.stderr
    told = json.loads(run(on, "restore", "-o", "json").stdout)["problems"]
    assert [one.partition(":")[0] for one in told] == ["/etc/cdi/nvidia.json"]


def test_without_a_change_there_is_nothing_to_restore(on: SimulatedNode) -> None:
    nothing = run(on, "restore")
    assert nothing.exit_code == 0
    assert nothing.stdout == (
        f"Nothing to do: no change in {journal(on)} is open, and none has ended.\n"
    )


def test_restore_brings_back_what_a_reboot_took(tmp_path: Path) -> None:
    """With the same MIG devices, also where the GPU forgot that MIG was on."""
    on = node(tmp_path, model=H100)
    assert run(on, "apply", '{"0": {"3g.40gb": 1, "1g.10gb": 2}}', "--yes").exit_code == 0
    before = on.gpus()
    on.simulation.reboot()
    assert [gpu.instances for gpu in on.gpus()] == [()]

    restored = run(on, "restore")

    assert restored.exit_code == 0, restored.output
    assert restored.stdout == f"GPU {on.uuid()}: its layout is there again.\n"
    assert on.gpus() == before


def test_a_layout_that_was_there_already_comes_back_after_a_reboot(tmp_path: Path) -> None:
    """Nothing is asked, no hook is run, and no change is in the history."""
    on = node(tmp_path, *FIVE)
    before = on.gpus()
    counts: dict[str, int] = {"1g.5gb": 3, "2g.10gb": 2}
    hooks = tmp_path / "hooks.yaml"
    hooks.write_text('{version: v1, hooks: {apply-start: [{command: "false"}]}}')

    result = run(on, "apply", json.dumps({"0": counts}), "-k", str(hooks))

    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("Nothing to do.\n")
    assert ended(on) == []
    on.simulation.reboot()
    assert run(on, "restore").exit_code == 0
    assert on.gpus() == before


def test_what_does_not_come_back_after_a_reboot_is_said(tmp_path: Path) -> None:
    """A program had the GPU first."""
    on = node(tmp_path, model=H100)
    assert run(on, "apply", '{"0": {"7g.80gb": 1}}', "--yes").exit_code == 0
    on.simulation.reboot()
    (bus_id,) = on.simulation.state.gpus
    on.simulation.add_process(bus_id, os.getpid())

    told = run(on, "restore", "-o", "json")

    assert told.exit_code == UNFINISHED
    [gpu] = json.loads(told.stdout)["restored"]
    assert f"process {os.getpid()}" in gpu["why_not"]
    assert on.gpus()[0].instances == ()


def test_mig_is_turned_on_by_a_reset_unless_a_person_forbids_it(tmp_path: Path) -> None:
    """A new layout on a GPU with MIG off, and back; nothing of the command's own is in the way."""
    off = node(tmp_path, mig=False, count=2)
    off.simulation.set_resets(seconds=0.3, renumbers=True)
    refused = run(off, "apply", WANTED, "--no-mode-change", "--yes")
    assert refused.exit_code == REFUSED
    assert "reset-needed" in refused.output
    assert not off.simulation.state.gpus[machines.gpu(0).bus_id].mig_pending

    turned_on = run(off, "apply", WANTED, "--yes")

    assert turned_on.exit_code == 0, turned_on.output
    assert "MIG goes on by a reset of the GPU" in turned_on.output
    assert [has_layout(gpu, LAYOUT) for gpu in off.gpus()] == [True, False]

    assert run(off, "apply", '{"0": "off"}', "--yes").exit_code == 0
    assert [gpu.mig for gpu in off.simulation.state.gpus.values()] == [False, False]


def test_nvidia_smi_resets_a_gpu_that_the_driver_does_not_where_a_person_allows_it(
    tmp_path: Path,
) -> None:
    """Without the option the command says what it would take."""
    off = node(tmp_path, mig=False)
    off.simulation.set_resets(mode_change="reset-required")
    with served_smi(off.simulation):
        as_before = run(off, "apply", WANTED, "--yes")
        mode = off.simulation.state.gpus[machines.gpu(0).bus_id].mig_pending
        turned_on = run(off, "apply", WANTED, "--yes", "--allow-reset")

    assert (as_before.exit_code != 0, mode) == (True, False)
    assert "&& reboot" in as_before.output
    assert turned_on.exit_code == 0, turned_on.output
    assert has_layout(off.gpus()[0], LAYOUT)


def test_two_changes_at_a_time_are_refused(on: SimulatedNode) -> None:
    before = on.found()
    with Journal(journal(on)):
        result = run(on, "apply", WANTED, "--yes")
    assert result.exit_code == REFUSED
    assert "another process changes MIG on this node" in result.stderr
    assert on.found() == before


@pytest.mark.parametrize(
    ("content", "words"), [('{"v": 1}', "another version"), ("{", "is damaged")]
)
def test_a_journal_that_cannot_be_understood_is_left_alone(
    on: SimulatedNode, content: str, words: str
) -> None:
    folder = journal(on)
    folder.mkdir(mode=0o700)
    (folder / CHANGE).write_text(content)
    before = on.found()
    for command in (("apply", WANTED, "--yes"), ("restore",)):
        result = run(on, *command)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr
    assert on.found() == before
    assert (folder / CHANGE).read_text() == content


def test_a_journal_that_cannot_be_kept_stops_the_change_before_it_begins(
    on: SimulatedNode, tmp_path: Path
) -> None:
    """As a full disk does, and a folder that others may write to."""
    before = on.found()
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name, words in (("file/mig", "a link or another file"), ("open", "others may write")):
        result = run(on, "apply", WANTED, "--yes", "--journal", str(tmp_path / name))
        assert result.exit_code == 2
        assert words in result.stderr
    assert on.found() == before


def test_modes_alone_are_changed_where_that_is_asked_for(tmp_path: Path) -> None:
    """Instances stay, wanted or not."""
    on = node(tmp_path, model=H100, count=2, mig=False)
    result = run(on, "apply", '{"0": {"3g.40gb": 2}}', "--mode-only", "--yes")
    assert result.exit_code == 0
    assert has_layout(on.gpus()[0], layout_from_counts({}))
    assert run(on, "apply", '{"0": {"3g.40gb": 2}}', "--yes").exit_code == 0
    there = on.found()
    again = run(on, "apply", '{"0": {"7g.80gb": 1}}', "--mode-only", "--yes")
    assert again.stdout.endswith("Nothing to do.\n")
    assert on.found() == there


# Ctrl-C


@pytest.fixture
def begun(on: SimulatedNode) -> Iterator[subprocess.Popen[str]]:
    """A change in the middle of a slow step; its worker ends by itself within seconds."""
    on.simulation.fault(Delay(seconds=2), CREATE, times=1)
    written = journal(on) / CHANGE
    with running(on, "apply", WANTED, "--yes", reached=written.exists) as process:
        yield process


def test_ctrl_c_does_not_stop_a_change_in_the_middle(
    on: SimulatedNode, begun: subprocess.Popen[str]
) -> None:
    begun.send_signal(signal.SIGINT)
    output, errors = begun.communicate(timeout=60)
    assert begun.returncode == 0
    assert "A change that has begun is not stopped halfway" in errors
    assert output.endswith("Done: every GPU has the desired layout.\n")
    assert has_layout(on.gpus()[0], LAYOUT)


def test_a_second_ctrl_c_leaves_the_change_to_itself(
    on: SimulatedNode, begun: subprocess.Popen[str]
) -> None:
    begun.send_signal(signal.SIGINT)
    assert begun.stderr
    begun.stderr.readline()
    begun.stderr.readline()
    begun.send_signal(signal.SIGINT)
    _, errors = begun.communicate(timeout=60)
    assert begun.returncode == UNFINISHED
    assert "not waited for: the change continues without this command" in errors
    until(lambda: not (journal(on) / CHANGE).exists())
    assert has_layout(on.gpus()[0], LAYOUT)
    assert ended(on) == [(WANTED, "applied")]
