# SPDX-License-Identifier: Apache-2.0
"""The lines of ``gpuscape top``: which columns a width has, and that none is wider."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.text import Text

from cli.top.gpu_rows import TopGpu, TopMig, TopNode, TopProcess
from cli.top.top_view import top_lines

GIB = 1 << 30
GPU = TopGpu(
    index=0,
    bus_id="0000:18:00.0",
    uuid="GPU-0",
    model="NVIDIA H100 80GB HBM3",
    state="ok",
    answers=True,
    busy_ratio=0.973,
    memory_busy_ratio=0.4,
    memory_used_bytes=70 * GIB,
    memory_total_bytes=80 * GIB,
    celsius=61,
    memory_celsius=70,
    power_watts=651.6,
    power_limit_watts=700.0,
    sm_clock_hertz=1_980_000_000,
    fan_ratio=None,
    held_down_by=(),
    links_up=18,
    links=18,
    nvlink_sent_bytes_per_second=102.4e9,
    nvlink_received_bytes_per_second=7.25e9,
    mig=False,
    pods=("team-a/train-with-a-long-name-0/main",),
    mig_devices=(),
    processes=(
        TopProcess(
            pid="4242",
            name="python3",
            kinds=("compute",),
            gpu_instance_id=None,
            busy_ratio=0.9,
            memory_bytes=69 * GIB,
            pod="team-a/train-with-a-long-name-0/main",
        ),
    ),
)
MIG = TopMig(
    uuid="MIG-1",
    profile="1g.10gb",
    gpu_instance_id=9,
    compute_instance_id=0,
    busy_ratio=0.25,
    memory_used_bytes=GIB,
    memory_total_bytes=10 * GIB,
    pods=("team-b/small/main",),
)


def node(*gpus: TopGpu, notes: tuple[str, ...] = ()) -> TopNode:
    return TopNode(node="gpu-1", machine="DGX H100", driver="550.54", gpus=gpus, notes=notes)


def drawn(shown: TopNode, width: int = 200, height: int | None = None) -> list[str]:
    return top_lines(shown, styled=False, width=width, height=height, status="12:00:00  q quits")


def row(lines: list[str], start: str) -> list[str]:
    return next(line for line in lines if line.startswith(start)).split()


def test_the_first_line_sums_up() -> None:
    lost = replace(GPU, index=1, answers=False, state="lost", busy_ratio=None, power_watts=None)
    first, *_ = drawn(node(GPU, lost))
    assert "gpu-1  2 GPUs, 97 % busy, 652 W  1 not answering  DGX H100  driver 550.54" in first
    assert first.endswith("12:00:00  q quits")
    assert "2 GPUs, 97 % busy, 1.3 kW" in drawn(node(GPU, replace(GPU, index=1)))[0]


def test_a_gpu_is_one_row() -> None:
    lines = drawn(node(GPU))
    title = "GPU BUSY MEM BUSY MEMORY GiB °C MEM °C WATTS MHz LINKS NVLINK GB/s STATE POD MODEL"
    assert " ".join(lines[2].split()) == f"{title} BUS ID"
    readings = "0 97 % ██████████ 40 % 70.0/80.0 61 70 652/700 1980 18 ↑102 ↓7.2 ok"
    pod = "team-a/train-with-a-long-name-0/main"
    assert " ".join(row(lines, "0 ")).startswith(f"{readings} {pod} NVIDIA H100")


def test_eighty_columns_have_what_matters_most() -> None:
    lines = drawn(node(GPU), width=80)
    for title in ("BUSY", "MEMORY GiB", "°C", "WATTS", "LINKS", "NVLINK GB/s", "STATE"):
        assert title in lines[2]
    assert "BUS ID" not in lines[2]
    assert row(lines, "0    4242")[-1] == "team-a/train-with-a-long-name-0/main"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200])
@pytest.mark.parametrize("styled", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, styled: bool) -> None:
    gpus = tuple(
        replace(GPU, index=at, mig_devices=(MIG,), state="fabric-unhealthy") for at in range(16)
    )
    lines = top_lines(
        node(*gpus, notes=("pods: no kubelet's socket " * 9,)),
        styled=styled,
        width=width,
        status="x" * 20,
    )
    widths = [cell_len(Text.from_ansi(line).plain) for line in lines]
    assert max(widths) <= width
    assert len(lines) == 2 + 1 + 32 + 1 + 1 + 32 + 2


def test_a_mig_device_is_a_row_below_its_gpu() -> None:
    lines = drawn(node(replace(GPU, mig=True, mig_devices=(MIG,))))
    at = next(at for at, line in enumerate(lines) if line.startswith("0 "))
    readings = "9 1g.10gb 25 % ██░░░░░░░░ 1.0/10.0 team-b/small/main"
    assert " ".join(lines[at + 1].split()) == readings
    assert row(lines, "0 9") == ["0", "9", "-", "-", "-", "-", "-", "team-b/small/main"]


def test_what_is_wrong_stands_in_state() -> None:
    hung = replace(GPU, state="hung", answers=False, busy_ratio=None, memory_total_bytes=None)
    assert "hung" in row(drawn(node(hung)), "0 ")
    slow = replace(GPU, held_down_by=("power_cap", "hw_thermal"))
    assert "power_cap, hw_thermal" in " ".join(row(drawn(node(slow)), "0 "))
    assert "17/18" in row(drawn(node(replace(GPU, links_up=17))), "0 ")


def test_a_column_that_no_gpu_has_is_left_out() -> None:
    plain = replace(GPU, links=0, links_up=0, nvlink_sent_bytes_per_second=None, pods=())
    head = drawn(node(plain))[2]
    assert "LINK" not in head
    assert "POD" not in head


def test_a_process_cannot_write_to_the_terminal() -> None:
    (process,) = GPU.processes
    evil = replace(GPU, processes=(replace(process, name="\x1b[2Jbad\x07"),))
    text = "".join(drawn(node(evil)))
    assert "\\x1b[2Jbad\\x07" in text
    assert "\x1b" not in text


def test_too_many_lines_are_cut_and_counted_and_notes_stay() -> None:
    gpus = tuple(replace(GPU, index=at) for at in range(16))
    lines = drawn(node(*gpus, notes=("pods: unknown",)), height=12)
    assert len(lines) == 12
    assert lines[-1] == "pods: unknown"
    whole = drawn(node(*gpus))
    assert lines[-3] == f"… {len(whole) - 9} more lines: a higher window shows them"


def test_a_container_without_a_process_is_listed_too() -> None:
    idle = replace(GPU, processes=())
    assert row(drawn(node(idle)), "0      -")[-1] == "team-a/train-with-a-long-name-0/main"
