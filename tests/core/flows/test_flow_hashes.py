"""The hashes: SipHash for the table, the symmetric hash and Toeplitz for receive queues."""

import ipaddress
import subprocess
import sys

import attrs
import numba
import numpy as np
import pytest
from flow_frames import ESP, ICMP, SCTP, TCP, UDP, Fragment, Packet, batch_of, reply
from flow_traffic import relaxed, traffic
from hypothesis import given
from hypothesis import strategies as st

from flowshunt.flows.hashing import SYMMETRIC_RSS_KEY, symmetric_hash, toeplitz_hash
from flowshunt.flows.siphash import flow_hash, hash_key
from flowshunt.flows.table import FlowTable

MASK = (1 << 64) - 1


# SipHash


def plain_siphash(compressions, finalizations, k0, k1, words):
    """SipHash-c-d over 64-bit words, from the paper; the last word is the one that would hold the length."""

    def rotate(value, by):
        return ((value << by) | (value >> (64 - by))) & MASK

    def rounds(v, count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[1]) & MASK
            v[0] = (v[0] + v[3]) & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = rotate(v[2], 32)

    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    for word in words:
        v[3] ^= word
        rounds(v, compressions)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(v, finalizations)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@numba.njit(numba.uint64(*[numba.uint64] * 8))
def compiled_hash(k0, k1, s0, s1, d0, d1, ends, kind):
    return flow_hash(k0, k1, s0, s1, d0, d1, ends, kind)


def test_the_plain_siphash_gives_the_vector_of_the_paper():
    key = bytes(range(16))
    message = bytes(range(15)) + bytes([15])
    words = [int.from_bytes(message[at : at + 8], "little") for at in (0, 8)]
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    assert plain_siphash(2, 4, k0, k1, words) == 0xA129CA6149BE45E5


words64 = st.one_of(st.integers(0, MASK), st.integers(0, 3))
words32 = st.one_of(st.integers(0, 0xFFFFFFFF), st.integers(0, 3))
ports = st.one_of(st.integers(0, 0xFFFF), st.integers(0, 1))


@relaxed
@given(words64, words64, st.tuples(*[words64] * 4), st.tuples(ports, ports), words32, st.sampled_from([4, 6]))
def test_the_flow_hash_is_siphash_of_the_key_with_its_lower_end_first(k0, k1, addresses, ports, vlans, version):
    if version == 4:
        addresses = (addresses[0] & 0xFFFFFFFF, 0, addresses[2] & 0xFFFFFFFF, 0)
    source, destination = (*addresses[:2], ports[0]), (*addresses[2:], ports[1])
    kind = TCP | version << 8
    low, high = sorted([source, destination])
    ends = low[2] | high[2] << 16 | vlans << 32
    words = [low[0] | high[0] << 32] if version == 4 else [*low[:2], *high[:2]]
    expected = plain_siphash(1, 3, k0, k1, [*words, ends, kind]) & 0xFFFFFFFF
    for one, other in ((source, destination), (destination, source)):
        ends = one[2] | other[2] << 16 | vlans << 32
        arguments = [k0, k1, *one[:2], *other[:2], ends, kind]
        assert compiled_hash(*(np.uint64(word) for word in arguments)) == expected


def test_every_seed_gives_a_key_of_its_own():
    keys = {hash_key(seed) for seed in [*range(1000), -1, 1 << 63]}
    assert len(keys) == 1002


def test_flows_that_collide_under_one_seed_do_not_under_another():
    k0, k1 = hash_key(0)
    kind = TCP | 4 << 8
    colliding = []
    for port in range(20_000):
        ends = port | 443 << 16 | 0xFFFF_FFFF << 32
        value = plain_siphash(1, 3, k0, k1, [0x0100000A | 0x0200000A << 32, ends, kind])
        if value & 0x3FF == 7:
            colliding.append(port)
    k0, k1 = hash_key(1)
    places = set()
    for port in colliding:
        words = [0x0100000A | 0x0200000A << 32, port | 443 << 16 | 0xFFFF_FFFF << 32, kind]
        places.add(plain_siphash(1, 3, k0, k1, words) & 0x3FF)
    assert len(colliding) > 10
    assert len(places) > len(colliding) * 0.9
    for seed in (0, 1):  # found all the same, also where all stand in one chain
        table = FlowTable(64, seed=seed)
        tracking = table.track(*batch_of([Packet(source_port=port) for port in colliding]))
        assert len(set(tracking.slot.tolist())) == len(colliding)


# Symmetric hash


@relaxed
@given(traffic())
def test_both_directions_hash_alike(packets):
    there = symmetric_hash(*batch_of(packets))
    back = symmetric_hash(*batch_of([reply(packet) for packet in packets]))
    assert (there == back).all()


