# SPDX-License-Identifier: Apache-2.0
"""Descriptions of simulated machines: their schema, their files, and what is wrong in one."""
