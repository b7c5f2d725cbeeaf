# SPDX-License-Identifier: Apache-2.0
"""Pins are compared with published advisories; what is not compared is never taken for good."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from base.errors import BadInput, Transient
from tests.fakes.scripted import Reply, ScriptedServer, answer
from tests.tools.osv_stand_in import Published, StandIn
from tools.advisories import osv_server
from tools.advisories.__main__ import ROOT, main
from tools.advisories.accepted import AcceptedAdvisory, read_accepted
from tools.advisories.comparison import comparison
from tools.advisories.osv_server import Advisory, OsvServer
from tools.advisories.pins import (
    BITNAMI,
    GO,
    NPM,
    PYPI,
    Pin,
    floors,
    go_modules,
    npm_lock,
    pins,
    python_image,
    requirements,
)

URLLIB3 = Pin(ecosystem=PYPI, name="urllib3", version="2.6.2", file="requirements/run.txt")
BOMB = Published(
    id="GHSA-38jv-5279-wg99",
    ecosystem=PYPI,
    name="urllib3",
    versions=("2.6.2",),
    more={"aliases": ["CVE-2026-21441"], "summary": "Decompression bomb"},
)
TODAY = datetime.date(2026, 11, 27)
GO_MOD = """\
module gpuscape/tests

go 1.26 // a comment

