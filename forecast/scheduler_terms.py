# SPDX-License-Identifier: Apache-2.0
"""The order of GPU models that the cluster's extender follows, from its Deployment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forecast.agent_terms import CONFIG, settings_of_part
from kube.api import Object
from scheduler.placement_aims import ProductOrder

_PART: Final = "scheduler"
_PRODUCT_ORDER: Final = "product-order"


def deployed_product_order(deployments: Sequence[Object]) -> ProductOrder | None:
    """Setting ``product-order``; None where it is not known.

    That is where there is no such Deployment or several, where the manifest has no plain text for
    the setting, and where a settings file may contain it, since it is not read here.
    """
    settings = settings_of_part(deployments, _PART)
    if settings is None:
        return None
    default = "" if settings.get(CONFIG) else ProductOrder.FASTEST
    written = settings.get(_PRODUCT_ORDER, default)
    return next((order for order in ProductOrder if order == written), None)
