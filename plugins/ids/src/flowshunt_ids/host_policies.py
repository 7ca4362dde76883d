"""The operating systems of hosts (`host-os-policy`), which decide how they take overlapping data."""

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from flowshunt.errors import InputError
from flowshunt_ids.fragment_policies import OF_SYSTEM
from flowshunt_ids.layout import POLICIES, POLICY_BSD

DEFAULT = "bsd"
_KNOWN = 1 << 16
"""Addresses that are remembered."""


class HostPolicies:
    """Which policy a host has: that of the narrowest network it is in."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        """groups: policy names to lists of networks, as text. Raises `InputError`."""
        self._networks: dict[tuple[int, int], dict[int, str]] = {}
        self._known: dict[bytes, str] = {}
        for name, text in groups.items():
            policy = name.lower().replace("_", "-")
            if policy not in OF_SYSTEM:
                known = ", ".join(sorted(OF_SYSTEM))
                raise InputError(f"host-os-policy: there is no policy {name!r}", "configuration", f"there are {known}")
            for entry in text.strip("[]").split(","):
                if entry.strip():
                    network = _network(entry.strip(), name)
                    bits = network.max_prefixlen - network.prefixlen
                    by_size = self._networks.setdefault((network.version, network.prefixlen), {})
                    by_size[int(network.network_address) >> bits] = policy
        self._sizes = sorted(self._networks, key=lambda size: -size[1])

    def __bool__(self) -> bool:
        return bool(self._networks)

    def of(self, address: bytes) -> str:
        """The policy of a host by its address, 4 or 16 bytes."""
        found = self._known.get(address)
        if found is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            found = self._known[address] = self._search(address)
        return found

    def _search(self, address: bytes) -> str:
        host = ip_address(address)
        for size in self._sizes:
            version, prefix = size
            if version == host.version:
                found = self._networks[size].get(int(host) >> (host.max_prefixlen - prefix))
                if found is not None:
                    return found
        return DEFAULT

    def for_fragments(self, address: bytes) -> str:
        """The policy for IP fragments (`flowshunt_ids.fragment_policies`)."""
        return OF_SYSTEM[self.of(address)]

    def for_streams(self, address: bytes) -> int:
        """The policy for TCP, as its number in SIDE."""
        name = self.of(address)
        name = {"bsd-right": "bsd", "old-solaris": "solaris"}.get(name, name)
        return POLICIES.index(name) if name in POLICIES else POLICY_BSD


def _network(text: str, name: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise InputError(f"host-os-policy.{name}: {text!r} is no address or network", "configuration") from None
