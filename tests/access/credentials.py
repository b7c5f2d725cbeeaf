# SPDX-License-Identifier: Apache-2.0
"""Every kind of credential that an account's name can come with."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

from tests.controlplane.plane import Plane
from tests.controlplane.server import Object


def pod(plane: Plane, namespace: str, name: str, account: str, node: str | None) -> Object:
    """Make a pod whose kubelet may ask for its token, on a node or on none."""
    volume = {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    spec: dict[str, Any] = {
        "serviceAccountName": account,
        "schedulerName": "nobody",
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "none"}],
        "volumes": [volume],
    }
    if node:
        spec["nodeName"] = node
    path = f"/api/v1/namespaces/{namespace}/pods"
    return plane.demand("POST", path, {"metadata": {"name": name}, "spec": spec})


def token(
    plane: Plane, namespace: str, account: str, *, bound: Object | None = None, audience: str = ""
) -> str:
    """A token of the account, bound to a pod or a Node where one is given."""
    spec: dict[str, Any] = {"expirationSeconds": 3600}
    if audience:
        spec["audiences"] = [audience]
    if bound:
        metadata = bound["metadata"]
        spec["boundObjectRef"] = {
            "apiVersion": "v1",
            "kind": bound["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    made: str = plane.demand("POST", path, {"spec": spec})["status"]["token"]
    return made


def legacy_token(plane: Plane, namespace: str, account: str, secret: str) -> str:
    """The token of a Secret, as accounts had before tokens were bound; it never ends.

    Signed here, as the controller manager would, so that it needs none.
    """
    uid = plane.demand("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}")
    said = "kubernetes.io/serviceaccount"
    claims = {
        "iss": "kubernetes/serviceaccount",
        "sub": f"system:serviceaccount:{namespace}:{account}",
        f"{said}/namespace": namespace,
        f"{said}/secret.name": secret,
        f"{said}/service-account.name": account,
        f"{said}/service-account.uid": uid["metadata"]["uid"],
    }
    signed = _signed(plane, claims)
    metadata = {
        "name": secret,
        "annotations": {"kubernetes.io/service-account.name": account},
    }
    body = {
        "metadata": metadata,
        "type": "kubernetes.io/service-account-token",
        "data": {"token": base64.b64encode(signed.encode()).decode()},
    }
    plane.demand("POST", f"/api/v1/namespaces/{namespace}/secrets", body)
    return signed


def _signed(plane: Plane, claims: dict[str, str]) -> str:
    """As a JSON Web Token by the key of the plane's accounts. Source: RFC 7515, RFC 7518 §3.4."""
    key = serialization.load_pem_private_key(plane.pki.account_key_file.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    parts = ({"alg": "ES256", "typ": "JWT"}, claims)
    text = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
    numbers = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{_encoded(b''.join(number.to_bytes(32, 'big') for number in numbers))}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def signing_request() -> str:
    """A request for a client certificate, as the API takes it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
