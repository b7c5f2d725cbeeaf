# SPDX-License-Identifier: Apache-2.0
"""Which tests run in ``make test``, and which in ``make test-all`` alone. Pure but for markers.

``make test`` is for every change: the quick tests of every folder, and one Kubernetes. The rest
has what takes long (real nodes, charts, dashboards, other people's programs), the older Kubernetes
and the slowest tests of folders whose others are quick. CI runs both. With a cache that has only
:data:`QUICK_FAMILIES`, ``CI=true make test`` shows a test that needs more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

import pytest

from tests.controlplane.families import (
    ALLOCATOR,
    CONTROLLER_MANAGER_MINOR,
    ETCD,
    KUBERNETES,
    MINORS,
    Family,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size of the suite, for what is printed before it runs."""

    title: str
    minutes: int
    """Duration on two free cores, the control plane being built already."""
    megabytes: int
    """Size of the sources that a first build of its control plane downloads."""


QUICK: Final = Size(title="make test", minutes=10, megabytes=170)
REST: Final = Size(title="make test-rest", minutes=39, megabytes=650)

QUICK_FAMILIES: Final[tuple[Family, ...]] = (
    ETCD,
    KUBERNETES[CONTROLLER_MANAGER_MINOR],
    ALLOCATOR,
)
"""Programs that the control plane of ``make test`` consists of."""

LEFT_OUT: Final = frozenset(MINORS) - {CONTROLLER_MANAGER_MINOR}
"""Kubernetes versions that ``make test`` does not start."""

