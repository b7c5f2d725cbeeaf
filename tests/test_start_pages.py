# SPDX-License-Identifier: Apache-2.0
"""Commands of pages that need no cluster, as they are written, on a simulated machine."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests import pages
from tests.controlplane.components import free_port
from tests.monitoring.shipped import RUNBOOKS

PATH = "/usr/bin:/bin"
ENDS_ALL = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"
"""What commands have started in the background ends with them, also where one fails."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pages.clone(tmp_path_factory.mktemp("project"))


def shown(clone: Path, commands: str, **environment: str) -> str:
    """What commands print in a clone, without an error; its environment is on the path."""
    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", f"{ENDS_ALL}\n{commands}"],
        cwd=clone,
        env={"PATH": f"{clone}/.venv/bin:{PATH}", "GPUSCAPE_SIMULATE": "dgx-a100", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_laptop_shows_other_machines(clone: Path) -> None:
    output = shown(clone, pages.marked(pages.page("docs/start/laptop.md"), "machines"), PATH=PATH)
    assert {"NV1", "NV2"} <= set(output.split())
    assert re.search(r"^gpuscape.io/nvlink.island +set +2 ", output, re.MULTILINE)


def test_an_sre_s_first_scrape_has_eight_gpus(clone: Path) -> None:
    commands = pages.marked(pages.page("docs/start/sre.md"), "scrape")
    ports = {default: free_port() for default in ("9400", "9401")}
    for default, port in ports.items():
        assert f"127.0.0.1:{default}/" in commands
        commands = commands.replace(f":{default}/", f":{port}/")
    settings = {
        "GPUSCAPE_SIMULATE": "no-driver",  # which the page's own machine takes the place of
        "GPUSCAPE_LISTEN": f"127.0.0.1:{ports['9400']}",
        "GPUSCAPE_PROBE_LISTEN": f"127.0.0.1:{ports['9401']}",
    }
    output = shown(clone, f"{commands}\nwait $!", **settings)
    assert len(re.findall(r"^DCGM_FI_DEV_POWER_USAGE\{.*\} \d", output, re.MULTILINE)) == 8
    assert len(re.findall(r"^gpuscape_gpu_health_info\{.*healthy.*\} 1", output, re.MULTILINE)) == 8


def test_the_picture_of_links_is_of_the_machine_that_the_command_shows(clone: Path) -> None:
    commands = pages.marked(pages.page("docs/concepts.md"), "links")
    assert "NV2" in shown(clone, commands)
    picture = (pages.ROOT / "docs/pictures/links-mesh.svg").read_text("utf-8")
    matrix = [line.split()[1:9] for line in shown(clone, commands).splitlines()[1:9]]
    links = sum(int(cell[2:]) for row in matrix for cell in row if cell.startswith("NV"))
    assert picture.count("<line ") == links // 2


def test_a_document_for_programs_has_a_line_for_each_gpu(clone: Path) -> None:
    lines = shown(clone, pages.marked(pages.page("docs/usage.md"), "as json")).splitlines()
    assert [line.split("\t")[0] for line in lines] == [str(number) for number in range(8)]


def test_labels_of_one_s_own_are_made_and_their_keys_allowed(clone: Path) -> None:
    page = pages.page("docs/labels.md")
    (rules,) = re.findall(r"```yaml\n# rules.yaml\n(.*?)```", page, re.DOTALL)
    (clone / "rules.yaml").write_text(rules)
    output = shown(clone, pages.marked(page, "own labels"))
    made = dict(re.findall(r"^(example\.com/\S+) +(\S+)$", output, re.MULTILINE))
    assert made == {"example.com/gpu-type": "a100-80", "example.com/gpu-memory": "80Gi"}
    shown(clone, pages.marked(page, "own keys"))
    policies = (clone / "deploy/base/access.yaml").read_text()
    assert all(policies.count(f"'{key}'") == 2 for key in made)


def test_a_recording_is_played(clone: Path) -> None:
    assert "GPU7" in shown(clone, pages.marked(pages.page("docs/usage.md"), "record"))
    assert json.loads((clone / "machine.json").read_text())


def test_rules_and_a_dashboard_lead_to_runbooks_elsewhere(clone: Path) -> None:
    page = pages.page("docs/monitoring.md")
    shown(clone, pages.marked(page, "rules"))
    shown(clone, pages.marked(page, "dashboard"))
    rules = yaml.safe_load((clone / "deploy/monitoring/rules/prometheus-rule.yaml").read_text())
    urls = {
        rule["annotations"]["runbook_url"]
        for group in rules["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert {url.rpartition("/")[0] for url in urls} == {"https://wiki.example/gpuscape"}
    assert len(urls) == len(list(RUNBOOKS.glob("*.md")))
    made = (clone / "deploy/monitoring/dashboards/gpuscape-fleet.json").read_text()
    assert "https://wiki.example/gpuscape" in made
