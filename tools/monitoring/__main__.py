"""``python -m tools.monitoring``: the PrometheusRule with links to your copy of the runbooks."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from labelers import names
from tools.monitoring import rules
from tools.monitoring.files import RULES

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Print it; 2 with one line of reason where that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m tools.monitoring", description=__doc__)
    parser.add_argument("--namespace", default=names.NAMESPACE)
    parser.add_argument("--runbooks", default=rules.HERE, type=_folder, metavar="URL")
    asked = parser.parse_args(arguments)
    text = (ROOT / RULES).read_text("utf-8")
    sys.stdout.write(rules.manifest(text, namespace=asked.namespace, runbooks=asked.runbooks))
    return 0


def _folder(url: str) -> str:
    if not re.fullmatch(r"https?://[^\s\"'{}\\]+", url):
        raise argparse.ArgumentTypeError(f"{url!r} is no address: it begins with https://")
    return url.rstrip("/") + "/"


if __name__ == "__main__":
    sys.exit(main())
