"""A stranger's plugin of each kind: written, installed, checked and used from the command line; broken ones too."""

import json
import struct
import sys
import textwrap

import pytest

from flowshunt.testing.traffic import conversations

pytestmark = pytest.mark.slow

KINDS = {
    "nic": "NIC model",
    "action": "offload action",
    "operation": "extended operation",
    "engine": "detection engine",
}


@pytest.fixture(scope="module")
def environment(new_environment):
    """A clean environment with the bundle and one new plugin of each kind, installed."""
    made = new_environment()
    made.install("flowshunt")
    sources = made.folder / "sources"
    for kind in KINDS:
        made.flowshunt("plugins", "new", kind, f"my-{kind}", "--dir", sources)
    made.install(*sorted(sources.iterdir()))
    return made


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A small capture file."""
    frames = conversations(40).frames
    path = tmp_path_factory.mktemp("capture") / "small.pcap"
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 0x40000, 1))
        for row in range(len(frames)):
            seconds, rest = divmod(int(frames.timestamp[row]), 1_000_000_000)
            data = frames.frame(row)
            out.write(struct.pack("<IIII", seconds, rest, len(data), len(data)) + data)
    return path, len(frames)


def test_they_are_found(environment):
    found, left_out = environment.plugins()
    assert left_out == []
    assert found["flowshunt-nic-my-nic"]["gives"]["nic_models"].keys() == {"my-nic"}
    assert found["flowshunt-action-my-action"]["gives"]["actions"].keys() == {"my-action"}
    assert found["flowshunt-einsn-my-operation"]["gives"]["operations"].keys() == {"my-operation"}
    assert found["flowshunt-engine-my-engine"]["gives"]["engines"].keys() == {"my-engine"}


@pytest.mark.parametrize("kind", KINDS)
def test_they_keep_their_contract(environment, kind):
    done = environment.flowshunt("plugins", "check", f"my-{kind}")
    assert done.stdout.startswith(f"{KINDS[kind]} my-{kind} (flowshunt-")
    assert done.stdout.splitlines()[-1].endswith("claims hold, 0 do not")


@pytest.mark.parametrize("kind", KINDS)
def test_they_can_be_shown(environment, kind):
    assert f"{KINDS[kind]} my-{kind}" in environment.flowshunt("plugins", "show", f"my-{kind}").stdout


def test_their_own_tests_pass(environment, run):
    folders = sorted((environment.folder / "sources").iterdir())
    done = run(
        environment.python,
        "-m",
        "pytest",
        "-q",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        *folders,
        cwd=environment.folder,
        FLOWSHUNT_CACHE=str(environment.folder / "cache"),
    )
    assert " passed" in done.stdout


def test_what_is_written_is_clean(environment, run):
    """Linted, formatted and typed as strictly as our own."""
    folders = sorted((environment.folder / "sources").iterdir())
    run(sys.executable, "-m", "ruff", "check", "--no-cache", *folders)
    run(sys.executable, "-m", "ruff", "format", "--no-cache", "--check", *folders)
    typed = ("--strict", "--cache-dir", environment.folder / "mypy", "--python-executable", environment.python)
    run(sys.executable, "-m", "mypy", *typed, *(folder / "src" for folder in folders))


def figures(environment, capture, *arguments):
    return json.loads(environment.flowshunt("run", capture[0], "--json", *arguments).stdout)


def test_their_nic_and_engine_run_a_capture(environment, capture):
    settings = ("--engine", "my-engine", "--set", "max-frame=1000", "--set", "bypass-after=3000", "--burst", "64")
    data = figures(environment, capture, "--nic", "my-nic", "--bypass", "software", *settings)
    assert data["nic"] == "my-nic"
    assert data["engine"] == "my-engine"
    assert data["total"]["frames"] == capture[1]
    assert data["delivered"]["frames"] == capture[1]
    assert data["bypassed_in_host"]["frames"] > 0
    assert data["bypassed_in_host"]["frames"] + data["inspected"]["frames"] == capture[1]
    assert sum(alert["count"] for alert in data["alerts"]) > 0


def test_their_action_acts_in_a_nic_of_ours(environment, capture):
    settings = ("--engine", "my-engine", "--set", "bypass-after=1000", "--burst", "64")
    data = figures(environment, capture, "--nic", "nt200a02", "--bypass-action", "my-action:frames=2", *settings)
    assert data["bypassed_by_action"]["my-action"]["frames"] > 0
    assert data["total"]["frames"] == capture[1]


def write_broken(folder, name, code):
    package = name.replace("-", "_")
    (folder / name / package).mkdir(parents=True)
    (folder / name / package / "__init__.py").write_text("")
    (folder / name / package / "plugin.py").write_text(textwrap.dedent(code))
    (folder / name / "pyproject.toml").write_text(
        textwrap.dedent(f"""
            [build-system]
            requires = ["hatchling"]
            build-backend = "hatchling.build"
            [project]
            name = "{name}"
            version = "0.7"
            [project.entry-points.flowshunt]
            {package} = "{package}.plugin"
            """)
    )
    return folder / name


BROKEN = {
    "flowshunt-broken-import": ("import no_such_module_at_all", "No module named 'no_such_module_at_all'"),
    "flowshunt-broken-hook": (
        """
        from flowshunt import hookimpl
        @hookimpl
        def flowshunt_nic_models():
            raise SystemExit("no card found")
        """,
        "flowshunt_nic_models raised SystemExit: no card found",
    ),
    "flowshunt-broken-type": (
        """
        from flowshunt import hookimpl
        @hookimpl
        def flowshunt_detection_engines():
            return ["an engine"]
        """,
        "has no name",
    ),
    "flowshunt-unknown-hook": (
        """
        from flowshunt import hookimpl
        @hookimpl
        def flowshunt_network_cards():
            return []
        """,
        "flowshunt_network_cards, which nothing installed specifies",
    ),
    "flowshunt-zz-duplicate": (
        """
        from flowshunt import hookimpl
        from flowshunt_offload_actions.actions import ACTIONS
        @hookimpl
        def flowshunt_offload_actions():
            return ACTIONS
        """,
        "the name drop is taken by flowshunt-offload-actions",
    ),
}


@pytest.fixture(scope="module")
def with_broken(environment):
    folder = environment.folder / "broken"
    environment.install(*(write_broken(folder, name, code) for name, (code, _) in BROKEN.items()))
    return environment


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_named_with_the_reason(with_broken, name):
    found, left_out = with_broken.plugins()
    reasons = [item["reason"] for item in left_out if item["distribution"] == name and item["version"] == "0.7"]
    assert any(BROKEN[name][1] in reason for reason in reasons), reasons
    assert not any(found.get(name, {}).get("gives", {}).values())


def test_the_rest_works_beside_broken_plugins(with_broken, capture):
    done = with_broken.flowshunt(
        "run", capture[0], "--json", "--nic", "my-nic", "--engine", "my-engine", "--bypass", "off"
    )
    assert json.loads(done.stdout)["total"]["frames"] == capture[1]
    warned = done.stderr.splitlines()
    for name in BROKEN:
        assert any(line.startswith("flowshunt: warning: ") and f"{name} 0.7" in line for line in warned)
