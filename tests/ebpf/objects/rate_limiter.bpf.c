/* Limits each source address to a rate, by a token bucket; sources in `exempt` go free.
 *
 * Rate and burst are constants that a loader may set. Buckets stand behind spin locks. What happened is counted in
 * variables of .bss, for the reader in user space. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "bpf_api.h"

#define SECOND 1000000000ULL

struct source {
	__u32 address[4];
};

struct bucket {
	struct bpf_spin_lock lock;
	__u32 tokens;
	__u64 filled_ns;
};

struct prefix {
	__u32 bits;
	__u8 address[16];
};

struct {
	UINT(type, BPF_MAP_TYPE_HASH);
	UINT(max_entries, 2048);
	TYPE(key, struct source);
	TYPE(value, struct bucket);
} buckets SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_LPM_TRIE);
	UINT(max_entries, 128);
	UINT(map_flags, BPF_F_NO_PREALLOC);
	TYPE(key, struct prefix);
	TYPE(value, __u32);
} exempt SEC(".maps");

const volatile __u32 frames_per_second = 10;
const volatile __u32 burst = 5;

__u64 passed, dropped, exempted;
__u64 full_table;
__u32 last_burst = 1;

static NOINLINE int source_of(struct xdp_md *ctx, struct source *source)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;

	if ((void *)(ethernet + 1) > end)
		return -1;
	if (ethernet->h_proto == htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(ethernet + 1);

		if ((void *)(ip + 1) > end)
			return -1;
		source->address[2] = htonl(0xffff);
		source->address[3] = ip->saddr;
		return 0;
	}
	if (ethernet->h_proto == htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(ethernet + 1);

		if ((void *)(ip + 1) > end)
			return -1;
		__builtin_memcpy(source->address, &ip->saddr, sizeof(source->address));
		return 0;
	}
	return 1;
}

/* Takes a token; 0 where there is none. */
static NOINLINE int take(struct bucket *bucket, __u64 now)
{
	__u32 rate = frames_per_second, most = burst;
	__u64 since, earned = 0;
	int taken = 0;

	if (!rate)
		return 0;
	spin_lock(&bucket->lock);
	since = now - bucket->filled_ns;
	if (since < 60 * SECOND)
		earned = since * rate / SECOND;
	else
		earned = most;
	if (earned) {
		__u64 tokens = bucket->tokens + earned;

		bucket->tokens = tokens > most ? most : tokens;
		bucket->filled_ns = now;
	}
	if (bucket->tokens) {
		bucket->tokens--;
		taken = 1;
	}
	spin_unlock(&bucket->lock);
	return taken;
}

SEC("xdp")
int limit_rate(struct xdp_md *ctx)
{
	struct source source = {};
	struct prefix prefix = {.bits = 128};
	struct bucket *bucket;
	int read = source_of(ctx, &source);
	__u64 now;

	if (read)
		return read < 0 ? XDP_DROP : XDP_PASS;
	__builtin_memcpy(prefix.address, source.address, sizeof(prefix.address));
	if (map_lookup(&exempt, &prefix)) {
		__sync_fetch_and_add(&exempted, 1);
		return XDP_PASS;
	}
	now = ktime_ns();
	last_burst = burst;
	bucket = map_lookup(&buckets, &source);
	if (!bucket) {
		struct bucket fresh = {.tokens = burst, .filled_ns = now};

		if (map_update(&buckets, &source, &fresh, BPF_NOEXIST)) {
			__sync_fetch_and_add(&full_table, 1);
			return XDP_PASS;
		}
		bucket = map_lookup(&buckets, &source);
		if (!bucket)
			return XDP_PASS;
	}
	if (take(bucket, now)) {
		__sync_fetch_and_add(&passed, 1);
		return XDP_PASS;
	}
	__sync_fetch_and_add(&dropped, 1);
	return XDP_DROP;
}

LICENSE("GPL");
