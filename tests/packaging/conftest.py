"""Clean environments for packaging tests: our wheels, and the dependencies of the running environment, linked in.

Nothing is fetched: pip resolves against what is linked and the wheels that were built here.
"""

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = [ROOT, ROOT / "core", *sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))]


def clean_environment(**more):
    """Variables for subprocesses: no pip configuration, and no place that Python is told to import from."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON")) and k != "VIRTUAL_ENV"}
    return {**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


def run(*command, status=0, cwd=None, **variables):
    """Run a command; returns it done. Fails the test where the exit status is another."""
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env=clean_environment(**variables),
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == status, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


class CleanEnvironment:
    """A virtual environment that has the dependencies of the running one, and nothing of flowshunt."""

    def __init__(self, folder, wheels):
        venv.create(folder, with_pip=False)
        self.folder = folder
        self.wheels = wheels
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.bin / "python"
        paths = "import sysconfig; print(sysconfig.get_path('purelib'))"
        target = Path(run(self.python, "-c", paths).stdout.strip())
        for kind in ("purelib", "platlib"):
            for entry in Path(sysconfig.get_path(kind)).iterdir():
                ours = "flowshunt" in entry.name.lower() or entry.suffix == ".pth" or entry.name == "__pycache__"
                if not ours and not (target / entry.name).exists():
                    (target / entry.name).symlink_to(entry)

    def install(self, *what):
        """Install requirements or folders with pip, from our wheels alone."""
        own = ("--no-index", "--no-build-isolation", "--find-links", self.wheels)
        run(sys.executable, "-m", "pip", "--python", self.python, "install", "-q", *own, *what)

    def flowshunt(self, *arguments, status=0, cwd=None):
        """Run the command."""
        cache = self.folder / "cache"
        return run(
            self.bin / "flowshunt", *arguments, status=status, cwd=cwd or self.folder, FLOWSHUNT_CACHE=str(cache)
        )

    def plugins(self):
        """What `flowshunt plugins --json` says: distributions in use, and what is left out."""
        data = json.loads(self.flowshunt("plugins", "--json").stdout)
        return {plugin["distribution"]: plugin for plugin in data["plugins"]}, data["left_out"]


@pytest.fixture(name="run", scope="session")
def run_fixture():
    """Run a command in a clean environment."""
    return run


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """Wheels of every distribution of the workspace."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.fail("hatchling is not installed: 'make setup-dev' installs all that the tests need")
    folder = tmp_path_factory.mktemp("wheels")
    own = ("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", "-q", *own, *PROJECTS)
    return folder


@pytest.fixture(scope="module")
def new_environment(tmp_path_factory, wheels):
    """Makes clean environments."""
    return lambda: CleanEnvironment(tmp_path_factory.mktemp("environment"), wheels)
