/* A layer 4 load balancer at a network's edge, in one XDP program and the two that it hands ICMP to.
 *
 * IPv4 and IPv6, with VLAN tags, options and extension headers; TCP, UDP, and ICMP errors about either. Sources are
 * looked up in block lists (longest prefix). A service spreads its flows over servers by a consistent ring and keeps
 * them in a connection table. Frames leave inside IPv4 or IPv6, plain (IPIP) or in UDP (GUE), as the server wants. Frames
 * that would grow too long are answered with "fragmentation needed" or "packet too big", echo requests with a reply. */
#include <linux/bpf.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "../bpf_api.h"

/* linux/icmp.h asks for the C library's headers. */
#define ICMP_ECHOREPLY 0
#define ICMP_DEST_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMP_ECHO 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12

struct icmphdr {
	__u8 type;
	__u8 code;
	__sum16 checksum;
	__be16 unused;
	__be16 mtu;
};

#define VLANS 2
#define EXTENSIONS 4
#define SERVICES 512
#define RING 1024
#define SERVERS 4096
#define GUE_PORT 6080
#define LIMIT 1480 /* of an inner packet, bytes */
#define QUOTED4 28 /* of a packet in "fragmentation needed": its header and 8 bytes */
#define QUOTED6 64

enum stage { ICMP4, ICMP6, STAGES };
enum counter {
	FRAMES, BYTES, SHORT, NOT_IP, FRAGMENTS, BLOCKED, NO_SERVICE, NO_SERVER, FROM_TABLE, FROM_RING, SYNS, TOO_LONG,
	ECHOES, ICMP_ERRORS, PLAIN, GUE, COUNTERS
};
enum service_flags { BY_SOURCE = 1, NO_TABLE = 2, ANY_PORT = 4 };
enum server_flags { SERVER_IPV6 = 1, SERVER_GUE = 2, SERVER_DOWN = 4 };

struct address {
	__be32 word[4]; /* IPv4: the first */
};

struct flow {
	struct address source;
	struct address target;
	__be16 source_port;
	__be16 target_port;
	__u8 protocol;
	__u8 version;
	__u16 unused;
};

struct service_key {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 version;
};

struct service {
	__u32 number;
	__u32 flags;
	__u64 frames;
	__u64 bytes;
};

struct server {
	struct address address;
	__u8 mac[6];
	__u16 flags;
	__u64 frames;
	__u64 bytes;
};

struct connection {
	__u32 server;
	__u32 generation;
	__u64 seen;
};

struct prefix4 {
	__u32 bits;
	__be32 address;
};

struct prefix6 {
	__u32 bits;
	struct address address;
};

/* What the parser finds. */
struct frame {
	struct flow flow;
	__u32 l3;
	__u32 l4;
	__u32 length; /* of the IP packet */
	__u8 syn;
	__u8 about; /* an ICMP error: the flow is that of the packet it quotes, turned round */
	__u8 tos;
	__u8 tags;
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
	UINT(max_entries, SERVERS);
	TYPE(key, __u32);
	TYPE(value, struct server);
} servers SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_LRU_HASH);
	UINT(max_entries, 65536);
	TYPE(key, struct flow);
	TYPE(value, struct connection);
} connections SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_LPM_TRIE);
	UINT(max_entries, 4096);
	UINT(map_flags, BPF_F_NO_PREALLOC);
	TYPE(key, struct prefix4);
	TYPE(value, __u32);
} blocked4 SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_LPM_TRIE);
	UINT(max_entries, 4096);
	UINT(map_flags, BPF_F_NO_PREALLOC);
	TYPE(key, struct prefix6);
	TYPE(value, __u32);
} blocked6 SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	UINT(max_entries, COUNTERS);
	TYPE(key, __u32);
	TYPE(value, __u64);
} counters SEC(".maps");

int answer_icmp4(struct xdp_md *ctx);
int answer_icmp6(struct xdp_md *ctx);

