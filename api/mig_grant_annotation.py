# SPDX-License-Identifier: Apache-2.0
"""``gpuscape.io/mig-grant`` on a Node: the coordinator's answer to its agent's request."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from api import keys, names
from api.mig_request_annotation import RequestId
from api.versioned import VersionedFormat

VERSION: Final = 1
MOST_CHARACTERS: Final = 256
CORDONED_PATTERN: Final = r'"cordoned":\s*true'
"""Matches the text of a grant for a Node that the coordinator cordoned, whatever else is in it:
admission policies read no JSON."""


class GrantPhase(StrEnum):
    """What the agent may do."""

    HOLD = "hold"
    """Nothing yet: the node is cordoned, and its pods are read once more."""
    GO = "go"
    """Change the GPUs. This stays granted until the agent reports how the request ended."""


class MigGrantAnnotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Annotation on the Node: how far the coordinator is with a request."""

    v: Annotated[Literal[1], Meta(description="Major version of this schema.")]
    request: Annotated[RequestId, Meta(description="Id of the request that this answers.")]
    phase: Annotated[GrantPhase, Meta(description="An agent acts on go alone.")]
    cordoned: Annotated[
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


def encode(grant: MigGrantAnnotation) -> str:
    """The annotation's text: compact JSON."""
    return FORMAT.encode(grant).decode()


def decode(text: str) -> MigGrantAnnotation | None:
    """The annotation in ``text``; None for a major version other than ours. Raises BadInput."""
    return FORMAT.decode(text)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the annotation, 2020-12."""
    return FORMAT.json_schema(f"Node annotation {keys.MIG_GRANT}")


FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.MIG_GRANT}",
    remedy="delete it, and the coordinator looks at the node anew",
    content=MigGrantAnnotation,
    version=VERSION,
    most_length=MOST_CHARACTERS,
    safe=True,
)
