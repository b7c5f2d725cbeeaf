# SPDX-License-Identifier: Apache-2.0
"""What a bill of materials is held against: the published schema, and the lock file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

LOCK: Final = Path(__file__).resolve().parents[2] / "requirements" / "run.txt"


def pinned() -> dict[str, str]:
    """Versions in the lock file by normalised name."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", LOCK.read_text("utf-8"), re.MULTILINE))


def fault(bill: dict[str, Any]) -> object:
    """What CycloneDX's schema, as its project publishes it, has against it; None for nothing."""
    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill))


def packages(bill: dict[str, Any]) -> dict[str, str]:
    """Versions of its Python packages by name."""
    return {
        it["name"]: it["version"]
        for it in bill["components"]
        if str(it.get("purl", "")).startswith("pkg:pypi/")
    }
