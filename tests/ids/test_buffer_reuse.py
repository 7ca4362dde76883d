"""The engine keeps no view of a batch's buffer: alerts are the same where every burst overwrites the one before."""

from collections import Counter
from pathlib import Path

import attrs
import pytest

from flowshunt.packets.sample import write_sample
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.run import RunConfig, run
from flowshunt_ids.engine import IdsEngine
from flowshunt_nic_generic.model import XL710


@pytest.mark.parametrize("burst", [64, 500])
def test_alerts_do_not_depend_on_where_frames_lie(tmp_path, burst):
    path = tmp_path / "sample.pcap"
    planted = Counter(alert.sid for alert in write_sample(path, flows=300).planted)
    for zero_copy in (True, False):
        config = RunConfig(
            captures=(str(path),),
            model=attrs.evolve(XL710, zero_copy=zero_copy),
            engine=IdsEngine(),
            mode=BypassMode.OFF,
            actions={},
            rules=(Path(f"{path}.rules"),),
            burst=burst,
        )
        assert {s.sid: n for s, n in run(config).alerts.items()} == planted