struct {
	UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	UINT(max_entries, STAGES);
	UINT(key_size, sizeof(__u32));
	VALUES(values, int(struct xdp_md *));
} stages SEC(".maps") = {
	.values = {
		[ICMP4] = (void *)&answer_icmp4,
		[ICMP6] = (void *)&answer_icmp6,
	},
};

const volatile __be32 own_address4 = htonl(0xc6336401);
const volatile struct address own_address6 = {{htonl(0x20010db8), 0, 0, htonl(1)}};
const volatile __u8 gateway_mac[6] = {2, 0, 0, 0, 0, 1};
const volatile __u32 generation = 1;

static INLINE void count(__u32 counter, __u64 amount)
{
	__u64 *value = map_lookup(&counters, &counter);

	if (value)
		*value += amount;
}

static INLINE __u32 rotate(__u32 value, int by)
{
	return value << by | value >> (32 - by);
}

/* Bob Jenkins' lookup3, over words. */
#define MIX(a, b, c)                                                                                                   \
	do {                                                                                                           \
		a -= c; a ^= rotate(c, 4); c += b;                                                                     \
		b -= a; b ^= rotate(a, 6); a += c;                                                                     \
		c -= b; c ^= rotate(b, 8); b += a;                                                                     \
		a -= c; a ^= rotate(c, 16); c += b;                                                                    \
		b -= a; b ^= rotate(a, 19); a += c;                                                                    \
		c -= b; c ^= rotate(b, 4); b += a;                                                                     \
	} while (0)
#define FINISH(a, b, c)                                                                                                \
	do {                                                                                                           \
		c ^= b; c -= rotate(b, 14);                                                                            \
		a ^= c; a -= rotate(c, 11);                                                                            \
		b ^= a; b -= rotate(a, 25);                                                                            \
		c ^= b; c -= rotate(b, 16);                                                                            \
		a ^= c; a -= rotate(c, 4);                                                                             \
		b ^= a; b -= rotate(a, 14);                                                                            \
		c ^= b; c -= rotate(b, 24);                                                                            \
	} while (0)

static INLINE __u32 hash_flow(const struct flow *flow, __u32 flags, __u32 seed)
{
	__u32 ports = flags & BY_SOURCE ? 0 : (__u32)flow->source_port << 16 | flow->target_port;
	__u32 a = 0xdeadbeef + seed, b = a, c = a;

	a += flow->source.word[0];
	b += flow->target.word[0];
	c += ports;
	MIX(a, b, c);
	if (flow->version == 6) {
		a += flow->source.word[1];
		b += flow->source.word[2];
		c += flow->source.word[3];
		MIX(a, b, c);
		a += flow->target.word[1];
		b += flow->target.word[2];
		c += flow->target.word[3];
		MIX(a, b, c);
	}
	a += flow->protocol;
	FINISH(a, b, c);
	return c;
}

static INLINE __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* The sum of a number of bytes that is known, word by word. */
static INLINE __u64 sum_words(const void *at, int bytes)
{
	const __u16 *word = at;
	__u64 sum = 0;

#pragma unroll
	for (int n = 0; n < bytes / 2; n++)
		sum += word[n];
	return sum;
}

static INLINE void copy_address6(struct address *to, const void *from)
{
	const __be32 *word = from;

#pragma unroll
	for (int n = 0; n < 4; n++)
		to->word[n] = word[n];
}

/* The ports of TCP and UDP, or of the packet that an ICMP error quotes; 0: there are some. */
static INLINE int parse_ports(void *at, void *end, struct frame *frame)
{
	if (frame->flow.protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = at;

		if ((void *)(tcp + 1) > end)
			return SHORT;
		frame->flow.source_port = tcp->source;
		frame->flow.target_port = tcp->dest;
		frame->syn = tcp->syn && !tcp->ack;
		return 0;
	}
	if (frame->flow.protocol == IPPROTO_UDP) {
		struct udphdr *udp = at;

		if ((void *)(udp + 1) > end)
			return SHORT;
		frame->flow.source_port = udp->source;
		frame->flow.target_port = udp->dest;
		return 0;
	}
	return NO_SERVICE;
}

