# SPDX-License-Identifier: Apache-2.0
"""Where the API server is: a kubeconfig or account that does not work is named in one line."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import pytest

from base.errors import BadInput
from kube.api import NODES
from kube.api_errors import Unauthorized, Unreachable
from kube.api_server import ClientIdentity
from kube.client import ApiClient, Program, connect
from kube.credentials import ServiceAccount, find
from kube.kubeconfig import Kubeconfig
from kube.official import IssuerClient
from tests.controlplane.pki import Pki
from tests.fakes.scripted import Reply, Request, ScriptedServer, answer, status

SECRET = "hunter2-hunter2"  # noqa: S105  # the point of the tests
PROGRAM = Program(name="gpuscape-agent", version="test")
NODE = {"metadata": {"name": "n"}}


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """An authority and a server's certificate."""
    return Pki.create(tmp_path_factory.mktemp("pki") / "one")


@pytest.fixture
def server(pki: Pki) -> Iterator[ScriptedServer]:
    """Answers every request with a Node."""
    with ScriptedServer(lambda _: answer(NODE), pki.server) as server:
        yield server


def kubeconfig(folder: Path, cluster: Any, user: Any, **top: Any) -> str:
    """A kubeconfig of one context."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
        **top,
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return str(path)


def trusting(server: ScriptedServer, pki: Pki) -> dict[str, str]:
    """The cluster's part."""
    return {"server": server.url, "certificate-authority": str(pki.ca_file)}


def plugin(folder: Path, script: str) -> dict[str, Any]:
    """A user whose credentials a program gives."""
    program = folder / "plugin"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    api = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": api, "command": str(program), "interactiveMode": "Never"}}


def credential(token: str) -> str:
    """A plugin that gives this token."""
    api = "client.authentication.k8s.io/v1"
    said = {"apiVersion": api, "kind": "ExecCredential", "status": {"token": token}}
    return f"echo '{json.dumps(said)}'"


def test_a_kubeconfig_with_a_token_works(tmp_path: Path, server: ScriptedServer, pki: Pki) -> None:
    path = kubeconfig(tmp_path, trusting(server, pki), {"token": SECRET})
    client = ApiClient(PROGRAM, Kubeconfig(path))
    assert client.get(NODES, "n") == NODE
    assert server.requests[0].headers["Authorization"] == f"Bearer {SECRET}"
    client.close()


def test_a_program_is_connected_as_the_context_that_it_names(
    tmp_path: Path, server: ScriptedServer, pki: Pki
) -> None:
    users = [{"name": name, "user": {"token": f"token-of-{name}"}} for name in "uv"]
    contexts = [{"name": name, "context": {"cluster": "c", "user": name}} for name in "uv"]
    top = {"users": users, "contexts": contexts, "current-context": "u"}
    path = kubeconfig(tmp_path, trusting(server, pki), {}, **top)
    for context in (None, "v"):
        client = connect(PROGRAM, kubeconfig=Path(path), context=context)
        assert client.get(NODES, "n") == NODE
        client.close()
    assert [
        (each.headers["User-Agent"], each.headers["Authorization"]) for each in server.requests
    ] == [
        ("gpuscape-agent/test", "Bearer token-of-u"),
        ("gpuscape-agent/test", "Bearer token-of-v"),
    ]


def test_a_certificate_of_a_kubeconfig_is_who_we_are(tmp_path: Path, pki: Pki) -> None:
    certificate, key = str(pki.server.certificate_file), str(pki.server.key_file)
    path = kubeconfig(
        tmp_path,
        {"server": "https://127.0.0.1:1"},
        {"client-certificate": certificate, "client-key": key},
    )
    assert Kubeconfig(path).identity() == ClientIdentity(
        authorization=None, certificate=(certificate, key)
    )


