# SPDX-License-Identifier: Apache-2.0
"""The coordinator's manifests as files."""

from __future__ import annotations

import click

from api import names
from base.settings.version_skew import VARIABLE
from cli.main import main
from fleet.coordinator_settings import COORDINATOR_SETTINGS
from tests.deploy.daemonset import container
from tests.deploy.deployments import deployment


def test_the_deployment_is_the_account_that_the_policies_speak_of() -> None:
    of = deployment("coordinator")
    pods = of["spec"]["template"]
    labels = pods["metadata"]["labels"].items()

    assert pods["spec"]["serviceAccountName"] == names.COORDINATOR
    assert of["spec"]["selector"]["matchLabels"].items() <= labels
    assert of["spec"]["replicas"] > 1


def test_the_coordinator_is_started_with_options_and_variables_that_it_has() -> None:
    of = container(deployment("coordinator"))
    name, *options = of["args"]
    called = click.Context(main)
    command = main.get_command(called, name)

    assert command is not None
    command.make_context(name, options, parent=called)  # raises for an unknown option
    known = {variable for option in COORDINATOR_SETTINGS.options for variable in option.variables}
    assert {each["name"] for each in of["env"]} <= known | {VARIABLE}
    settings = COORDINATOR_SETTINGS.load(
        dict(option.removeprefix("--").split("=", 1) for option in options),
        {"POD_NAME": "coordinator-a", "POD_NAMESPACE": "here", "GPUSCAPE_LOG_FORMAT": "json"},
    )
    assert (settings.instance, settings.namespace) == ("coordinator-a", "here")
    assert {each["containerPort"] for each in of["ports"]} == {settings.listen.port}