SLOW: Final = (
    "tests/access/test_cases.py",
    "tests/access/test_confinement.py",
    "tests/access/test_doctor.py",
    "tests/access/test_events.py",
    "tests/access/test_gpu_pods_policies.py",
    "tests/access/test_long_names.py",
    "tests/access/test_mutations.py",
    "tests/access/test_page.py",
    "tests/access/test_refused_keys.py",
    "tests/access/test_two_installations.py",
    "tests/actuator/test_actuator_program.py",
    "tests/actuator/test_change.py::test_killed_on_the_way_back_it_ends_in_one_of_the_two",
    "tests/actuator/test_every_compute_layout.py",
    "tests/actuator/test_fleet_reboot.py",
    "tests/actuator/test_hung_gpu.py",
    "tests/actuator/test_journal_owner.py::test_a_worker_that_is_not_the_actuator_s_is_refused_too",
    "tests/actuator/test_killed_changes.py",
    "tests/actuator/test_killed_workers.py",
    "tests/actuator/test_restore.py::test_killed_at_any_effect_it_ends_in_the_verified_layout",
    "tests/actuator/test_smi_reset.py::test_wherever_the_worker_is_killed_the_gpu_is_reset_once_at_most",
    "tests/actuator/test_socket_attacks.py::test_what_is_no_request_is_refused",
    "tests/actuator/test_socket_attacks.py::test_what_no_gpu_has_is_refused_by_the_planner",
    "tests/actuator/test_supervisor.py",
    "tests/actuator/test_upstream_bugs.py",
    "tests/actuator/test_worlds.py::test_a_step_that_cannot_be_done_changes_nothing",
    "tests/agent/cluster/test_feature_sink.py::test_killed_at_any_request_and_started_again_the_labels_end_right",
    "tests/agent/cluster/test_fleet_start.py",
    "tests/agent/cluster/test_membership.py::test_without_the_policy_on_permits_no_request_goes_out_and_no_permit_is_acted_on",
    "tests/agent/cluster/test_node_sink.py",
    "tests/agent/cluster/test_sinks_on_cluster.py::test_a_node_feature_of_another_maker_is_recognised",
    "tests/agent/cluster/test_sinks_on_cluster.py::test_take_over_and_hand_back_leave_no_moment_without_labels",
    "tests/agent/cluster/test_sinks_on_cluster.py::test_the_node_feature_is_as_the_server_wants_it_and_goes_with_its_node",
    "tests/agent/layouts/test_any_life.py",
    "tests/agent/layouts/test_edited_annotations.py",
    "tests/agent/layouts/test_enforced_layouts.py",
    "tests/agent/metrics/test_counters_config_map.py::test_the_agent_serves_while_the_api_server_does_not_answer_and_fills_in_later",
    "tests/kubelet/test_podresources_client.py",
    "tests/agent/pods/test_pods_of_a_kubelet.py::test_every_mig_device_of_a_machine",
    "tests/agent/test_blocked_output.py::test_an_agent_whose_output_nobody_reads_serves_counts_every_xid_and_ends",
    "tests/agent/test_client_limits.py",
    "tests/agent/test_defects.py",
    "tests/agent/test_faults.py",
    "tests/agent/test_first_process.py",
    "tests/agent/test_injected_library.py",
    "tests/agent/test_process_end.py",
    "tests/agent/test_reader_ends.py",
    "tests/agent/test_reload.py",
    "tests/agent/test_restart.py",
    "tests/agent/test_selected_devices.py",
    "tests/agent/test_shared_descriptors.py",
    "tests/agent/test_slow_driver.py",
    "tests/agent/test_soak.py",
    "tests/agent/test_stale_readings.py",
    "tests/agent/test_thread_limits.py",
    "tests/agent/test_xid_ends.py",
    "tests/base/test_yaml_places.py::test_text_is_refused_beyond_its_bound",
    "tests/base/text/test_safe_text.py::test_json_keeps_its_value_and_has_nothing_unsafe",
    "tests/bench/",
    "tests/browser/",
    "tests/cli/dcgm_exporter/test_dcgm_exporter.py",
    "tests/diagnosis/test_local_faults.py",
    "tests/cli/doctor/test_support_bundle.py",
    "tests/cli/hostile/test_hostile_text.py",
    "tests/cli/mig/test_busy_wait.py",
    "tests/cli/mig/test_give_up.py",
    "tests/cli/mig/test_hooks_file.py",
    "tests/cli/mig/test_manager_bugs.py",
    "tests/cli/mig/test_mig_apply.py",
    "tests/cli/mig/test_mig_commands.py",
    "tests/cli/mig/test_mig_configs_listing.py::test_the_exit_code_says_whether_the_gpus_are_as_wanted",
    "tests/cli/mig/test_mig_plan.py",
    "tests/cli/mig/test_mig_selftest.py",
    "tests/cli/mig/test_mig_states.py",
    "tests/cli/mig/test_next_to_actuator.py",
    "tests/cli/scheduler/test_simulate_placement.py",
    "tests/cli/test_agent_command.py::test_a_signal_ends_the_agent_without_an_error",
    "tests/cli/test_main.py",
    "tests/cli/test_program_log.py",
    "tests/cli/test_record.py",
    "tests/cli/test_serve_machine.py",
    "tests/cli/test_terminal.py",
    "tests/cli/top/test_top_in_a_terminal.py",
    "tests/cli/top/test_top_view.py::test_no_line_is_wider_than_the_terminal",
    "tests/cluster/test_called_off.py",
    "tests/cluster/test_cancel.py",
    "tests/cluster/test_drain.py",
    "tests/cluster/test_examples.py",
    "tests/cluster/test_explained_filters.py",
    "tests/cluster/test_explained_preemption.py",
    "tests/cluster/test_fleet.py",
    "tests/cluster/test_free.py",
    "tests/cluster/test_hour.py",
    "tests/cluster/test_kill.py",
    "tests/cluster/test_label_rules.py",
    "tests/cluster/test_layouts.py",
    "tests/cluster/test_lost_gpu.py",
    "tests/cluster/test_metrics.py",
    "tests/cluster/test_mig_manager.py",
    "tests/cluster/test_nfd.py",
    "tests/cluster/test_queues.py",
    "tests/cluster/test_random_rollouts.py",
    "tests/cluster/test_rolled_back_store.py",
    "tests/cluster/test_rollout_plan.py",
    "tests/cluster/test_scheduler_certificates.py",
    "tests/cluster/test_scheduler_faults.py",
    "tests/cluster/test_scheduler_install.py",
    "tests/cluster/test_scheduler_placement.py",
    "tests/cluster/test_scheduler_preferences.py",
    "tests/cluster/test_scheduler_strangers.py",
    "tests/cluster/test_scheduler_workloads.py",
    "tests/cluster/test_skewed_upgrade.py",
    "tests/cluster/test_start_pages.py",
    "tests/cluster/test_start_turn.py",
    "tests/cluster/test_uninstall.py",
    "tests/cluster/test_workloads_page.py",
    "tests/controlplane/test_plane.py",
    "tests/controlplane/test_runs.py",
    "tests/deploy/test_apply.py",
    "tests/deploy/test_argo_cd.py",
    "tests/deploy/test_chart.py",
    "tests/deploy/test_chart_install.py",
    "tests/deploy/test_chart_label_rules.py",
    "tests/deploy/test_chart_scheduler.py",
    "tests/deploy/test_kube_score.py",
    "tests/deploy/test_rendered_pods.py",
    "tests/deploy/test_scheduler_manifests.py",
    "tests/discovery/nvml/test_error_codes.py",
    "tests/discovery/nvml/test_error_codes_groups.py",
    "tests/discovery/reader/test_device_reader.py",
    "tests/discovery/reader/test_first_touch.py",
    "tests/discovery/reader/test_hanging_gpus.py",
    "tests/discovery/reader/test_standard_error.py",
    "tests/discovery/reader/test_start_beside_hung_gpus.py",
    "tests/discovery/reader/test_used_up_readers.py",
    "tests/simulator/clibrary/test_machine_server.py",
    "tests/simulator/clibrary/test_same_answers.py",
    "tests/simulator/clibrary/test_served_machine.py",
    "tests/exporters/gpuscape/test_core_families.py::test_the_core_adds_as_many_series_as_dcgm_has_and_eighty_at_most",
    "tests/exporters/gpuscape/test_families.py::test_a_family_is_served_as_declared_and_as_prometheus_wants_it",
    "tests/exporters/gpuscape/test_families.py::test_series_grow_by_the_same_number_with_every_gpu",
    "tests/exporters/gpuscape/test_gpuscape_on_machines.py::test_a_machine_has_a_well_formed_exposition",
    "tests/exporters/gpuscape/test_gpuscape_on_machines.py::test_a_number_is_what_nvml_says_of_every_gpu",
    "tests/exporters/queries/test_against_prometheus.py",
    "tests/exporters/test_moving.py",
    "tests/exporters/test_promtool.py",
    "tests/faults/",
    "tests/fleet/test_bad_nodes.py",
    "tests/fleet/test_interrupted_rollouts.py",
    "tests/fleet/test_leadership.py::test_two_never_act_at_once",
    "tests/fleet/test_many_rollouts.py::test_no_node_is_stuck_after_many_rollouts",
    "tests/fleet/test_random_rollouts.py",
    "tests/foreign/",
    "tests/gpuscape/test_isolation.py",
    "tests/hardware/",
    "tests/kube/test_official.py",
    "tests/kubelet_nodes/test_kubelet.py",
    "tests/kubelet_nodes/test_play.py",
    "tests/labelers/test_compose.py::test_whatever_a_node_says_labels_are_legal_and_of_their_format",
    "tests/labelers/test_node_patch.py",
    "tests/labelers/test_three_counts.py::test_a_simulated_machine_with_these_counts_is_as_the_table_has_it",
    "tests/mig/configs/test_mig_config_text.py",
    "tests/monitoring/",
    "tests/node/",
    "tests/scheduler/certificates/test_renewal.py",
    "tests/scheduler/cluster/test_watches_on_cluster.py::test_a_pod_is_followed_from_its_binding_to_its_gpus_and_told_of_once",
    "tests/scheduler/extender/test_connection.py::test_what_can_become_no_request_is_answered_before_it_ends",
    "tests/scheduler/extender/test_extender_limits.py",
    "tests/scheduler/extender/test_extender_metrics.py::test_promtool_finds_nothing",
    "tests/scheduler/extender/test_extender_metrics.py::test_what_waits_to_be_counted_is_bounded",
    "tests/scheduler/extender/test_extender_program.py",
    "tests/scheduler/extender/test_fuzz.py",
    "tests/scheduler/extender/test_strangers.py",
    "tests/placement/test_score_table.py::test_another_order_of_the_gpus_keeps_the_scores",
    "tests/placement/test_score_table.py::test_the_same_is_answered_whatever_was_asked_before",
    "tests/placement/test_speed_agrees_with_nccl.py",
    "tests/placement/test_workspace.py",
    "tests/scheduler/simulation/test_estimates.py::test_of_schedulers_that_are_alike_19_of_20_runs_find_no_difference_at_all",
    "tests/scheduler/simulation/test_experiment.py",
    "tests/scheduler/simulation/test_mixed_fleet.py",
    "tests/scheduler/simulation/test_workload.py::test_drawn_pods_ask_for_the_load",
    "tests/test_goldens_against_sources.py::test_annotations_and_snapshots_follow_the_published_schemas",
    "tests/test_log_messages.py",
    "tests/test_readme.py",
    "tests/test_site.py",
    "tests/test_sizes.py::test_the_sizes_divide_the_tests_of_a_module",
    "tests/test_start_pages.py",
    "tests/test_suite.py",
    "tests/test_unprivileged.py::test_labels_of_mig_devices_are_kept_and_name_the_missing_capability",
    "tests/test_yaml_readers.py::test_a_hostile_file_is_bad_input_with_its_name_and_the_reason",
    "tests/test_yaml_readers.py::test_a_kubeconfig_is_read_by_the_official_package_and_is_bad_input_too",
    "tests/tools/test_generate.py",
    "tests/tools/test_mutation.py::test_tests_are_run_with_the_filters_of_warnings_that_their_marks_set",
    "tests/tools/test_run.py",
    "tests/tools/test_sbom.py::test_neither_place_nor_order_of_installing_shows",
    "tests/web/test_certificates.py::test_the_end_of_a_certificate_is_found",
    "tests/web/test_web_config.py::test_any_text_is_a_config_or_one_sentence",
    "tests/uml/",
)
"""Beginnings of the names of tests that are in the rest: folders, modules, tests. They are slow, or
they need programs that are not in :data:`QUICK_FAMILIES`."""

