# SPDX-License-Identifier: Apache-2.0
"""Try mutants of each package and write how many were noticed into docs/testing.md.

``python -m tools.mutation [PACKAGE ...]``; the page is written after a run of all packages only.
What became of each mutant stays in ``mutants/PACKAGE.json``, those that were not noticed in
``mutants/survivors.txt``, with the lines that differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
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
_PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"),
    *("-m", "not cluster and not gpu and not long", "--timeout", "120", "--hypothesis-seed=1"),
)


def main() -> int:
    """1 where a package could not be tried."""
    options = _options()
    packages = [each for each in PACKAGES if not options.package or each.name in options.package]
    known: list[str] = []
    outcomes: dict[str, str] = {}
    WORK.mkdir(exist_ok=True)
    with (WORK / "survivors.txt").open("w", encoding="utf-8") as survivors:
        for package in packages:
            of_package, found = _tried(package, options)
            known += of_package
            outcomes |= found
            print(table(found, of_package))
            for name, outcome in sorted(found.items()):
                if outcome in {SURVIVED, WITHOUT}:
                    survivors.write(f"{outcome}: {name}\n{difference(WORK / package.name, name)}\n")
            survivors.flush()
    print(module_table(outcomes, known))
    print(table(outcomes, known))
    print(f"one by one: {WORK / 'survivors.txt'}")
    if len(packages) == len(PACKAGES):
        _write_page(table(outcomes, known), module_table(outcomes, known), options)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("package", nargs="*", choices=[*(each.name for each in PACKAGES), []])
    parser.add_argument("--size", type=int, default=400, help="mutants of each package (400)")
    parser.add_argument("--seed", default="1", help="which ones are drawn (1)")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 2, help="at a time")
    parser.add_argument("--budget", type=float, default=30, help="seconds of tests each (30)")
    parser.add_argument(
        "--only", default="", help="modules whose name begins so: for a closer look"
    )
    return parser.parse_args()


def _tried(package: Package, options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """All mutants of the package, and the outcome of those that were drawn."""
    began = time.monotonic()
    tree = WORK / package.name
    known = [
        name
        for name in write_tree(ROOT, tree, package.modules(ROOT))
        if name.startswith(options.only)
    ]
    drawn = sample(known, options.size, f"{options.seed}:{package.name}")
    controls = [CONTROL + name for name in sample(drawn, CONTROLS, options.seed)]
    found = dict(_forked(package, tree, [*controls, *drawn], options))
    imported = [name for name, outcome in found.items() if outcome == IMPORTED]
    with ThreadPoolExecutor(options.children) as pool:
        for done, (name, outcome) in enumerate(
            pool.map(lambda name: (name, _started(package, tree, name)), imported), 1
        ):
            found[name] = outcome
            _progress(f"{package.name}: {done} of {len(imported)} that run at import")
    alarms = sum(found.pop(each, SURVIVED) in {NOTICED, TIMED_OUT} for each in controls)
    minutes = (time.monotonic() - began) / 60
    print(
        f"\n{package.name}: {len(drawn)} of {len(known)} mutants in {minutes:.1f} minutes;"
        f" {alarms} of {len(controls)} times tests failed with nothing broken"
    )
    (WORK / f"{package.name}.json").write_text(json.dumps(found, indent=1), "utf-8")
    return known, found


def _forked(
    package: Package, tree: Path, names: Sequence[str], options: argparse.Namespace
) -> Iterator[tuple[str, str]]:
    """One process imports all, and a fork of it tries each mutant."""
    orders, results = WORK / f"{package.name}-orders.json", WORK / f"{package.name}-trials.jsonl"
    results.write_text("", "utf-8")
    orders.write_text(
        json.dumps(
            {
                "mutants": names,
                "children": options.children,
                "budget_seconds": options.budget,
                "results": str(results),
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
        raise SystemExit(f"{package.name}: {len(lines)} of {len(names)} were tried, see {log}")
    return ((line["name"], line["outcome"]) for line in lines)


def _started(package: Package, tree: Path, name: str) -> str:
    """A mutant that matters while modules are imported needs a process from the start."""
    if name.startswith(CONTROL):
        return SURVIVED
    try:
        ended = subprocess.run(
            [*_PYTEST, "-x", "-p", "tools.mutation.trials", *_selected(package)],
            cwd=tree,
            env=os.environ | {"MUTANT_UNDER_TEST": name},
            capture_output=True,
            check=False,
            timeout=600,
        )
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    return NOTICED if ended.returncode else SURVIVED


def _selected(package: Package) -> list[str]:
    return [f"tests/{package.name}", *(f"--ignore={path}" for path in package.tests_left_out)]


def _progress(text: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{text:70}", end="", flush=True)


def _write_page(packages: str, modules: str, options: argparse.Namespace) -> None:
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after and not rest:
        raise SystemExit(f"{PAGE} has no line {BEGIN.strip()!r}")
    drawn = f"Up to {options.size} mutants of each package, drawn with the seed {options.seed}.\n"
    PAGE.write_text(
        f"{before}{BEGIN}\n{drawn}\n{packages}\nBy module:\n\n{modules}\n{END}{after}", "utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
