# SPDX-License-Identifier: Apache-2.0
"""Device plugins that do not list what their node has."""
