"""Roles and admission policies, generated from ``labelers/keys.py`` and ``labelers/names.py``.

Pure: functions of the namespace that return Kubernetes objects as plain dicts.
"""
