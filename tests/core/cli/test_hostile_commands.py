"""Commands in a careless or hostile user's hands: one clear line, nothing lost, the exit status that was promised."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowshunt.cli import main
from flowshunt.packets.sample import write_sample

FLOWSHUNT = [sys.executable, "-m", "flowshunt"]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A sample capture's path, as text; its rules stand beside it."""
    path = tmp_path_factory.mktemp("sample") / "sample.pcap"
    write_sample(path, flows=40, seed=3)
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def compiled(sample):
    """Kernels are compiled before a test waits for anything."""
    done = command("compare", sample, "--json", "--rules", f"{sample}.rules")
    assert done.returncode == 0, done.stderr


def command(*arguments, **more):
    return subprocess.run([*FLOWSHUNT, *arguments], check=False, capture_output=True, text=True, timeout=300, **more)


def told(done):
    """The lines on standard error, but for one that a first run has."""
    return [line for line in done.stderr.splitlines() if not line.startswith("compiling kernels")]


@pytest.mark.parametrize("which", ["capture", "rules", "folder", "standard input"])
def test_events_never_overwrite_an_input(sample, tmp_path, which):
    capture, rules = tmp_path / "a.pcap", tmp_path / "a.rules"
    capture.write_bytes(Path(sample).read_bytes())
    rules.write_bytes(Path(f"{sample}.rules").read_bytes())
    eve = rules if which == "rules" else capture
    read = {"folder": str(tmp_path), "standard input": "-"}.get(which, str(capture))
    before = eve.read_bytes()
    with capture.open("rb") as stdin:
        done = command("run", read, "--rules", str(rules), "--eve", str(eve), stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert "events would overwrite it" in done.stderr
    assert len(told(done)) == 1
    assert eve.read_bytes() == before


def test_old_events_stay_where_a_run_can_not_begin(tmp_path):
    eve = tmp_path / "eve.json"
    eve.write_text("old\n")
    assert CliRunner().invoke(main, ["run", str(tmp_path / "missing.pcap"), "--eve", str(eve)]).exit_code == 2
    assert eve.read_text() == "old\n"


def test_figures_come_where_the_reader_of_events_went_away(sample, tmp_path):
    pipe = tmp_path / "eve"
    os.mkfifo(pipe)

    def read_a_little():
        with pipe.open("rb", buffering=0) as reader:
            reader.read(10)

    reader = threading.Thread(target=read_a_little)
    reader.start()
    arguments = ["--rules", f"{sample}.rules", "--json", "--eve", str(pipe), "--eve-types", "flow,stats"]
    done = command("run", sample, sample, *arguments, "--burst", "16")
    reader.join()
    assert json.loads(done.stdout)["total"]["frames"] > 0
    if done.returncode:  # the events may all have fitted into the pipe
        assert done.returncode == 2
        assert "EVE events can't be written: Broken pipe" in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_waits_for_a_pipe_can_be_stopped(sample, tmp_path, number, status):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [*FLOWSHUNT, "run", str(pipe), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    with pipe.open("wb", buffering=0) as writer:
        writer.write(Path(sample).read_bytes()[:500_000])  # more than a pipe holds: returns once the run reads
        time.sleep(1)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    figures = json.loads(output)
    assert process.returncode == status, errors
    assert figures["interrupted"]
    assert figures["total"]["frames"] > 0
    assert figures["problems"] == []


def test_a_pipe_that_nobody_writes_to_can_be_stopped(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    eve = tmp_path / "eve.json"
    process = subprocess.Popen([*FLOWSHUNT, "run", str(pipe), "--eve", str(eve)], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not eve.exists():
        time.sleep(0.05)
    time.sleep(1)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("content", "problem"), [(b"no capture", "-: not a capture"), (b"", "-: byte 0: capture is empty")]
)
def test_a_comparison_calls_standard_input_as_the_user_did(content, problem):
    done = subprocess.run([*FLOWSHUNT, "compare", "-", "--json"], check=False, capture_output=True, input=content)
    assert problem in (done.stdout + done.stderr).decode()
    assert b".capture" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "arguments"), [("run", ["-"]), ("compare", ["-"]), ("compare", ["-", "-"]), ("run", ["-", "-"])]
)
def test_a_closed_standard_input_is_one_line(name, arguments):
    done = command(name, *arguments, preexec_fn=lambda: os.close(0))
    assert done.returncode == 2
    [line] = told(done)
    assert line.startswith("flowshunt: -: ")


@pytest.mark.parametrize("shape", [[], ["--json"]])
def test_figures_that_nobody_can_read_are_no_success(sample, shape):
    done = command("run", sample, *shape, preexec_fn=lambda: os.close(1))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "flowshunt: output can't be written: Bad file descriptor"


@pytest.mark.parametrize("shape", [[], ["--json"]])
def test_a_reader_of_figures_that_goes_away_ends_the_run_quietly(sample, shape):
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [*FLOWSHUNT, "run", sample, *shape], check=False, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert process.returncode == 128 + signal.SIGPIPE
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", ""], "a capture's name is empty"),
        (["run", "CAPTURE", "--eve", ""], "--eve: a file's name is empty"),
        (["run", "CAPTURE", "--eve", "x", "--eve-types", ","], "--eve-types: no event type"),
        (["compare", "CAPTURE", "--software-nic", "nope"], "no NIC model 'nope'"),
        (["run", "CAPTURE", "--set", "stream.midstream=maybe"], "neither yes nor no"),
        (["run", "CAPTURE", "--set", "classification-file=/dev/zero"], "/dev/zero: not a file"),
        (["run", "CAPTURE", "--flows", "1"], "Invalid value for '--flows'"),
        (["run", "CAPTURE", "--nic-flows", "1"], "Invalid value for '--nic-flows'"),
    ],
)
def test_what_can_not_be_meant_is_one_line(sample, arguments, line):
    result = CliRunner().invoke(main, [sample if each == "CAPTURE" else each for each in arguments])
    assert result.exit_code == 2, result.output
    assert line in result.stderr
    assert len(told(result)) == 1


def test_sizes_beyond_all_memory_are_taken_for_no_limit(sample):
    result = CliRunner().invoke(main, ["run", sample, "--json", "--set", "stream.reassembly.depth=999999999999999gb"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["run", "compare"])
def test_text_of_others_does_not_steer_the_terminal(sample, tmp_path, name):
    rules = tmp_path / "a\x1b[2J.rules"
    rules.write_text(
        'alert tcp any any -> any any (msg:"[bold]x[/red] \x1b[31mred"; sid:1;)\nalert [/red]\x1b[0m tcp (sid:2;)\n'
    )
    done = command(name, sample, "--rules", str(rules))
    assert done.returncode == 0, done.stderr
    assert "[bold]x[/red] \\x1b[31mred" in done.stdout.replace("\n", "")
    assert "\\x1b[2J.rules:2" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("setting", ["", "=", "=1", "a", ".=1", "stream.=3", "stream..memcap=3", ".stream=1"])
def test_a_setting_without_a_whole_key_is_refused(sample, setting):
    done = CliRunner().invoke(main, ["run", sample, "--set", setting])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{setting!r} is not KEY=VALUE" in done.stderr
