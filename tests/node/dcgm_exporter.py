# SPDX-License-Identifier: Apache-2.0
"""dcgm-exporter on a real node, as far as it can be had: its shape, and a program in its place.

Its program needs DCGM's library, so a stand-in serves text in dcgm-exporter's format, with constant
values. The chart is a stand-in too: of what its own one makes it has all that concerns another
image in its place (labels, Service, port, flags, counters file, probes, rights), under the path
that pages name. Images share our image's layer.
Source: dcgm-exporter 4.6.0-4.8.3, deployment/ and internal/pkg/rendermetrics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pynvml

from simulator.simulation import Simulation
from tests.deploy.dockerfile import instructions
from tests.node import images
from tests.node.nvidia_plugin import RUNTIME_CLASS
from tests.node.real_cluster import GPU_NODE

NAME: Final = "dcgm-exporter"
CHART: Final = "gpu-helm-charts/dcgm-exporter"
"""As pages name it, who have added its repository; Helm takes a folder of that name as well."""
STAND_IN: Final = "localhost/dcgm-exporter:stand-in"
OURS: Final = "registry.example/gpuscape:0.1.0-dcgm-exporter"
"""As the page names it."""
COUNTERS: Final = {
    "DCGM_FI_DEV_SM_CLOCK": "210",
    "DCGM_FI_DEV_GPU_TEMP": "35",
    "DCGM_FI_DEV_POWER_USAGE": "34.3",
    "DCGM_FI_DEV_GPU_UTIL": "0",
    "DCGM_FI_DEV_FB_USED": "4",
    "DCGM_FI_DEV_FB_FREE": "40332",
}
"""Gauges of its default counters that dashboards show, to what the stand-in serves."""
SERVICE: Final = f"""\
scrape_configs:
- job_name: {NAME}
  scrape_interval: 1s
  kubernetes_sd_configs:
  - role: endpointslice
    namespaces: {{names: [default]}}
  relabel_configs:
  - action: keep
    source_labels:
    - __meta_kubernetes_service_label_app_kubernetes_io_name
    - __meta_kubernetes_endpointslice_port_name
    regex: {NAME};metrics
"""
"""What the Prometheus operator makes of its ServiceMonitor, as far as it decides who is scraped."""
_SERVER: Final = """\
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = TEXT.replace("NODE", os.environ["NODE_NAME"]) if self.path == "/metrics" else "OK"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.end_headers()
        self.wfile.write(body.encode())
    def log_message(self, *_):
        pass
import signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
http.server.ThreadingHTTPServer(("", 9400), Handler).serve_forever()
"""
_COUNTERS_FILE: Final = "default-counters.csv"
_LABELS: Final = {
    "app.kubernetes.io/name": NAME,
    "app.kubernetes.io/instance": NAME,
    "app.kubernetes.io/component": NAME,
}


def write_images(file: Path, simulation: Simulation, python: str) -> Path:
    """The stand-in, and ours in dcgm-exporter's place as the Dockerfile has it, in one file.

    ``python``: the interpreter's place in our image.
    """
    stage = _stage()
    ours = {
        "Entrypoint": stage["ENTRYPOINT"],
        "User": stage["USER"][0],
        "Env": [*stage["ENV"], f"PATH={Path(python).parent}"],
    }
    program = f"TEXT = {published(simulation)!r}\n{_SERVER}"
    stand_in = {"Entrypoint": [python, "-c", program], "User": "0:0", "Env": ["PATH=/"]}
    return images.write_variants(file, {OURS: ours, STAND_IN: stand_in})


def published(simulation: Simulation) -> str:
    """What dcgm-exporter's format makes of the machine's GPUs; ``NODE`` stands for the node."""
    labels = []
    with simulation:
        pynvml.nvmlInit()
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            found = {
                "gpu": number,
                "UUID": pynvml.nvmlDeviceGetUUID(handle),
                "pci_bus_id": pynvml.nvmlDeviceGetPciInfo(handle).busId,
                "device": f"nvidia{number}",
                "modelName": pynvml.nvmlDeviceGetName(handle),
                "hostname": "NODE",
                "DCGM_FI_DRIVER_VERSION": pynvml.nvmlSystemGetDriverVersion(),
            }
            labels.append(",".join(f'{name}="{text}"' for name, text in found.items()))
        pynvml.nvmlShutdown()
    lines = []
    for name, value in COUNTERS.items():
        lines += [f"# HELP {name} {name}", f"# TYPE {name} gauge"]
        lines += [f"{name}{{{each}}} {value}" for each in labels]
    return "\n".join((*lines, ""))


def write_chart(folder: Path) -> None:
    """The stand-in for its chart, where the page's lines are typed."""
    chart = folder / CHART
    (chart / "templates").mkdir(parents=True)
    about = {"apiVersion": "v2", "name": NAME, "version": "4.8.3", "appVersion": "4.8.3"}
    (chart / "Chart.yaml").write_text(json.dumps(about), encoding="utf-8")
    repository, _, tag = STAND_IN.rpartition(":")
    values = {"image": {"repository": repository, "tag": tag}}
    (chart / "values.yaml").write_text(json.dumps(values), encoding="utf-8")
    for number, each in enumerate(_objects()):
        made = chart / "templates" / f"{number}.yaml"
        made.write_text(json.dumps(each), encoding="utf-8")


