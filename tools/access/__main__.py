# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.access``: roles and policies for a namespace of one's own, as YAML."""

from __future__ import annotations

import argparse
import re
import sys

from api import names
from api.key_kinds import rule_key_fault
from tools.access.files import parts_of, text

LONGEST = 63


def main(arguments: list[str] | None = None) -> int:
    """Print one part's objects; 2 with one line of reason where that cannot be."""
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m tools.access", description=__doc__)
    parser.add_argument("part", nargs="?", default="base", choices=parts_of(), help="default: base")
    parser.add_argument("--namespace", default=names.NAMESPACE, type=_namespace)
    parser.add_argument(
        "--label-key",
        action="append",
        default=[],
        type=_label_key,
        help="a label that the agent writes by a rule; once for each",
    )
    asked = parser.parse_args(arguments)
    sys.stdout.write(text(parts_of(asked.namespace, asked.label_key)[asked.part]))
    return 0


def _namespace(name: str) -> str:
    if len(name) > LONGEST or not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
        raise argparse.ArgumentTypeError(
            f"{name!r} is no namespace: up to {LONGEST} lower-case letters, digits and dashes"
        )
    return name


def _label_key(key: str) -> str:
    if (fault := rule_key_fault(key)) is not None:
        raise argparse.ArgumentTypeError(f"{key!r} cannot be a label of a rule: {fault}")
    return key


if __name__ == "__main__":
    sys.exit(main())
