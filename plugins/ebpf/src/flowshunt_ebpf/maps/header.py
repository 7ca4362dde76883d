"""The header in front of every map: what native code knows of it, by byte offset. Little-endian.

A program's map pointer is the header's address. The header has a page of its own that programs can't reach.
"""

from typing import Final

TYPE: Final = 0  # 32 bits, as all up to CPUS
KEY_SIZE: Final = 4
VALUE_SIZE: Final = 8
MAX_ENTRIES: Final = 12
FLAGS: Final = 16
LOCK: Final = 20  # 1 while a thread changes the map
COUNT: Final = 24  # entries in use
CPUS: Final = 28
VALUES: Final = 32  # 64 bits: address of the elements
STRIDE: Final = 40  # 32 bits: bytes of an element
VALUE_OFFSET: Final = 44  # 32 bits: where the value starts in an element
BUCKETS: Final = 48  # 64 bits: address of the hash table's heads
BUCKET_MASK: Final = 56  # 32 bits
FREE: Final = 60  # 32 bits: 1 + the first free element
SEED: Final = 64  # 32 bits: of the hash function
HAND: Final = 68  # 32 bits: where the search for an element to evict goes on
HEAD: Final = 72  # 64 bits: of queues and rings: where the next one is written
TAIL: Final = 80  # 64 bits: where the oldest one is
ROOT: Final = 88  # 32 bits: 1 + the root of a trie
HASHES: Final = 92  # 32 bits: hash functions of a bloom filter
VALUE_STRIDE: Final = 96  # 32 bits: bytes from one CPU's value to the next one's
MAP_IN_MAP: Final = 100  # 32 bits: the value is the address of a map
RECORDS: Final = 104  # 64 bits: address of a ring's records
RECORD_HEAD: Final = 112  # 64 bits
RECORD_TAIL: Final = 120  # 64 bits
LOST: Final = 128  # 64 bits: records for which a ring had no room
VALUES_BYTES: Final = 136  # 64 bits
RECORD_MASK: Final = 144  # 32 bits
FRESH: Final = 148  # 32 bits: elements from here on were never used
OPERATIONS: Final = 160  # addresses of the map's operations, 8 bytes each, in the order below
HEADER_BYTES: Final = 256

LOOKUP: Final = 0
UPDATE: Final = 1
DELETE: Final = 2
PUSH: Final = 3
POP: Final = 4
PEEK: Final = 5
LOOKUP_CPU: Final = 6

PROG_ARRAY_STRIDE: Final = 8
"""Bytes of a program array's element: 1 + the program's number in the machine, 0 for none."""

# A node of a hash table or trie, in front of the key.
NODE_NEXT: Final = 0  # 32 bits: 1 + the next node of the chain
NODE_HASH: Final = 4  # 32 bits
NODE_KEY: Final = 8
