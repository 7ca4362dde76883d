"""`flowshunt plugins`: list, show, new, check."""

import json
import os
import stat

import pytest
from click.testing import CliRunner

from flowshunt.cli import main

SOUND = """
from flowshunt import hookimpl
from flowshunt.action import OffloadAction, Parameter
from flowshunt.insn import R0, mov64_imm

def hold(parameters):
    return (mov64_imm(R0, parameters["how"]),)

@hookimpl
def flowshunt_offload_actions():
    return [
        OffloadAction("hold", "hold it", hold, (Parameter("how", "how", 0, 1, 1),)),
        OffloadAction("let-go", "let it go", lambda parameters: (mov64_imm(R0, 1),)),
    ]
"""

UNSOUND = """
from flowshunt import hookimpl
from flowshunt.action import OffloadAction
from flowshunt.insn import exit_

@hookimpl
def flowshunt_offload_actions():
    return [OffloadAction("leave", "leaves", lambda parameters: (exit_(),)), "not an action"]
"""


def run(*arguments):
    return CliRunner().invoke(main, ["plugins", *arguments])


@pytest.fixture
def two_plugins(environment, installed):
    environment.install("flowshunt-good", SOUND, version="1.2", plugin="good")
    environment.install("flowshunt-bad", "import no_such_module_at_all", version="0.1", plugin="bad")
    installed()


@pytest.fixture
def unsound(environment, installed):
    environment.install("flowshunt-odd", UNSOUND, plugin="odd")
    installed()


pytestmark = pytest.mark.filterwarnings("ignore::flowshunt.errors.FlowshuntWarning")


@pytest.mark.parametrize("arguments", [(), ("list",)])
def test_the_list_names_what_each_gives_and_what_was_left_out(two_plugins, arguments):
    result = run(*arguments)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:4] == ["flowshunt-good 1.2", "  offload actions: hold, let-go", "left out:", lines[3]]
    assert lines[3].startswith(
        "  flowshunt-bad 0.1, plugin bad: ModuleNotFoundError: No module named 'no_such_module_at_all'"
    )


@pytest.mark.parametrize("arguments", [("--json",), ("list", "--json")])
def test_the_list_as_json(two_plugins, arguments):
    data = json.loads(run(*arguments).stdout)
    (plugin,) = data["plugins"]
    assert plugin["distribution"] == "flowshunt-good"
    assert plugin["version"] == "1.2"
    assert plugin["gives"] == {"actions": {"hold": "hold it", "let-go": "let it go"}}
    (left_out,) = data["left_out"]
    assert (left_out["distribution"], left_out["version"], left_out["what"]) == ("flowshunt-bad", "0.1", "plugin bad")


def test_nothing_installed(environment, installed):
    installed()
    result = run()
    assert (result.exit_code, result.stdout) == (0, "no plugin is installed\n")


@pytest.mark.parametrize("name", ["flowshunt-good", "Flowshunt_Good", "good"])
def test_show_a_distribution_or_plugin(two_plugins, name):
    result = run("show", name)
    assert result.exit_code == 0
    assert "flowshunt-good 1.2" in result.stdout
    assert "offload action hold: hold it" in result.stdout


def test_show_an_object(two_plugins):
    result = run("show", "hold")
    assert result.stdout.splitlines() == [
        "offload action hold (flowshunt-good 1.2)",
        "  hold it",
        "  parameter how: how (0 to 1, default 1)",
    ]
    (thing,) = json.loads(run("show", "hold", "--json").stdout)["objects"]
    assert thing["parameters"] == [{"name": "how", "summary": "how", "minimum": 0, "maximum": 1, "default": 1}]


@pytest.mark.parametrize("name", ["bad", "flowshunt-bad"])
def test_show_what_was_left_out(two_plugins, name):
    result = run("show", name)
    assert result.exit_code == 0
    assert "left out: plugin bad of flowshunt-bad 0.1: ModuleNotFoundError" in result.stdout


@pytest.mark.parametrize("command", ["show", "check"])
def test_an_unknown_name_is_answered_with_the_names_there_are(two_plugins, command):
    result = run(command, "nosuch")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        "flowshunt: nothing is called 'nosuch' (installed: flowshunt-good, hold, let-go)"
    )


