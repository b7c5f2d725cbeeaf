# SPDX-License-Identifier: Apache-2.0
"""The device reader's process: Python runs this file by its path, isolated (``python -I``)."""

import sys


def main() -> None:
    """Run the device reader; the agent's socket is descriptor 0."""
    sys.path.insert(0, __file__.rpartition("/gpuscape/")[0])
    from gpuscape.isolation import isolate

    del sys.path[0]
    isolate()
    from discovery.reader.reader_child import main as run
    from simulator.library_choice import choose_library

    run(choose_library)


if __name__ == "__main__":
    main()
