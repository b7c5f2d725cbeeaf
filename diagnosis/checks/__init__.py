# SPDX-License-Identifier: Apache-2.0
"""Checks of the doctor: facts in, findings out. Pure."""
