/* A layer 4 load balancer: a frame to a service's address goes to one of its servers, inside an outer IPv4 header.
 *
 * `services` tells the service of an address, port and protocol; its part of `ring` spreads flows over `servers`, and
 * `connections` keeps a flow where it is. The work is split over tail calls: balance -> pick_server -> encapsulate. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "bpf_api.h"

#define RING 256
#define SERVICES 16
#define STAGES 2

enum { PICK_SERVER, ENCAPSULATE };
enum counter { PASSED, BALANCED, FROM_TABLE, NO_SERVER, TOO_SHORT, COUNTERS };

struct service_key {
	__be32 address;
	__be16 port;
	__u16 protocol;
};

struct service {
	__u32 number;
	__u32 flags; /* 1: spread by source address alone */
};

struct server {
	__be32 address;
	__u8 mac[6];
	__u16 weight;
	__u64 frames;
	__u64 bytes;
};

struct flow {
	__be32 source;
	__be32 target;
	__be16 source_port;
	__be16 target_port;
	__u32 protocol;
};

struct work {
	struct flow flow;
	struct service service;
	__u32 server;
	__u32 length;
};

struct {
	UINT(type, BPF_MAP_TYPE_HASH);
	UINT(max_entries, SERVICES);
	TYPE(key, struct service_key);
	TYPE(value, struct service);
} services SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	UINT(max_entries, SERVICES *RING);
	TYPE(key, __u32);
	TYPE(value, __u32);
} ring SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	UINT(max_entries, 64);
	TYPE(key, __u32);
	TYPE(value, struct server);
} servers SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_LRU_HASH);
	UINT(max_entries, 4096);
	TYPE(key, struct flow);
	TYPE(value, __u32);
} connections SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, struct work);
} scratch SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	UINT(max_entries, COUNTERS);
	TYPE(key, __u32);
	TYPE(value, __u64);
} counters SEC(".maps");

int pick_server(struct xdp_md *ctx);
int encapsulate(struct xdp_md *ctx);

struct {
	UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	UINT(max_entries, STAGES);
	UINT(key_size, sizeof(__u32));
	VALUES(values, int(struct xdp_md *));
} stages SEC(".maps") = {
	.values = {
		[PICK_SERVER] = (void *)&pick_server,
		[ENCAPSULATE] = (void *)&encapsulate,
	},
};

const volatile __be32 own_address = htonl(0x0a000001);
const volatile __u8 gateway_mac[6] = {2, 0, 0, 0, 0, 1};

static INLINE void add(__u32 counter)
{
	__u64 *value = map_lookup(&counters, &counter);

	if (value)
		*value += 1;
}

static INLINE __u32 rotate(__u32 value, int by)
{
	return value << by | value >> (32 - by);
}

/* Mixes a flow's words; any good mix will do, since ring entries decide. */
static NOINLINE __u32 mix(__u32 a, __u32 b, __u32 c)
{
	a = (a ^ 0x9e3779b9) * 0x85ebca6b;
	b = rotate(b + a, 13) * 0xc2b2ae35;
	c = rotate(c ^ b, 7) + a;
	c ^= c >> 16;
	c *= 0x7feb352d;
	c ^= c >> 15;
	return c;
}

static INLINE __u32 ports(const struct flow *flow)
{
	return (__u32)flow->source_port << 16 | flow->target_port;
}

SEC("xdp")
int balance(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct service_key key = {};
	struct service *service;
	struct work *work;
	__u32 first = 0;

	if ((void *)(ip + 1) > end) {
		add(TOO_SHORT);
		return XDP_DROP;
	}
	if (ethernet->h_proto != htons(ETH_P_IP) || ip->ihl != 5 || ip->frag_off & htons(0x3fff))
		goto pass;
	__be16 *l4 = (void *)(ip + 1);
	if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
		goto pass;
	if ((void *)(l4 + 2) > end) {
		add(TOO_SHORT);
		return XDP_DROP;
	}
	key.address = ip->daddr;
	key.port = l4[1];
	key.protocol = ip->protocol;
	service = map_lookup(&services, &key);
	if (!service) {
		key.port = 0; /* a service may stand for all ports of its address */
		service = map_lookup(&services, &key);
	}
	work = map_lookup(&scratch, &first);
	if (!service || !work)
		goto pass;
	work->flow.source = ip->saddr;
	work->flow.target = ip->daddr;
	work->flow.source_port = l4[0];
	work->flow.target_port = l4[1];
	work->flow.protocol = ip->protocol;
	work->service = *service;
	work->length = ntohs(ip->tot_len);
	tail_call(ctx, &stages, PICK_SERVER);
pass:
	add(PASSED);
	return XDP_PASS;
}

SEC("xdp")
int pick_server(struct xdp_md *ctx)
{
	__u32 first = 0, *known, *entry, slot;
	struct work *work = map_lookup(&scratch, &first);

	if (!work)
		return XDP_ABORTED;
	known = map_lookup(&connections, &work->flow);
	if (known) {
		work->server = *known;
		add(FROM_TABLE);
	} else {
		__u32 second = work->service.flags & 1 ? 0 : ports(&work->flow);

		slot = mix(work->flow.source, second, work->flow.target) % RING;
		slot += work->service.number % SERVICES * RING;
		entry = map_lookup(&ring, &slot);
		if (!entry)
			return XDP_ABORTED;
		work->server = *entry;
		map_update(&connections, &work->flow, &work->server, BPF_ANY);
	}
	tail_call(ctx, &stages, ENCAPSULATE);
	return XDP_ABORTED;
}

static INLINE __u16 header_checksum(struct iphdr *ip)
{
	__u16 *word = (__u16 *)ip;
	__u32 sum = 0;

#pragma unroll
	for (int n = 0; n < (int)sizeof(*ip) / 2; n++)
		sum += word[n];
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

SEC("xdp")
int encapsulate(struct xdp_md *ctx)
{
	__u32 first = 0;
	struct work *work = map_lookup(&scratch, &first);
	struct server *server;

	if (!work)
		return XDP_ABORTED;
	server = map_lookup(&servers, &work->server);
	if (!server || !server->address) {
		map_delete(&connections, &work->flow);
		add(NO_SERVER);
		return XDP_DROP;
	}
	if (xdp_adjust_head(ctx, -(int)sizeof(struct iphdr)))
		return XDP_ABORTED;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *outer = (void *)(ethernet + 1);
	if ((void *)(outer + 1) > end)
		return XDP_ABORTED;
	__builtin_memcpy(ethernet->h_dest, server->mac, 6);
	for (int n = 0; n < 6; n++)
		ethernet->h_source[n] = gateway_mac[n];
	ethernet->h_proto = htons(ETH_P_IP);
	*outer = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tot_len = htons(work->length + sizeof(*outer)),
		.ttl = 64,
		.protocol = IPPROTO_IPIP,
		.saddr = own_address,
		.daddr = server->address,
	};
	outer->check = header_checksum(outer);
	__sync_fetch_and_add(&server->frames, 1);
	__sync_fetch_and_add(&server->bytes, work->length);
	add(BALANCED);
	return XDP_TX;
}

LICENSE("GPL");
