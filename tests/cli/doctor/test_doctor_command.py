# SPDX-License-Identifier: Apache-2.0
"""The command ``gpuscape doctor``: what it prints, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from base.errors import BadInput
from cli.doctor import doctor_node, doctor_pod
from cli.doctor.doctor_report import examination_document, examination_summary
from diagnosis.checks.gpu_checks import NO_GPU
from diagnosis.facts import cluster_facts
from diagnosis.finding import (
    CheckOutcome,
    CheckResult,
    DoctorFinding,
    Examination,
    Unread,
    check_name,
    examine,
    finding,
    require_fact,
)
from diagnosis.finding_catalog import CATALOG, LOCAL_CHECKS, NODE_CHECKS, POD_CHECKS
from kube.api import NODES
from kube.api_errors import Unreachable
from tests.cli.conftest import Run
from tests.fakes.api import FakeApi

ALONE = ("doctor", "--standalone", "--simulate")


class Api(FakeApi):
    """A cluster, and a command that is done with it."""

    def close(self) -> None:
        """As the real client's."""
        self.end_watches()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """In place of the cluster of the kubeconfig."""
    made = Api()
    for module in (doctor_pod, doctor_node):
        monkeypatch.setattr(module, "_client", lambda _: made)
    return made


def test_a_healthy_machine_ends_with_0_and_says_what_was_looked_at(run: Run) -> None:
    result = run(*ALONE, "t4")

    assert (result.exit_code, result.stderr) == (0, "")
    assert "gpuscape 0.1.0, driver" in result.output
    assert result.output.endswith("Nothing found; 10 checks ok.\n")


def test_a_finding_ends_with_1_and_is_shown_with_fix_and_page(run: Run) -> None:
    result = run(*ALONE, "no-driver")

    assert result.exit_code == 1
    assert "driver-absent" in result.output
    assert "modprobe nvidia" in result.output
    assert "docs/runbooks/GpuscapeDriverSilent.md" in result.output
    assert (
        "Not looked at: gpus, counts, readings, identities, modes: no NVIDIA driver"
        in result.output
    )


def test_what_could_not_be_looked_at_alone_ends_with_4(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: object) -> object:
        raise BadInput("no cluster")

    monkeypatch.setattr("diagnosis.facts.local_facts.cluster_access", lost)
    monkeypatch.setattr("diagnosis.facts.local_facts.read_kubelet", lambda *_: _no_kubelet())

    result = run("doctor", "--simulate", "t4")

    assert result.exit_code == 4
    assert "not looked at: whether they are well is not known." in result.output


def _no_kubelet() -> object:
    from diagnosis.facts.kubelet_facts import KubeletFacts

    away = Unread("not mounted")
    return KubeletFacts(devices=away, offered=away, pods=away, sockets=away, configuration=away)


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_documents_have_findings_checks_and_versions(run: Run, output: str, read: object) -> None:
    assert callable(read)
    answer = read(run(*ALONE, "no-driver", "-o", output).output)

    assert answer["healthy"] is False
    assert answer["versions"]["gpuscape"] == "0.1.0"
    (only,) = answer["findings"]
    assert set(only) == {"name", "severity", "about", "cause", "fix", "page"}
    assert (only["name"], only["severity"]) == ("driver-absent", "error")
    outcomes = {each["check"]: each["outcome"] for each in answer["checks"]}
    assert len(outcomes) == len(LOCAL_CHECKS)
    assert outcomes["driver"] == "found"
    assert outcomes["gpus"] == "not looked at"
    assert outcomes["clock"] == "not needed"


def test_what_is_not_known_to_be_healthy_is_not_called_so() -> None:
    missed = CheckResult(check="clock", outcome=CheckOutcome.NOT_LOOKED_AT, why="no route")
    made = Examination(findings=(), checks=(missed,))

    assert examination_document("node-a", made, {})["healthy"] is None
    assert "1 not looked at: whether they are well is not known" in examination_summary(made)


