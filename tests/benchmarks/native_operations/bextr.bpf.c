/* Bit fields: headers and packed tables. */
#include "bench.h"

LICENSE("GPL");

struct packed_fields {
	u64 a : 7, b : 13, c : 20, d : 24;
};

/* Four fields of 8-byte records. */
BENCH(bit_fields)
{
	FRAME(p, c);
	struct packed_fields *f = (struct packed_fields *)p;
	u64 sum = 0;
	KEEP for (int i = 1; i < 33; i++)
		sum += f[i].a * 3 + f[i].b * 5 + f[i].c * 7 + f[i].d;
	RESULT(p, sum);
}

/* Sign-extended samples of 12 bits. */
BENCH(samples)
{
	FRAME(p, c);
	s64 sum = 0;
	u64 *w = (u64 *)p;
	KEEP for (int i = 1; i < 49; i++) {
		s64 x = (s64)w[i];
		sum += (x << 4 >> 52) + (x << 28 >> 52) + (x << 40 >> 52);
	}
	RESULT(p, sum);
}

/* TCP's data offset and flags, DSCP, fragment offset: a few of each header. */
BENCH(header_bits)
{
	FRAME(p, c);
	u32 *w = (u32 *)p;
	u64 sum = 0;
	KEEP for (int i = 2; i < 98; i++) {
		u32 x = w[i];
		sum += (x >> 12 & 15) * 4 + (x >> 18 & 63) + (x >> 3 & 0x1fff);
	}
	RESULT(p, sum);
}

/* Bytes of words, zero-extended, into a sum of squares. */
BENCH(bytes_of_words)
{
	FRAME(p, c);
	u64 *w = (u64 *)p, sum = 0;
	KEEP for (int i = 1; i < 33; i++) {
		u64 x = w[i], a = x >> 8 & 255, b = x >> 24 & 255, d = x >> 40 & 0xffff;
		sum += a * a + b * b + d;
	}
	RESULT(p, sum);
}
