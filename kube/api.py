# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API as our programs use it: few verbs, and objects as plain JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Object = dict[str, Any]
"""A Kubernetes object, or a merge patch of one, as its JSON says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """A kind of object, and its place in the API."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    namespaced: bool = True
    older_versions: tuple[str, ...] = ()
    """Versions that a watch falls back to, the newest first, on a server without ``version``."""

    @property
    def plural(self) -> str:
        """Name of the kind in paths: ``nodes``, ``priorityclasses``, ``networkpolicies``."""
        singular = self.kind.lower()
        if singular.endswith("s"):
            return f"{singular}es"
        return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"

    @property
    def api_version(self) -> str:
        """Group and version as objects carry them: ``v1``, ``coordination.k8s.io/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


NODES = ApiResource(group="", version="v1", kind="Node", namespaced=False)
CONFIG_MAPS = ApiResource(group="", version="v1", kind="ConfigMap")
SECRETS = ApiResource(group="", version="v1", kind="Secret")
PODS = ApiResource(group="", version="v1", kind="Pod")
DEPLOYMENTS = ApiResource(group="apps", version="v1", kind="Deployment")
DAEMON_SETS = ApiResource(group="apps", version="v1", kind="DaemonSet")
LEASES = ApiResource(group="coordination.k8s.io", version="v1", kind="Lease")
EVENTS = ApiResource(group="events.k8s.io", version="v1", kind="Event")
POD_DISRUPTION_BUDGETS = ApiResource(group="policy", version="v1", kind="PodDisruptionBudget")
JOBS = ApiResource(group="batch", version="v1", kind="Job")
JOB_SETS = ApiResource(group="jobset.x-k8s.io", version="v1alpha2", kind="JobSet")
REPLICA_SETS = ApiResource(group="apps", version="v1", kind="ReplicaSet")
STATEFUL_SETS = ApiResource(group="apps", version="v1", kind="StatefulSet")
NODE_FEATURES = ApiResource(group="nfd.k8s-sigs.io", version="v1alpha1", kind="NodeFeature")
RESOURCE_SLICES = ApiResource(
    group="resource.k8s.io",
    version="v1",
    kind="ResourceSlice",
    namespaced=False,
    older_versions=("v1beta2", "v1beta1"),
)
"""Kubernetes has v1 from 1.34 on, v1beta2 from 1.33 and v1beta1 from 1.32; their forms differ, and
:mod:`kube.objects.resource_slice` reads them all."""
PRIORITY_CLASSES = ApiResource(
    group="scheduling.k8s.io", version="v1", kind="PriorityClass", namespaced=False
)
ADMISSION_POLICIES = ApiResource(
    group="admissionregistration.k8s.io",
    version="v1",
    kind="ValidatingAdmissionPolicy",
    namespaced=False,
)
ADMISSION_BINDINGS = ApiResource(
    group="admissionregistration.k8s.io",
    version="v1",
    kind="ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
SELF_REVIEWS = ApiResource(
    group="authentication.k8s.io", version="v1", kind="SelfSubjectReview", namespaced=False
)
"""A review is created for its answer, and never stored; so are the next two."""
SELF_ACCESS_REVIEWS = ApiResource(
    group="authorization.k8s.io", version="v1", kind="SelfSubjectAccessReview", namespaced=False
)
ACCESS_REVIEWS = ApiResource(
    group="authorization.k8s.io", version="v1", kind="SubjectAccessReview", namespaced=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """Version and clock of an API server."""

    version: str
    """Version of Kubernetes, such as ``v1.37.1``."""
    unix_seconds: float | None
    """Time of the server's clock, in whole seconds; None where the answer has no date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A message of a watch: the type of a change, and the object."""

    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK."""
    object: Object


class Watch(Protocol):
    """An open watch. Iterating ends when the server ends it; raises the errors of :class:`Api`."""

    def __iter__(self) -> Iterator[Change]: ...
    def close(self) -> None:
        """End the watch; from any thread."""


class Api(Protocol):
    """The verbs of one API server. All raise the errors of :mod:`kube.api_errors` and nothing else.

    ``namespace`` is for namespaced resources and only for them; a watch without one
    is of all namespaces. Writes carry the program's field manager, unless ``manager``
    names another.
    """

    def get(self, resource: ApiResource, name: str, *, namespace: str | None = None) -> Object: ...

    def create(
        self,
        resource: ApiResource,
        body: Object,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        manager: str | None = None,
    ) -> Object: ...

    def patch(
        self,
        resource: ApiResource,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        manager: str | None = None,
    ) -> Object:
        """Apply a JSON merge patch; raises Conflict where its resourceVersion, if any, is old."""

    def watch(
        self,
        resource: ApiResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        fields: Mapping[str, str] | None = None,
        metadata_only: bool = False,
        resource_version: str | None = None,
    ) -> Watch:
        """Open a watch with bookmarks; without a resourceVersion it starts with all that exists.

        A bookmark follows the existing objects, so an object that did not come before it does not
        exist. ``fields`` have these values in all objects sent, as far as the kind can be selected
        by them; a field with ``!`` behind it has any other value. ``metadata_only`` leaves out all
        but each object's metadata: of Nodes that is a tenth. Objects of a kind with older versions
        come in the form of the one that the server serves. Raises NotFound where it serves none.
        """


class EvictingApi(Api, Protocol):
    """The verbs of an account that may evict pods."""

    def evict(self, name: str, *, namespace: str, uid: str, dry_run: bool = False) -> None:
        """Ask for the eviction of the pod that has this UID, with its own grace period.

        The pod is gone only once its containers have ended. Raises NotFound where there is no such
        pod, Conflict where another pod has the name by now, BudgetRefused where a
        PodDisruptionBudget does not allow it now, SeveralBudgets, and NamespaceTerminating. A dry
        run is judged alike, but takes nothing from a budget: two of them do not show whether both
        pods may go.
        """


class InspectedApi(Api, Protocol):
    """The verbs of a program that inspects the API server itself."""

    def server_info(self) -> ServerInfo:
        """Version and clock of the server that answers."""


class DeletingApi(Api, Protocol):
    """The verbs of a command that deletes objects which our programs have made."""

    def delete(
        self,
        resource: ApiResource,
        name: str,
        *,
        uid: str,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete the object that has this UID.

        Raises NotFound where no object has the name, and Conflict where another object has it now.
        """
