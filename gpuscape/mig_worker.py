# SPDX-License-Identifier: Apache-2.0
"""The process of one MIG change: Python runs this file by its path, isolated (``python -I``)."""

import sys


def main() -> None:
    """Run the worker, which reads its task from standard input."""
    sys.path.insert(0, __file__.rpartition("/gpuscape/")[0])
    from gpuscape.isolation import isolate

    del sys.path[0]
    isolate()
    from actuator.worker import main as run

    run()


if __name__ == "__main__":
    main()
