# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig selftest``: changes of MIG on one idle GPU, tried and undone, with a report."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click

from actuator.selftest import OfferedNow, SelftestEvent
from actuator.supervisor import run_selftest
from actuator.worker_messages import Order, SelftestRequest
from agent.single_reading import opened_machine, read_devices, read_mig_readings
from api.mig_outcome import Outcome
from base.errors import BadInput
from cli import options, terminal
from cli.agreement import require_agreement
from cli.failures import REFUSED, UNDONE, UNFINISHED, CommandFailure
from cli.mig.running_actuator import refuse_actuator, refuse_owned_journal
from cli.mig.running_change import (
    journal_folder,
    journal_option,
    refuse_unended,
    verbose_option,
    watched_worker,
)
from cli.mig.selftest.selftest_report import (
    SelftestReport,
    end_lines,
    layout_line,
    report_document,
    show_tested_gpu,
)
from cli.mig.selftest.selftest_target import require_cordoned, tested_gpu
from cli.options import Load
from discovery.reader.protocol import Start

LAYOUTS_SECONDS = 600.0
"""Time after which no further layout is begun."""
DEADLINE_SECONDS = 900.0
"""Time limit of the whole test; a driver that takes longer counts as hung."""

_STOPPING = (
    b"\nThe self-test ends after this layout, and the previous layout is restored."
    b" Ctrl-C again to stop waiting.\n"
)
_UNREAD_NODE = (
    "this machine is in no cluster; or its node is cordoned, and no pod on it uses the GPU"
)
"""Statement that a yes confirms where the Node was not read."""


@click.command(
    epilog="""\b
Examples:
  gpuscape mig selftest
  gpuscape mig selftest --gpu 3 --node worker-3 --report selftest.json
  gpuscape mig selftest --simulate hgx-h100 --yes -o json

\b
What it does, on one GPU that nobody uses, by the same worker, journal and lock as
`gpuscape mig apply`:
  1. MIG is turned on, if it is off and needs no reset; the current instances are destroyed
  2. each profile of the driver, as often as it fits, and at each of its places
  3. several sizes, then some of them replaced, while the others must stay as they are
  4. a GPU instance in several compute instances
  5. the previous layout is restored, with the same MIG devices
Each layout is read back in a new session with the driver, and each step is timed.

\b
Where it may run: on a machine without a cluster, or on a cordoned node where no pod uses the GPU.
With --node the Node is read and must be cordoned; otherwise you confirm this with your answer, or
with --yes. Stop the agent and the actuator first: a program that has the GPU open is in the way.
Without --gpu it takes the first GPU that can be tested; GPUs without instances come first. A GPU
is never reset.

\b
Ctrl-C ends it after the present layout, and the previous layout is restored. It is restored too if
the command is killed; if its worker is killed, `gpuscape mig restore` restores it.

\b
Please attach the report to an issue of gpuscape, also if everything went well: `apply` is beta on
a model until somebody has done so. The report has no host name, UUID or serial number.

\b
Exit codes:
  0  passed: every layout was reached, and the previous one is there again
  2  bad input: no such GPU, a journal or a report that cannot be written, ...
  3  the GPU could not be read; nothing was changed
  4  the cluster did not answer
  5  refused: nothing was changed; the reason is printed
  6  not passed, or ended early; the previous layout is there again
  7  stuck, or stopped before its end: `gpuscape mig restore` continues"""
)
@click.option(
    "--gpu",
    type=click.IntRange(min=0),
    metavar="INDEX",
    help="Test this GPU.  [default: the first that is idle]",
)
@click.option("--node", metavar="NAME", help="This machine's Node: refuse unless it is cordoned.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report here as well, as JSON; the file must not be there yet.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    help="The actuator's socket: where one answers, nothing is done.  [default: its usual place;"
    " none of a simulated machine]",
)
@journal_option
@verbose_option
@options.output("table", "json", "yaml")
@options.settings(*options.READING, "kubeconfig")
@click.pass_context
def command(
    ctx: click.Context,
    load: Load,
    gpu: int | None,
    node: str | None,
    report: Path | None,
    yes: bool,
    socket: Path | None,
    journal: Path | None,
    verbose: bool,
    output: str,
) -> None:
    """Try MIG layouts on one idle GPU, undo them, and write a report (beta)."""
    settings = load()
    if report is not None and (report.exists() or not report.parent.is_dir()):
        raise BadInput(f"--report {report}: name a file that is not there, in a folder that is")
    with opened_machine(settings) as start:
        folder = journal_folder(journal, start)
        refuse_owned_journal(folder, start)
        refuse_actuator(socket, start)
        target = tested_gpu(read_mig_readings(start, settings), gpu)
        refuse_unended(folder, (target.uuid,))
        if node is not None:
            require_cordoned(node, settings.kubeconfig, start)
        snapshot = read_devices(start, settings)
        vbios = {device.bus_id: device.vbios_version for device in snapshot.gpus}
        selftest = SelftestReport(
            gpuscape=version("gpuscape"),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            simulated=start.simulation is not None,
            driver=snapshot.driver,
            gpu=target,
            vbios=vbios.get(target.bus_id),
            cordoned=node,
        )
        if output == "table":
            show_tested_gpu(selftest)
        confirmed = _UNREAD_NODE if node is None else f"node {node} is cordoned"
        if yes and output == "table":
            terminal.note(f"With --yes: {confirmed}.")
        require_agreement(
            f"You confirm: {confirmed}.",
            "Run the self-test?",
            purpose=f", which confirms: {confirmed}",
            yes=yes,
            output=output,
        )
        try:
            _run(selftest, start, folder, verbose=verbose, progress=output == "table")
        except CommandFailure as error:
            selftest.lost = error.message
            _report(selftest, report, folder, output)
            raise
    _report(selftest, report, folder, output)
    ctx.exit(_exit_code(selftest))


