"""All tests, the control plane being built meanwhile: ``make test`` runs ``python -m tests.suite``.

First the tests that do without it, then, when it is ready, those that need it. Where it
cannot be built the latter are skipped, or fail with CI=true; the reason is said last.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.controlplane.lifetime import end_with_parent

UNIT = ("-m", "not cluster and not gpu and not long", "-n", "auto", "--dist", "worksteal")
# a module's tests stay together: some start a plane of their own for all of them
CLUSTER = ("-m", "cluster and not gpu and not long", "-n", "2", "--dist", "loadscope")
LOOK_SECONDS = 0.5


def main() -> int:
    """Run it all; the exit code of the first part that failed."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "prepare.log"
        building = prepare(log)
        try:
            code = pytest(*UNIT)
            if code:
                return code
            follow(building, log)
        finally:
            building.terminate()
            building.wait()
        code = pytest(*CLUSTER)
        if building.returncode:
            say(f"\nthe control plane could not be prepared:\n{log.read_text().rstrip()}")
        return code


def prepare(log: Path) -> subprocess.Popen[bytes]:
    """Start to build the control plane; it ends with us."""
    command = [sys.executable, "-m", "tests.controlplane.prepare"]
    with log.open("w") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, preexec_fn=end_with_parent(signal.SIGTERM)
        )


def follow(building: subprocess.Popen[bytes], log: Path) -> None:
    """Show what was built so far, and then its progress until it has ended."""
    with log.open() as lines:
        ended = False
        while not ended:
            ended = building.poll() is not None
            for line in lines:
                say(line.rstrip())
            time.sleep(0 if ended else LOOK_SECONDS)


def pytest(*arguments: str) -> int:
    """Run pytest; its exit code."""
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, check=False, preexec_fn=end_with_parent()).returncode


def say(text: str) -> None:
    """One line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # pytest has said what there is to say
