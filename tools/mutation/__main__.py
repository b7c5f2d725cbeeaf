# SPDX-License-Identifier: Apache-2.0
"""Try mutants of each package and write how many were noticed into docs/testing.md.

``python -m tools.mutation [PACKAGE ...]``; the page is written after a run of all packages only.
What became of each mutant stays in ``mutants/PACKAGE.json``, those that were not noticed in
``mutants/PACKAGE-survivors.txt``, with the lines that differ. A run with ``--only`` tries modules
anew and leaves there what became of the others, for a package that takes longer than one has;
with ``--again`` it tries those that were not noticed, after tests have changed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tools.mutation.broken_tree import difference, write_tree
from tools.mutation.outcome import (
    CONTROL,
    IMPORTED,
    NOTICED,
    SURVIVED,
    TIMED_OUT,
    WITHOUT,
    module_table,
    renewed,
    sample,
    table,
)
from tools.mutation.scope import PACKAGES, Package

ROOT: Final = Path(__file__).resolve().parents[2]
WORK: Final = ROOT / "mutants"
PAGE: Final = ROOT / "docs" / "testing.md"
BEGIN: Final = "<!-- written by make mutate: begin -->\n"
END: Final = "<!-- written by make mutate: end -->\n"
CONTROLS: Final = 20
"""How many times tests run with nothing broken; those that fail then fail by chance."""
SLOWER: Final = 5
"""A mutant has timed out after so many times what the tests took unbroken."""
START_SECONDS: Final = 60.0
"""Seconds on top of that, for a process that has everything to import."""
_PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"),
    *("-m", "not cluster and not gpu and not long", "--timeout", "120", "--hypothesis-seed=1"),
)


def main() -> int:
    """1 where a package could not be tried; the others are tried all the same."""
    options = _options()
    names = [package.name for package in PACKAGES]
    failed = []
    WORK.mkdir(exist_ok=True)
    for package in PACKAGES:
        if not options.page and package.name in (options.package or names):
            try:
                _try(package, options)
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                print(f"\n{package.name}: {error}", file=sys.stderr)
                failed.append(package.name)
    if options.page or not (options.package or failed):
        _write_page([_kept(name) for name in names])
    return bool(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("package", nargs="*", choices=[*(package.name for package in PACKAGES), []])
    parser.add_argument("--size", type=int, default=400, help="mutants of each package (400)")
    parser.add_argument("--seed", default="1", help="which ones are drawn (1)")
    parser.add_argument("--children", type=int, default=2 * (os.cpu_count() or 1), help="at a time")
    parser.add_argument("--budget", type=float, default=30, help="seconds of tests each (30)")
    parser.add_argument(
        "--only", default="", help="modules whose names begin so, with commas: for a closer look"
    )
    parser.add_argument("--again", action="store_true", help="those that were not noticed before")
    parser.add_argument("--page", action="store_true", help="write the page from the last runs")
    return parser.parse_args()


def _try(package: Package, options: argparse.Namespace) -> None:
    """Break the package, try those that were drawn, print the table and keep what became of them.

    Raises RuntimeError where the tests could not be run.
    """
    began = time.monotonic()
    tree = WORK / package.name
    every = write_tree(ROOT, tree, package.modules(ROOT))
    file = WORK / f"{package.name}.json"
    kept = _kept(package.name)[1] if (options.only or options.again) and file.exists() else {}
    known = [name for name in every if name.startswith(tuple(options.only.split(",")))]
    if options.again:
        known = [name for name in known if kept.get(name) in {SURVIVED, WITHOUT}]
    drawn = sample(known, options.size, f"{options.seed}:{package.name}")
    controls = [CONTROL + name for name in sample(drawn, CONTROLS, options.seed)]
    results = _forked(package, tree, [*controls, *drawn], options)
    imported = [name for name in drawn if results[name] == IMPORTED]
    with ThreadPoolExecutor(options.children) as pool:
        tried = pool.map(lambda name: (name, _started(package, tree, name)), imported)
        for done, (name, outcome) in enumerate(tried, 1):
            results[name] = outcome
            _progress(f"{package.name}: {done} of {len(imported)} that run at import")
    alarms = sum(results.pop(control) in {NOTICED, TIMED_OUT} for control in controls)
    outcomes = renewed(every, kept, results)
    file.write_text(json.dumps({"known": every, "outcomes": outcomes}, indent=1), "utf-8")
    survivors = WORK / f"{package.name}-survivors.txt"
    survivors.write_text(
        "".join(
            f"{outcome}: {name}\n{difference(tree, name)}\n"
            for name, outcome in sorted(outcomes.items())
            if outcome in {SURVIVED, WITHOUT}
        ),
        "utf-8",
    )
    for test in json.loads(_unbroken(package).read_text("utf-8"))["failing"]:
        print(f"\nnot used, since it fails unbroken: {test}", end="")
    minutes = (time.monotonic() - began) / 60
    print(
        f"\n{package.name}: {len(drawn)} of {len(known)} mutants in {minutes:.1f} minutes;"
        f" {alarms} of {len(controls)} times tests failed with nothing broken;"
        f" survivors: {survivors}\n\n{module_table(outcomes, every)}\n{table(outcomes, every)}",
        flush=True,
    )


def _forked(
    package: Package, tree: Path, names: Sequence[str], options: argparse.Namespace
) -> dict[str, str]:
    """Outcomes of the mutants: a process imports all modules, and a fork of it tries each."""
    orders, results = WORK / f"{package.name}-orders.json", WORK / f"{package.name}-trials.jsonl"
    results.write_text("", "utf-8")
    _unbroken(package).unlink(missing_ok=True)
    orders.write_text(
        json.dumps(
            {
                "mutants": names,
                "children": options.children,
                "budget_seconds": options.budget,
                "results": str(results),
                "unbroken": str(_unbroken(package)),
            }
        ),
        "utf-8",
    )
    log = WORK / f"{package.name}.log"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [*_PYTEST, "-s", "-p", "tools.mutation.trials", *_selected(package)],
            cwd=tree,
            env=os.environ | {"MUTATION_ORDERS": str(orders), "MUTANT_UNDER_TEST": "stats"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        while process.poll() is None:
            time.sleep(1)
            done = results.read_text("utf-8").count("\n")
            _progress(f"{package.name}: {done} of {len(names)}")
    lines = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
    if len(lines) != len(names):
        raise RuntimeError(f"{len(lines)} of {len(names)} were tried, see {log}")
    return {line["name"]: line["outcome"] for line in lines}


def _started(package: Package, tree: Path, name: str) -> str:
    """A mutant that matters while modules are imported needs a process from the start."""
    try:
        ended = subprocess.run(
            [*_PYTEST, "-x", "-p", "tools.mutation.trials", *_selected(package)],
            cwd=tree,
            env=os.environ
            | {
                "MUTANT_UNDER_TEST": name,
                "MUTATION_UNBROKEN": str(_unbroken(package)),
            },
            capture_output=True,
            check=False,
            timeout=patience(_unbroken(package)),
        )
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    return NOTICED if ended.returncode else SURVIVED


def patience(unbroken: Path) -> float:
    """Seconds that all of a package's tests may take with one mutant, in a process of their own.

    ``unbroken``: the file with what each took with none, and None for those that are not used.
    """
    seconds: list[float | None] = json.loads(unbroken.read_text("utf-8"))["seconds"]
    return START_SECONDS + SLOWER * sum(duration for duration in seconds if duration is not None)


def _unbroken(package: Package) -> Path:
    """The file with what the tests reach unbroken, and which ones fail."""
    return WORK / f"{package.name}-unbroken.json"


def _selected(package: Package) -> list[str]:
    left_out = (f"--ignore={path}" for path in package.tests_left_out)
    return [f"tests/{package.name}", *package.more_tests, *left_out]


def _progress(text: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{text:70}", end="", flush=True)


def _kept(name: str) -> tuple[list[str], dict[str, str]]:
    """All mutants of a package, and what became of those that were tried."""
    kept = json.loads((WORK / f"{name}.json").read_text("utf-8"))
    return kept["known"], kept["outcomes"]


def _write_page(packages: Sequence[tuple[list[str], dict[str, str]]]) -> None:
    known = [name for names, _ in packages for name in names]
    outcomes = {
        name: outcome
        for _, package_outcomes in packages
        for name, outcome in package_outcomes.items()
    }
    before, begin, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise RuntimeError(f"{PAGE} has no lines {BEGIN.strip()!r} and {END.strip()!r}")
    tables = f"{table(outcomes, known)}\nBy module:\n\n{module_table(outcomes, known)}"
    PAGE.write_text(f"{before}{begin}\n{tables}\n{end}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
