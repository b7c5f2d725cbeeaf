# SPDX-License-Identifier: Apache-2.0
"""An nvidia-smi that resets simulated GPUs, for programs that start it: there is no NVML call.

It knows ``-r -i BUS_ID[,BUS_ID…]`` alone. The program that stands on PATH only passes its
arguments on to this process, which sees who uses the machine also where a mount namespace
hides that from the program.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from base.errors import BadInput
from simulator.simulation import Simulation

_PROGRAM = """#!{python}
import socket, sys
with socket.socket(socket.AF_UNIX) as asking:
    asking.connect({address!r})
    asking.sendall(" ".join(sys.argv[1:]).encode() + b"\\n")
    code, _, text = asking.makefile().read().partition(" ")
print(text)
sys.exit(int(code))
"""


@contextmanager
def nvidia_smi(simulation: Simulation, folder: Path) -> Iterator[str]:
    """A value of PATH with it in front. The folder's path has to be short, for a socket."""
    programs = folder / "bin"
    programs.mkdir()
    address = str(folder / "smi.sock")
    program = programs / "nvidia-smi"
    program.write_text(_PROGRAM.format(python=sys.executable, address=address), "utf-8")
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        thread = threading.Thread(target=_answer_all, args=(listening, simulation), daemon=True)
        thread.start()
        yield f"{programs}{os.pathsep}{os.environ['PATH']}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def _answer_all(listening: socket.socket, simulation: Simulation) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection, connection.makefile("rw") as stream:
                stream.write(_said(simulation, stream.readline().split()))


def _said(simulation: Simulation, arguments: list[str]) -> str:
    """Exit code and text."""
    if arguments[:2] != ["-r", "-i"] or len(arguments) != 3:
        return "2 only -r -i BUS_ID is known here"
    try:
        for bus_id in arguments[2].split(","):
            simulation.reset_gpu(bus_id)
    except BadInput as error:
        return f"1 {error}"
    return "0 All done."
