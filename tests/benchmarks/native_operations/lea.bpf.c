/* Address calculation: tables and polynomials. */
#include "bench.h"

LICENSE("GPL");

u64 table[64];
u32 matrix[16][16];

/* Table lookups by byte. */
BENCH(lookup_table)
{
	FRAME(p, c);
	u64 sum = 0;
	KEEP for (int i = 8; i < 136; i++)
		sum = sum * 5 + table[p[i] & 63];
	RESULT(p, sum);
}

/* Rows and columns. */
BENCH(lookup_matrix)
{
	FRAME(p, c);
	u64 sum = 0;
	KEEP for (int i = 8; i < 136; i++)
		sum += matrix[p[i] & 15][p[i] >> 4] + 9 * sum + 12;
	RESULT(p, sum);
}

/* Polynomials in 3, 5 and 9. */
BENCH(polynomial)
{
	FRAME(p, c);
	u64 a = 1, b = 2, d = 3;
	KEEP for (int i = 8; i < 136; i++) {
		a = a * 5 + p[i];
		b = b * 9 + p[i];
		d = d * 3 + p[i];
	}
	RESULT(p, a ^ b ^ d);
}
