# SPDX-License-Identifier: Apache-2.0
"""``gpuscape top``: the GPUs of this machine, live."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

import click

from cli import options, terminal
from cli.live_screen import LiveScreen, is_live_terminal, live_screen, refreshes
from cli.options import Load
from cli.top.gpu_rows import TopNode, top_node
from cli.top.machine_watch import MachineWatch, watched_machine
from cli.top.top_view import top_lines

_SETTINGS: Final = (*options.READING, "pod-resources-socket", "node-name")
_BETWEEN_SECONDS: Final = 1.0
"""Time between the two samples of a single table, from which rates are computed."""


@click.command(
    epilog="""\b
Examples:
  gpuscape top                              q or Ctrl-C to quit
  gpuscape top --interval 5s
  gpuscape top --once                       one table
  gpuscape top -o json | jq '.gpus[] | select(.state != "ok")'
  gpuscape top --simulate hgx-h100
  kubectl -n gpuscape exec -it POD -c agent -- gpuscape top

\b
The width of the terminal decides which columns are shown; -o wide prints all of them once. BUSY
is the share of the time in which a kernel ran; with MIG, the activity of each instance's graphics
engine, Hopper and later. MEM BUSY is the share of the time in which memory was read or written.
LINKS are the NVLinks that are up; if some are down, also the total. STATE is ok, or why the GPU
does not answer, or why it needs attention (docs/labels.md), or what lowers its clocks. A MIG
device is a row below its GPU: GPU instance and profile.

\b
Pods come from the kubelet's pod-resources socket, processes from the driver: run the command as
root on the node, or in the agent's container, which has the socket and, with hostPID: true, the
processes. A GPU that does not answer within the deadline is shown as hung and tried again; the
others continue.

\b
If standard output is not a terminal, one table is printed. NO_COLOR is respected.

\b
Exit codes: 0 done, 2 bad input, 3 no driver answers."""
)
@click.option("--once", is_flag=True, help="Print one table and end.")
@options.interval(default="2s", at_least="500ms")
@options.output("table", "wide", "json", "yaml")
@options.settings(*_SETTINGS)
def command(load: Load, once: bool, interval: float, output: str) -> None:
    """Show this machine's GPUs live: use, memory, power, links, MIG devices, processes, pods."""
    settings = load()
    if once or output != "table" or not is_live_terminal():
        with watched_machine(settings, interval) as watch:
            _print(_measured(watch), output)
        return
    with watched_machine(settings, interval) as watch, live_screen() as screen:
        watch.read_on(screen.news)
        for _ in refreshes(screen, 1.0):
            screen.draw(_frame(watch, screen))


def _measured(watch: MachineWatch) -> TopNode:
    """The machine by two samples, so that what is measured between them is known."""
    first = watch.read()
    if first.snapshot.answering:
        time.sleep(_BETWEEN_SECONDS)
        return top_node(watch.read(first.snapshot))
    return top_node(first)


def _print(node: TopNode, output: str) -> None:
    if output in ("json", "yaml"):
        terminal.print_data(node, output)
        return
    styled = terminal.is_styled()
    width = terminal.screen_width() if output == "table" else terminal.WIDE_ENOUGH
    terminal.print_lines(top_lines(node, styled=styled, width=width))


def _frame(watch: MachineWatch, screen: LiveScreen) -> list[str]:
    size, styled = screen.size, terminal.is_styled()
    reading = watch.latest
    if reading is None:
        initialising = watch.initialising
        waits = (
            f"reading the GPUs; {initialising} takes long" if initialising else "reading the GPUs"
        )
        return [
            terminal.joined_cells(f"gpuscape top: {waits} …", styled=styled, width=size.columns)
        ]
    late = watch.late_seconds
    now = f"{datetime.now().astimezone():%H:%M:%S}"
    status = f"{now}  q quits" if late is None else f"last reading {late:.0f} s ago  q quits"
    return top_lines(
        top_node(reading), styled=styled, width=size.columns, height=size.lines, status=status
    )
