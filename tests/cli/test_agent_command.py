# SPDX-License-Identifier: Apache-2.0
"""The agent as a person starts it: what it loads, serves and says, from start to signal."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import dataclass

import pytest

SCRIPT = """
import json, os, signal, sys, threading, time, urllib.request
from cli.main import main

metrics, probes = sys.argv[1:]

def fetch(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()

def end_when_ready():
    text = ""
    for _ in range(300):
        try:
            ready = fetch(f"http://{probes}/readyz")
            text = fetch(f"http://{metrics}/metrics")
        except OSError:
            pass
        if "DCGM_FI_DEV_GPU_TEMP{" in text:
            break
        time.sleep(0.1)
    print(json.dumps({"modules": list(sys.modules), "metrics": text, "ready": ready}), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_when_ready, daemon=True).start()
main(["agent", "--standalone", "--simulate", "t4", "--listen", metrics, "--probe-listen", probes])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What an agent did until it was ended."""

    exit_code: int
    modules: frozenset[str]
    metrics: str
    ready: str
    log: str


def free_address() -> str:
    """An address on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(scope="module")
def ran() -> Ran:
    """A standalone agent, run until it was ready and then told to end."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, free_address(), free_address()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout, done.stderr
    seen = json.loads(done.stdout)
    return Ran(
        exit_code=done.returncode,
        modules=frozenset(seen["modules"]),
        metrics=seen["metrics"],
        ready=seen["ready"],
        log=done.stderr,
    )


def test_a_signal_ends_the_agent_without_an_error(ran: Ran) -> None:
    assert ran.exit_code == 0, ran.log
    assert "Traceback" not in ran.log


def test_the_agent_serves_the_simulated_gpus(ran: Ran) -> None:
    assert ran.metrics.count("\nDCGM_FI_DEV_GPU_TEMP{") == 4
    assert ran.ready.strip() == "ok"


def test_the_agent_loads_neither_the_terminals_nor_the_clusters_library(ran: Ran) -> None:
    assert "agent.agent_program" in ran.modules
    assert not ran.modules & {"rich", "kubernetes", "pydantic", "aiohttp", "bcrypt"}


def test_the_agent_loads_no_other_command(ran: Ran) -> None:
    assert not ran.modules & {"cli.discover", "cli.topo.topo_command", "cli.labels"}
