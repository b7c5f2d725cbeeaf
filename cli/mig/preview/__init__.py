# SPDX-License-Identifier: Apache-2.0
"""Preview of what a rollout of a MIG layout would do to a cluster; it writes nothing.

:mod:`cli.mig.preview.cluster_picture` reads the cluster into a value, pure modules judge that
value, :mod:`cli.mig.preview.preview_text` shows their findings.
"""
