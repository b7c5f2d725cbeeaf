# SPDX-License-Identifier: Apache-2.0
"""The extender's certificates and its clients': made, kept in Secrets, and renewed in time."""
