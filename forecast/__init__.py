# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""What a change would do to a cluster, and where pods would find GPUs; it writes nothing.

:mod:`forecast.cluster_picture` and :mod:`forecast.fleet_reading` read the cluster into values,
pure modules judge these.
"""
