# SPDX-License-Identifier: Apache-2.0
"""What the Prometheus operator makes of a PodMonitor or a ServiceMonitor, as far as ours go.

Source: prometheus-operator v0.85, pkg/prometheus/promcfg.go, generatePodMonitorConfig and
generateServiceMonitorConfig: labels of the target first, then the monitor's own relabelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Manifest = Mapping[str, Any]
Config = dict[str, Any]


def scrape_config(monitor: Manifest) -> Config:
    """The job that the operator writes for the monitor's one endpoint."""
    spec, of_pods = monitor["spec"], monitor["kind"] == "PodMonitor"
    (endpoint,) = spec["podMetricsEndpoints" if of_pods else "endpoints"]
    what = "pod" if of_pods else "service"
    port = "pod_container_port_name" if of_pods else "endpointslice_port_name"
    targets = {"namespace": "namespace", "pod": "pod_name", "container": "pod_container_name"}
    return {
        "job_name": f"{what}Monitor/{monitor['metadata']['name']}/0",
        "honor_labels": endpoint["honorLabels"],
        "metrics_path": endpoint.get("path", "/metrics"),
        **_secured(endpoint),
        "kubernetes_sd_configs": [
            {
                "role": "pod" if of_pods else "endpointslice",
                "namespaces": {"names": [monitor["metadata"]["namespace"]]},
            }
        ],
        "relabel_configs": [
            *(
                _kept(f"{what}_label_{_word(label)}", value)
                for label, value in spec["selector"]["matchLabels"].items()
            ),
            _kept(port, endpoint["port"]),
            *(_copied(meta, label) for label, meta in targets.items()),
            *([] if of_pods else [_copied("service_name", "service")]),
            _copied(f"{what}_label_{_word(spec['jobLabel'])}", "job"),
            {"target_label": "endpoint", "replacement": endpoint["port"]},
            *_written(endpoint["relabelings"]),
        ],
        "metric_relabel_configs": _written(endpoint.get("metricRelabelings", ())),
    }


def _secured(endpoint: Manifest) -> Config:
    """The operator puts keys of Secrets into files; here they are SECRET/KEY."""
    if "tlsConfig" not in endpoint:
        return {}
    tls = endpoint["tlsConfig"]
    secret = tls["ca"]["secret"]
    trusted = {"ca_file": f"{secret['name']}/{secret['key']}", "server_name": tls["serverName"]}
    return {"scheme": endpoint["scheme"], "tls_config": trusted}


def _kept(meta: str, value: str) -> Config:
    return {"action": "keep", "source_labels": [f"__meta_kubernetes_{meta}"], "regex": value}


def _copied(meta: str, label: str) -> Config:
    source = [f"__meta_kubernetes_{meta}"]
    return {"source_labels": source, "regex": "(.+)", "target_label": label}


def _written(steps: Iterable[Manifest]) -> list[Config]:
    return [
        {
            re.sub(r"[A-Z]", lambda it: f"_{it[0].lower()}", name): value
            for name, value in it.items()
        }
        for it in steps
    ]


def _word(label: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", label)
