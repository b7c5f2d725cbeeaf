# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.access``: roles and policies for a namespace of one's own, as YAML."""

from __future__ import annotations

import argparse
import re
import sys

from api import names
from api.key_kinds import rule_key_fault
from fleet.slot_lease import MOST_SLOTS
from tools.access.coordinator import CoordinatorBounds
from tools.access.files import DEFAULT_BOUNDS, parts_of, text

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
    parser.add_argument(
        "--slots",
        type=_slots,
        default=DEFAULT_BOUNDS.slots,
        help="as the coordinator's setting of this name (default: %(default)s)",
    )
    parser.add_argument(
        "--protected-namespace",
        action="append",
        default=[],
        type=_namespace,
        help="one more of whose pods the coordinator evicts none but a device plugin's, in addition"
        f" to {', '.join(DEFAULT_BOUNDS.protected)} and its own; once for each",
    )
    parser.add_argument(
        "--plugin-pod",
        action="append",
        default=[],
        type=_plugin_pod,
        metavar="NAMESPACE/BEGINNING",
        help="how the names of a device plugin's pods begin in a protected namespace, in addition"
        f" to {', '.join(DEFAULT_BOUNDS.plugin_pods)}; once for each",
    )
    options = parser.parse_args(arguments)
    bounds = CoordinatorBounds(
        slots=options.slots,
        protected=(*DEFAULT_BOUNDS.protected, *options.protected_namespace),
        plugin_pods=(*DEFAULT_BOUNDS.plugin_pods, *options.plugin_pod),
    )
    sys.stdout.write(text(parts_of(options.namespace, options.label_key, bounds)[options.part]))
    return 0


def _slots(number: str) -> int:
    if not number.isdecimal() or int(number) > MOST_SLOTS:
        raise argparse.ArgumentTypeError(f"{number!r} is no number from 0 to {MOST_SLOTS}")
    return int(number)


def _plugin_pod(text: str) -> str:
    namespace, slash, beginning = text.partition("/")
    if not slash or not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*)", beginning):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no namespace, a slash and the beginning of a pod's name"
        )
    return f"{_namespace(namespace)}/{beginning}"


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