static INLINE void turn_round(struct flow *flow)
{
	struct address address = flow->source;
	__be16 port = flow->source_port;

	flow->source = flow->target;
	flow->target = address;
	flow->source_port = flow->target_port;
	flow->target_port = port;
}

/* An ICMP error belongs to the flow whose packet it quotes. */
static INLINE int parse_quoted4(void *at, void *end, struct frame *frame)
{
	struct icmphdr *icmp = at;
	struct iphdr *ip = (void *)(icmp + 1);
	__be16 *ports = (void *)(ip + 1);

	if ((void *)(ports + 2) > end)
		return SHORT;
	if (icmp->type != ICMP_DEST_UNREACH && icmp->type != ICMP_TIME_EXCEEDED && icmp->type != ICMP_PARAMETERPROB)
		return NO_SERVICE;
	if (ip->ihl != 5 || (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP))
		return NO_SERVICE;
	frame->about = 1;
	frame->flow.protocol = ip->protocol;
	frame->flow.source.word[0] = ip->saddr;
	frame->flow.target.word[0] = ip->daddr;
	frame->flow.source_port = ports[0];
	frame->flow.target_port = ports[1];
	turn_round(&frame->flow);
	return 0;
}

static INLINE int parse_quoted6(void *at, void *end, struct frame *frame)
{
	struct icmp6hdr *icmp = at;
	struct ipv6hdr *ip = (void *)(icmp + 1);
	__be16 *ports = (void *)(ip + 1);

	if ((void *)(ports + 2) > end)
		return SHORT;
	if (icmp->icmp6_type == 0 || icmp->icmp6_type > ICMPV6_PARAMPROB)
		return NO_SERVICE;
	if (ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP)
		return NO_SERVICE;
	frame->about = 1;
	frame->flow.protocol = ip->nexthdr;
	copy_address6(&frame->flow.source, &ip->saddr);
	copy_address6(&frame->flow.target, &ip->daddr);
	frame->flow.source_port = ports[0];
	frame->flow.target_port = ports[1];
	turn_round(&frame->flow);
	return 0;
}

static INLINE int parse4(struct xdp_md *ctx, void *data, void *end, struct frame *frame)
{
	struct iphdr *ip = data + frame->l3;
	struct prefix4 prefix = {.bits = 32};
	__u32 header;

	if ((void *)(ip + 1) > end)
		return SHORT;
	header = ip->ihl * 4;
	if (ip->version != 4 || header < sizeof(*ip))
		return NOT_IP;
	if (ip->frag_off & htons(0x3fff))
		return FRAGMENTS;
	frame->flow.version = 4;
	frame->flow.protocol = ip->protocol;
	frame->flow.source.word[0] = ip->saddr;
	frame->flow.target.word[0] = ip->daddr;
	frame->tos = ip->tos;
	frame->length = ntohs(ip->tot_len);
	frame->l4 = frame->l3 + header;
	prefix.address = ip->saddr;
	if (map_lookup(&blocked4, &prefix))
		return BLOCKED;
	if (ip->protocol == IPPROTO_ICMP) {
		struct icmphdr *icmp = (void *)ip + header;

		if ((void *)(icmp + 1) > end)
			return SHORT;
		if (icmp->type == ICMP_ECHO)
			tail_call(ctx, &stages, ICMP4);
		return parse_quoted4(icmp, end, frame);
	}
	return parse_ports((void *)ip + header, end, frame);
}

struct extension {
	__u8 next;
	__u8 words;
	__u8 rest[6];
};

