# SPDX-License-Identifier: Apache-2.0
"""What becomes of a request, GPU by GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.layouts.layout_request import LayoutRequest
from agent.layouts.planned_request import (
    allocated_users,
    layout_choice,
    layouts_digest,
    plan_request,
)
from api.mig_resources import MigStrategy
from api.mig_status_annotation import MOST_REASON, GpuChangeStatus, MigStatusAnnotation
from api.mig_status_annotation import RequestSource as Source
from discovery.gpu_part import GpuPart
from discovery.mig_state import MigGpu, MigReading, UnreadMigGpu
from discovery.model import Mode
from kubelet.allocated_devices import AllocatedDevice, GpuContainer, NodeAllocation
from mig.configs.mig_config_file import parse_mig_configs
from mig.configs.mig_configs import MigConfigs
from mig.users.device_users import DeviceUser, MigPart, UserKind
from tests.mig.naive_gpu import mig_gpu

A100 = "a100-sxm4-40gb"
OFF = Mode(current=False, pending=False)
SPLIT = mig_gpu(A100, ("1g.5gb", 0), ("1g.5gb", 1), ("3g.20gb", 4))
EMPTY = mig_gpu(A100, uuid="GPU-1", index=1)
WANTED = '{"0": {"1g.5gb": 1, "3g.20gb": 1, "2g.10gb": 1}}'


def judged(
    text: str,
    *gpus: MigReading,
    source: Source = Source.ANNOTATION,
    configs: MigConfigs | None = None,
    allocation: NodeAllocation | None = None,
    strategy: MigStrategy | None = None,
) -> MigStatusAnnotation:
    readings = gpus or (SPLIT, EMPTY)
    users = allocated_users(readings, allocation or NodeAllocation())
    request = LayoutRequest(source=source, text=text)
    return plan_request(request, readings, configs, users, strategy).status


def held(*of: tuple[str, int | None], gpu: MigGpu = SPLIT) -> NodeAllocation:
    """Pods of the namespace team, each with one GPU instance or the whole GPU."""
    return NodeAllocation(
        containers=tuple(
            GpuContainer(
                namespace="team",
                pod=pod,
                container="main",
                devices=(
                    AllocatedDevice(
                        part=GpuPart(bus_id=gpu.bus_id, gpu_instance_id=instance),
                        resource="nvidia.com/mig-1g.5gb",
                        id=f"MIG-{pod}",
                    ),
                ),
            )
            for pod, instance in of
        )
    )


def test_a_plan_counts_what_stays_goes_and_comes_on_each_gpu_that_changes() -> None:
    found = judged(WANTED)
    assert (found.phase, found.source, found.desired) == ("planned", Source.ANNOTATION, WANTED)
    assert found.gpus == (GpuChangeStatus(gpu=0, keep=2, destroy=1, create=1),)
    assert found.pods == ()
    assert judged(f'{WANTED[:-1]}, "1": "on"}}').gpus == found.gpus
    assert "nothing is changed by itself" in found.reason


def test_pods_on_what_goes_are_named_and_those_on_what_stays_are_not() -> None:
    everybody = held(*((f"job-{one.id}", one.id) for one in SPLIT.instances))
    found = judged('{"0": {}}', allocation=everybody)
    assert found.pods == tuple(sorted(f"team/job-{one.id}" for one in SPLIT.instances))
    stays = next(one for one in SPLIT.instances if one.profile == "3g.20gb")
    assert judged(WANTED, allocation=held(("job", stays.id))).pods == ()


def test_programs_in_the_way_are_named_and_a_way_around_them_is_taken() -> None:
    small, other = (one.id for one in SPLIT.instances if one.profile == "1g.5gb")
    on = {
        MigPart(SPLIT.uuid, small): frozenset({DeviceUser(UserKind.PROCESS, "7 python3")}),
        MigPart(SPLIT.uuid, other): frozenset({DeviceUser(UserKind.PROCESS, "8")}),
    }
    request = LayoutRequest(source=Source.ANNOTATION, text='{"0": {}}')
    found = plan_request(request, (SPLIT, EMPTY), None, on, None).status
    assert found.reason.startswith("process 7 python3 and 1 more uses what would be destroyed")
    assert found.pods == ()
    one = {MigPart(SPLIT.uuid, small): on[MigPart(SPLIT.uuid, small)]}
    keeps = LayoutRequest(source=Source.ANNOTATION, text='{"0": {"1g.5gb": 1, "3g.20gb": 1}}')
    assert "process" not in plan_request(keeps, (SPLIT, EMPTY), None, one, None).status.reason


def test_many_pods_are_counted() -> None:
    split = mig_gpu(A100, *(("1g.5gb", at) for at in range(7)))
    other = mig_gpu(A100, *(("1g.5gb", at) for at in range(7)), uuid="GPU-1", index=1)
    pods = [(f"job-{one.id}", one.id) for one in split.instances]
    both = NodeAllocation(
        containers=(
            *held(*pods, gpu=split).containers,
            *held(*((f"b-{name}", at) for name, at in pods), gpu=other).containers,
        )
    )
    found = judged('{"all": "on"}', split, other, allocation=both)
    assert (len(found.pods), found.more_pods) == (8, 6)


def test_what_is_there_already_is_unchanged_in_whatever_words() -> None:
    one = judged('{"0": {"1g.5gb": 2, "3g.20gb": 1}}')
    other = judged('{"GPU-00000000-0000-0000-0000-000000000000": "off"}', EMPTY)
    same = judged('{"0000:00:00.0": {"3g.20gb": 1, "1g.5gb": 2}}')
    assert (one.phase, one.reason, one.gpus) == ("unchanged", "", ())
    assert other.phase == "refused"
    assert (same.phase, same.plan) == ("unchanged", one.plan)


def test_another_layout_has_another_digest() -> None:
    assert judged(WANTED).plan != judged('{"0": {"1g.5gb": 1}}').plan
    assert judged('{"0": "on"}').plan != judged('{"1": "on"}').plan
    assert layouts_digest({}) == layouts_digest({})


def test_the_label_is_a_name_and_never_a_layout() -> None:
    """A label's value cannot be one, so nobody can mean it."""
    assert judged("all-1g.5gb", source=Source.LABEL).phase == "planned"
    refused = judged("off", source=Source.LABEL)
    assert refused.phase == "refused"
    assert "a layout goes with GPUs" not in refused.reason
    assert "a layout goes with GPUs" in judged("off").reason


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("all-1g.6gb", "all-1g.6gb"),
        ('{"0": {"9g.5gb": 1}}', "9g.5gb"),
        ('{"7": {"1g.5gb": 1}}', "there is no GPU 7"),
        ('{"0": {"1g.5gb": 1}, "0,1": "on"}', "GPU 0"),
        ("{", "mig-layout"),
        ('{"0": {"4g.20gb": 2}}', "GPU 0:"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_by_its_key(text: str, why: str) -> None:
    found = judged(text)
    assert found.phase == "refused"
    assert why in found.reason
    assert found.gpus == ()


def test_gpus_that_cannot_have_their_layouts_each_have_their_own_reason() -> None:
    """Also where both are of one kind: what fits is not the same."""
    found = judged('{"0": {"1g.5gb": 8}, "1": {"2g.10gb": 4}}')
    first, second = found.reason.split("; GPU ")
    assert found.phase == "refused"
    assert first.startswith("GPU 0: ")
    assert second.startswith("1: ")
    assert ("1g.5gb" in first, "2g.10gb" in first) == (True, False)
    assert "2g.10gb" in second


def test_a_reset_is_named_with_its_command_once_for_all_gpus_alike() -> None:
    off = [mig_gpu(A100, uuid=f"GPU-{at}", index=at, mode=OFF) for at in range(3)]
    found = judged('{"all": {"7g.40gb": 1}}', *off)
    assert found.phase == "refused"
    assert found.reason.count("by a reset of the whole GPU, and mig-mode-change is off") == 1
    assert found.reason.startswith("GPU 0, 1, 2: ")
    gpus = "0000:00:00.0,0000:01:00.0,0000:02:00.0"
    command = f"nvidia-smi -i {gpus} -mig 1 && nvidia-smi --gpu-reset -i {gpus}"
    assert found.reason.endswith(f"(run {command})")


def test_a_command_that_finds_no_room_is_left_out_as_a_whole() -> None:
    off = [mig_gpu(A100, uuid=f"GPU-{at}", index=at, mode=OFF) for at in range(16)]
    found = judged('{"all": {"7g.40gb": 1}}', *off)
    assert "nvidia-smi" not in found.reason
    assert found.reason.endswith("; gpuscape mig plan on the node has the commands")


def test_what_never_fits_is_refused_before_anybody_resets_a_gpu() -> None:
    """Older drivers report no profiles with MIG off: then the model's own decide."""
    off = replace(mig_gpu(A100, mode=OFF), profiles=())
    found = judged('{"0": {"2g.10gb": 4}}', off)
    assert found.reason == "GPU 0: 4 of 2g.10gb, of which the GPU allows 3"


def test_what_the_device_plugin_cannot_serve_is_refused() -> None:
    found = judged('{"0": {"1g.5gb": 7}}', strategy=MigStrategy.SINGLE)
    assert found.phase == "refused"
    assert found.reason.startswith("node: the device plugin could not start")


def test_configurations_of_a_file_are_used_alone() -> None:
    text = "version: v1\nmig-configs: {mine: [{devices: [0], mig-enabled: true, mig-devices: {}}]}"
    configs = parse_mig_configs(text, "config.yaml")
    assert judged("mine", configs=configs).gpus == (GpuChangeStatus(gpu=0, destroy=3),)
    assert judged("all-1g.5gb", configs=configs).phase == "refused"


@pytest.mark.parametrize(
    "text",
    [
        '{"all": {"7g.40gb": 1}}',
        '{"0,1": {"7g.40gb": 1}}',
        '{"0": "off", "all": "on"}',
        "all-1g.5gb",
    ],
)
def test_nothing_is_planned_while_a_gpu_that_may_be_asked_for_cannot_be_read(text: str) -> None:
    found = judged(text, SPLIT, UnreadMigGpu(bus_id="0000:01:00.0", gaps=()))
    assert (found.phase, found.plan) == ("unread", "")
    assert found.reason == (
        "the MIG state of 0000:01:00.0 cannot be read; to go on without, name the other GPUs in"
        " gpuscape.io/mig-layout"
    )


def test_a_gpu_that_cannot_be_read_is_not_in_the_way_of_others_that_are_named() -> None:
    """One that is lost may stay so for weeks."""
    found = judged(WANTED, SPLIT, UnreadMigGpu(bus_id="0000:01:00.0", gaps=()))
    assert found == judged(WANTED, SPLIT)
    assert found.phase == "planned"


def test_a_long_request_is_cut_to_one_line() -> None:
    found = judged("{" + "\n".join(f'"{at}": "x",' for at in range(400)) + "}")
    assert (len(found.desired), found.desired[-1], "\n" in found.desired) == (256, "…", False)
    assert len(found.reason) <= MOST_REASON


def test_layouts_are_those_of_the_command_line() -> None:
    request = LayoutRequest(source=Source.ANNOTATION, text=WANTED)
    assert set(layout_choice(request, None).gpu_layouts([SPLIT, EMPTY])) == {SPLIT.uuid}
