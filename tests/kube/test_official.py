# SPDX-License-Identifier: Apache-2.0
"""Only what a program needs of the official package is loaded, and the rest of it works as ever."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import agent.agent_program
import scheduler.extender.extender_program
from agent.cluster import join

MOST_MODULES = 9
"""Three packages, and six modules of configuration and transport."""
HEAVY = {"pydantic", "requests", "oauthlib", "rich"}
"""What only a kubeconfig, a terminal or the models need."""
OF_THE_LOADER = {
    "kubernetes.config",
    "kubernetes.config.config_exception",
    "kubernetes.config.dateutil",
    "kubernetes.config.exec_provider",
    "kubernetes.config.incluster_config",
    "kubernetes.config.kube_config",
}
"""What a kubeconfig takes in addition."""
IN_A_POD = (
    (agent.agent_program.__name__, join.__name__),
    (scheduler.extender.extender_program.__name__,),
)
"""What the programs import that run in pods."""


def printed(script: str, *paths: Path) -> str:
    """What Python prints that runs this; ``paths`` win over what is installed."""
    before = f"import sys; sys.path[:0] = {[str(path) for path in paths]}\n"
    ran = subprocess.run(
        [sys.executable, "-c", before + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


@pytest.mark.parametrize("modules", IN_A_POD, ids=lambda modules: modules[-1])
def test_a_program_in_a_pod_loads_no_models(tmp_path: Path, modules: tuple[str, ...]) -> None:
    """With its client made, as far as the account's folder is read."""
    for file in ("token", "ca.crt"):
        (tmp_path / file).touch()
    script = f"""
        import sys, pathlib, {", ".join(modules)}
        from kube.credentials import find
        from kube.client import ApiClient, Program
        pod = {{"KUBERNETES_SERVICE_HOST": "127.0.0.1"}}
        access = find(environ=pod, service_account=pathlib.Path({str(tmp_path)!r}))
        ApiClient(Program(name="test", version="test"), access)
        print(*sys.modules)
        """
    loaded = set(printed(script).split())
    official = {name for name in loaded if name.split(".")[0] == "kubernetes"}
    assert "kubernetes.client.rest" in official
    assert "kubernetes.client.models" not in official
    assert len(official) <= MOST_MODULES
    assert not loaded & HEAVY


def test_a_kubeconfig_loads_its_loader_and_no_models() -> None:
    script = """
        import sys, kube.official
        before = set(sys.modules)
        import kube.kubeconfig
        print(*sorted(set(sys.modules) - before))
        """
    loaded = set(printed(script).split())
    assert {name for name in loaded if name.startswith("kubernetes")} == OF_THE_LOADER
    assert not {name.partition(".")[0] for name in loaded} & {"pydantic", "dateutil", "websocket"}


def test_the_package_has_its_own_client_once_a_kubeconfig_was_read() -> None:
    script = """
        import kube.kubeconfig
        from kubernetes import client, config
        print(client.ApiClient.__module__, client.V1Node.__name__)
        print(client.Configuration is kube.official.Configuration)
        print(config.kube_config.Configuration is kube.official.Configuration)
        """
    assert printed(script) == "kubernetes.client.api_client V1Node\nTrue\nTrue"


def test_the_rest_of_the_package_is_there_when_it_is_used() -> None:
    script = """
        import kube.official
        from kubernetes import client, utils, watch
        print(client.V1Node.__name__, utils.parse_quantity("1k"), watch.Watch.__name__)
        print(client.Configuration is kube.official.Configuration, hasattr(client, "nothing"))
        """
    assert printed(script) == "V1Node 1000 Watch\nTrue False"


def test_a_package_that_is_loaded_already_stays_as_it_is() -> None:
    script = """
        import kubernetes.client
        before = kubernetes, kubernetes.client
        import kube.official
        print(before == (kubernetes, kubernetes.client), type(kubernetes).__name__)
        print(kubernetes.client.Configuration is kube.official.Configuration)
        """
    assert printed(script) == "True module\nTrue"


def test_a_version_whose_transport_needs_its_package_works_too(tmp_path: Path) -> None:
    """Older ones import all of the client, and its modules names of the client."""
    files = {
        "__init__.py": "from . import client, utils\nfrom .client import Configuration",
        "client/__init__.py": """
            from kubernetes.client.configuration import Configuration
            from kubernetes.client.exceptions import ApiException
            from kubernetes.client.rest import RESTClientObject, RESTResponse
            class ApiClient: pass
            """,
        "client/configuration.py": "class Configuration: pass",
        "client/exceptions.py": "class ApiException(Exception): pass",
        "client/rest.py": """
            from kubernetes.client import ApiException
            class RESTClientObject:
                error = ApiException
            class RESTResponse: pass
            """,
        "config/__init__.py": """
            from kubernetes.client import ApiClient, Configuration
            class ConfigException(Exception): pass
            def load_kube_config(*_, **__): print(ApiClient.__name__)
            """,
        "utils/__init__.py": "",
        "utils/keepalive.py": "def tcp_keepalive_socket_options(): pass",
    }
    for name, text in files.items():
        file = tmp_path / "kubernetes" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    script = """
        import kube.official as official, kubernetes
        print(official.RESTClientObject.error is official.ApiException)
        print(kubernetes.Configuration is official.Configuration)
        print(kubernetes.client.rest.RESTClientObject is official.RESTClientObject)
        official.kubeconfig_loader().load_kube_config()
        """
    assert printed(script, tmp_path) == "True\nTrue\nTrue\nApiClient"
