/* One of each thing that a loader has to link: functions of all kinds, maps of all kinds of definition, data. */
#include <linux/bpf.h>

#include "../bpf_api.h"

struct pair {
	__u32 a;
	__u32 b;
};

struct inner {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	UINT(max_entries, 4);
	TYPE(key, __u32);
	TYPE(value, struct pair);
};

struct inner first_inner SEC(".maps"), second_inner SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	UINT(max_entries, 3);
	TYPE(key, __u32);
	VALUES(values, struct inner);
} outer SEC(".maps") = {
	.values = {[0] = &first_inner, [2] = &second_inner},
};

struct {
	UINT(type, BPF_MAP_TYPE_HASH);
	UINT(max_entries, 100);
	UINT(map_flags, BPF_F_NO_PREALLOC);
	UINT(key_size, 12);
	UINT(value_size, 24);
	UINT(pinning, 1);
} pinned SEC(".maps");

const volatile __u32 limit = 7;
const char words[2][8] = {"red", "green"};
__u32 hits = 3;
__u64 sum;
static __u32 hidden[4];

static NOINLINE int twice(int n)
{
	BARRIER(n);
	return n * 2;
}

NOINLINE int thrice(int n)
{
	BARRIER(n);
	return twice(n) + n;
}

static long each(__u32 index, void *total)
{
	*(__u64 *)total += index;
	return 0;
}

SEC("xdp/first")
int count(struct xdp_md *ctx)
{
	__u64 total = 0;

	loop(10, each, &total, 0);
	sum += total;
	hits++;
	hidden[hits & 3] += limit + hidden[(hits + 1) & 3];
	return thrice(words[hits & 1][hits & 7]);
}

SEC("xdp/first")
int look(struct xdp_md *ctx)
{
	__u32 key = 0;
	void *found = map_lookup(&outer, &key);
	struct pair *pair = found ? map_lookup(found, &key) : 0;

	return pair ? twice(pair->b) : XDP_PASS;
}

SEC("tc/ingress")
int shape(struct __sk_buff *skb)
{
	__u32 key[3] = {skb->len};

	return map_lookup(&pinned, key) ? twice(1) : -1;
}

const char license_text[] SEC("license") = "Dual BSD/GPL";
__u32 version_number SEC("version") = 0x060100;
