"""The three actions do what their summaries say, on frames, through the reference interpreter of fragments."""

import numpy as np
import pytest

from flowshunt.action import DESCRIPTOR, HOST, NO_PORT, STATE_BYTES, TRANSMIT, OffloadAction
from flowshunt.fragments import constant_outcome, run_fragment
from flowshunt_offload_actions.actions import ACTIONS, DROP, FORWARD, REDIRECT


def _carried_out(action: OffloadAction, descriptors: np.ndarray, **parameters: int) -> np.ndarray:
    states = np.zeros((len(descriptors), STATE_BYTES), np.uint8)
    return run_fragment(action.fragment(action.check(parameters)), descriptors, states)


def _descriptors(*peers: int) -> np.ndarray:
    descriptors = np.zeros(len(peers), DESCRIPTOR)
    descriptors["peer_port"] = peers
    descriptors["tx_port"] = NO_PORT
    return descriptors


def test_drop_neither_delivers_nor_transmits():
    assert _carried_out(DROP, _descriptors(1)).tolist() == [0]
    assert constant_outcome(DROP.fragment({})).disposition == 0


def test_forward_sends_by_the_peer_port_and_without_one_delivers():
    descriptors = _descriptors(1, 0, NO_PORT)
    assert _carried_out(FORWARD, descriptors).tolist() == [TRANSMIT, TRANSMIT, HOST]
    assert descriptors["tx_port"].tolist() == [1, 0, NO_PORT]


def test_forward_to_a_given_port_depends_on_no_frame():
    outcome = constant_outcome(FORWARD.fragment(FORWARD.check({"port": 3})))
    assert (outcome.disposition, outcome.tx_port) == (TRANSMIT, 3)


def test_redirect_chooses_the_host_buffer():
    descriptors = _descriptors(1)
    assert _carried_out(REDIRECT, descriptors, host_buffer=77).tolist() == [HOST]
    assert descriptors["host_buffer"].tolist() == [77]


@pytest.mark.parametrize(
    ("action", "parameters"),
    [(REDIRECT, {}), (REDIRECT, {"host_buffer": 128}), (DROP, {"port": 1}), (FORWARD, {"port": -1})],
)
def test_wrong_parameters_are_refused_by_name(action, parameters):
    with pytest.raises(ValueError, match=action.name):
        action.check(parameters)


def test_names_are_distinct():
    assert len({action.name for action in ACTIONS}) == len(ACTIONS)