static INLINE int parse6(struct xdp_md *ctx, void *data, void *end, struct frame *frame)
{
	struct ipv6hdr *ip = data + frame->l3;
	struct prefix6 prefix = {.bits = 128};
	__u32 offset = frame->l3 + sizeof(*ip);
	__u8 next;

	if ((void *)(ip + 1) > end)
		return SHORT;
	if (ip->version != 6)
		return NOT_IP;
	frame->flow.version = 6;
	copy_address6(&frame->flow.source, &ip->saddr);
	copy_address6(&frame->flow.target, &ip->daddr);
	frame->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	frame->length = ntohs(ip->payload_len) + sizeof(*ip);
	copy_address6(&prefix.address, &ip->saddr);
	if (map_lookup(&blocked6, &prefix))
		return BLOCKED;
	next = ip->nexthdr;
#pragma unroll
	for (int n = 0; n < EXTENSIONS; n++) {
		struct extension *extension = data + offset;

		if (next == IPPROTO_FRAGMENT)
			return FRAGMENTS;
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS)
			break;
		if ((void *)(extension + 1) > end)
			return SHORT;
		next = extension->next;
		offset += (extension->words + 1) * 8;
		if (offset > 512)
			return NOT_IP;
	}
	frame->l4 = offset;
	frame->flow.protocol = next;
	if (next == IPPROTO_ICMPV6) {
		struct icmp6hdr *icmp = data + offset;

		if ((void *)(icmp + 1) > end)
			return SHORT;
		if (icmp->icmp6_type == ICMPV6_ECHO_REQUEST)
			tail_call(ctx, &stages, ICMP6);
		return parse_quoted6(icmp, end, frame);
	}
	return parse_ports(data + offset, end, frame);
}

static INLINE struct service *find_service(const struct flow *flow)
{
	struct service_key key = {};
	struct service *service;

	key.address = flow->target;
	key.port = flow->target_port;
	key.protocol = flow->protocol;
	key.version = flow->version;
	service = map_lookup(&services, &key);
	if (service)
		return service;
	key.port = 0;
	service = map_lookup(&services, &key);
	return service && service->flags & ANY_PORT ? service : 0;
}

static INLINE struct server *server_of(__u32 number)
{
	struct server *server = map_lookup(&servers, &number);

	if (!server || !server->address.word[0] || server->flags & SERVER_DOWN)
		return 0;
	return server;
}

/* The server that a flow has, else the next one on the ring that is there. */
static INLINE struct server *find_server(struct frame *frame, struct service *service)
{
	struct connection *known = 0, fresh = {};
	struct server *server = 0;
	__u32 hash, slot, *entry;

	if (!(service->flags & NO_TABLE) && !frame->syn) {
		known = map_lookup(&connections, &frame->flow);
		if (known && known->generation == generation) {
			server = server_of(known->server);
			if (server) {
				known->seen = ktime_ns();
				count(FROM_TABLE, 1);
				return server;
			}
		}
	}
#pragma unroll
	for (int n = 0; n < 2; n++) {
		hash = hash_flow(&frame->flow, service->flags, n);
		slot = service->number % SERVICES * RING + hash % RING;
		entry = map_lookup(&ring, &slot);
		if (!entry)
			return 0;
		fresh.server = *entry;
		server = server_of(fresh.server);
		if (server)
			break;
	}
	if (!server)
		return 0;
	if (!(service->flags & NO_TABLE) && !frame->about) {
		fresh.generation = generation;
		fresh.seen = ktime_ns();
		map_update(&connections, &frame->flow, &fresh, BPF_ANY);
	}
	count(FROM_RING, 1);
	return server;
}

static INLINE void write_ethernet(struct ethhdr *ethernet, const struct server *server, __be16 protocol)
{
	__builtin_memcpy(ethernet->h_dest, server->mac, 6);
#pragma unroll
	for (int n = 0; n < 6; n++)
		ethernet->h_source[n] = gateway_mac[n];
	ethernet->h_proto = protocol;
}

static INLINE void write_gue(struct udphdr *udp, const struct frame *frame, __u32 hash, __u32 length)
{
	udp->source = htons(0xc000 | (hash & 0x3fff));
	udp->dest = htons(GUE_PORT);
	udp->len = htons(length);
	udp->check = 0;
}

