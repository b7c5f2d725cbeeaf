# SPDX-License-Identifier: Apache-2.0
"""``gpuscape.io/mig-permit`` on a Node: what the coordinator permits its agent to do."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api import keys, names
from api.mig_request_annotation import RequestId
from api.versioned import VersionedFormat

VERSION: Final = 2
MOST_CHARACTERS: Final = 256
OWN_CORDON_PATTERN: Final = r'"owns_cordon":\s*true'
"""Matches the text of a permit with ``owns_cordon``: admission policies read no JSON."""


class PermitPhase(StrEnum):
    """What the agent may do."""

    CORDONED = "cordoned"
    """Nothing yet: the node is cordoned, and its pods are read once more."""
    PROCEED = "proceed"
    """Change the GPUs. This stays permitted until the agent reports the change's outcome."""


class MigPermitAnnotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Annotation on the Node: how far the coordinator is with a request."""

    v: Annotated[Literal[2], Meta(description="Major version of this schema.")]
    request: Annotated[RequestId, Meta(description="Id of the request that is permitted.")]
    phase: Annotated[PermitPhase, Meta(description="An agent acts on proceed alone.")]
    owns_cordon: Annotated[
        bool, Meta(description="The coordinator cordoned the node, and will uncordon it.")
    ] = False
    guards: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=7)], ...],
        Meta(
            max_length=8,
            description="Autoscalers' annotations that the coordinator added where there were none:"
            f" numbers of {', '.join(names.SCALE_DOWN_GUARDS)}, from 0.",
        ),
    ] = ()


FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.MIG_PERMIT}",
    remedy="delete it, and the coordinator looks at the node anew",
    title=f"Node annotation {keys.MIG_PERMIT}",
    content=MigPermitAnnotation,
    version=VERSION,
    most_length=MOST_CHARACTERS,
    safe=True,
)
encode, decode, json_schema = FORMAT.text, FORMAT.decode, FORMAT.json_schema
