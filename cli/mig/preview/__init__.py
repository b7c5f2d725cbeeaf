# SPDX-License-Identifier: Apache-2.0
"""What a rollout of a MIG layout would do to a cluster, before anything is written.

:mod:`cli.mig.preview.cluster_picture` reads the cluster into a value, the other modules judge that
value and are pure, :mod:`cli.mig.preview.preview_words` shows what they found.
"""
