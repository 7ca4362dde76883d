"""The committed objects are what Debian 12's compiler makes of the sources beside them."""

import shutil
import subprocess

import pytest


def test_compiling_anew_gives_the_same_bytes(objects):
    if shutil.which("clang-14") is None or shutil.which("llvm-strip-14") is None or shutil.which("make") is None:
        pytest.skip("needs clang-14, llvm-strip-14 and make")
    version = subprocess.run(["clang-14", "--version"], capture_output=True, text=True, check=True).stdout
    if "14.0.6" not in version:
        pytest.skip("clang-14 is not Debian 12's 14.0.6")
    found = subprocess.run(["make", "-C", str(objects), "check"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
