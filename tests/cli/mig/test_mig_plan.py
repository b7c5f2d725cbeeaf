# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig plan``: a diff that names who is disturbed, or why there is no plan."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
import yaml
from click.testing import CliRunner

from base.errors import BadInput
from base.files import MOST_BYTES
from cli.failures import REFUSED
from cli.main import main
from cli.mig import desired_layouts
from simulator.simulation import Return, Simulation
from simulator.state import edits
from simulator.state.machine_state import ComputeInstance, GpuInstance
from tests.cli.mig.conftest import CUT, RunMig

HALVES = '{"4": {"3g.20gb": 2}}'
"""GPU 4 has one of them, beside 2g.10gb and two of 1g.5gb."""
CONFIG = """version: v1
mig-configs:
  halves:
  - devices: [4]
    mig-enabled: true
    mig-devices: {"3g.20gb": 2}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with one configuration, which means the same as HALVES."""
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return str(path)


def document(run_mig: RunMig, simulated: Simulation, *arguments: str) -> dict[str, object]:
    found = run_mig("plan", *arguments, "-o", "json", on=simulated)
    answer: dict[str, object] = json.loads(found.output)
    return answer


# what is planned


def test_what_stays_goes_and_comes_is_marked(run_mig: RunMig, simulated: Simulation) -> None:
    result = run_mig("plan", HALVES, on=simulated)
    assert (result.exit_code, result.output.splitlines()) == (
        0,
        [
            "GPU 4 (NVIDIA A100-SXM4-40GB): 1 kept, 3 destroyed, 1 created",
            "   INSTANCE  PROFILE  UNITS  PROGRAMS",
            "-  3         2g.10gb  0-1    -",
            "+  new       3g.20gb  0-3    -",
            "-  9         1g.5gb   2      -",
            "-  10        1g.5gb   3      -",
            "   2         3g.20gb  4-7    -",
            "",
            "GPU 0-3, 5-7: not in this layout, left as they are",
            "",
            "Plan: 8 steps; instances: 1 kept, 3 destroyed, 1 created.",
            "Disturbed: no device user.",
        ],
    )


