# SPDX-License-Identifier: Apache-2.0
"""The command: the script ``gpuscape`` and ``python -m gpuscape`` start here."""

import sys

from gpuscape.isolation import isolate

_PROGRAMS = ("actuator", "agent", "coordinator", "dcgm-exporter", "scheduler")
"""Commands that run until they are stopped and may be a container's first process: they obey
signals, and collect inherited processes. The others react to signals as Python does."""


def main() -> None:
    """Run the command line of this process."""
    isolate()
    from base.process import orphans, process_signals

    if next((word for word in sys.argv[1:] if not word.startswith("-")), "") in _PROGRAMS:
        process_signals.hold_signals()
        orphans.collect_in_background()
    else:
        process_signals.release_signals()  # the image's command has them wait, whatever it starts
    from cli.main import main as run

    run()


def complete_for_kubectl() -> None:
    """Answer kubectl's question what may follow ``kubectl gpuscape``."""
    isolate()
    from cli.completion import print_for_kubectl

    print_for_kubectl(sys.argv[1:])


if __name__ == "__main__":
    main()
