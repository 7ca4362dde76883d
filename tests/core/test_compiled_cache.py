"""The cache of compiled kernels: damage and full or foreign folders cost time, never a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flowshunt import cache
from flowshunt.errors import FlowshuntWarning

KERNEL = """
import sys
from numba import types
from flowshunt.compiled import c_function, kernel
@kernel(types.int64(types.int64))
def twice(x):
    return 2 * x
def thrice(x):
    return 3 * x
native = c_function(types.int64(types.int64), thrice)
assert native.address
print(twice(21), native.ctypes(14), twice.stats.cache_hits)
"""


def run_kernel(tmp_path, folder):
    script = tmp_path / "kernel_script.py"
    if not script.exists():
        script.write_text(KERNEL)
    return subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "FLOWSHUNT_CACHE": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def halve(content):
    return content[: len(content) // 2]


def flip(content):
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


@pytest.mark.parametrize("damage", [halve, flip, lambda _: b"", lambda content: os.urandom(len(content))])
@pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
def test_damaged_files_are_compiled_again(tmp_path, pattern, damage):
    folder = tmp_path / "cache"
    run_kernel(tmp_path, folder)
    files = list(folder.rglob(pattern))
    assert len(files) == 2
    for file in files:
        file.write_bytes(damage(file.read_bytes()))
    done = run_kernel(tmp_path, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["42", "42"]
    assert "Counter()" in done.stdout
    assert "Counter()" not in run_kernel(tmp_path, folder).stdout


def test_a_cache_that_is_no_folder_is_passed_over(tmp_path):
    (tmp_path / "file").write_text("")
    assert run_kernel(tmp_path, tmp_path / "file").stdout.split()[:2] == ["42", "42"]


def test_nobody_elses_folder_is_taken_for_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(cache.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "new"))
    monkeypatch.setenv("FLOWSHUNT_CACHE", "/dev/null")
    folder = tmp_path / f"flowshunt-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    cache._temporary_folder.cache_clear()
    try:
        assert cache.cache_folder() == tmp_path / "new"
        folder.chmod(0o700)
        cache._temporary_folder.cache_clear()
        assert cache.cache_folder() == folder
    finally:
        cache._temporary_folder.cache_clear()


def test_a_user_without_a_home_has_a_cache(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("FLOWSHUNT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache.cache_folder().is_dir()


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o702])
def test_a_cache_that_others_can_write_to_is_not_used(tmp_path, monkeypatch, mode):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("FLOWSHUNT_CACHE", str(folder))
    with pytest.warns(FlowshuntWarning, match="others can write"):
        assert cache.cache_folder() != folder


@pytest.mark.skipif(os.getuid() != 0, reason="needs to give a folder away")
def test_a_cache_of_another_user_is_not_used(tmp_path, monkeypatch):
    os.chown(tmp_path, 12345, 12345)
    monkeypatch.setenv("FLOWSHUNT_CACHE", str(tmp_path))
    with pytest.warns(FlowshuntWarning, match="others can write"):
        assert cache.cache_folder() != tmp_path


def test_a_new_cache_is_private_whatever_the_umask(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWSHUNT_CACHE", str(tmp_path / "deep" / "cache"))
    previous = os.umask(0)
    try:
        assert cache.cache_folder() == tmp_path / "deep" / "cache"
    finally:
        os.umask(previous)
    assert cache.cache_folder().stat().st_mode & 0o777 == 0o700
