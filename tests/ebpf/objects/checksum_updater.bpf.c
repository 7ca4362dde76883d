/* Rewrites a frame's target address and port and mends its checksums by difference; UDP may get a new sum altogether.
 *
 * `targets` maps an address and port to another. TTL goes down by one, as a router's would. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "bpf_api.h"

#define MOST_WORDS 768

struct place {
	__be32 address;
	__be16 port;
	__u16 protocol;
};

struct target {
	__be32 address;
	__be16 port;
	__u16 recompute; /* 1: sum UDP anew */
};

struct {
	UINT(type, BPF_MAP_TYPE_HASH);
	UINT(max_entries, 64);
	TYPE(key, struct place);
	TYPE(value, struct target);
} targets SEC(".maps");

struct summing {
	struct xdp_md *ctx;
	__u32 offset;
	__u32 end;
	__u64 sum;
};

NOINLINE __u32 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

static long add_word(__u32 index, void *argument)
{
	struct summing *summing = argument;
	__u8 word[2] = {};

	if (summing->offset >= summing->end)
		return 1;
	if (summing->offset + 1 == summing->end) {
		if (xdp_load_bytes(summing->ctx, summing->offset, word, 1))
			return 1;
	} else if (xdp_load_bytes(summing->ctx, summing->offset, word, 2)) {
		return 1;
	}
	summing->sum += word[0] | word[1] << 8;
	summing->offset += 2;
	return 0;
}

static NOINLINE __u16 udp_sum(struct xdp_md *ctx, __be32 source, __be32 target, __u32 offset, __u32 length)
{
	struct summing summing = {.ctx = ctx, .offset = offset, .end = offset + length};
	__u32 sum;

	summing.sum = (__u64)source + target + htons(IPPROTO_UDP) + htons(length);
	loop(MOST_WORDS, add_word, &summing, 0);
	sum = fold(summing.sum);
	sum = ~sum & 0xffff;
	return sum ? sum : 0xffff;
}

static INLINE __u16 mend(__u16 check, __u32 difference)
{
	return ~fold((__u64)(__u16)~check + difference);
}

SEC("xdp")
int rewrite(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct place place = {};
	struct target *target;
	__u32 before[2] = {}, after[2] = {};
	__u16 *check = 0;
	__be16 *port;

	if ((void *)(ip + 1) > end || ethernet->h_proto != htons(ETH_P_IP) || ip->ihl != 5 ||
	    ip->frag_off & htons(0x3fff))
		return XDP_PASS;
	if (ip->ttl <= 1)
		return XDP_DROP;
	if (ip->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = (void *)(ip + 1);

		if ((void *)(tcp + 1) > end)
			return XDP_DROP;
		port = &tcp->dest;
		check = &tcp->check;
	} else if (ip->protocol == IPPROTO_UDP) {
		struct udphdr *udp = (void *)(ip + 1);

		if ((void *)(udp + 1) > end)
			return XDP_DROP;
		port = &udp->dest;
		check = &udp->check;
	} else {
		return XDP_PASS;
	}
	place.address = ip->daddr;
	place.port = *port;
	place.protocol = ip->protocol;
	target = map_lookup(&targets, &place);
	if (!target)
		return XDP_PASS;

	before[0] = ip->daddr;
	after[0] = target->address;
	ip->daddr = target->address;
	ip->check = mend(ip->check, csum_diff(before, 4, after, 4, 0));
	/* TTL is the first byte of its word: one less in the header is 0x0100 less in the sum, in network order. */
	ip->ttl--;
	ip->check = mend(ip->check, (__u16)~htons(0x0100));

	before[1] = *port;
	after[1] = target->port;
	*port = target->port;
	if (ip->protocol == IPPROTO_UDP && target->recompute) {
		__u32 length = ntohs(ip->tot_len) - sizeof(*ip);
		__u16 sum;
		__be32 source = ip->saddr, address = ip->daddr;

		*check = 0;
		sum = udp_sum(ctx, source, address, sizeof(*ethernet) + sizeof(*ip), length & 0xffff);
		xdp_store_bytes(ctx, sizeof(*ethernet) + sizeof(*ip) + 6, &sum, sizeof(sum));
		return XDP_TX;
	}
	if (ip->protocol == IPPROTO_TCP || *check) {
		__u16 sum = mend(*check, csum_diff(before, 8, after, 8, 0));

		*check = ip->protocol == IPPROTO_UDP && !sum ? 0xffff : sum;
	}
	return XDP_TX;
}

LICENSE("GPL");
