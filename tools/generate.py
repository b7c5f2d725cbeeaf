# SPDX-License-Identifier: Apache-2.0
"""Write generated pages, pictures, schemas and access rules, or with ``--check`` find stale ones.

In Markdown, what stands between ``<!-- generated: NAME -->`` and ``<!-- end -->`` is made by the
function registered under NAME; the rest of the page is written by hand. Schemas, roles
and admission policies are generated as whole files.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from api import (
    known_gpus_annotation,
    mig_permit_annotation,
    mig_request_annotation,
    mig_status_annotation,
    state_annotation,
    topology_annotation,
)
from discovery.snapshot_document import snapshot_schema
from tools import (
    chart,
    command_pages,
    gpu_counts_tables,
    key_tables,
    live_views,
    metric_tables,
    package_lists,
    peer_tables,
)
from tools.access import files as access
from tools.figures import figures
from tools.findings import finding_rows
from tools.license_table import license_table
from tools.markdown import table
from tools.monitoring import files as monitoring
from tools.pictures import files as pictures

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE
SCHEMAS = "docs/schemas"
SECTION = re.compile(r"(<!-- generated: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)
SECTIONS: Mapping[str, Callable[..., str]] = {
    "commands": command_pages.command_pages,
    "deviations": key_tables.deviation_table,
    "explain": command_pages.explain_sample,
    "figures": figures,
    "findings": lambda subject: table(*finding_rows(subject)),
    "gpu-counts": gpu_counts_tables.gpu_counts_table,
    "health": key_tables.health_table,
    "labels": key_tables.label_table,
    "licenses": license_table,
    "metric-labels": metric_tables.metric_label_table,
    "metrics": metric_tables.metric_table,
    "metrics-served-share": metric_tables.served_share_table,
    "metrics-unserved": metric_tables.unserved_table,
    "options": command_pages.option_table,
    "other-keys": key_tables.other_key_table,
    "own-families": metric_tables.own_family_table,
    "own-metrics": metric_tables.own_metric_table,
    "peer-releases": peer_tables.peer_release_table,
    "peer-types": peer_tables.peer_type_table,
    "policies": key_tables.policy_table,
    "sample": command_pages.sample,
    "xids": key_tables.xid_table,
}


def main() -> int:
    """Write or check; 1 if ``--check`` finds a stale file, or a package is in no list, else 0."""
    for name in [name for name in os.environ if name.startswith("GPUSCAPE_")] + ["FORCE_COLOR"]:
        os.environ.pop(name, None)  # the pages are the same, whoever generates them
    problems = list(package_lists.problems(ROOT))
    for problem in problems:
        print(problem, file=sys.stderr)
    stale = {
        path: text for path, text in files() if not path.exists() or path.read_text("utf-8") != text
    }
    if sys.argv[1:] == ["--check"]:
        for path in stale:
            print(
                f"{path.relative_to(ROOT)} is stale: run `make docs` and commit it", file=sys.stderr
            )
        return bool(stale or problems)
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return bool(problems)


def files() -> Iterator[tuple[Path, str]]:
    """Every generated file and what it should hold."""
    for name, content in schemas().items():
        yield ROOT / SCHEMAS / name, json.dumps(content, indent=2) + "\n"
    for path, text in {**access.files(), **live_views.files()}.items():
        yield ROOT / path, text
    yield from package_lists.files(ROOT).items()
    watched = monitoring.files(HERE)
    for path, text in {**watched, **chart.files(watched), **pictures()}.items():
        yield ROOT / path, text
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield page, SECTION.sub(_section, page.read_text("utf-8"))


def _section(match: re.Match[str]) -> str:
    name, *arguments = match[2].split()
    return f"{match[1]}\n{SECTIONS[name](*arguments)}\n\n{match[3]}"


def schemas() -> Mapping[str, Any]:
    """JSON Schemas by file name."""
    return {
        "topology.schema.json": _cleaned(topology_annotation.json_schema()),
        "known-gpus.schema.json": _cleaned(known_gpus_annotation.json_schema()),
        "state.schema.json": _cleaned(state_annotation.json_schema()),
        "mig-status.schema.json": _cleaned(mig_status_annotation.json_schema()),
        "mig-request.schema.json": _cleaned(mig_request_annotation.json_schema()),
        "mig-permit.schema.json": _cleaned(mig_permit_annotation.json_schema()),
        "snapshot.schema.json": _cleaned(snapshot_schema()),
    }


def _cleaned(part: Any) -> Any:
    """The schema with its descriptions unindented, as Python 3.13 keeps docstrings."""
    if isinstance(part, dict):
        return {
            key: inspect.cleandoc(value)
            if key == "description" and isinstance(value, str)
            else _cleaned(value)
            for key, value in part.items()
        }
    return [_cleaned(item) for item in part] if isinstance(part, list) else part


if __name__ == "__main__":
    sys.exit(main())
