# SPDX-License-Identifier: Apache-2.0
"""Build the control plane's binaries, once: ``python -m tests.controlplane.prepare``.

    --only etcd,kubernetes-1.37    these families alone

Ends with 1 where one of them could not be built; the others are built all the same.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.controlplane.builds import GIVEN, BuildError, build, cache, find, given
from tests.controlplane.families import ALL, FOR_LONG, Family
from tests.controlplane.toolchain import GO, NoToolError, Tool, find_tool, missing_compiler

ADVICE = f"""\
It takes Go's module proxy, 10 GB of disk and 3 GB of memory. Then try again: make controlplane
Or bring a folder of binaries and name it in {GIVEN}: docs/testing.md."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is missing, in the order of the table; the exit code."""
    families = chosen(arguments)
    try:
        missing = [family for family in families if find(family) is None]
        if missing and not given():
            _demand_folder(cache())
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        say(
            f"{cache()} cannot be used ({error.filename}: {why}): "
            f"name another folder of yours in XDG_CACHE_HOME"
        )
        return 1
    if not missing:
        say(f"the control plane is ready: {', '.join(family.name for family in families)}")
        return 0
    if given():
        names = ", ".join(family.name for family in missing)
        say(f"{GIVEN} names {given()}, which has no folder for: {names} (docs/testing.md)")
        return 1
    return build_all(missing)


def _demand_folder(folder: Path) -> None:
    """Make sure that there is one to write into. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def chosen(arguments: Sequence[str] | None) -> list[Family]:
    """The families that the command line names; all but FOR_LONG where it names none."""
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m tests.controlplane.prepare")
    every = (*ALL, *FOR_LONG)
    names = [family.name for family in every]
    default = ",".join(family.name for family in ALL)
    parser.add_argument("--only", default=default, metavar="FAMILY,…")
    asked = parser.parse_args(arguments).only.split(",")
    if unknown := sorted(set(asked) - set(names)):
        parser.error(f"no family {', '.join(unknown)}; there are {', '.join(names)}")
    return [family for family in every if family.name in asked]


def build_all(families: Sequence[Family]) -> int:
    """Build each; a failure is explained and the next one is tried.

    Nothing is built without a C compiler where one is needed: that shows minutes later otherwise.
    """
    minutes = sum(family.minutes for family in families)
    say(f"building the control plane into {cache()} (once, {minutes} min on two free cores)")
    tools = dict(tools_of(families))
    in_c = [family.name for family in families if family.cgo]
    if in_c and GO in tools and (compiler := missing_compiler(tools[GO])):
        say(f"{', '.join(in_c)} cannot be built: there is no C compiler {compiler}: install gcc")
        return 1
    failed = False
    for number, family in enumerate(families, start=1):
        if family.tool not in tools:
            failed = True
            continue
        note = partial(say_about, f"{family.name} ({number} of {len(families)})")
        begin = time.monotonic()
        note("building")
        try:
            build(family, tools[family.tool], note)
        except BuildError as error:
            say(str(error))
            failed = True
        else:
            note(f"ready after {time.monotonic() - begin:.0f} s")
    if failed:
        say(ADVICE)
    return int(failed)


def tools_of(families: Sequence[Family]) -> Iterator[tuple[Tool, Path]]:
    """What builds them, and where it is; one that is missing is explained and left out."""
    for tool in dict.fromkeys(family.tool for family in families):
        try:
            yield tool, find_tool(tool, cache(), say)
        except NoToolError as error:
            say(str(error))


def say(text: str) -> None:
    """One line at once: this is often read from a file while it grows."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say_about(subject: str, text: str) -> None:
    """A line of progress."""
    say(f"{subject}: {text}")


if __name__ == "__main__":
    sys.exit(main())
