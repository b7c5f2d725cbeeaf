# SPDX-License-Identifier: Apache-2.0
"""The command: the script ``gpuscape`` and ``python -m gpuscape`` start here."""

from gpuscape.isolation import isolate


def main() -> None:
    """Run the command line of this process."""
    isolate()
    from cli.main import main as run

    run()


if __name__ == "__main__":
    main()
