# SPDX-License-Identifier: Apache-2.0
"""Roles and admission policies, generated from ``api/keys.py`` and ``api/names.py``.

Pure: functions of the namespace that return Kubernetes objects as plain dicts.
"""
