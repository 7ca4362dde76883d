"""The layer that keeps the parsers: what a wrong parser does to the run, and what flows keep."""

import warnings

import numpy as np
import pytest

from flowshunt.errors import FlowshuntWarning
from flowshunt.flows.record import FLOW
from flowshunt_ids.app.contract import AppProtocol, DetectionPattern, Transaction
from flowshunt_ids.app.flows import Outcome
from flowshunt_ids.app.layer import FAILED, MAX_TRANSACTIONS, AppLayer
from flowshunt_ids.layout import SEGMENT_END, SEGMENT_LOOK, SEGMENT_TO_CLIENT

FLOWS = np.zeros(1, FLOW)
FLOWS["protocol"] = 6


class Toy:
    """A transaction for each byte; it raises at `!`."""

    def __init__(self, context):
        self.transactions = []
        self.bypass = False
        self.becomes = None
        self.count = 0

    def data(self, direction, data):
        for letter in data:
            if letter == ord("!"):
                raise ValueError("bad byte")
            if letter == ord(">"):
                self.becomes = "other"
            if letter == ord("#"):
                self.bypass = True
            made = Transaction(self.count)
            self.count += 1
            made.progress = [1, 1]
            self.transactions.append(made)

    def gap(self, direction, size):
        raise ValueError("bad gap")

    def end(self, direction):
        pass


def protocol(name, first):
    return AppProtocol(name, Toy, (1, 1), patterns=(DetectionPattern(first),))


def layer():
    protocols = {each.name: each for each in (protocol("toy", b"T"), protocol("other", b"O"))}
    return AppLayer(protocols, {}, frozenset(protocols), settings=lambda each: {}, ports={})


def give(mine, *pieces):
    outcome = Outcome()
    for flags, data in pieces:
        mine.run(
            [(0, 0, 0, 0, len(data), 0, 0, 0, flags)], data, FLOWS, lambda slot, direction: lambda rule: True, outcome
        )
    return outcome


def test_a_parser_that_raises_is_left_out_and_the_run_goes_on():
    mine = layer()
    with pytest.warns(FlowshuntWarning, match="the parser of toy raised ValueError: bad byte"):
        give(mine, (0, b"T!"))
    assert mine.protocol_of(0) == FAILED
    assert mine.counters["parser_errors"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        give(mine, (0, b"more"), (SEGMENT_LOOK | SEGMENT_END, b""))


def test_a_flow_keeps_no_more_than_its_share_of_transactions():
    mine = layer()
    give(mine, *[(0, b"T" * 100)] * 100)
    assert mine.counters["transactions_given_up"] == 10_000 - MAX_TRANSACTIONS


def test_transactions_that_both_directions_looked_at_are_dropped():
    mine = layer()
    give(mine, (0, b"TTT"), (SEGMENT_LOOK, b""), (SEGMENT_LOOK | SEGMENT_TO_CLIENT, b""))
    assert mine.counters["transactions"] == 3


def test_a_protocol_may_be_followed_by_another():
    mine = layer()
    give(mine, (0, b"T>"))
    assert mine.protocol_of(0) == "toy"
    give(mine, (0, b"anything"))
    assert mine.protocol_of(0) == "other"


def test_what_nobody_recognizes_is_stopped():
    mine = layer()
    outcome = give(mine, (0, b"x" * 50), (SEGMENT_TO_CLIENT, b"y" * 50))
    assert outcome.stop == [0]
    assert mine.protocol_of(0) == FAILED
    mine.forget([0])
    assert mine.protocol_of(0) == ""


def test_a_flow_whose_rest_is_of_no_interest_is_stopped_once_all_was_looked_at():
    mine = layer()
    outcome = give(mine, (0, b"T#"), (SEGMENT_LOOK, b""))
    assert [wish[0] for wish in outcome.wishes] == [0] and outcome.wishes[0][3].bypass
    assert outcome.stop == []
    outcome = give(mine, (SEGMENT_LOOK | SEGMENT_TO_CLIENT, b""), (0, b"more"), (SEGMENT_LOOK, b""))
    assert outcome.wishes == [] and outcome.stop == [0]
    assert mine.protocol_of(0) == "toy"