def test_wide_lists_every_check(run: Run) -> None:
    output = run(*ALONE, "t4", "-o", "wide").output

    for check in LOCAL_CHECKS:
        assert check_name(check) in output


@pytest.mark.usefixtures("api")
def test_a_pod_is_named_with_its_namespace_in_front_or_by_the_option(run: Run) -> None:
    for words in (("team-a/train",), ("train", "-n", "team-a")):
        result = run("doctor", "pod", *words)
        assert result.exit_code == 2
        assert "there is no pod, Job, ReplicaSet or StatefulSet team-a/train" in result.output


@pytest.mark.parametrize("words", [("a/train", "-n", "b"), ("/train",), ("a/b/c",), ("a/",)])
def test_a_pod_that_is_not_named_well_is_bad_input(run: Run, words: tuple[str, ...]) -> None:
    assert run("doctor", "pod", *words).exit_code == 2


@pytest.mark.usefixtures("api")
def test_a_node_that_is_not_there_is_bad_input(run: Run) -> None:
    result = run("doctor", "node", "gpu-7")

    assert result.exit_code == 2
    assert "there is no node gpu-7" in result.output


def test_a_cluster_that_does_not_answer_ends_with_4(run: Run, api: Api) -> None:
    api.fail("*", Unreachable("get Node gpu-7: refused"), times=None)

    assert run("doctor", "node", "gpu-7").exit_code == 4
    assert run("doctor", "pod", "a/train").exit_code == 4


def test_a_node_without_agent_is_a_finding(run: Run, api: Api) -> None:
    api.server.create(NODES, {"metadata": {"name": "gpu-7"}})

    result = run("doctor", "node", "gpu-7")

    assert result.exit_code == 1
    assert "agent-pod-missing" in result.output


def test_options_before_a_subcommand_are_refused(run: Run) -> None:
    result = run("doctor", "--bundle", "x.tar.gz", "node", "gpu-7")

    assert result.exit_code == 2
    assert "--bundle stands before node" in result.output


def test_yes_without_a_bundle_is_bad_input(run: Run) -> None:
    assert run(*ALONE, "t4", "--yes").exit_code == 2


# findings and checks


def test_a_check_that_fails_hides_no_other() -> None:
    def broken(_: int) -> Iterator[DoctorFinding]:
        yield finding(NO_GPU, "a", "b")
        raise KeyError("status")

    def sound(_: int) -> Iterator[DoctorFinding]:
        yield finding(NO_GPU, "c", "d")

    made = examine((broken, sound), 0)

    assert [each.about for each in made.findings] == ["a", "c"]
    assert made.checks[0].outcome is CheckOutcome.NOT_LOOKED_AT
    assert "KeyError: 'status'" in made.checks[0].why
    assert made.checks[1].outcome is CheckOutcome.FOUND


def test_a_fact_that_is_not_there_ends_the_check_with_its_reason() -> None:
    def needs(fact: int | Unread) -> Iterator[DoctorFinding]:
        yield finding(NO_GPU, "a", str(require_fact(fact)))

    for fact, outcome in (
        (Unread("no right"), CheckOutcome.NOT_LOOKED_AT),
        (Unread("no kubelet", applies=False), CheckOutcome.NOT_NEEDED),
    ):
        (result,) = examine((needs,), fact).checks
        assert (result.outcome, result.why) == (outcome, fact.why)


def test_names_are_unique_and_in_one_form() -> None:
    kinds = [kind for listed in CATALOG.values() for kind in listed]
    listed = [kind.name for kind in kinds]

    assert len(set(listed)) == len(listed)
    assert all(kind.name == kind.name.lower().replace("_", "-") for kind in kinds)
    assert all(kind.cause.endswith(".") and kind.fix.endswith((".", "`.")) for kind in kinds)
    for checks in (LOCAL_CHECKS, POD_CHECKS, NODE_CHECKS):
        names = [check_name(check) for check in checks]
        assert len(set(names)) == len(names)


def test_answers_are_waited_for_ten_seconds_at_most() -> None:
    assert cluster_facts.ANSWER_SECONDS == 10.0