def _run(
    report: SelftestReport, start: Start, journal: Path, *, verbose: bool, progress: bool
) -> None:
    """Fill the report, through Ctrl-C. Raises CommandFailure where the end is not known."""

    def on_event(event: SelftestEvent) -> None:
        if isinstance(event, OfferedNow):
            report.profiles = event.profiles
            return
        report.layouts.append(event)
        if progress:
            terminal.note(layout_line(event))

    with _stop_pipe() as (stop_reader, stop_writer):

        def request_stop() -> bytes:
            os.write(stop_writer, b"\0")
            return _STOPPING

        sentence = "the self-test continues without this command, and restores the previous layout"
        with watched_worker(
            journal, verbose=verbose, on_first_interrupt=request_stop, sentence=sentence
        ):
            order = Order(
                start=start,
                journal=str(journal.absolute()),
                selftest=SelftestRequest(
                    gpu=report.gpu.uuid, seconds=LAYOUTS_SECONDS, until=stop_reader
                ),
                deadline_seconds=DEADLINE_SECONDS,
            )
            report.result = run_selftest(order, on_event)


@contextmanager
def _stop_pipe() -> Iterator[tuple[int, int]]:
    """Pipe to the worker: its reading end, and the writing end, which ends the test early.

    A byte, or closing the writing end, makes the worker restore the previous layout.
    """
    stop_reader, stop_writer = os.pipe()
    try:
        yield stop_reader, stop_writer
    finally:
        os.close(stop_reader)
        os.close(stop_writer)


def _report(report: SelftestReport, file: Path | None, journal: Path, output: str) -> None:
    """Print the report, and write it to its file."""
    document = report_document(report)
    if output == "table":
        terminal.note(*end_lines(report, journal))
    else:
        terminal.print_data(document, output)
    if file is None:
        return
    import msgspec

    file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    if output == "table":
        terminal.note(f"The report is in {file}.")


def _exit_code(report: SelftestReport) -> int:
    result = report.result
    if result is None or result.outcome is Outcome.STUCK:
        return UNFINISHED
    if not result.has_begun:
        return REFUSED
    return 0 if report.passed else UNDONE