def test_a_program_that_would_be_disturbed_is_named_and_can_be_spared(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    """Two programs: one on what goes, one on what is kept."""
    simulated.add_process(bus_ids[4], 4242, gpu_instance_id=9, compute_instance_id=0)
    simulated.add_process(bus_ids[4], 777, gpu_instance_id=2, compute_instance_id=0)
    shown = run_mig("plan", HALVES, on=simulated)
    assert shown.exit_code == 0
    assert "-  9         1g.5gb   2      4242 python3\n" in shown.output
    assert "   2         3g.20gb  4-7    777\n" in shown.output
    assert shown.output.endswith("Disturbed:\n  process 4242 python3\n")

    spared = run_mig("plan", HALVES, "--spare-busy", on=simulated)
    assert spared.exit_code == REFUSED
    assert "GPU 4: busy: no way leaves alone what is in use" in spared.output
    assert spared.output.endswith("  in the way: process 4242 python3\n")


def test_an_instance_that_a_stopped_change_left_half_made_is_completed(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    half = GpuInstance(id=1, profile="3g.20gb", start=0)
    simulated.edit(edits.with_gpu_changed(bus_ids[6], instances=(half,)))
    output = run_mig("plan", '{"6": {"3g.20gb": 1}}', on=simulated).output
    assert "~  1         3g.20gb, new: 3c  0-3    -\n" in output
    found = document(run_mig, simulated, '{"6": {"3g.20gb": 1}}')
    instance = found["gpus"][0]["instances"][0]  # type: ignore[index]
    assert (instance["fate"], instance["added_compute_slices"]) == ("keep", [3])


def test_compute_instances_that_go_in_a_kept_instance_are_shown_with_those_that_stay(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    """A program on the 2c stays; the document has the same."""
    parts = (
        ComputeInstance(id=0, start=0, slices=2),
        ComputeInstance(id=1, start=2, slices=1),
        ComputeInstance(id=2, start=3, slices=1),
    )
    divided = GpuInstance(id=1, profile="4g.20gb", start=0, compute=parts)
    simulated.edit(edits.with_gpu_changed(bus_ids[6], instances=(divided,)))
    simulated.add_process(bus_ids[6], 777, gpu_instance_id=1, compute_instance_id=0)
    wanted = '{"6": {"2c.4g.20gb": 1}}'

    output = run_mig("plan", wanted, "--spare-busy", on=simulated).output

    assert "~  1         4g.20gb in 2c, destroyed: 1c+1c  0-3    777\n" in output
    assert (
        "Plan: 2 steps; instances: 1 kept, 0 destroyed, 0 created.\n"
        "Compute instances in kept instances: 2 destroyed, 0 created.\n"
        "Disturbed: no device user.\n"
    ) in output
    found = document(run_mig, simulated, wanted)
    [instance] = found["gpus"][0]["instances"]  # type: ignore[index]
    assert (instance["fate"], instance["compute_slices"]) == ("keep", [2])
    assert instance["destroyed_compute_slices"] == [1, 1]


def test_a_mode_is_a_step_where_it_needs_no_reset(run_mig: RunMig, tmp_path: Path) -> None:
    simulated = Simulation.create("hgx-h100", tmp_path)
    output = run_mig("plan", '{"0,1": {"3g.40gb@0": 2}}', on=simulated)
    assert output.exit_code == 2  # two of them cannot be at one place
    output = run_mig("plan", '{"0,1": {"3g.40gb@0": 1}, "2": "off"}', on=simulated)
    assert output.output.splitlines() == [
        "GPU 0-1 (NVIDIA H100 80GB HBM3), each: MIG goes on, 1 created",
        "   INSTANCE  PROFILE  UNITS  PROGRAMS",
        "+  new       3g.40gb  0-3    -",
        "",
        "GPU 2: as desired",
        "GPU 3-7: not in this layout, left as they are",
        "",
        "Plan: 6 steps; instances: 0 kept, 0 destroyed, 2 created.",
        "Disturbed: no device user.",
    ]


def test_a_reset_by_the_driver_is_a_step_with_its_effect_on_the_whole_gpu(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    """On GPU 0 MIG goes on, and on GPU 6 off. Profiles are not known before MIG is on."""
    simulated.add_process(bus_ids[0], 4242)
    wanted = '{"0": {"3g.20gb": 2}, "6": "off"}'
    output = run_mig("plan", wanted, on=simulated).output.splitlines()
    assert output[:5] == [
        "GPU 0 (NVIDIA A100-SXM4-40GB): MIG goes on by a reset of the GPU, 2 created",
        "   INSTANCE  PROFILE  UNITS  PROGRAMS",
        "+  new       3g.20gb  0-3    -",
        "+  new       3g.20gb  4-7    -",
        "",
    ]
    assert output[5] == "GPU 6 (NVIDIA A100-SXM4-40GB): MIG goes off by a reset of the GPU"
    assert output[-5:] == [
        "Disturbed:",
        "  process 4242 python3",
        "Reset by the driver: GPU 0, 6. No program may have a GPU open for it.",
        "The agent does this where mig-mode-change is driver.",
        "By the table of known models: GPU 0. The driver knows more once MIG is on.",
    ]
    by_smi = run_mig("plan", wanted, "--allow-reset", on=simulated).output.splitlines()
    assert by_smi[-3] == "Where the driver does not, its nvidia-smi does, once for each GPU."
    found = document(run_mig, simulated, wanted)
    assert [gpu["reset"] for gpu in found["gpus"]] == [True, True]  # type: ignore[attr-defined]
    modes = [step for step in found["steps"] if step["step"] == "set-mode"]  # type: ignore[attr-defined]
    assert [step["on"] for step in modes] == [True, False]


def test_who_is_on_the_whole_gpu_is_disturbed_by_a_change_of_its_mode(
    run_mig: RunMig, tmp_path: Path
) -> None:
    simulated = Simulation.create("hgx-h100", tmp_path)
    simulated.add_process(min(simulated.state.gpus), 4242)
    output = run_mig("plan", '{"0": "on"}', on=simulated).output
    assert output.endswith("Disturbed:\n  process 4242 python3\n")


def test_a_wait_for_a_mode_that_is_ended_is_said(run_mig: RunMig, tmp_path: Path) -> None:
    simulated = Simulation.create("hgx-h100", tmp_path)
    simulated.edit(edits.with_gpu_changed(min(simulated.state.gpus), mig=False, mig_pending=True))
    output = run_mig("plan", '{"0": "off"}', on=simulated).output
    assert output.startswith(
        "GPU 0 (NVIDIA H100 80GB HBM3): MIG stays off, and no longer waits to be on\n\n"
    )


def test_the_resources_to_come_are_those_of_the_strategy(
    run_mig: RunMig, simulated: Simulation
) -> None:
    output = run_mig("plan", HALVES, "--strategy", "mixed", on=simulated).output
    lines = output.splitlines()
    assert lines[lines.index("Allocatable then:") + 1 :] == [
        "  nvidia.com/gpu: 4",
        "  nvidia.com/mig-1g.5gb: 1",
        "  nvidia.com/mig-2g.10gb: 1",
        "  nvidia.com/mig-3g.20gb: 2",
        "  nvidia.com/mig-4g.20gb: 3",
        "  nvidia.com/mig-7g.40gb: 1",
    ]
    refused = run_mig("plan", HALVES, "--strategy", "single", on=simulated)
    assert refused.exit_code == REFUSED
    assert "This node: plugin: the device plugin could not start" in refused.output


def test_a_node_that_would_offer_nothing_is_said_to(run_mig: RunMig, tmp_path: Path) -> None:
    simulated = Simulation.create("hgx-h100", tmp_path)
    output = run_mig("plan", "all-enabled", "--strategy", "mixed", on=simulated).output
    assert output.endswith("\nAllocatable then: nothing, neither GPUs nor MIG devices.\n")


# scripts


@pytest.mark.parametrize(
    ("layout", "extra", "result", "code"),
    [
        (HALVES, (), "steps", 0),
        (HALVES, ("--exit-code",), "steps", 1),
        ('{"5": {"7g.40gb": 1}}', (), "nothing", 0),
        ('{"5": {"7g.40gb": 1}}', ("--exit-code",), "nothing", 0),
        ('{"5": {"7g.40gb": 2}}', (), "refused", REFUSED),
        ('{"5": {"7g.40gb": 2}}', ("--exit-code",), "refused", REFUSED),
    ],
)
def test_scripts_can_tell_the_answers_apart(
    run_mig: RunMig,
    simulated: Simulation,
    layout: str,
    extra: tuple[str, ...],
    result: str,
    code: int,
) -> None:
    for form in ("json", "yaml"):
        found = run_mig("plan", layout, *extra, "-o", form, on=simulated)
        assert found.exit_code == code
        assert yaml.safe_load(found.output)["result"] == result


def test_the_document_has_every_step_with_its_place(run_mig: RunMig, simulated: Simulation) -> None:
    found = document(run_mig, simulated, HALVES)
    uuid = "GPU-cff226d4-9cc9-5d93-b5dc-0cefb5be0eea"
    assert found["desired"] == HALVES
    assert found["steps"] == [
        {"step": f"destroy-{kind}-instance", "gpu": uuid, "instance": id_, **more}
        for id_, profile, start in ((3, "2g.10gb", 0), (9, "1g.5gb", 2), (10, "1g.5gb", 3))
        for kind, more in (
            ("compute", {"compute": 0}),
            ("gpu", {"profile": profile, "start": start}),
        )
    ] + [
        {"step": "create-gpu-instance", "gpu": uuid, "profile": "3g.20gb", "start": 0, "size": 4},
        {"step": "create-compute-instance", "gpu": uuid, "start": 0, "slices": 3, "first": 0},
    ]


# what is refused


def test_a_reset_that_is_not_permitted_is_named_with_its_command(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    before = simulated.state
    result = run_mig("plan", '{"0": "on", "6": {}}', "--no-mode-change", on=simulated)
    assert result.exit_code == REFUSED
    assert "GPU 0: reset-needed: NVIDIA A100-SXM4-40GB turns MIG on by a reset" in result.output
    reset = f"nvidia-smi -i {bus_ids[0]} -mig 1 && nvidia-smi --gpu-reset -i {bus_ids[0]}"
    assert f"    {reset}\n" in result.output
    assert simulated.state.gpus == before.gpus
    simulated.edit(edits.with_gpu_changed(bus_ids[6], mig=True, mig_pending=False))
    pending = run_mig("plan", '{"6": {}}', on=simulated)
    assert pending.exit_code == REFUSED
    assert "GPU 6: reset-pending" in pending.output


def test_what_never_fits_is_said_at_once_with_mig_off_too(
    run_mig: RunMig, simulated: Simulation
) -> None:
    result = run_mig("plan", '{"0-1": {"2g.10gb": 4}}', on=simulated)
    assert result.exit_code == REFUSED
    assert "GPU 0-1: infeasible: 4 of 2g.10gb, of which the GPU allows 3" in result.output
    assert "  the most of it that fits: 3 x 2g.10gb\n" in result.output
    assert "nvidia-smi" not in result.output


def test_gpus_that_need_a_reset_have_one_command_together(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    gpus = ",".join(bus_ids[:2])
    result = run_mig("plan", '{"0-1": "on"}', "--no-mode-change", on=simulated)
    assert f"    nvidia-smi -i {gpus} -mig 1 && nvidia-smi --gpu-reset -i {gpus}\n" in result.output


def test_an_infeasible_mix_is_refused_with_the_nearest(
    run_mig: RunMig, simulated: Simulation
) -> None:
    result = run_mig("plan", '{"6": {"3g.20gb": 3, "1g.5gb": 1}}', on=simulated)
    assert result.exit_code == REFUSED
    assert "GPU 6: infeasible: 3 of 3g.20gb, of which the GPU allows 2" in result.output
    assert "  the most of it that fits: 2 x 3g.20gb\n" in result.output
    found = document(run_mig, simulated, '{"6": {"3g.20gb": 3}}')
    obstacle = found["obstacles"][0]  # type: ignore[index]
    assert obstacle["limit"] == "count"
    assert [one["profile"] for one in obstacle["nearest"]["instances"]] == ["3g.20gb"] * 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (('{"4": {"1g.6gb": 1}}',), "LAYOUT:1: 4.1g.6gb: GPU 4 (NVIDIA A100-SXM4-40GB"),
        (('{"9": "off"}',), "there is no GPU 9"),
        (('{"4": {"3g.20gb": 1}, "4-5": "off"}',), "gets another layout from"),
        (('{"4": {"3g.20gb@1": 1}}',), "has no place for 3g.20gb at 1; at 0, 4"),
        (("all-1g.6gb",), "no configuration 'all-1g.6gb'"),
        ((), "what layout? Name a configuration"),
        (("-c", "all-balanced", "all-balanced"), "LAYOUT and -c say the same"),
        (("-f", "-", HALVES), "so -f has no use"),
        (("-f", "/dev/null/none"), "cannot read the configuration file /dev/null/none"),
        (("x" * 5000,), "LAYOUT: longer than 4096 bytes"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(
    run_mig: RunMig, simulated: Simulation, arguments: tuple[str, ...], words: str
) -> None:
    result = run_mig("plan", *arguments, on=simulated)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_gpu_without_mig_is_refused(run_mig: RunMig, tmp_path: Path) -> None:
    result = run_mig("plan", '{"0": "on"}', on=Simulation.create("t4", tmp_path))
    assert result.exit_code == 2
    assert "GPU 0 (Tesla T4, " in result.stderr
    assert "has no MIG" in result.stderr


def test_a_gpu_that_cannot_be_read_is_never_planned(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    simulated.fault(
        Return(code=pynvml.NVML_ERROR_UNKNOWN), "nvmlDeviceGetGpuInstances", bus_id=bus_ids[5]
    )
    for command in ("plan", "assert"):
        for layout in ('{"5": {"3g.20gb": 2}}', '{"all": "on"}', "all-1g.5gb"):
            result = run_mig(command, layout, on=simulated)
            assert (result.exit_code, result.stdout) == (3, "")
            assert "GPU 5 (0000:90:00.0): not read" in result.stderr
            assert "name the other GPUs in LAYOUT" in result.stderr
        assert run_mig(command, HALVES, on=simulated).exit_code in (0, 1)  # of GPU 4 alone


# where layouts come from


@pytest.mark.parametrize("how", ["argument", "flag", "only", "stdin", "variables"])
def test_a_configuration_of_a_file_is_named_in_every_way(
    run_mig: RunMig,
    simulated: Simulation,
    file: str,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = {
        "argument": ("-f", file, "halves"),
        "flag": ("--config-file", file, "--selected-config", "halves"),
        "only": ("-f", file),
        "stdin": ("-f", "-", "halves"),
        "variables": (),
    }[how]
    if how == "variables":
        monkeypatch.setenv("MIG_PARTED_CONFIG_FILE", file)
        monkeypatch.setenv("MIG_PARTED_SELECTED_CONFIG", "halves")
    result = run_mig("plan", *arguments, on=simulated, stdin=CONFIG)
    assert result.output == run_mig("plan", HALVES, on=simulated).output


def test_variables_of_mig_parted_do_not_exclude_a_layout(
    run_mig: RunMig, simulated: Simulation, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIG_PARTED_CONFIG_FILE", file)
    monkeypatch.setenv("MIG_PARTED_SELECTED_CONFIG", "none-such")
    assert run_mig("plan", HALVES, on=simulated).exit_code == 0


def test_who_names_a_file_as_a_layout_learns_of_the_flag(
    run_mig: RunMig, simulated: Simulation, file: str
) -> None:
    assert f"{file} is a file: name it with -f" in run_mig("plan", file, on=simulated).stderr


def test_a_file_is_refused_with_line_and_key_before_gpus_are_read(
    run_mig: RunMig, simulated: Simulation, tmp_path: Path
) -> None:
    """None of these gets as far as the driver, which would fail."""
    simulated.fault(Return(code=pynvml.NVML_ERROR_UNKNOWN), "nvmlDeviceGetCount_v2")
    bomb = "version: v1\nmig-configs:\n  a: &a [x,x,x,x,x,x,x,x,x]\n"
    names = "abcdefgh"
    for before, name in pairwise(names):
        bomb += f"  {name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for text, words in (
        (CONFIG.replace("3g.20gb", "3g"), "6: mig-configs.halves[0].mig-devices.3g"),
        (CONFIG + "#" * (2 << 20), "larger than 1 MiB"),
        (bomb, "aliases"),
    ):
        file = tmp_path / "wrong.yaml"
        file.write_text(text)
        result = run_mig("plan", "-f", str(file), "halves", on=simulated)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr
        assert str(file) in result.stderr
        piped = run_mig("plan", "-f", "-", "halves", on=simulated, stdin=text)
        assert piped.exit_code == 2
        assert words in piped.stderr
        assert "standard input" in piped.stderr


def test_of_endless_standard_input_no_more_is_read_than_a_file_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cut in the middle of a character, which is not what is wrong with it."""

    class Endless:
        def read(self, size: int = -1) -> bytes:
            assert 0 < size <= MOST_BYTES + 1
            return ("\u00e9" * size).encode()[:size]

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=Endless()))
    with pytest.raises(BadInput, match="standard input: larger than 1 MiB"):
        desired_layouts.file_configs("-")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("gpuscape mig plan all-3g.7", {"all-3g.71gb", "all-3g.72gb"}),
        ("gpuscape mig assert -f FILE ha", {"halves"}),
    ],
)
def test_names_of_configurations_are_completed(
    words: str, wanted: set[str], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", words.replace("FILE", file))
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    monkeypatch.setenv("_GPUSCAPE_COMPLETE", "bash_complete")
    output = CliRunner().invoke(main, prog_name="gpuscape").output
    assert {line.removeprefix("plain,") for line in output.splitlines()} == wanted


def test_through_the_device_reader_programs_of_this_machine_lend_no_names(tmp_path: Path) -> None:
    """Process 1 of the simulated machine is not the one that is here."""
    folder = tmp_path / "machine"
    folder.mkdir()
    simulated = Simulation.create(CUT, folder)
    simulated.add_process(
        sorted(simulated.state.gpus)[4], 1, gpu_instance_id=9, compute_instance_id=0
    )
    result = CliRunner().invoke(
        main, ("mig", "plan", HALVES, "--simulate", str(simulated.state_file))
    )
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "  process 1")
