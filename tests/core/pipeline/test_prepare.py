"""Kernels are compiled ahead once for the sources as they are, whatever becomes of the process that helps."""

import subprocess
import sys

from marker_engine import MarkerEngine

from flowshunt.pipeline.prepare import compiled_kernels
from flowshunt.plugins import engine
from flowshunt_nic_napatech.model import NT200A02


def test_the_second_time_nothing_is_compiled():
    code = (
        "from flowshunt.pipeline.prepare import compiled_kernels\n"
        "from flowshunt.plugins import engine, nic_model\n"
        "for _ in range(2):\n"
        "    with compiled_kernels(engine('ids'), [nic_model('nt200a02')]) as compiling:\n"
        "        print(compiling)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "False"


def test_an_engine_that_the_helping_process_does_not_find_does_no_harm(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWSHUNT_CACHE", str(tmp_path))
    with compiled_kernels(MarkerEngine(), [NT200A02]) as compiling:
        assert compiling
    with compiled_kernels(MarkerEngine(), [NT200A02]) as compiling:
        assert compiling


def test_an_interrupt_ends_the_helping_process(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWSHUNT_CACHE", str(tmp_path))
    started = []
    popen = subprocess.Popen

    def noted(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    try:
        with compiled_kernels(engine("ids"), [NT200A02]):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    (child,) = started
    assert child.returncode is not None