@pytest.mark.parametrize(("name", "claims"), [("hold", 5), ("good", 10), ("flowshunt-good", 10)])
def test_check_runs_every_claim(two_plugins, name, claims):
    result = run("check", name)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("  ok      ") == claims
    assert result.stdout.splitlines()[-1] == f"{claims} claims hold, 0 do not"


def test_check_says_which_claim_fails_and_why(unsound):
    result = run("check", "leave")
    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert "calls and exits are not allowed" in result.stdout


def test_check_of_a_plugin_counts_what_was_left_out_of_it(unsound):
    result = run("check", "odd")
    assert result.exit_code == 1
    assert "left out: offload action number 2 of plugin odd of flowshunt-odd 1.0" in result.stdout
    data = json.loads(run("check", "odd", "--json").stdout)
    assert {row["name"] for row in data["claims"]} == {"leave"}
    assert any(not row["passed"] and row["reason"] for row in data["claims"])
    assert len(data["left_out"]) == 1


def test_check_of_a_plugin_that_was_left_out_fails(two_plugins):
    result = run("check", "bad")
    assert result.exit_code == 1
    assert "no_such_module_at_all" in result.stdout


COMMAND = """
import click
from flowshunt import hookimpl

@hookimpl
def flowshunt_cli_commands():
    return [click.Command("extra", help="More.")]
"""


@pytest.mark.parametrize("name", ["extra", "flowshunt-more"])
def test_what_has_no_contract_has_no_claims(environment, installed, name):
    environment.install("flowshunt-more", COMMAND)
    installed()
    result = run("check", name)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"{name} gives nothing that has a contract", "0 claims hold, 0 do not"]


def test_check_needs_no_pytest(two_plugins, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pytest", None)
    assert run("check", "good").exit_code == 0


KINDS = ["nic", "nic-model", "action", "operation", "extended-operation", "engine"]


@pytest.mark.parametrize("kind", KINDS)
def test_new_writes_a_distribution(tmp_path, kind, environment, installed):
    installed()
    result = run("new", kind, "my-own", "--dir", str(tmp_path / "made"))
    assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "made").iterdir()
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"pyproject.toml", "README.md"} <= names
    assert any(name.startswith("tests/test_my_own") for name in names)
    assert any(name.endswith("/plugin.py") for name in names)
    texts = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert "$" not in texts.replace("$ ", "")


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("nic", "My-NIC", "'My-NIC' can't be a plugin's name"),
        ("nic", "9lives", "can't be a plugin's name"),
        ("nic", "a--b", "can't be a plugin's name"),
        ("nic", "a-", "can't be a plugin's name"),
        ("nic", "../evil", "can't be a plugin's name"),
        ("nic", "a" * 41, "can't be a plugin's name"),
        ("nic", "", "can't be a plugin's name"),
        ("card", "mine", "there is no kind of plugin 'card' (choose one of nic, action, operation, engine)"),
        ("action", "hold", "flowshunt-good has the offload action hold already"),
    ],
)
def test_new_refuses_what_can_not_work(tmp_path, two_plugins, kind, name, says):
    result = run("new", kind, name, "--dir", str(tmp_path / "made"))
    assert result.exit_code == 2
    assert says in result.stderr
    assert not (tmp_path / "made").exists()


def test_new_touches_no_folder_that_exists(tmp_path, environment, installed):
    installed()
    (tmp_path / "flowshunt-nic-mine").mkdir()
    result = run("new", "nic", "mine", "--dir", str(tmp_path))
    assert result.exit_code == 2
    assert "it exists already" in result.stderr
    assert list((tmp_path / "flowshunt-nic-mine").iterdir()) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_new_in_a_folder_that_can_not_be_written_is_one_line(tmp_path, environment, installed):
    installed()
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    result = run("new", "nic", "mine", "--dir", str(tmp_path))
    assert result.exit_code == 2
    assert "Permission denied" in result.stderr


def test_new_below_a_file_is_one_line(tmp_path, environment, installed):
    installed()
    (tmp_path / "file").write_text("")
    result = run("new", "nic", "mine", "--dir", str(tmp_path / "file" / "deeper"))
    assert result.exit_code == 2
    assert "Not a directory" in result.stderr
