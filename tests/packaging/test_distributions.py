"""Every folder with a pyproject.toml is a distribution that builds a wheel and installs alone."""

import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = [ROOT, ROOT / "core", *sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))]
PLUGINS = [folder for folder in PROJECTS if folder.parent.name == "plugins"]


def project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def own_requirements(folder):
    names = {canonicalize_name(Requirement(text).name) for text in project(folder).get("dependencies", ())}
    return {name for name in names if name.startswith("flowshunt")}


@pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)
def test_a_wheel_is_built(wheels, folder):
    name = project(folder)["name"].replace("-", "_")
    (wheel,) = wheels.glob(f"{name}-[0-9]*.whl")
    files = zipfile.ZipFile(wheel).namelist()
    packages = {path.name for path in (folder / "src").glob("*") if (path / "__init__.py").exists()}
    assert {file.split("/")[0] for file in files if ".dist-info" not in file} == packages
    for package in packages:
        assert f"{package}/py.typed" in files


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_installs_alone_with_the_core_and_is_found(new_environment, folder):
    environment = new_environment()
    name = project(folder)["name"]
    environment.install(name)
    found, left_out = environment.plugins()
    assert left_out == []
    assert name in found
    assert set(found) == {name} | (own_requirements(folder) - {"flowshunt-core"})


def test_the_core_installs_alone(new_environment):
    environment = new_environment()
    environment.install("flowshunt-core")
    assert environment.plugins() == ({}, [])
    assert "Commands:" in environment.flowshunt("--help").stdout


@pytest.mark.parametrize("extras", ["", "[ids]", "[napatech]", "[ebpf]", "[all]"])
def test_the_bundle_installs_with_its_extras(new_environment, extras):
    environment = new_environment()
    environment.install(f"flowshunt{extras}")
    found, left_out = environment.plugins()
    assert left_out == []
    assert {"flowshunt-ids", "flowshunt-nic-generic", "flowshunt-nic-napatech", "flowshunt-offload-actions"} <= set(
        found
    )
    if extras == "[all]":
        assert set(found) == {project(folder)["name"] for folder in PLUGINS}


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_requires_no_other_than_it_may(folder):
    allowed = {"flowshunt-core"} | ({"flowshunt-ebpf"} if folder.name.startswith("nic_") else set())
    allowed |= {"flowshunt-ids"} if folder.name.startswith("ids_") else set()
    assert "flowshunt-core" in own_requirements(folder)
    assert own_requirements(folder) <= allowed


def test_the_bundle_names_every_plugin():
    bundle = project(ROOT)
    texts = [*bundle["dependencies"], *(text for extra in bundle["optional-dependencies"].values() for text in extra)]
    named = {canonicalize_name(Requirement(text).name) for text in texts}
    assert {project(folder)["name"] for folder in PLUGINS} <= named
