"""The engine contract tests pass for sound engines, and fail for engines with one fault each."""

import importlib
from collections import Counter
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from flowshunt.engine import EngineConfig, EngineSummary
from flowshunt.plugins import load_plugins
from flowshunt.scaffold import write_plugin
from flowshunt.testing import engine_contract, examine

CONFIG = EngineConfig(settings={"max-frame": "600", "bypass-after": "3000"})


@pytest.mark.parametrize("name", load_plugins().engines)
def test_installed_engines_keep_the_contract_without_rules(name):
    assert [o for o in examine(engine_contract(load_plugins().engines[name])) if not o.passed] == []


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """The engine that `flowshunt plugins new engine` writes."""
    folder = write_plugin("engine", "spoiled", tmp_path)
    monkeypatch.syspath_prepend(str(folder / "src"))
    yield importlib.import_module("flowshunt_engine_spoiled.engine").ENGINE
    for name in ("", ".engine"):
        monkeypatch.delitem(importlib.sys.modules, f"flowshunt_engine_spoiled{name}")


class Spoiled:
    """A session with one method spoiled."""

    def __init__(self, session, method, spoil):
        self._session, self._method, self._spoil = session, method, spoil

    def __getattr__(self, name):
        method = getattr(self._session, name)
        if name != self._method:
            return method
        return lambda *arguments: self._spoil(self, method, *arguments)


def failing_claims(engine, method, spoil):
    spoiled = SimpleNamespace(
        name="spoiled", summary="s", open=lambda config: Spoiled(engine.open(config), method, spoil)
    )
    return {outcome.claim.name for outcome in examine(engine_contract(spoiled, CONFIG)) if not outcome.passed}


def test_the_engine_of_the_template_passes(engine):
    assert failing_claims(engine, "nothing", None) == set()


def edit(**edits):
    """Change fields of each verdict on a batch that has frames."""

    def spoil(session, inspect, batch):
        verdicts = inspect(batch)
        if not len(batch):
            return verdicts
        return attrs.evolve(verdicts, **{name: change(getattr(verdicts, name)) for name, change in edits.items()})

    return spoil


def edit_alerts(**changes):
    return edit(alerts=lambda alerts: [attrs.evolve(alert, **changes) for alert in alerts])


def skip_everything(session, inspect, batch):
    verdicts = inspect(batch)
    return attrs.evolve(verdicts, disposition=np.full(len(batch), 2, np.uint8))


def bypass_always(session, inspect, batch):
    verdicts = inspect(batch)
    slots = np.unique(batch.slot[batch.slot >= 0]).astype(np.int32)
    return attrs.evolve(verdicts, bypass_slot=slots, bypass_request=np.zeros(len(slots), np.uint16))


def alert_once_a_batch(session, inspect, batch):
    verdicts = inspect(batch)
    return attrs.evolve(verdicts, alerts=verdicts.alerts[:1])


def fail_on_malformed(session, inspect, batch):
    if (batch.headers["flags"] & 0xC).any():
        raise ValueError("malformed")
    return inspect(batch)


def keep_a_view(session, inspect, batch):
    """Judge each batch by the bytes of the one before."""
    before = session.__dict__.setdefault("kept", None)
    session.kept = batch.frames
    verdicts = inspect(batch)
    if before is None or not len(before) or before.data[before.offset[0]] != 0xA5:
        return verdicts
    return attrs.evolve(verdicts, alerts=())


SHARED = Counter()


def share_state(session, inspect, batch):
    """Forget an alert once two sessions have seen it."""
    verdicts = inspect(batch)
    fresh = []
    for alert in verdicts.alerts:
        SHARED[alert.timestamp] += 1
        if SHARED[alert.timestamp] % 2:
            fresh.append(alert)
    return attrs.evolve(verdicts, alerts=fresh)


FAULTS = {
    "no Verdicts": ("inspect", lambda session, inspect, batch: None, "verdicts-are-well-formed"),
    "a disposition too few": ("inspect", edit(disposition=lambda c: c[1:]), "verdicts-are-well-formed"),
    "dispositions of another type": (
        "inspect",
        edit(disposition=lambda c: c.astype(np.int64)),
        "verdicts-are-well-formed",
    ),
    "a disposition without meaning": (
        "inspect",
        edit(disposition=lambda c: c + np.uint8(3)),
        "verdicts-are-well-formed",
    ),
    "frames skipped of flows that go on": ("inspect", skip_everything, "verdicts-are-well-formed"),
    "a flow bypassed twice": (
        "inspect",
        edit(bypass_slot=lambda c: np.repeat(c, 2), bypass_request=lambda c: np.repeat(c, 2)),
        "verdicts-are-well-formed",
    ),
    "a slot out of range": ("inspect", edit(bypass_slot=lambda c: c + np.int32(1 << 20)), "verdicts-are-well-formed"),
    "a slot without a flow": ("inspect", edit(bypass_slot=lambda c: c + np.int32(500)), "verdicts-are-well-formed"),
    "a request that is not there": ("inspect", edit(requests=lambda c: ()), "verdicts-are-well-formed"),
    "an alert on another batch's row": ("inspect", edit_alerts(row=1 << 20), "verdicts-are-well-formed"),
    "an alert on another flow": ("inspect", edit_alerts(slot=999), "verdicts-are-well-formed"),
    "alerts out of order": ("inspect", edit(alerts=lambda a: a[::-1]), "verdicts-are-well-formed"),
    "alerts at the end that belong nowhere": (
        "close",
        lambda session, close, *how: attrs.evolve(close(*how), disposition=np.zeros(3, np.uint8)),
        "verdicts-are-well-formed",
    ),
    "bypass although it is off": ("inspect", bypass_always, "without-bypass-every-frame-is-inspected"),
    "alerts by the batch": ("inspect", alert_once_a_batch, "alerts-do-not-depend-on-the-cut"),
    "malformed frames raise": ("inspect", fail_on_malformed, "hostile-frames-are-only-frames"),
    "a view is kept": ("inspect", keep_a_view, "no-view-of-a-batch-is-kept"),
    "sessions share state": ("inspect", share_state, "sessions-share-nothing"),
    "no summary": ("summary", lambda session, summary: {}, "opens-and-says-what-it-loaded"),
    "a counter that is no number": (
        "summary",
        lambda session, summary: EngineSummary(counters={"a": 1.5}),
        "opens-and-says-what-it-loaded",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_the_claim_that_it_breaks(engine, fault):
    method, spoil, claim = FAULTS[fault]
    SHARED.clear()
    assert claim in failing_claims(engine, method, spoil)


def test_an_engine_that_overlooks_a_missing_rule_file_is_caught(engine):
    lax = SimpleNamespace(name="lax", summary="s", open=lambda config: engine.open(attrs.evolve(config, rules=())))
    failed = {outcome.claim.name for outcome in examine(engine_contract(lax, CONFIG)) if not outcome.passed}
    assert failed == {"a-missing-rule-file-is-refused"}
