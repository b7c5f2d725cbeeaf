# SPDX-License-Identifier: Apache-2.0
"""Pin the npm packages of tests again: ``python -m tools.npm_lock``, a part of ``make lock``.

npm leaves out addresses of downloads where it is configured so; it keeps those where people ask
for money, which have no business in a lock file either.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "monitoring" / "npm"


def main() -> int:
    """Write the lock file; npm's exit code where it fails."""
    pin = ["npm", "update", "--package-lock-only"]
    if code := subprocess.run(pin, cwd=FOLDER, check=False).returncode:
        return code
    file = FOLDER / "package-lock.json"
    lock = json.loads(file.read_text("utf-8"))
    for package in lock["packages"].values():
        package.pop("funding", None)
    file.write_text(json.dumps(lock, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
