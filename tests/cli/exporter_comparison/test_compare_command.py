# SPDX-License-Identifier: Apache-2.0
"""``gpuscape compare`` against servers that behave, lag, hang, flood and lie."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import pty
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cli import main as cli_main
from cli.exporter_comparison import scrapes
from exporters.compare.exposition_parser import ExpositionFault, Families, Parser
from tests.agent.agent_process import SOON
from tests.cli.exporters import (
    Answer,
    Handler,
    bodies,
    cut_off,
    dripping,
    endless,
    hanging,
    serving,
    slow_headers,
    status,
)
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.pki import Pki

HOT = '# TYPE t gauge\nt{gpu="0"} 90\n'
COLD = '# TYPE t gauge\nt{gpu="0"} 30\n'
ONCE = ("--count", "1", "--timeout", f"{SOON:g}s")
BRIEFLY = ("--count", "1", "--timeout", "400ms")
"""For who never answers: who does may take longer on a busy machine."""

Compare = Callable[..., Result]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Compare:
    """Run ``gpuscape compare`` with arguments."""
    monkeypatch.setattr(
        cli_main,
        "COMMANDS",
        {**cli_main.COMMANDS, "compare": "cli.exporter_comparison.compare_command"},
    )

    def run(*arguments: object, stdin: str | None = None) -> Result:
        words = ["compare", *map(str, arguments)]
        return CliRunner().invoke(cli_main.main, words, input=stdin)

    return run


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str], Path]:
    """Make a file."""

    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return make


Make = Callable[[str, str], Path]


def test_two_that_serve_the_same_are_the_same(compare: Compare) -> None:
    with serving(bodies(HOT)) as left, serving(bodies(HOT)) as right:
        result = compare(left.address, right.address, *ONCE)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"LEFT  http://{left.address}/metrics: 1 of 1 scrapes, 1 series\n"
        f"RIGHT http://{right.address}/metrics: 1 of 1 scrapes, 1 series\n"
        "\n"
        "METRIC  VERDICT  SERIES  LEFT  RIGHT  DIFFERENCE\n"
        "t       same     1         90     90\n"
        "\n"
        "1 of 1 metrics are the same.\n"
        "There was one scrape of each, so nothing could move: compare addresses for a while.\n"
    )


def test_what_is_asked_for_is_plain_text_as_it_is(compare: Compare) -> None:
    """A small compressed answer can unpack to more than there is memory."""

    def compressed(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        handler.wfile.write(gzip.compress(HOT.encode()))

    with serving(bodies(HOT)) as left, serving(compressed) as right:
        result = compare(left.address, right.address, *ONCE)
    for server in (left, right):
        (headers,) = server.asked
        assert headers["Accept-Encoding"] == "identity"
        assert headers["Accept"] == "text/plain; version=0.0.4"
        assert headers["Connection"] == "close"
    assert result.exit_code != 0
    assert "answers compressed" in result.output


def test_differences_are_told_and_exit_with_1(compare: Compare, file: Make) -> None:
    result = compare(file("a", HOT + "# TYPE u gauge\nu 1\n"), file("b", COLD))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[3:] == [
        "METRIC  VERDICT    SERIES  LEFT  RIGHT  DIFFERENCE",
        "t       values     1         90     30  90 against 30",
        "u       only-left  1 / 0      -      -  1 series",
        "",
        "0 of 2 metrics are the same.",
        "There was one scrape of each, so nothing could move: compare addresses for a while.",
    ]


def test_wide_tells_how_it_was_compared_and_shows_series(compare: Compare, file: Make) -> None:
    lines = compare(file("a", HOT), file("b", COLD), "-o", "wide").stdout.splitlines()
    assert lines[3].split() == [
        "METRIC", "VERDICT", "SERIES", "LEFT", "RIGHT", "DIFFERENCE", "COMPARED", "TOLERANCE",
        "MOVED",
    ]  # fmt: skip
    assert lines[4].split() == [
        "t",
        "values",
        "1",
        "90",
        "30",
        "90",
        "against",
        "30",
        "mean",
        "10%",
        "0",
    ]
    assert lines[-4].split() == ["t", "values", "1", "90", "against", "30", 'gpu="0"']


def test_json_and_yaml_hold_it_all(compare: Compare, file: Make) -> None:
    left, right = file("a", HOT), file("b", COLD)

    data = json.loads(compare(left, right, "-o", "json").stdout)

    assert (data["same"], data["rounds"], data["seconds"]) == (False, 1, 0.0)
    assert data["left"] == {
        "source": str(left),
        "scrapes": 1,
        "failures": 0,
        "failure": None,
        "faults": [],
        "pace": {"series": 1, "moving": 0, "frozen": 0, "renewed_seconds": None},
    }
    (metric,) = data["metrics"]
    assert (metric["name"], metric["verdict"], metric["measure"]) == ("t", "values", "mean")
    assert metric["findings"] == [
        {"verdict": "values", "series": 1, "detail": "90 against 30", "examples": ['gpu="0"']}
    ]
    assert yaml.safe_load(compare(left, right, "-o", "yaml").stdout) == data


def test_a_side_that_stands_still_is_told_so(compare: Compare) -> None:
    moving = bodies(*(f'# TYPE c counter\nc{{gpu="0"}} {10 * i}\n' for i in range(6)))
    still = bodies('# TYPE c counter\nc{gpu="0"} 5\n')
    with serving(moving) as left, serving(still) as right:
        result = compare(left.address, right.address, "--count", "6", "--interval", "100ms")
    assert result.exit_code == 1
    assert "RIGHT is stale: 1 of 1 moving series stand still" in result.stdout
    assert "c       stale-right" in result.stdout


def test_what_stood_still_on_both_sides_is_named(compare: Compare) -> None:
    """An idle machine looks the same whatever is served; limits never move, and are not named."""
    names = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_MGMT_LIMIT", "moving")

    def idle(at: int) -> str:
        return "".join(f"# TYPE {n} gauge\n{n} {at % 2 * (n == 'moving')}\n" for n in names)

    left_bodies, right_bodies = (bodies(*map(idle, range(4))) for _ in range(2))
    with serving(left_bodies) as left, serving(right_bodies) as right:
        result = compare(left.address, right.address, "--count", "4", "--interval", "100ms")
    assert result.exit_code == 0
    assert "3 of 3 metrics are the same.\n1 of 3 series moved in 0." in result.stdout
    assert (
        "1 are the same and stood still on both sides, which proves little: DCGM_FI_DEV_GPU_UTIL."
        " Compare while jobs run." in result.stdout
    )


@pytest.mark.parametrize(("left", "right"), [(79, 79), (79, 31)])
def test_an_xid_in_other_words_is_the_same_and_another_code_is_not(
    compare: Compare, file: Make, left: int, right: int
) -> None:
    sides = [
        f'# TYPE DCGM_FI_DEV_XID_ERRORS gauge\nDCGM_FI_DEV_XID_ERRORS{{gpu="0",err_code="{code}",'
        f'err_msg="{words}"}} {code}\n'
        for code, words in ((left, "GPU has fallen off the bus"), (right, "It left the bus"))
    ]
    result = compare(file("a", sides[0]), file("b", sides[1]), "-o", "json")
    assert result.exit_code == int(left != right)
    assert ("err_msg" in result.stdout, "err_code" in result.stdout) == (False, left != right)


@pytest.mark.parametrize("slow", ["parsing", "reading a file"])
def test_the_timeout_is_for_answers_over_the_network_alone(
    compare: Compare, file: Make, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """A second more is given, for the name of a host to be looked up."""

    class Slow(Parser):
        def parse(self, body: bytes, faults: list[ExpositionFault] | None = None) -> Families:
            time.sleep(1.3)
            return super().parse(body, faults)

    if slow == "parsing":
        monkeypatch.setattr(scrapes, "Parser", Slow)
        left = file("a", HOT)
    else:
        left = file("a", HOT).with_name("pipe")
        os.mkfifo(left)
        threading.Timer(1.3, left.write_text, [HOT]).start()
    result = compare(left, file("b", HOT), "--timeout", "100ms")
    assert (result.exit_code, result.stderr) == (0, "")


def test_standard_input_is_a_side(compare: Compare, file: Make) -> None:
    assert compare("-", file("b", HOT), stdin=HOT).exit_code == 0
    assert compare(file("b", HOT), "-", stdin=COLD).exit_code == 1
    result = compare("-", "-")
    assert (result.exit_code, "both sides are standard input" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 1),
        (["--prefix", "shadow_"], 0),
        (["--prefix", "shadow_", "--skip", "nothing"], 1),
        (["--prefix", "shadow_", "--only", "gpuscape_up"], 1),
        (["--prefix", "shadow_", "--only", "t"], 0),
        (["--prefix", "shadow_", "--only", "t", "--tolerance", "0"], 1),
        (["--prefix", "shadow_", "--tolerance", "0.5%", "--tolerance", "t=1"], 0),
        (["--skip", "t", "--skip", "gpuscape_*", "--allow-extra"], 0),
    ],
)
def test_options_say_what_is_compared_and_how_closely(
    compare: Compare, file: Make, options: list[str], code: int
) -> None:
    right = '# TYPE shadow_t gauge\nshadow_t{gpu="0"} 91\n# TYPE gpuscape_up gauge\ngpuscape_up 1\n'
    assert compare(file("a", HOT), file("b", right), *options).exit_code == code


def test_nothing_to_compare_is_not_the_same(compare: Compare, file: Make) -> None:
    for left, options in ((HOT, ["--only", "u"]), ("", []), ("gpuscape_up 1\n", [])):
        result = compare(file("a", left), file("b", left), *options)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "there is nothing to compare" in result.stderr


def test_labels_cannot_steer_the_terminal(compare: Compare, file: Make) -> None:
    left, right = file("a", 'x{a="\x1b[2J"} 1\n'), file("b", 'x{a="\x1b[2J"} 9\ny 1\n')
    for output in ("table", "wide", "json", "yaml"):
        assert "\x1b" not in compare(left, right, "-o", output).stdout


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts, even where the tests run in a shell's background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_run_shows_what_it_has(compare: Compare) -> None:
    scrapes = itertools.count(1)

    def interrupting(handler: Handler) -> None:
        if next(scrapes) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        bodies(HOT)(handler)

    with serving(interrupting) as left, serving(bodies(HOT)) as right:
        result = compare(left.address, right.address, "--count", "900", "--interval", "100ms")
    assert result.exit_code == 0
    assert "1 of 1 metrics are the same." in result.stdout


def test_labels_can_be_ignored(compare: Compare, file: Make) -> None:
    left, right = file("a", 'x{gpu="0",job="a"} 1\n'), file("b", 'x{gpu="0",job="b"} 1\n')
    assert compare(left, right).exit_code == 1
    assert compare(left, right, "--ignore-label", "job").exit_code == 0


# Endpoints that are not what they should be

NEVER_WHOLE = (hanging, dripping, slow_headers)
BAD = [
    *((answer, "no whole answer within 0.4 s") for answer in NEVER_WHOLE),
    (cut_off, "its answer ends 996 bytes too early"),
    (endless, "more than 1 MiB: no exposition is read beyond --max-size"),
    (status(401), "it answers 401 'Unauthorized': give a token or a user with its password"),
    (status(404), "it answers 404 'Not Found'"),
    (
        status(302, Location="http://elsewhere/\x1b"),
        "it answers 302 'Found' and points to 'http://elsewhere/\\x1b': give the address that",
    ),
    (bodies(b"\x00\xff\x1b[31m garbage"), "it is no exposition: line 1: "),
    (bodies("<html>\n<body>hello</body>\n"), "it is no exposition: line 1: "),
]


@pytest.mark.parametrize(("answer", "sentence"), BAD)
def test_a_side_that_cannot_be_read_is_named_with_the_reason(
    compare: Compare, file: Make, answer: Answer, sentence: str
) -> None:
    with serving(answer) as server:
        how = BRIEFLY if answer in NEVER_WHOLE else ONCE
        result = compare(file("a", HOT), server.address, *how, "--max-size", "1")
    assert (result.exit_code, result.stdout) == (4, "")
    assert f"RIGHT http://{server.address}/metrics: {sentence}" in result.stderr
    assert "\x1b" not in result.stderr


def test_a_port_where_nobody_listens_is_told(compare: Compare, file: Make) -> None:
    with serving(hanging) as server:
        address = server.address
    result = compare(address, file("b", HOT), *ONCE)
    assert result.exit_code == 4
    assert result.stderr == f"Error: LEFT http://{address}/metrics: Connection refused\n"


def test_both_sides_are_named_where_neither_can_be_read(compare: Compare) -> None:
    with serving(status(500)) as left, serving(status(503)) as right:
        result = compare(left.address, right.address, *ONCE)
    assert result.exit_code == 4
    assert "it answers 500" in result.stderr
    assert "it answers 503" in result.stderr


def test_a_scrape_that_fails_is_counted_and_the_run_goes_on(compare: Compare) -> None:
    flaky = iter([status(500), bodies(HOT), bodies(HOT)])
    with serving(lambda it: next(flaky)(it)) as left, serving(bodies(HOT)) as right:
        result = compare(left.address, right.address, "--count", "3", "--interval", "100ms")
    assert result.exit_code == 0
    assert "LEFT could not be read 1 times: it answers 500" in result.stdout
    assert "2 of 3 scrapes" in result.stdout


def test_lines_that_break_the_format_are_told_and_the_rest_is_compared(
    compare: Compare, file: Make
) -> None:
    result = compare(file("a", HOT + 'u{pod="a"b"} 1\n'), file("b", HOT))
    assert result.exit_code == 0
    assert "LEFT serves lines that break the format, such as line 3: not a label" in result.stdout


def test_a_large_exposition_is_no_trouble(compare: Compare, file: Make) -> None:
    """20,000 series, five times those of the fullest node that is simulated."""
    lines = [f"# TYPE m{m} gauge\n" for m in range(100)]
    text = "".join(
        line + "".join(f'm{m}{{gpu="{g}",UUID="GPU-{g}",hostname="n"}} {g}\n' for g in range(200))
        for m, line in enumerate(lines)
    )
    result = compare(file("a", text), file("b", text.replace("hostname", "Hostname")))
    assert result.exit_code == 1
    assert "0 of 100 metrics are the same." in result.stdout
    assert result.stdout.count("Hostname") == 100


# Who may ask


def test_a_token_goes_to_its_side_alone(compare: Compare, file: Make) -> None:
    token = file("token", "s3cret\n")
    with serving(bodies(HOT)) as left, serving(bodies(HOT)) as right:
        compare(left.address, right.address, *ONCE, "--left-token-file", token)
    assert left.asked[0]["Authorization"] == "Bearer s3cret"
    assert "Authorization" not in right.asked[0]
    assert left.asked[0]["Accept"] == "text/plain; version=0.0.4"


def test_a_user_is_sent_with_the_password_of_a_file(compare: Compare, file: Make) -> None:
    options = ("--right-user", "scraper", "--right-password-file", file("password", "p:w\n"))
    with serving(bodies(HOT)) as right:
        compare(file("a", HOT), f"http://{right.address}/m?x=1", *ONCE, *options)
    assert right.asked[0]["Authorization"] == "Basic c2NyYXBlcjpwOnc="
    assert right.paths == ["/m?x=1"]


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ([], 4, "its certificate is not trusted: "),
        (["--left-ca-file", "AUTHORITY"], 0, ""),
        (["--left-insecure"], 0, ""),
        (["--right-insecure"], 4, "its certificate is not trusted: "),
    ],
)
def test_a_certificate_is_checked_unless_told_otherwise(
    compare: Compare, file: Make, tmp_path: Path, options: list[str], code: int, sentence: str
) -> None:
    pki = Pki.create(tmp_path / "pki")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.server.certificate_file)
    options = [str(pki.ca_file) if it == "AUTHORITY" else it for it in options]
    with serving(bodies(HOT), context) as left:
        result = compare(f"https://{left.address}", file("b", HOT), *ONCE, *options)
    assert (result.exit_code, sentence in result.stderr) == (code, True)


def test_plain_http_where_tls_is_asked_for_is_told(compare: Compare, file: Make) -> None:
    with serving(bodies(HOT)) as left:
        result = compare(f"https://{left.address}", file("b", HOT), *ONCE)
    assert result.exit_code == 4
    assert "is it served over plain http?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere", "-"], "'nowhere': there is no such file, and it is no address such as node:"),
        (["ftp://a/b", "-"], "'ftp://a/b' is no address such as http://node:9400/metrics"),
        (["http://a:99999/", "-"], "'http://a:99999/' is no address: "),
        (["http://u:p@a/", "-"], "an address may hold no user: give --left-user or --right-user"),
        (["http://a/ b", "-"], "blanks and other than ASCII text are written as %20"),
        (["a:1", "-", "--left-user", "u"], "--left-user and --left-password-file go together"),
        (["a:1", "-", "--left-token-file", "/none"], "--left-token-file: cannot read /none: "),
        (["a:1", "-", "--left-token-file", "/dev/null"], "/dev/null holds no token: one line"),
        (["https://a:1", "-", "--left-ca-file", "/none"], "cannot use /none: No such file"),
        (["https://a:1", "-", "--left-ca-file", "/dev/null"], "cannot use /dev/null: "),
        (["a:1", "-", "--left-insecure", "--left-ca-file", "x"], "exclude each other: give one"),
        (["a:1", "-", "--count", "0"], "that makes 0 scrapes: give 1 to 100000"),
        (["a:1", "-", "--count", "x"], "--count is 'x': expected a whole number"),
        (["a:1", "-", "--count", "1", "--duration", "1m"], "exclude each other: give one"),
        (["a:1", "-", "--max-size", "0"], "--max-size is '0': expected a whole number from 1 to"),
        (["a:1", "-", "--interval", "0"], "--interval is '0': expected a duration from 100ms"),
        (["a:1", "-", "--tolerance", "5 percent"], "--tolerance is '5 percent': expected 5%,"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(compare: Compare, arguments: list[str], sentence: str) -> None:
    result = compare(*arguments, stdin=HOT)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_secret_is_shown(compare: Compare) -> None:
    assert "hunter2" not in compare("http://u:hunter2@a/", "-", stdin=HOT).stderr


def test_how_far_it_is_shows_on_a_terminal_only() -> None:
    with serving(bodies(HOT)) as left, serving(bodies(HOT)) as right:
        script = (
            "import sys; from cli.exporter_comparison.compare_command import command;"
            " command(sys.argv[1:])"
        )
        run = [sys.executable, "-c", script, left.address, right.address]
        run += ["--count", "2", "--interval", "100ms"]
        ours, theirs = pty.openpty()
        try:
            subprocess.run(
                run, stdout=subprocess.PIPE, stderr=theirs, preexec_fn=end_with_parent(), check=True
            )
            shown = os.read(ours, 10_000)
        finally:
            os.close(ours)
            os.close(theirs)
    assert b"scrape 1 of 2" in shown
    assert b"scrape 2 of 2" in shown
    assert shown.endswith(b"\r\x1b[2K")
