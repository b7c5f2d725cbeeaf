# SPDX-License-Identifier: Apache-2.0
"""Compare all pins with published advisories: ``python -m tools.advisories``, ``make advisories``.

Exit codes: 0 nothing has to be done; 1 an advisory is about something that is installed, and is not
accepted; 2 not compared, because of bad input or a server that does not answer as it should.
Programs that only tests run are counted, and listed with ``--tests``: some are old on purpose.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from base.errors import GpuscapeError
from tools.advisories.accepted import read_accepted
from tools.advisories.comparison import comparison
from tools.advisories.osv_server import OsvServer
from tools.advisories.pins import pins

ROOT = Path(__file__).resolve().parents[2]
SERVER = "https://api.osv.dev"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.advisories",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--server", default=SERVER, help=f"speaks the API of OSV ({SERVER})")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the checkout (this one)")
    parser.add_argument("--tests", action="store_true", help="list programs of tests too")
    options = parser.parse_args(arguments)
    try:
        return _compare(options)
    except GpuscapeError as error:
        print(f"not compared: {error}", file=sys.stderr)
        return 2


def _compare(options: argparse.Namespace) -> int:
    accepted = read_accepted(options.root / "requirements" / "advisories.toml")
    pinned, server = pins(options.root), OsvServer(options.server)
    ids = server.ids(pinned)
    listed = {
        pin: advisory_ids
        for pin, advisory_ids in ids.items()
        if options.tests or not pin.tests_only
    }
    judged = comparison(
        {
            pin: [server.advisory(advisory_id, pin) for advisory_id in advisory_ids]
            for pin, advisory_ids in listed.items()
        },
        accepted,
        datetime.datetime.now(datetime.UTC).date(),
    )
    for line in judged.lines:
        print(line)
    print(
        f"{len(pinned)} pins compared with {options.server}: {len(judged.open)} advisories to act"
        f" on, {len(judged.accepted)} accepted; {sum(pin.tests_only for pin in ids)} pins of"
        " programs that only tests run have advisories"
    )
    return bool(judged.open)


if __name__ == "__main__":
    sys.exit(main())