def test_a_token_file_of_a_kubeconfig_is_read_again_when_the_token_is_old(
    tmp_path: Path, server: ScriptedServer, pki: Pki
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    client = ApiClient(
        PROGRAM, Kubeconfig(kubeconfig(tmp_path, trusting(server, pki), {"tokenFile": str(file)}))
    )
    file.write_text("new")

    def script(request: Request) -> Reply:
        if request.headers["Authorization"] == "Bearer new":
            return answer(NODE)
        return status(401, "Unauthorized")

    server.script = script
    assert client.get(NODES, "n") == NODE
    assert client.get(NODES, "n") == NODE
    assert len(server.requests) == 3
    client.close()


def test_a_kubeconfig_that_moved_to_another_server_is_followed(
    tmp_path: Path, server: ScriptedServer, pki: Pki
) -> None:
    """Its authority too: connections of the old one do not come back."""
    client = ApiClient(
        PROGRAM, Kubeconfig(kubeconfig(tmp_path, trusting(server, pki), {"token": "old"}))
    )
    other = Pki.create(tmp_path / "other")
    with ScriptedServer(lambda _: answer(NODE), other.server) as successor:
        kubeconfig(tmp_path, trusting(successor, other), {"token": "new"})
        server.script = lambda _: status(401, "Unauthorized")
        assert client.get(NODES, "n") == NODE
        assert len(successor.requests) == 1
    client.close()


def test_a_credential_plugin_is_asked(tmp_path: Path, server: ScriptedServer, pki: Pki) -> None:
    user = plugin(tmp_path, credential("from-plugin"))
    client = ApiClient(PROGRAM, Kubeconfig(kubeconfig(tmp_path, trusting(server, pki), user)))
    client.get(NODES, "n")
    assert server.requests[0].headers["Authorization"] == "Bearer from-plugin"
    client.close()


@pytest.mark.parametrize("script", ["exit 3", "echo nothing", "echo '{}'"])
def test_a_credential_plugin_that_fails_does_not_make_us_nobody(
    tmp_path: Path, server: ScriptedServer, pki: Pki, script: str
) -> None:
    path = kubeconfig(tmp_path, trusting(server, pki), plugin(tmp_path, script))
    with pytest.raises(BadInput, match="no token or certificate in it, or its plugin failed"):
        Kubeconfig(path)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "empty"),
        ("a: [", "expected"),
        ("[]", "not usable"),
        ("just words", "not usable"),
        ("{}", "current-context"),
        ('{"current-context": "x", "contexts": [], "clusters": [], "users": []}', "name x in"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named_in_one_line(
    tmp_path: Path, content: str, cause: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(BadInput, match=cause) as raised:
        Kubeconfig(str(path))
    assert str(raised.value).startswith(f"kubeconfig {path}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("client", [IssuerClient, kubernetes.client.ApiClient])
def test_an_old_token_of_an_oidc_user_is_refreshed_by_its_issuer(
    tmp_path: Path, server: ScriptedServer, pki: Pki, client: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the package's own client in its place too: both make the same calls."""
    monkeypatch.setattr(kubernetes.config.kube_config, "ApiClient", client)
    answers = {
        "/.well-known/openid-configuration": {"token_endpoint": f"{server.url}/token"},
        "/token": {"id_token": SECRET, "refresh_token": "next", "access_token": "unused"},
    }
    server.script = lambda request: answer(answers[request.path])
    authority = base64.b64encode(pki.ca_file.read_bytes()).decode()
    old = ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (b'{"a":1}', b'{"exp":1}', b"signed")
    )
    config = {
        "id-token": old,
        "refresh-token": "first",
        "client-id": "id",
        "client-secret": "secret",
        "idp-issuer-url": server.url,
        "idp-certificate-authority-data": authority,
    }
    user = {"auth-provider": {"name": "oidc", "config": config}}

    loaded = Kubeconfig(kubeconfig(tmp_path, trusting(server, pki), user))

    assert loaded.identity().authorization == f"Bearer {SECRET}"
    assert [(request.method, request.path) for request in server.requests] == [
        ("GET", "/.well-known/openid-configuration"),
        ("POST", "/token"),
    ]
    assert b"refresh_token=first" in server.requests[1].body


def test_a_kubeconfig_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match="kubeconfig /nowhere/config: no such file"):
        Kubeconfig("/nowhere/config")


def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": SECRET})
    with pytest.raises(BadInput, match="name other in") as raised:
        Kubeconfig(path, "other")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "user",
    [
        {"token": SECRET, "auth-provider": {"name": "gcp", "config": {"cmd-path": ""}}},
        {"password": SECRET, "auth-provider": {"name": "oidc", "config": {"x": SECRET}}},
        {"password": SECRET, "client-certificate": "/nowhere/cert"},
        {"token": SECRET, "client-key-data": "not base64!", "client-certificate-data": SECRET},
    ],
)
def test_what_is_said_of_a_broken_kubeconfig_holds_no_secret(tmp_path: Path, user: Any) -> None:
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, user)
    with pytest.raises(BadInput) as raised:
        Kubeconfig(path)
    assert SECRET not in f"{raised.value} {raised.value!r} {raised.value.__cause__!r}"
    assert raised.value.__suppress_context__


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    client = ApiClient(
        PROGRAM,
        Kubeconfig(kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": SECRET})),
    )
    with pytest.raises(Unreachable, match=r"get Node n: .*127\.0\.0\.1.*refused"):
        client.get(NODES, "n")


def test_a_server_of_another_authority_is_not_trusted(
    tmp_path: Path, server: ScriptedServer
) -> None:
    other = Pki.create(tmp_path / "other")
    path = kubeconfig(tmp_path, trusting(server, other), {"token": SECRET})
    client = ApiClient(PROGRAM, Kubeconfig(path))
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        client.get(NODES, "n")
    assert server.requests == []


def test_a_kubeconfig_that_is_spoiled_later_is_a_matter_of_credentials(
    tmp_path: Path, server: ScriptedServer, pki: Pki
) -> None:
    path = kubeconfig(tmp_path, trusting(server, pki), {"token": SECRET})
    client = ApiClient(PROGRAM, Kubeconfig(path))
    Path(path).write_text("a: [")
    server.script = lambda _: status(401, "Unauthorized")
    with pytest.raises(Unauthorized, match="kubeconfig"):
        client.get(NODES, "n")
    client.close()


def test_what_proves_who_we_are_is_not_shown(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": SECRET})
    identity = Kubeconfig(path).identity()
    assert identity.authorization == f"Bearer {SECRET}"
    assert SECRET not in repr(identity)


# which way is taken


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A service account's folder."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text(SECRET)
    (folder / "ca.crt").write_text("")
    return folder


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_a_token_that_no_header_can_carry_is_no_token_of_this_kubeconfig(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": "hun\nter2"})
    with pytest.raises(Unauthorized) as raised:
        Kubeconfig(path).identity()
    assert str(raised.value) == f"kubeconfig {path}: holds no token"


def test_a_kubeconfig_that_is_named_wins_over_the_pod(tmp_path: Path, pod: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": SECRET})
    assert isinstance(find(path, environ=IN_POD, service_account=pod), Kubeconfig)


def test_the_pod_wins_over_the_usual_kubeconfig(tmp_path: Path, pod: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": SECRET})
    found = find(environ={**IN_POD, "KUBECONFIG": path}, service_account=pod)
    assert isinstance(found, ServiceAccount)
    assert found.configuration.host == "https://10.0.0.1:443"


def test_an_ipv6_server_gets_its_brackets(pod: Path) -> None:
    environ = {**IN_POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert ServiceAccount(pod, environ).configuration.host == "https://[fd00::1]:443"


def test_the_usual_kubeconfig_is_the_last_resort(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": SECRET})
    assert isinstance(find(environ={"KUBECONFIG": path}), Kubeconfig)


def test_without_a_variable_the_usual_kubeconfig_is_kubectls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = tmp_path / ".kube" / "config"
    with pytest.raises(BadInput, match=f"no kubeconfig at {usual}: name one with --kubeconfig or"):
        find(environ={})
    usual.parent.mkdir()
    usual.write_text(
        Path(kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": SECRET})).read_text()
    )
    assert find(environ={}).source == f"kubeconfig {usual}"


def test_of_several_usual_kubeconfigs_one_that_is_there_is_enough(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": SECRET})
    assert isinstance(find(environ={"KUBECONFIG": f"/nowhere:{path}"}), Kubeconfig)


def test_without_a_port_the_pods_server_listens_where_https_does(pod: Path) -> None:
    found = ServiceAccount(pod, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert found.configuration.host == "https://10.0.0.1:443"


def test_no_cluster_at_all_is_said() -> None:
    with pytest.raises(BadInput, match="no cluster: not in a pod, and no kubeconfig at /nowhere"):
        find(environ={"KUBECONFIG": "/nowhere"})


@pytest.mark.parametrize("file", ["token", "ca.crt"])
def test_a_pod_without_the_accounts_files_is_told_which(pod: Path, file: str) -> None:
    (pod / file).unlink()
    with pytest.raises(BadInput, match=f"account/{file} is missing"):
        find(environ=IN_POD, service_account=pod)
