# SPDX-License-Identifier: Apache-2.0
"""Whether a layout that the label ``nvidia.com/mig.config`` asks for is this agent's affair. Pure.

Where another program manages MIG, the label belongs to that program, also where it changes; a label
that is to be adopted where it matches is not obeyed before the GPUs have its layout.
"""

from __future__ import annotations

from typing import Final

from agent.layouts.layout_request import Adoption, StatedLayout
from api import keys
from api.mig_status_annotation import (
    MOST_REASON,
    VERSION,
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
)
from base.text.safe_text import short_line

_DIFFERENT: Final = (
    f"the GPUs do not have the layout of the label {keys.MIG_CONFIG}={{value}}, so it is not"
    f" adopted; {keys.MIG_ADOPT}={Adoption.ANY} has them changed for it"
)


def as_adopted(
    stated: StatedLayout, evaluated: MigStatusAnnotation, *, foreign: bool
) -> MigStatusAnnotation:
    """The evaluation; for a label that is not obeyed, a status that says so and why.

    ``foreign``: another program manages MIG on the node.
    """
    request = stated.request
    if request is None or request.source is not RequestSource.LABEL:
        return evaluated
    if not foreign and (not stated.adopting or evaluated.phase == MigPhase.UNCHANGED):
        return evaluated
    reason = evaluated.reason
    if not foreign and evaluated.phase == MigPhase.PLANNED:
        reason = _DIFFERENT.format(value=request.text)
    return MigStatusAnnotation(
        v=VERSION,
        phase=MigPhase.UNADOPTED,
        reason=short_line(reason, MOST_REASON),
        unadopted=request.text,
    )


def unadopted_label(stated: StatedLayout, evaluated: MigStatusAnnotation | None) -> str:
    """The value of the label that a status shows as not obeyed; empty where there is none."""
    if evaluated is None or stated.request is None:
        return stated.unadopted
    if stated.adopting or evaluated.phase == MigPhase.UNADOPTED:
        return evaluated.unadopted
    return stated.unadopted