static INLINE int encapsulate4(struct xdp_md *ctx, const struct frame *frame, const struct server *server, int gue)
{
	__u32 hash = hash_flow(&frame->flow, 0, 7);
	__u32 grows = sizeof(struct iphdr) + (gue ? sizeof(struct udphdr) : 0);
	struct ethhdr *ethernet;
	struct iphdr *ip;
	void *data, *end;

	if (xdp_adjust_head(ctx, -(int)(grows - frame->tags * 4)))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ethernet = data;
	ip = (void *)(ethernet + 1);
	if ((void *)(ip + 1) + sizeof(struct udphdr) > end)
		return XDP_ABORTED;
	write_ethernet(ethernet, server, htons(ETH_P_IP));
	*ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tos = frame->tos & 0xfc,
		.tot_len = htons(frame->length + grows),
		.id = htons(hash >> 16),
		.ttl = 64,
		.protocol = gue ? IPPROTO_UDP : frame->flow.version == 4 ? IPPROTO_IPIP : IPPROTO_IPV6,
		.saddr = own_address4 ^ (htonl(hash & 0xff)),
		.daddr = server->address.word[0],
	};
	ip->check = ~fold(sum_words(ip, sizeof(*ip)));
	if (gue)
		write_gue((void *)(ip + 1), frame, hash, frame->length + sizeof(struct udphdr));
	return XDP_TX;
}

static INLINE int encapsulate6(struct xdp_md *ctx, const struct frame *frame, const struct server *server, int gue)
{
	__u32 hash = hash_flow(&frame->flow, 0, 7);
	__u32 grows = sizeof(struct ipv6hdr) + (gue ? sizeof(struct udphdr) : 0);
	struct ethhdr *ethernet;
	struct ipv6hdr *ip;
	struct udphdr *udp;
	void *data, *end;
	__be32 *word;

	if (xdp_adjust_head(ctx, -(int)(grows - frame->tags * 4)))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ethernet = data;
	ip = (void *)(ethernet + 1);
	udp = (void *)(ip + 1);
	if ((void *)(udp + 1) > end)
		return XDP_ABORTED;
	write_ethernet(ethernet, server, htons(ETH_P_IPV6));
	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 6;
	ip->priority = frame->tos >> 4;
	ip->flow_lbl[0] = (frame->tos << 4 & 0xc0) | (hash >> 16 & 15);
	ip->flow_lbl[1] = hash >> 8;
	ip->flow_lbl[2] = hash;
	ip->payload_len = htons(frame->length + (gue ? sizeof(*udp) : 0));
	ip->nexthdr = gue ? IPPROTO_UDP : frame->flow.version == 4 ? IPPROTO_IPIP : IPPROTO_IPV6;
	ip->hop_limit = 64;
	word = (void *)&ip->saddr;
#pragma unroll
	for (int n = 0; n < 4; n++)
		word[n] = own_address6.word[n];
	word = (void *)&ip->daddr;
#pragma unroll
	for (int n = 0; n < 4; n++)
		word[n] = server->address.word[n];
	if (gue) {
		__u64 sum;

		/* A checksum of 0 is not allowed over IPv6, so the inner packet's first 40 bytes count, as a sample. */
		write_gue(udp, frame, hash, frame->length + sizeof(*udp));
		if ((void *)(udp + 1) + 40 > end)
			return XDP_ABORTED;
		sum = sum_words(&ip->saddr, 32) + udp->len + htons(IPPROTO_UDP) + sum_words(udp, sizeof(*udp));
		sum += sum_words(udp + 1, 40);
		udp->check = ~fold(sum);
		if (!udp->check)
			udp->check = 0xffff;
	}
	return XDP_TX;
}

static INLINE void swap_macs(struct ethhdr *ethernet)
{
	__u8 mac[6];

	__builtin_memcpy(mac, ethernet->h_dest, 6);
	__builtin_memcpy(ethernet->h_dest, ethernet->h_source, 6);
	__builtin_memcpy(ethernet->h_source, mac, 6);
}

