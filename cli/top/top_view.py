# SPDX-License-Identifier: Apache-2.0
"""``gpuscape top`` as lines of text: the columns that a width has room for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cli import terminal
from cli.discover import GIB
from cli.fitted_table import Column, fit_rows
from cli.terminal import NONE, UNKNOWN, WIDE_ENOUGH, Cell, Styled
from cli.top.gpu_rows import TopGpu, TopMig, TopNode, TopProcess

_BAR: Final = 10
_BUSY, _HOT = 0.5, 0.9
"""Shares from which a reading is coloured."""
_GIGA: Final = 1e9
_LEAST_POD: Final = 24
_LEAST_POD_OF_USE: Final = 40
"""Columns of text for a pod's name, next to a GPU and next to a process."""
_OK: Final = "ok"
_BLANK: Final = ""
"""Cell for a value that a MIG device does not have of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A GPU, or one MIG device of it."""

    gpu: TopGpu
    mig: TopMig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """A process on a GPU, or a container that has the GPU and no process on it."""

    gpu: TopGpu
    instance: int | None
    process: TopProcess | None
    pod: str | None


def top_lines(
    node: TopNode,
    *,
    styled: bool,
    width: int = WIDE_ENOUGH,
    height: int | None = None,
    status: str = "",
) -> list[str]:
    """The node as lines of at most ``width`` columns, at most ``height`` of them.

    ``status`` stands at the end of the first line.
    """

    def drawn(columns: tuple[Column, ...], rows: list[object]) -> tuple[str, ...]:
        return terminal.table_lines(fit_rows(columns, rows, width), styled=styled, width=width)

    shown = [_headline(node, width, styled, status), "", *drawn(_GPUS, [*_parts(node)])]
    if uses := [*_uses(node)]:
        shown += ["", *drawn(_USES, uses)]
    notes = [
        terminal.joined_cells(Styled(note, "yellow"), styled=styled, width=width)
        for note in node.notes
    ]
    notes = ["", *notes] if notes else []
    if height is None or len(shown) + len(notes) <= height:
        return shown + notes
    room = max(1, height - len(notes) - 1)
    more = f"… {len(shown) - room} more lines: a higher window shows them"
    return [
        *shown[:room],
        terminal.joined_cells(Styled(more, "dim"), styled=styled, width=width),
        *notes,
    ]


def _headline(node: TopNode, width: int, styled: bool, status: str) -> str:
    """Node, number of GPUs and their use; with machine and driver where there is room."""
    busy = [gpu.busy_ratio for gpu in node.gpus if gpu.busy_ratio is not None]
    watts = [gpu.power_watts for gpu in node.gpus if gpu.power_watts is not None]
    silent = sum(not gpu.answers for gpu in node.gpus)
    facts = [f"{len(node.gpus)} GPU{'s' if len(node.gpus) != 1 else ''}"]
    facts += [f"{_percent(sum(busy) / len(busy))} busy"] if busy else []
    facts += [_power(sum(watts))] if watts else []
    cells: list[Cell] = [Styled(node.node, "bold"), f"  {', '.join(facts)}"]
    cells += [Styled(f"  {silent} not answering", "bold red")] if silent else []
    spare = width - sum(map(terminal.width_of, [*cells, status])) - len("  ")
    named = [node.machine or "", f"driver {node.driver}" if node.driver else "no driver"]
    machine_text = "".join(f"  {fact}" for fact in named if fact)
    if len(machine_text) <= spare:
        cells.append(Styled(machine_text, "dim"))
        spare -= len(machine_text)
    if status:
        blanks = "  " if width == WIDE_ENOUGH else " " * (2 + max(0, spare))
        cells += [blanks, Styled(status, "dim")]
    return terminal.joined_cells(*cells, styled=styled, width=width)


# GPUs and MIG devices


def _parts(node: TopNode) -> Iterator[_Part]:
    for gpu in node.gpus:
        yield _Part(gpu=gpu)
        yield from (_Part(gpu=gpu, mig=mig) for mig in gpu.mig_devices)


def _name(row: _Part) -> Cell:
    if row.mig is None:
        return UNKNOWN if row.gpu.index is None else str(row.gpu.index)
    return f" {row.mig.gpu_instance_id} {row.mig.profile}"


def _busy_of(row: _Part) -> float | None:
    return row.gpu.busy_ratio if row.mig is None else row.mig.busy_ratio


def _busy(row: _Part) -> Cell:
    return _ratio(_busy_of(row))


def _bar(row: _Part) -> Cell:
    share = _busy_of(row)
    if share is None:
        return _BLANK
    full = round(min(1.0, share) * _BAR)
    return Styled("█" * full + "░" * (_BAR - full), _heat(share))


def _memory(row: _Part) -> Cell:
    device = row.gpu if row.mig is None else row.mig
    used, total = device.memory_used_bytes, device.memory_total_bytes
    if total is None:
        return NONE
    share = 0.0 if used is None or not total else used / total
    text = f"{'?' if used is None else f'{used / GIB:.1f}'}/{total / GIB:.1f}"
    return Styled(text, "yellow" if share >= _HOT else "")


def _watts(row: _Part) -> Cell:
    watts, limit = row.gpu.power_watts, row.gpu.power_limit_watts
    if row.mig:
        return _BLANK
    if watts is None:
        return NONE
    if not limit:
        return f"{watts:.0f}"
    return Styled(f"{watts:.0f}/{limit:.0f}", "yellow" if watts >= _HOT * limit else "")


