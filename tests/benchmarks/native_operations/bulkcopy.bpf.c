/* Copies and fills: headers, keys, templates. */
#include "bench.h"

LICENSE("GPL");

struct key {
	u64 word[8];
};

struct __attribute__((packed)) bytes {
	u8 byte[32];
};

/* Keys of 64 bytes from the frame to the stack, and one word of each back. */
BENCH(copy_keys)
{
	FRAME(p, c);
	u64 sum = 0;
	KEEP for (int i = 0; i < 6; i++) {
		struct key k = *(struct key *)(p + 8 + 64 * i);
		__asm__ volatile("" ::"r"(&k) : "memory");
		sum += k.word[i];
	}
	RESULT(p, sum);
}

/* Copies of packed structures: byte by byte, as compilers emit them for eBPF. */
BENCH(copy_packed)
{
	FRAME(p, c);
	u64 sum = 0;
	KEEP for (int i = 0; i < 12; i++) {
		struct bytes b = *(struct bytes *)(p + 8 + 32 * i);
		__asm__ volatile("" ::"r"(&b) : "memory");
		sum += b.byte[i];
	}
	RESULT(p, sum);
}

/* The stack cleared before each use: 128 bytes. */
BENCH(clear)
{
	FRAME(p, c);
	u64 sum = 0;
	KEEP for (int i = 0; i < 16; i++) {
		u64 table[16] = {};
		__asm__ volatile("" ::"r"(&table) : "memory");
		sum += table[i] + i;
	}
	RESULT(p, sum);
}

/* A header of 48 bytes moved to the front of the frame, 12 times: encapsulation. */
BENCH(move_header)
{
	FRAME(p, c);
	KEEP for (int i = 0; i < 8; i++) {
		u64 *from = (u64 *)(p + 256 - 16 * i), *to = (u64 *)(p + 64 - 8 * i);
		to[0] = from[0], to[1] = from[1], to[2] = from[2], to[3] = from[3], to[4] = from[4], to[5] = from[5];
	}
	RESULT(p, p[9]);
}
