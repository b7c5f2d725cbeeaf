# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that runs the selected tests once, and then for each mutant those that reach it.

Everything is imported and collected once; the first run and then each mutant have a fork of that
process, which for a mutant ends with the first test that fails. The orders are a JSON file, named
by ``MUTATION_ORDERS``:

- ``mutants``, ``children`` (how many at a time), ``budget_seconds`` (of tests for one mutant);
- ``unbroken``, the file that gets what :func:`_run_unbroken` finds;
- ``results``, the file that gets a line of JSON for each mutant: ``name`` and ``outcome``, which is
  ``imported`` where a mutant survived whose function runs while modules are imported: that was
  over before the fork.

Without orders all tests run, for such a mutant from the start, but those in the file that
``MUTATION_UNBROKEN`` names as failing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item
from mutmut.configuration import config as mutmut_config
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.format_utils import mangled_name_from_mutant_name

from tools.mutation.outcome import CONTROL, IMPORTED, NOTICED, SURVIVED, TIMED_OUT, WITHOUT

_EXAMPLES = 30
"""Random cases of a test: fewer than in ``make test``, so that a survivor may be noticed there."""
_PATIENCE = 10.0
"""Seconds on top of five times what the tests took unbroken, before a mutant has timed out."""


def pytest_configure(config: pytest.Config) -> None:
    """No random case is kept for the next mutant, and none is made smaller once it failed."""
    del config
    mutmut_config()  # reads pyproject.toml of the folder at hand, which tests change
    hypothesis.settings.register_profile(
        "mutation",
        parent=hypothesis.settings.get_profile("scaled"),
        database=None,
        max_examples=_EXAMPLES,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )
    hypothesis.settings.load_profile("mutation")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that fails unbroken would notice everything."""
    if path := os.environ.get("MUTATION_UNBROKEN"):
        failing = frozenset(json.loads(Path(path).read_text("utf-8"))["failing"])
        items[:] = [item for item in items if item.nodeid not in failing]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """All tests unbroken, then the mutants; tests that fail unbroken are used for none."""
    if "MUTATION_ORDERS" not in os.environ:
        return None
    if session.testsfailed:
        raise session.Interrupted("the copy of the tree cannot be collected")
    orders = json.loads(Path(os.environ["MUTATION_ORDERS"]).read_text("utf-8"))
    imported = frozenset(state()._stats)
    unbroken = _in_a_fork(session, Path(orders["unbroken"]))
    set_mutant_under_test("")
    seconds = {
        item: taken
        for item, taken in zip(session.items, unbroken["seconds"], strict=True)
        if taken is not None
    }
    reached = {
        function: [session.items[number] for number in numbers]
        for function, numbers in unbroken["reached"].items()
    }
    with Path(orders["results"]).open("a", encoding="utf-8") as results:
        trials = _Trials(reached, seconds, imported, float(orders["budget_seconds"]))
        for line in trials.run(orders["mutants"], int(orders["children"])):
            results.write(json.dumps(line) + "\n")
            results.flush()
    return True


def _in_a_fork(session: pytest.Session, path: Path) -> dict[str, Any]:
    """What :func:`_run_unbroken` finds in a fork, as mutants are tried in one: no thread that was
    started before is there, and nothing that tests leave behind is in the way of the mutants."""
    pid = os.fork()
    if not pid:
        try:
            path.write_text(json.dumps(_run_unbroken(session)), "utf-8")
            os._exit(0)
        except BaseException as error:
            print(f"the tests ended the run: {error!r}", flush=True)
            os._exit(1)
    os.waitpid(pid, 0)
    result: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return result


def _run_unbroken(session: pytest.Session) -> dict[str, Any]:
    """Run all tests; they are numbered in their order.

    ``reached`` is function to the tests that reach it, ``seconds`` a number for each test, None
    for those of no use, and ``failing`` has the names of those that fail.
    """
    failing = []
    reached: dict[str, list[int]] = defaultdict(list)
    seconds: list[float | None] = []
    set_mutant_under_test("stats")
    del os.environ["MUTANT_UNDER_TEST"]  # programs that tests start need not count
    for number, (item, following) in enumerate(_pairs(session.items)):
        state()._stats.clear()
        began = time.monotonic()
        reports = _reports(item, following)
        seconds.append(None)
        if any(report.failed for report in reports):
            failing.append(item.nodeid)
            print(f"fails unbroken: {item.nodeid}\n{_why(reports)}", flush=True)
        elif any(report.when == "call" and report.passed for report in reports):
            seconds[-1] = time.monotonic() - began
            for name in state()._stats:
                reached[name].append(number)
    return {"reached": reached, "seconds": seconds, "failing": failing}


class _Trials:
    """The mutants, each in a process of its own."""

    def __init__(
        self,
        reached: dict[str, list[pytest.Item]],
        seconds: dict[pytest.Item, float],
        imported: frozenset[str],
        budget_seconds: float,
    ) -> None:
        self._reached = reached
        self._seconds = seconds
        self._imported = imported
        self._budget_seconds = budget_seconds
        self._running: dict[int, tuple[str, float, float]] = {}

    def run(self, names: Sequence[str], children: int) -> Iterator[dict[str, object]]:
        """A line for each mutant as soon as it is known. Leaves no process behind."""
        try:
            for name in names:
                function = mangled_name_from_mutant_name(name.removeprefix(CONTROL))
                tests = self._within_budget(self._reached.get(function, []))
                if not tests:
                    outcome = IMPORTED if function in self._imported else WITHOUT
                    yield {"name": name, "outcome": outcome}
                    continue
                while len(self._running) >= children:
                    yield from self._ended()
                self._start(name, tests)
            while self._running:
                yield from self._ended()
        finally:
            for pid in self._running:
                _kill(pid)

    def _within_budget(self, tests: Sequence[pytest.Item]) -> list[pytest.Item]:
        """The quick ones first; the slowest are left out once the budget is spent."""
        chosen: list[pytest.Item] = []
        remaining = self._budget_seconds
        for test in sorted(tests, key=lambda candidate: self._seconds[candidate]):
            remaining -= self._seconds[test]
            if remaining < 0 and chosen:
                break
            chosen.append(test)
        return chosen

    def _start(self, name: str, tests: Sequence[pytest.Item]) -> None:
        pid = os.fork()
        if not pid:
            _try("" if name.startswith(CONTROL) else name, tests)
        limit = 5 * sum(self._seconds[test] for test in tests) + _PATIENCE
        self._running[pid] = name, time.monotonic(), limit

    def _ended(self) -> Iterator[dict[str, object]]:
        time.sleep(0.005)
        for pid, (name, began, limit) in list(self._running.items()):
            took = time.monotonic() - began
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and took < limit:
                continue
            _kill(pid)
            outcome = NOTICED
            if ended and status == 0:
                function = mangled_name_from_mutant_name(name.removeprefix(CONTROL))
                outcome = IMPORTED if function in self._imported else SURVIVED
            if not ended:
                os.waitpid(pid, 0)
                outcome = TIMED_OUT
            del self._running[pid]
            yield {"name": name, "outcome": outcome, "seconds": round(took, 2)}


def _try(name: str, tests: Sequence[pytest.Item]) -> NoReturn:
    """Ends the process: 0 where no test notices, else 1."""
    try:
        os.setsid()
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        set_mutant_under_test(name)
        for item, following in _pairs(tests):
            if any(report.failed for report in _reports(item, following)):
                os._exit(1)
        os._exit(0)
    except BaseException:
        os._exit(1)


def _reports(item: pytest.Item, following: pytest.Item | None) -> list[pytest.TestReport]:
    """Run one test as pytest's own loop does, with the filters of warnings that its marks set."""
    with catch_warnings_for_item(config=item.config, ihook=item.ihook, when="runtest", item=item):
        return runtestprotocol(item, log=False, nextitem=following)


def _kill(pid: int) -> None:
    """End a trial, and what its tests have started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _pairs(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _why(reports: Sequence[pytest.TestReport]) -> str:
    return "\n".join(report.longreprtext for report in reports if report.failed)
