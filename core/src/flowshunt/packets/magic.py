"""What a capture's first bytes tell: its compression, its format, its byte order."""

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

PCAP_MICROSECONDS = 0xA1B2C3D4
PCAP_NANOSECONDS = 0xA1B23C4D
PCAP_MODIFIED = 0xA1B2CD34
"""Alexey Kuznetzov's variant: microseconds, 8 more bytes in each record header."""
PCAP_MAGICS = (PCAP_MICROSECONDS, PCAP_NANOSECONDS, PCAP_MODIFIED)
PCAP_HEADER = 24

PCAPNG_SECTION = 0x0A0D0D0A
"""The same in both byte orders, so that it can be read before the order is known."""
PCAPNG_BYTE_ORDER = 0x1A2B3C4D
PCAPNG_HEADER = 28


def recognize(start: bytes) -> tuple[str, int]:
    """The format that a file's first 12 bytes tell, and the least bytes that its header has; ("", 0) for none of ours.

    Fewer bytes are judged by what they could become, so that a capture cut off in its header is still one.
    """
    if any(start[:4] == magic.to_bytes(4, order) for magic in PCAP_MAGICS for order in ("little", "big")):
        return "pcap", PCAP_HEADER
    if start[:4] == PCAPNG_SECTION.to_bytes(4, "big"):
        rest = start[8:12]
        if any(rest == PCAPNG_BYTE_ORDER.to_bytes(4, order)[: len(rest)] for order in ("little", "big")):
            return "pcapng", PCAPNG_HEADER
    return "", 0
