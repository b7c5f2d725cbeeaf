# SPDX-License-Identifier: Apache-2.0
"""The support bundle: what is in it, without secrets."""