/* Turns an IPv4 packet that is too long into the router's answer, in front of what it quotes. */
static INLINE int answer_too_long4(struct xdp_md *ctx, const struct frame *frame)
{
	int grows = sizeof(struct iphdr) + sizeof(struct icmphdr);
	struct ethhdr old, *ethernet;
	struct icmphdr *icmp;
	struct iphdr *ip, *quoted;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (frame->tags || data + sizeof(old) + sizeof(*ip) > end)
		return XDP_DROP;
	ethernet = data;
	old = *ethernet;
	if (xdp_adjust_tail(ctx, -(int)(end - data - sizeof(old) - QUOTED4)) || xdp_adjust_head(ctx, -grows))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ethernet = data;
	ip = (void *)(ethernet + 1);
	icmp = (void *)(ip + 1);
	quoted = (void *)(icmp + 1);
	if ((void *)quoted + QUOTED4 > end)
		return XDP_ABORTED;
	*ethernet = old;
	swap_macs(ethernet);
	*ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tot_len = htons(grows + QUOTED4),
		.ttl = 64,
		.protocol = IPPROTO_ICMP,
		.saddr = frame->flow.target.word[0],
		.daddr = frame->flow.source.word[0],
	};
	ip->check = ~fold(sum_words(ip, sizeof(*ip)));
	__builtin_memset(icmp, 0, sizeof(*icmp));
	icmp->type = ICMP_DEST_UNREACH;
	icmp->code = ICMP_FRAG_NEEDED;
	icmp->mtu = htons(LIMIT);
	icmp->checksum = ~fold(sum_words(icmp, sizeof(*icmp) + QUOTED4));
	return XDP_TX;
}

static INLINE int answer_too_long6(struct xdp_md *ctx, const struct frame *frame)
{
	int grows = sizeof(struct ipv6hdr) + sizeof(struct icmp6hdr);
	struct ethhdr old, *ethernet;
	struct icmp6hdr *icmp;
	struct ipv6hdr *ip;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__be32 *word;
	__u64 sum;

	if (frame->tags || data + sizeof(old) + sizeof(*ip) > end)
		return XDP_DROP;
	ethernet = data;
	old = *ethernet;
	if (xdp_adjust_tail(ctx, -(int)(end - data - sizeof(old) - QUOTED6)) || xdp_adjust_head(ctx, -grows))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ethernet = data;
	ip = (void *)(ethernet + 1);
	icmp = (void *)(ip + 1);
	if ((void *)(icmp + 1) + QUOTED6 > end)
		return XDP_ABORTED;
	*ethernet = old;
	swap_macs(ethernet);
	__builtin_memset(ip, 0, sizeof(*ip) + sizeof(*icmp));
	ip->version = 6;
	ip->payload_len = htons(sizeof(*icmp) + QUOTED6);
	ip->nexthdr = IPPROTO_ICMPV6;
	ip->hop_limit = 255;
	word = (void *)&ip->saddr;
#pragma unroll
	for (int n = 0; n < 4; n++)
		word[n] = frame->flow.target.word[n];
	word = (void *)&ip->daddr;
#pragma unroll
	for (int n = 0; n < 4; n++)
		word[n] = frame->flow.source.word[n];
	icmp->icmp6_type = ICMPV6_PKT_TOOBIG;
	icmp->icmp6_mtu = htonl(LIMIT);
	sum = sum_words(&ip->saddr, 32) + htons(sizeof(*icmp) + QUOTED6) + htons(IPPROTO_ICMPV6);
	icmp->icmp6_cksum = ~fold(sum + sum_words(icmp, sizeof(*icmp) + QUOTED6));
	return XDP_TX;
}

static INLINE int parse(struct xdp_md *ctx, struct frame *frame)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	__be16 protocol;

	if ((void *)(ethernet + 1) > end)
		return SHORT;
	count(BYTES, end - data);
	protocol = ethernet->h_proto;
	frame->l3 = sizeof(*ethernet);
#pragma unroll
	for (int n = 0; n < VLANS; n++) {
		__be16 *tag = data + sizeof(*ethernet) + 4 * n;

		if (protocol != htons(ETH_P_8021Q) && protocol != htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 2) > end)
			return SHORT;
		protocol = tag[1];
		frame->l3 += 4;
		frame->tags++;
	}
	if (protocol == htons(ETH_P_IP))
		return parse4(ctx, data, end, frame);
	if (protocol == htons(ETH_P_IPV6))
		return parse6(ctx, data, end, frame);
	return NOT_IP;
}

