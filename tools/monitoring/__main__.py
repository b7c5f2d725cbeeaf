# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.monitoring``: the PrometheusRule with links to your copy of the runbooks.

With ``--dashboard UID``: that dashboard, whose alerts lead there."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from api import names
from tools.monitoring import grafana_json, links, rules
from tools.monitoring.files import DASHBOARDS, RULES

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Print it; 2 with one line of reason where that cannot be."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m tools.monitoring", description=__doc__
    )
    parser.add_argument("--namespace", default=names.NAMESPACE)
    parser.add_argument("--runbooks", type=_folder, metavar="URL")
    parser.add_argument(
        "--dashboard", choices=[dashboard.uid for dashboard in DASHBOARDS], metavar="UID"
    )
    options = parser.parse_args(arguments)
    if options.dashboard:
        (chosen,) = (dashboard for dashboard in DASHBOARDS if dashboard.uid == options.dashboard)
        text = grafana_json.text(chosen)
        if options.runbooks:
            text = links.with_runbooks(text, options.runbooks)
    else:
        text = rules.manifest(
            (ROOT / RULES).read_text("utf-8"),
            namespace=options.namespace,
            runbooks=options.runbooks or rules.HERE,
        )
    sys.stdout.write(text)
    return 0


def _folder(url: str) -> str:
    if not re.fullmatch(r"https?://[^\s\"'{}\\]+", url):
        raise argparse.ArgumentTypeError(f"{url!r} is no address: it begins with https://")
    return url.rstrip("/") + "/"


if __name__ == "__main__":
    sys.exit(main())
