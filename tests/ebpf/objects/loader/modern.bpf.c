/* Instructions that came with -mcpu=v4 and later: sign-extending moves and loads, signed division, byte swap, long jumps,
 * load-acquire and store-release, may_goto. */
#include <linux/bpf.h>

#include "../bpf_api.h"

struct numbers {
	__s8 a;
	__s16 b;
	__s32 c;
	__u64 d;
};

SEC("socket")
int modern(struct numbers *n)
{
	__s64 sum = n->a + n->b + (__s64)n->c;
	__s8 low = sum;
	__s32 quotient = n->c / (n->b | 1);

	sum += low;
	sum += quotient % (n->a | 1);
	sum ^= __builtin_bswap64(n->d);
	__atomic_store_n(&n->d, sum, __ATOMIC_RELEASE);
	sum += __atomic_load_n(&n->d, __ATOMIC_ACQUIRE);
	__asm__ volatile goto("may_goto %l[out]" : : : : out);
	sum++;
out:
	return sum;
}
