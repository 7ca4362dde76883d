import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from plain_packets import read_packets

from flowshunt.packets.sample import write_sample


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """The sample that `flowshunt sample` writes without options."""
    return write_sample(tmp_path_factory.mktemp("sample") / "sample.pcap")


@pytest.fixture(scope="module")  # some hundred megabytes
def packets(sample):
    """All of its packets, parsed in plain Python."""
    return list(read_packets(sample.capture))