require go.etcd.io/etcd/server/v3 v3.6.9
require (
	github.com/docker/docker v28.5.2+incompatible // indirect
	k8s.io/api v0.0.0
	k8s.io/local v0.0.0
	golang.org/x/net v0.55.0
)
replace k8s.io/api => k8s.io/api v0.37.0
replace (
	golang.org/x/net v0.55.0 => example.com/fork v0.56.0
	k8s.io/local => ../local
)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one pin of each kind; nothing is accepted."""
    files = {
        "pyproject.toml": '[project]\ndependencies = ["urllib3>=2.8"]\n',
        "requirements/run.txt": "urllib3==2.6.2 \\\n    --hash=sha256:00\n",
        "requirements/advisories.toml": "accepted = []\n",
        "deploy/image/Dockerfile": "FROM python:3.11.14-slim-bookworm AS pinned-base\n",
        "tests/monitoring/npm/package-lock.json": '{"packages": {"": {"version": "1"}}}',
        "tests/controlplane/go/etcd/go.mod": "require go.etcd.io/etcd v3.6.9\n",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def compared(
    checkout: Path, server: StandIn, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, str, str]:
    """Exit code, and what was printed on both."""
    code = main(["--root", str(checkout), "--server", server.server.url, *more])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


# pins


def test_lock_files_of_python_give_each_version_once_and_refuse_what_is_not_exact() -> None:
    text = "# by uv\nA-b.c==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:00\nd==2!1.0rc1+x\n"
    found = [(pin.name, pin.version) for pin in requirements(text, "r.txt")]
    assert found == [("A-b.c", "1.0"), ("d", "2!1.0rc1+x")]
    for line in ("a>=1", "a", "a @ file:///x", "-r other.txt", "a==1.*"):
        with pytest.raises(BadInput, match=r"r\.txt:2: no exact version"):
            list(requirements(f"b==1\n{line}\n", "r.txt"))


def test_the_lowest_version_that_may_be_installed_is_compared_too() -> None:
    text = '[project]\ndependencies = ["a-b>=3.11,<4", "c>=50"]  # CVE-2026-1\n'
    assert [(pin.name, pin.version) for pin in floors(text, "pyproject.toml")] == [
        ("a-b", "3.11"),
        ("c", "50"),
    ]
    for dependency in ("a", "a<4", "a==1", "a~=1.0"):
        with pytest.raises(BadInput, match=f"pyproject.toml: {dependency} has no lowest version"):
            list(floors(f'[project]\ndependencies = ["{dependency}"]\n', "pyproject.toml"))


def test_the_image_gives_its_interpreter_and_refuses_a_version_that_moves() -> None:
    for digest in ("", f"@sha256:{'0' * 64}"):
        base = f"FROM python:3.11.18-slim-trixie{digest} AS pinned-base"
        pin = python_image(f"# x\n{base}\nFROM scratch\n", "Dockerfile")
        assert (pin.ecosystem, pin.name, pin.version) == (BITNAMI, "python", "3.11.18")
    for tag in ("python:3.11-slim", "python:latest", "debian:13"):
        with pytest.raises(BadInput, match="Dockerfile: pinned-base has no exact version"):
            python_image(f"FROM {tag} AS pinned-base\n", "Dockerfile")


def test_an_npm_package_under_another_name_counts_as_what_it_is() -> None:
    text = """{"packages": {
        "": {"version": "1.0.0"},
        "node_modules/a": {"version": "1.0.0"},
        "node_modules/a/node_modules/@b/c": {"version": "2.0.0"},
        "node_modules/date-fns": {"name": "string-hash", "version": "1.1.3"}}}"""
    assert [(pin.name, pin.version) for pin in npm_lock(text, "l")] == [
        ("a", "1.0.0"),
        ("@b/c", "2.0.0"),
        ("string-hash", "1.1.3"),
    ]


def test_modules_of_go_count_as_what_replaces_them_and_folders_as_ours() -> None:
    found = list(go_modules(GO_MOD, "go.mod"))
    assert [(pin.name, pin.version) for pin in found] == [
        ("go.etcd.io/etcd/server/v3", "3.6.9"),
        ("github.com/docker/docker", "28.5.2"),
        ("k8s.io/api", "0.37.0"),
        ("example.com/fork", "0.56.0"),
    ]
    assert all(pin.tests_only and pin.ecosystem == GO for pin in found)


def test_every_kind_of_pin_of_this_repository_is_read() -> None:
    found = pins(ROOT)
    files = {pin.file for pin in found}
    assert {"requirements/run.txt", "requirements/dev.txt", "deploy/image/Dockerfile"} <= files
    assert "pyproject.toml" in files
    assert {pin.ecosystem for pin in found} == {PYPI, NPM, GO, BITNAMI}
    assert {pin.ecosystem for pin in found if pin.tests_only} == {GO}
    assert read_accepted(ROOT / "requirements" / "advisories.toml") is not None


# the comparison


def test_an_advisory_about_what_is_installed_fails_with_file_version_names_and_fix(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = {"ecosystem": PYPI, "name": "urllib3"}
    ranges = [
        {"type": "GIT", "events": [{"fixed": "8864ac4"}]},
        {"type": "ECOSYSTEM", "events": [{"introduced": "1.22"}, {"fixed": "2.6.3"}]},
    ]
    other = {"package": {"ecosystem": "Debian:13", "name": "urllib3"}, "ranges": [ranges[1]]}
    more = {**BOMB.more, "affected": [{"package": package, "ranges": ranges}, other]}
    with StandIn(Published(**{**vars(BOMB), "more": more})) as server:
        code, out, _ = compared(checkout, server, capsys)
    assert code == 1
    assert out.splitlines() == [
        "requirements/run.txt: urllib3 2.6.2: GHSA-38jv-5279-wg99, CVE-2026-21441:"
        " Decompression bomb (fixed in 2.6.3)",
        f"4 pins compared with {server.server.url}: 1 advisories to act on, 0 accepted; 0 pins of"
        " programs that only tests run have advisories",
    ]


def test_where_nothing_is_published_nothing_has_to_be_done(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StandIn(Published(**{**vars(BOMB), "versions": ("2.6.1",)})) as server:
        code, out, _ = compared(checkout, server, capsys)
    assert (code, len(out.splitlines())) == (0, 1)


def test_the_interpreter_of_the_image_is_compared(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StandIn(
        Published(id="BIT-python-1", ecosystem=BITNAMI, name="python", versions=("3.11.14",))
    ) as server:
        code, out, _ = compared(checkout, server, capsys)
    assert code == 1
    assert out.startswith("deploy/image/Dockerfile: python 3.11.14: BIT-python-1: no summary")


def test_programs_that_only_tests_run_are_counted_and_listed_where_that_is_asked_for(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StandIn(
        Published(id="GO-2026-1", ecosystem=GO, name="go.etcd.io/etcd", versions=("3.6.9",))
    ) as server:
        quiet = compared(checkout, server, capsys)
        listed = compared(checkout, server, capsys, "--tests")
    assert quiet[0] == 0
    assert "; 1 pins of programs that only tests run have advisories" in quiet[1]
    assert listed[0] == 1
    assert "GO-2026-1" in listed[1]


def test_all_pages_and_batches_are_read_in_the_order_of_the_pins() -> None:
    many = [Pin(ecosystem=PYPI, name=f"p{n}", version="1", file="f") for n in range(1500)]
    names = {"p3": 5, "p1001": 2, "p1499": 1}
    published = [
        Published(id=f"{name}-{n}", ecosystem=PYPI, name=name, versions=("1",))
        for name, count in names.items()
        for n in range(count)
    ]
    with StandIn(*published) as server:
        found = OsvServer(server.server.url).ids(many)
    assert {pin.name: len(ids) for pin, ids in found.items()} == names
    assert {each for ids in found.values() for each in ids} == {each.id for each in published}
    assert max(server.batches) == osv_server.MOST_QUERIES


def entry(until: datetime.date, id: str = "CVE-2026-21441") -> AcceptedAdvisory:  # noqa: A002
    return AcceptedAdvisory(id=id, reason="not called", until=until)


def test_an_accepted_advisory_is_listed_and_counts_again_the_day_after() -> None:
    found = {URLLIB3: [Advisory(id="GHSA-1", aliases=("CVE-2026-21441",))]}
    last = comparison(found, [entry(TODAY)], TODAY)
    assert (last.open, last.unused) == ((), ())
    assert last.accepted[0].startswith("accepted until 2026-11-27 (not called): requirements/run")
    over = comparison(found, [entry(TODAY)], TODAY + datetime.timedelta(days=1))
    assert over.accepted == ()
    assert over.open[0].endswith("; it was accepted until 2026-11-27")


def test_an_entry_that_is_about_nothing_any_more_is_named() -> None:
    judged = comparison({}, [entry(TODAY)], TODAY)
    assert judged.lines == judged.unused
    assert judged.unused[0].startswith("CVE-2026-21441 is accepted and is about no pin any more")


def test_one_fault_under_two_names_is_listed_once_and_a_withdrawn_one_not_at_all() -> None:
    found = [
        Advisory(id="PYSEC-2026-9", aliases=("CVE-1", "GHSA-1")),
        Advisory(id="GHSA-1", aliases=("CVE-1", "PYSEC-2026-9")),
        Advisory(id="GHSA-2", is_withdrawn=True),
        Advisory(id="GHSA-3", summary="a\n" + "b" * 200),
    ]
    lines = comparison({URLLIB3: found}, [], TODAY).open
    assert [line.split(": ")[2].split(",")[0] for line in lines] == ["GHSA-1", "GHSA-3"]
    assert "a bbb" in lines[1]
    assert "…" in lines[1]


# what cannot be compared


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "accepted"),
        ("accepted = [{id = 'x', reason = 'y'}]", "until"),
        ("accepted = [{id = 'x', reason = '', until = 2026-01-01}]", "reason"),
        ("accepted = [{id = 'x', reason = 'y', until = 'soon'}]", "until"),
        ("accepted = [{id = 'x', reason = 'y', until = 2026-01-01, why = 'z'}]", "why"),
        ("accepted = [", "advisories.toml"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_key(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "advisories.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=reason):
        read_accepted(file)


def test_without_a_server_it_says_so_and_exits_with_2(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert main(["--root", str(checkout), "--server", url]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"not compared: {url}: no answer: ")
    assert len(printed.err.splitlines()) == 1


def test_a_checkout_without_a_lock_file_is_not_taken_for_one_without_faults(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "requirements" / "run.txt").write_text("urllib3>=2\n")
    with StandIn() as server:
        code, out, err = compared(checkout, server, capsys)
    assert (code, out, server.batches) == (2, "", [])
    assert err.startswith("not compared: requirements/run.txt:1: no exact version")


def batch(content: object, code: int = 200) -> Callable[[object], Reply]:
    return lambda _: answer(content, code)


ODD: dict[str, Callable[[object], Reply]] = {
    "500": batch({"code": 13}, 500),
    "429": batch({}, 429),
    "no JSON": lambda _: Reply(body=b"<html>sign in</html>"),
    "a list": batch([]),
    "no results": batch({}),
    "too few results": batch({"results": [{}]}),
    "no object": batch({"results": [{}, {}, "x"]}),
    "no id": batch({"results": [{}, {}, {"vulns": [{}]}]}),
    "cut off": lambda _: Reply(cut=True),
    "no end": batch({"results": [{"next_page_token": "x"}] * 3}),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_answer_that_is_not_of_the_api_compares_nothing(
    checkout: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    with ScriptedServer(ODD[kind]) as server:
        code = main(["--root", str(checkout), "--server", server.url])
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert printed.err.startswith(f"not compared: {server.url}")


def test_an_advisory_that_cannot_be_read_is_named() -> None:
    with StandIn() as server, pytest.raises(Transient, match=r"/v1/vulns/GHSA-x%2F1: 404"):
        OsvServer(server.server.url).advisory("GHSA-x/1", URLLIB3)
