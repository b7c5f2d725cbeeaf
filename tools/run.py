# SPDX-License-Identifier: Apache-2.0
"""What ``make run`` does: show this machine's GPUs, labels and links, then serve its metrics.

    python tools/run.py [MACHINE]      what to simulate, 1 for the default; so does SIMULATE

Without an NVIDIA driver it simulates a DGX A100 and says so in its first line. With ONCE=1 it
fetches the metrics once, prints their first lines and ends.

The linter's warnings about commands and addresses that came from outside are off where they
are our own: this program's command and the loopback address.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

GPUSCAPE = Path(sys.executable).with_name("gpuscape")
LIST = ".venv/bin/gpuscape simulate --list"
"""Command that lists the machines, for a shell without the virtual environment."""
DEFAULT_MACHINE = "dgx-a100"
ANY_MACHINE = ("1", "yes", "true", "machine")
NO_DRIVER = 3
INTERRUPTED = 130
"""Exit code of shells after SIGINT: 128 and the signal's number."""
METRICS_PORT, PROBE_PORT = 9400, 9401
START_SECONDS = 30.0
FIRST_LINES = 12
NO_GPU = 'gpuscape_gpus{state="present"} 0.0'


def main() -> int:
    """Run it all; the exit code of whatever failed first."""
    machine = choose_machine()
    where = ["--simulate", machine] if machine else []
    for command in ("discover", "labels", "topo"):
        say(f"\n$ gpuscape {' '.join([command, *where])}\n")
        code = ended([GPUSCAPE, command, *where])
        if code:
            return code
    return serve(where)


def ended(command: Sequence[str | Path]) -> int:
    """The exit code of a command that has ended, also where Ctrl-C ends it.

    The terminal sends that to the command too, which then removes what it has written.
    :func:`subprocess.run` would kill it a quarter of a second later.
    """
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise


def choose_machine() -> str | None:
    """The requested machine, else None for this one's driver, else the default; prints which."""
    machine = "".join(sys.argv[1:2]) or os.environ.get("SIMULATE", "")
    if machine in ANY_MACHINE:
        machine = DEFAULT_MACHINE
    if machine:
        say(f"Simulating {machine}.")
        return machine
    quiet = subprocess.run([GPUSCAPE, "discover"], check=False, capture_output=True, text=True)
    if quiet.returncode != NO_DRIVER:
        say("Reading this machine's GPUs through its NVIDIA driver.")
        return None
    say(
        f"No NVIDIA driver answers here, so this simulates a DGX A100 ({DEFAULT_MACHINE}); for "
        f"another machine: SIMULATE=hgx-h100 make run (list: {LIST})."
    )
    return DEFAULT_MACHINE


def serve(where: list[str]) -> int:
    """Run the agent until Ctrl-C, or with ONCE=1 until its metrics have been read."""
    port = free_port(METRICS_PORT)
    probe_port = free_port(PROBE_PORT)
    command = ["agent", "--standalone", "--listen", f"127.0.0.1:{port}", *where]
    command += ["--probe-listen", f"127.0.0.1:{probe_port}"]
    say(f"\n$ gpuscape {' '.join(command)}\n")
    with subprocess.Popen([GPUSCAPE, *command]) as agent:
        signal.signal(signal.SIGTERM, lambda *_: agent.terminate())
        try:
            url = f"http://127.0.0.1:{port}/metrics"
            text = wait_for(url, agent)
            if text is None:
                agent.terminate()
            else:
                present(url, text)
                if os.environ.get("ONCE"):
                    agent.terminate()
            return agent.wait() if text else agent.wait() or 1
        except KeyboardInterrupt:  # the terminal sent it to the agent too
            return agent.wait()


def free_port(preferred: int) -> int:
    """The port if nobody listens on it, else any free one, which is printed."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            bound_port: int = probe.getsockname()[1]
            if bound_port != preferred:
                say(f"Port {preferred} is taken by another program; using {bound_port}.")
            return bound_port
    raise SystemExit("no free port on 127.0.0.1")


def wait_for(url: str, agent: subprocess.Popen[bytes]) -> str | None:
    """The metrics as soon as the GPUs are in them; None if the agent ends or takes too long."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and agent.poll() is None:
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(url, timeout=5) as answer:
                text = str(answer.read(), "utf-8")
            if "\nDCGM_FI_" in text or NO_GPU in text:
                return text
        time.sleep(0.1)
    say(f"The agent did not serve {url} within {START_SECONDS:g} s.")
    return None


def present(url: str, text: str) -> None:
    """Show where the metrics are and how they begin."""
    lines = text.splitlines()
    say(f"\n{len(lines)} lines of metrics at {url}, which begin:\n")
    say("\n".join(lines[:FIRST_LINES]))
    if not os.environ.get("ONCE"):
        say("\nServing until Ctrl-C.")


def say(text: str) -> None:
    """Print at once, before anything a child prints."""
    print(text, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # while the first commands run; they end by it as well
        sys.exit(INTERRUPTED)
