# SPDX-License-Identifier: Apache-2.0
"""Where an explanation of scores comes from: a running extender, or the cluster itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from base.errors import BadInput
from base.files import read_text
from base.words import did_you_mean
from cli.failures import UNREADABLE, CommandFailure
from kube.api import Api, Object
from scheduler.cluster.node_cache import NodeCache
from scheduler.cluster.pod_objects import Pod, Rules, ask
from scheduler.cluster.watches import Watches
from scheduler.extender.scheduler_settings import SchedulerSettings
from scheduler.node_ranking import NodeRanker
from scheduler.score_explanation import Explanation, explain, nothing_requested
from scheduler.scores.class_tables import ScoreTables

_CHECK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderClient:
    """One that runs, and how it is reached."""

    server: str
    """URL, with or without the path under which it is configured."""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @property
    def url(self) -> str:
        """Where it explains."""
        return f"{self.server.rstrip('/').removesuffix('/v1')}/v1/explain"


def manifest(file: Path) -> Object:
    """The pod in a file of YAML or JSON. Raises BadInput."""
    from base.yaml_places import CoreLoader, read_yaml

    read = read_yaml(read_text(file), str(file), loader=CoreLoader).content()
    if not isinstance(read, dict) or read.get("kind") != "Pod":
        raise BadInput(f"{file} holds no Pod: give one manifest with kind: Pod")
    _pod(read, str(file))
    return read


def asked(
    extender: ExtenderClient, pod: Object, nodes: Sequence[str], timeout_seconds: float
) -> Explanation:
    """The explanation of a running extender, for all nodes where none are named.

    Raises CommandFailure where it does not answer, or answers something else.
    """
    import urllib3

    body = msgspec.json.encode({"Pod": pod, "NodeNames": list(nodes) or None})
    files = (extender.ca_file, extender.cert_file, extender.key_file)
    ca, certificate, key = (None if each is None else str(each) for each in files)
    try:
        with urllib3.PoolManager(ca_certs=ca, cert_file=certificate, key_file=key) as pool:
            answer = pool.request(
                "POST",
                extender.url,
                body=body,
                headers={"Content-Type": "application/json"},
                timeout=timeout_seconds,
                retries=False,
                redirect=False,
            )
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise CommandFailure(f"{extender.url} does not answer: {error}", UNREADABLE) from error
    if answer.status != 200:
        text = answer.data[:200].decode(errors="replace").strip()
        raise CommandFailure(f"{extender.url} answers {answer.status}: {text}", UNREADABLE)
    try:
        return msgspec.json.decode(answer.data, type=Explanation)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise CommandFailure(
            f"{extender.url} is no extender of ours: {error}", UNREADABLE
        ) from error


def worked_out(
    api: Api,
    pod: Object,
    nodes: Sequence[str],
    settings: SchedulerSettings,
    *,
    timeout_seconds: float,
) -> Explanation:
    """The explanation of an extender with these settings, from the cluster as it is now.

    The pod counts as not yet on a node. Raises CommandFailure where not all of the cluster could
    be read in time, BadInput for a node that is not in it.
    """
    read = _pod(pod, "the pod")
    rules = Rules(gpu=settings.gpu_resource, nics=frozenset(settings.nic_resources))
    wanted = ask(read, rules)
    if wanted is None:
        return nothing_requested(read.metadata.namespace, read.metadata.name)
    tables = ScoreTables(policies=settings.policies)
    cache = NodeCache(tables)
    watches = Watches(api, cache, namespace=settings.namespace, rules=rules)
    watches.start()
    try:
        _wait(cache, watches, timeout_seconds)
    finally:
        watches.close()
    cache.pod_gone(wanted.uid)
    there = sorted(cache.names())
    for name in nodes:
        if name not in there:
            raise BadInput(f"there is no node {name} in the cluster{did_you_mean(name, there)}")
    verdicts = NodeRanker(cache, tables).judge(wanted, nodes or there)
    return explain(wanted, verdicts, tables)


def _wait(cache: NodeCache, watches: Watches, timeout_seconds: float) -> None:
    until = time.monotonic() + timeout_seconds
    while not cache.synced:
        if time.monotonic() > until:
            why = "; ".join(watches.down.values()) or "it has not sent all objects yet"
            raise CommandFailure(
                f"the cluster was not read within {timeout_seconds:g} s: {why}", UNREADABLE
            )
        time.sleep(_CHECK_SECONDS)


def _pod(pod: Object, source: str) -> Pod:
    try:
        return msgspec.convert(pod, Pod)
    except msgspec.ValidationError as error:
        raise BadInput(f"{source} is not as a Pod should be: {error}") from error