SEC("xdp")
int edge(struct xdp_md *ctx)
{
	struct frame frame = {};
	struct service *service;
	struct server *server;
	int problem, action;

	count(FRAMES, 1);
	problem = parse(ctx, &frame);
	if (problem) {
		count(problem, 1);
		return problem == BLOCKED || problem == SHORT ? XDP_DROP : XDP_PASS;
	}
	service = find_service(&frame.flow);
	if (!service) {
		count(NO_SERVICE, 1);
		return XDP_PASS;
	}
	if (frame.length > LIMIT) {
		count(TOO_LONG, 1);
		return frame.flow.version == 4 ? answer_too_long4(ctx, &frame) : answer_too_long6(ctx, &frame);
	}
	if (frame.syn)
		count(SYNS, 1);
	if (frame.about)
		count(ICMP_ERRORS, 1);
	server = find_server(&frame, service);
	if (!server) {
		count(NO_SERVER, 1);
		return XDP_DROP;
	}
	__sync_fetch_and_add(&service->frames, 1);
	__sync_fetch_and_add(&service->bytes, frame.length);
	__sync_fetch_and_add(&server->frames, 1);
	__sync_fetch_and_add(&server->bytes, frame.length);
	if (server->flags & SERVER_GUE) {
		count(GUE, 1);
		action = server->flags & SERVER_IPV6 ? encapsulate6(ctx, &frame, server, 1) : encapsulate4(ctx, &frame, server, 1);
	} else {
		count(PLAIN, 1);
		action = server->flags & SERVER_IPV6 ? encapsulate6(ctx, &frame, server, 0) : encapsulate4(ctx, &frame, server, 0);
	}
	return action;
}

/* Answers an echo request to a service's address. */
SEC("xdp")
int answer_icmp4(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct icmphdr *icmp = (void *)(ip + 1);
	__be32 address;

	if ((void *)(icmp + 1) > end || ethernet->h_proto != htons(ETH_P_IP) || ip->ihl != 5)
		return XDP_PASS;
	if (ip->protocol != IPPROTO_ICMP || icmp->type != ICMP_ECHO)
		return XDP_PASS;
	swap_macs(ethernet);
	address = ip->saddr;
	ip->saddr = ip->daddr;
	ip->daddr = address;
	ip->ttl = 64;
	ip->check = 0;
	ip->check = ~fold(sum_words(ip, sizeof(*ip)));
	icmp->type = ICMP_ECHOREPLY;
	icmp->checksum = fold((__u64)icmp->checksum + ICMP_ECHO); /* one's complement: what left the sum comes back */
	count(ECHOES, 1);
	return XDP_TX;
}

SEC("xdp")
int answer_icmp6(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct ipv6hdr *ip = (void *)(ethernet + 1);
	struct icmp6hdr *icmp = (void *)(ip + 1);
	struct address source, target;

	if ((void *)(icmp + 1) > end || ethernet->h_proto != htons(ETH_P_IPV6))
		return XDP_PASS;
	if (ip->nexthdr != IPPROTO_ICMPV6 || icmp->icmp6_type != ICMPV6_ECHO_REQUEST)
		return XDP_PASS;
	swap_macs(ethernet);
	copy_address6(&source, &ip->saddr);
	copy_address6(&target, &ip->daddr);
	__builtin_memcpy(&ip->saddr, &target, sizeof(target));
	__builtin_memcpy(&ip->daddr, &source, sizeof(source));
	ip->hop_limit = 64;
	icmp->icmp6_type = ICMPV6_ECHO_REPLY;
	icmp->icmp6_cksum = ~fold((__u16)~icmp->icmp6_cksum + ICMPV6_ECHO_REPLY + (__u64)0xffff - ICMPV6_ECHO_REQUEST);
	count(ECHOES, 1);
	return XDP_TX;
}

LICENSE("GPL");
