import itertools
import textwrap
from importlib import metadata
from types import SimpleNamespace

import pytest

from flowshunt import plugins
from flowshunt.plugins import PluginSet, discover

_numbers = itertools.count()


class Environment:
    """Distributions of one module each, installed into a folder of their own."""

    def __init__(self, folder):
        self.folder = folder

    def install(self, distribution, code, *, version="1.0", plugin="plugin"):
        """Install a distribution whose plugin module has this code. Returns the module's name."""
        module = f"flowshunt_test_plugin_{next(_numbers)}"
        (self.folder / f"{module}.py").write_text(textwrap.dedent(code))
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[flowshunt]\n{plugin} = {module}\n")
        return module

    def entry_points(self):
        for distribution in metadata.distributions(path=[str(self.folder)]):
            yield from distribution.entry_points.select(group="flowshunt")

    def discover(self):
        return discover(self.entry_points())


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return Environment(tmp_path)


@pytest.fixture
def installed(environment, monkeypatch):
    """Makes what was installed into the environment the plugins of this process."""

    def use() -> PluginSet:
        monkeypatch.setattr(plugins, "metadata", SimpleNamespace(entry_points=lambda group: environment.entry_points()))
        plugins.load_plugins.cache_clear()
        return plugins.load_plugins()

    yield use
    plugins.load_plugins.cache_clear()