def _links(row: _Part) -> Cell:
    """Number of links that are up, and of all links where some are not."""
    gpu = row.gpu
    if row.mig:
        return _BLANK
    if not gpu.links or not gpu.answers:
        return NONE
    if gpu.links_up == gpu.links:
        return str(gpu.links)
    return Styled(f"{gpu.links_up}/{gpu.links}", "dim" if gpu.mig else "yellow")


def _traffic(row: _Part) -> Cell:
    rates = row.gpu.nvlink_sent_bytes_per_second, row.gpu.nvlink_received_bytes_per_second
    if row.mig:
        return _BLANK
    if rates[0] is None or rates[1] is None:
        return NONE
    return f"↑{_short(rates[0] / _GIGA)} ↓{_short(rates[1] / _GIGA)}"


def _state(row: _Part) -> Cell:
    """State of a GPU; for a healthy one the reasons that hold its clocks down."""
    gpu = row.gpu
    if row.mig:
        return _BLANK
    if not gpu.answers:
        return Styled(gpu.state, "bold red")
    if gpu.state != _OK:
        return Styled(gpu.state, "yellow")
    if gpu.held_down_by:
        return Styled(", ".join(gpu.held_down_by), "yellow")
    return Styled(_OK, "green")


def _pods(row: _Part) -> Cell:
    pods = row.gpu.pods if row.mig is None else row.mig.pods
    return ", ".join(pods) or NONE


def _of_gpu(cell: Callable[[TopGpu], Cell]) -> Callable[[_Part], Cell]:
    """Make a column's cell for GPUs, blank in the rows of MIG devices."""
    return lambda row: _BLANK if row.mig else cell(row.gpu)


_GPUS: Final[tuple[Column, ...]] = (
    Column(title="GPU", cell=_name),
    Column(title="BUSY", cell=_busy, right=True),
    Column(title="", cell=_bar, goes=5),
    Column(
        title="MEM BUSY",
        cell=_of_gpu(lambda gpu: _ratio(gpu.memory_busy_ratio)),
        right=True,
        goes=6,
    ),
    Column(title="MEMORY GiB", cell=_memory, right=True),
    Column(title="°C", cell=_of_gpu(lambda gpu: _whole(gpu.celsius)), right=True),
    Column(
        title="MEM °C", cell=_of_gpu(lambda gpu: _whole(gpu.memory_celsius)), right=True, goes=8
    ),
    Column(title="WATTS", cell=_watts, right=True),
    Column(
        title="MHz",
        cell=_of_gpu(lambda gpu: _whole(gpu.sm_clock_hertz, 1_000_000)),
        right=True,
        goes=4,
    ),
    Column(title="FAN", cell=_of_gpu(lambda gpu: _ratio(gpu.fan_ratio)), right=True, goes=7),
    Column(title="LINKS", cell=_links, right=True, goes=1),
    Column(title="NVLINK GB/s", cell=_traffic, right=True, goes=2),
    Column(title="STATE", cell=_state),
    Column(title="POD", cell=_pods, goes=3, least=_LEAST_POD),
    Column(title="MODEL", cell=_of_gpu(lambda gpu: gpu.model or UNKNOWN), goes=9),
    Column(title="BUS ID", cell=_of_gpu(lambda gpu: gpu.bus_id), goes=10),
)


# processes and pods


def _uses(node: TopNode) -> Iterator[object]:
    for gpu in node.gpus:
        for process in gpu.processes:
            yield _Use(gpu=gpu, instance=process.gpu_instance_id, process=process, pod=process.pod)
        allocations: list[tuple[int | None, str]] = [(None, pod) for pod in gpu.pods]
        allocations += [(mig.gpu_instance_id, pod) for mig in gpu.mig_devices for pod in mig.pods]
        at_work = {(process.gpu_instance_id, process.pod) for process in gpu.processes}
        for instance, pod in dict.fromkeys(allocations):
            if (instance, pod) not in at_work:
                yield _Use(gpu=gpu, instance=instance, process=None, pod=pod)


def _place(row: _Use) -> Cell:
    index = "?" if row.gpu.index is None else str(row.gpu.index)
    return index if row.instance is None else f"{index} {row.instance}"


def _of_process(cell: Callable[[TopProcess], Cell]) -> Callable[[_Use], Cell]:
    return lambda row: NONE if row.process is None else cell(row.process)


def _used(bytes_: int | None) -> Cell:
    return NONE if bytes_ is None else f"{bytes_ / GIB:.1f}"


_USES: Final[tuple[Column, ...]] = (
    Column(title="GPU", cell=_place),
    Column(title="PID", cell=_of_process(lambda process: process.pid), right=True),
    Column(title="BUSY", cell=_of_process(lambda process: _ratio(process.busy_ratio)), right=True),
    Column(
        title="MEMORY GiB",
        cell=_of_process(lambda process: _used(process.memory_bytes)),
        right=True,
    ),
    Column(
        title="KIND", cell=_of_process(lambda process: ", ".join(process.kinds) or NONE), goes=2
    ),
    Column(
        title="PROCESS",
        cell=_of_process(lambda process: process.name or NONE),
        goes=1,
        least=15,
    ),
    Column(title="POD", cell=lambda row: row.pod or NONE, least=_LEAST_POD_OF_USE),
)


# numbers


def _ratio(share: float | None) -> Cell:
    return NONE if share is None else Styled(_percent(share), _heat(share))


def _power(watts: float) -> str:
    return f"{watts:.0f} W" if watts < 1000 else f"{watts / 1000:.1f} kW"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _heat(share: float) -> str:
    return (
        "dim"
        if share < 0.005
        else "green"
        if share < _BUSY
        else "cyan"
        if share < _HOT
        else "bold cyan"
    )


def _whole(value: float | None, unit: int = 1) -> Cell:
    return NONE if value is None else f"{value / unit:.0f}"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"