MARK: Final = "rest"


def mark_rest(items: Iterable[pytest.Item]) -> None:
    """Mark each test that ``make test`` leaves out."""
    for item in items:
        if is_rest(item.nodeid, versions_of(item)):
            item.add_marker(MARK)


def is_rest(name: str, versions: frozenset[str]) -> bool:
    """Whether ``make test`` leaves out the test of this name on these versions of Kubernetes."""
    return name.startswith(SLOW) or not versions.isdisjoint(LEFT_OUT)


def versions_of(item: pytest.Item) -> frozenset[str]:
    """Kubernetes versions among the parameters of a test; none if it needs no control plane.

    :func:`is_without` relies on that: a version alone puts no test without one into the rest.
    """
    callspec = getattr(item, "callspec", None)
    if callspec is None or item.get_closest_marker("cluster") is None:
        return frozenset()
    return frozenset(minor for minor in MINORS if minor in callspec.params.values())


def is_whole(module: PurePath) -> bool:
    """Whether all tests of this module, by its path from the project, are in the rest."""
    return module.as_posix().startswith(SLOW)


def is_without(module: PurePath) -> bool:
    """Whether no test of this module without the control plane is in the rest."""
    path = module.as_posix()
    return not any(name.startswith(path) or path.startswith(name) for name in SLOW)