@pytest.mark.parametrize("hosts", [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")])
def test_fragments_hash_by_addresses_and_protocol(hosts):
    base = Packet(source=hosts[0], destination=hosts[1], protocol=UDP)
    parts = [attrs.evolve(base, fragment=Fragment(1, offset), source_port=offset) for offset in (0, 2, 4)]
    whole = [base, attrs.evolve(base, source_port=1), attrs.evolve(base, destination_port=1)]
    other = [attrs.evolve(parts[0], protocol=TCP), attrs.evolve(parts[0], source="10.0.0.77", destination="10.0.0.2")]
    for hashes in (symmetric_hash(*batch_of(parts)), toeplitz_hash(*batch_of(parts), SYMMETRIC_RSS_KEY)):
        assert len(set(hashes.tolist())) == 1
    assert len(set(symmetric_hash(*batch_of([*whole, parts[0], *other])).tolist())) == 6


def test_icmp_types_and_vlans_do_not_count():
    ping = Packet(protocol=ICMP, source_port=8)
    same = [ping, attrs.evolve(ping, source_port=0), attrs.evolve(ping, vlan=3, inner_vlan=4)]
    assert len(set(symmetric_hash(*batch_of(same)).tolist())) == 1
    assert symmetric_hash(*batch_of([Packet(ip=False)])).tolist() == [0]


def test_the_symmetric_hash_is_siphash_under_the_zero_key():
    words = [0x0100000A | 0x0200000A << 32, 40000 | 443 << 16, TCP | 4 << 8]
    expected = plain_siphash(1, 3, 0, 0, words) & 0xFFFFFFFF
    assert symmetric_hash(*batch_of([Packet()])).tolist() == [expected]


def test_flows_spread_over_host_buffers():
    packets = [
        Packet(source=f"10.0.{n >> 8}.{n & 255}", source_port=1024 + n % 7, protocol=[TCP, UDP][n & 1])
        for n in range(12_800)
    ]
    batch = batch_of(packets)
    for hashes in (symmetric_hash(*batch), symmetric_hash(*batch) >> 7):
        load = np.bincount(hashes % 128, minlength=128)
        assert load.min() > 60
        assert load.max() < 150


# Toeplitz

MICROSOFT_KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
# "Verifying the RSS hash calculation", Microsoft's network driver documentation:
# source, its port, destination, its port, hash of addresses alone, hash with TCP ports.
VECTORS = [
    ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x323E8FC2, 0x51CCC178),
    ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xD718262A, 0xC626B0EA),
    ("24.19.198.95", 12898, "12.22.207.184", 38024, 0xD2D0A5DE, 0x5C2B394A),
    ("38.27.205.30", 48228, "209.142.163.6", 2217, 0x82989176, 0xAFC7327F),
    ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x5D1809C5, 0x10E828A2),
    ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2CC18CD5, 0x40207D3D),
    ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0F0C461C, 0xDDE51BBF),
    ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024, 0x4B61E985, 0x02D1FEEF),
]


@pytest.mark.parametrize(("source", "source_port", "destination", "destination_port", "addresses", "ports"), VECTORS)
def test_toeplitz_gives_the_published_values(source, source_port, destination, destination_port, addresses, ports):
    packet = Packet(source=source, destination=destination, source_port=source_port, destination_port=destination_port)
    packets = [attrs.evolve(packet, protocol=protocol) for protocol in (TCP, UDP, SCTP, ESP)]
    assert toeplitz_hash(*batch_of(packets), MICROSOFT_KEY).tolist() == [ports, ports, ports, addresses]


def plain_toeplitz(key, data):
    result = 0
    bits = int.from_bytes(key, "big")
    for at in range(len(data) * 8):
        if data[at // 8] & 0x80 >> at % 8:
            result ^= bits >> len(key) * 8 - 32 - at & 0xFFFFFFFF
    return result


@relaxed
@given(traffic(), st.binary(min_size=40, max_size=52))
def test_toeplitz_is_the_plain_one(packets, key):
    expected = []
    for packet in packets:
        data = ipaddress.ip_address(packet.source).packed + ipaddress.ip_address(packet.destination).packed
        if packet.protocol in (TCP, UDP, SCTP) and packet.fragment is None and packet.transport:
            data += packet.source_port.to_bytes(2, "big") + packet.destination_port.to_bytes(2, "big")
        expected.append(plain_toeplitz(key, data) if packet.ip else 0)
    assert toeplitz_hash(*batch_of(packets), key).tolist() == expected


@relaxed
@given(traffic())
def test_the_low_entropy_key_makes_toeplitz_symmetric(packets):
    there = toeplitz_hash(*batch_of(packets), SYMMETRIC_RSS_KEY)
    back = toeplitz_hash(*batch_of([reply(packet) for packet in packets]), SYMMETRIC_RSS_KEY)
    assert (there == back).all()


def test_short_keys_are_refused():
    with pytest.raises(ValueError, match="40 bytes or more, not 39"):
        toeplitz_hash(*batch_of([Packet()]), bytes(39))


def test_hash_kernels_are_only_imported_where_they_are_used():
    code = "import sys, flowshunt, flowshunt.flows.record, flowshunt.flows.counters; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