def _objects() -> list[dict[str, Any]]:
    spec = {"selector": {"matchLabels": _LABELS}, "template": _template()}
    spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    port = {"name": "metrics", "port": 9400, "targetPort": 9400, "protocol": "TCP"}
    service = {"type": "ClusterIP", "ports": [port], "selector": _LABELS}
    counters = "".join(f"{name}, gauge, {name}.\n" for name in COUNTERS)
    counters += "DCGM_FI_DRIVER_VERSION, label, Driver Version.\n"
    return [
        _named("v1", "ServiceAccount"),
        _named("v1", "ConfigMap", data={"metrics": counters}),
        _named("v1", "Service", spec=service),
        _named("apps/v1", "DaemonSet", spec=spec),
    ]


def _named(version: str, kind: str, **body: Any) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": NAME, "labels": _LABELS},
        **body,
    }


def _template() -> dict[str, Any]:
    sockets, counters = "/var/lib/kubelet/pod-resources", f"/etc/dcgm-exporter/{_COUNTERS_FILE}"
    probe = {"httpGet": {"path": "/health", "port": 9400}, "initialDelaySeconds": 45}
    container = {
        "name": "exporter",
        "image": "{{ .Values.image.repository }}:{{ .Values.image.tag }}",
        "imagePullPolicy": "IfNotPresent",
        "args": ["-f", counters],
        "env": [
            {"name": "DCGM_EXPORTER_KUBERNETES", "value": "true"},
            {"name": "DCGM_EXPORTER_LISTEN", "value": ":9400"},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "ports": [{"name": "metrics", "containerPort": 9400}],
        "livenessProbe": {**probe, "periodSeconds": 5},
        "readinessProbe": probe,
        "resources": {
            "limits": {"cpu": "200m", "memory": "512Mi"},
            "requests": {"cpu": "100m", "memory": "128Mi"},
        },
        "securityContext": {
            "runAsNonRoot": False,
            "runAsUser": 0,
            "capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]},
            "allowPrivilegeEscalation": False,
        },
        "volumeMounts": [
            {"name": "pod-gpu-resources", "readOnly": True, "mountPath": sockets},
            {"name": "counters", "mountPath": counters, "subPath": _COUNTERS_FILE},
        ],
    }
    items = [{"key": "metrics", "path": _COUNTERS_FILE}]
    return {
        "metadata": {"labels": _LABELS},
        "spec": {
            "runtimeClassName": RUNTIME_CLASS,
            "priorityClassName": "system-node-critical",
            "serviceAccountName": NAME,
            "automountServiceAccountToken": False,
            "nodeSelector": {GPU_NODE: "true"},
            "containers": [container],
            "volumes": [
                {"name": "pod-gpu-resources", "hostPath": {"path": sockets}},
                {"name": "counters", "configMap": {"name": NAME, "items": items}},
            ],
        },
    }


def _stage() -> Mapping[str, list[str]]:
    """The Dockerfile's stage of that name: word to its arguments."""
    lines = list(instructions())
    first = next(at for at, it in enumerate(lines) if it.rest.endswith(f" AS {NAME}"))
    found: dict[str, list[str]] = {}
    for it in lines[first + 1 :]:
        if it.word == "FROM":
            break
        found.setdefault(it.word, []).extend(it.arguments)
    return found
