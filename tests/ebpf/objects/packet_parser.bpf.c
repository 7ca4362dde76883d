/* Parses a frame down to its transport header and TCP options, and notes what it found.
 *
 * Ethernet, up to two VLAN tags, IPv4 with options, IPv6 with extension headers, TCP, UDP, ICMP. The last frame's facts
 * stand in the map `parsed`, counts by outcome in `outcomes`. Broken frames are dropped, all others passed. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "bpf_api.h"

#define VLANS 2
#define EXTENSIONS 6
#define OPTIONS 12

enum outcome { OK, SHORT, NOT_IP, FRAGMENT, BAD_HEADER, OTHER_TRANSPORT, OUTCOMES };

struct vlan_tag {
	__be16 control;
	__be16 inner;
};

struct extension {
	__u8 next;
	__u8 words; /* of 8 bytes, behind the first */
	__u8 rest[6];
};

struct facts {
	__u16 ethertype;
	__u16 vlan[VLANS];
	__u8 vlans;
	__u8 version;
	__u8 transport;
	__u8 extensions;
	__u16 l3_offset;
	__u16 l4_offset;
	__u16 source_port;
	__u16 target_port;
	__u16 mss;
	__u8 window_scale;
	__u8 sack;
	__u32 timestamp;
	__u32 echo;
	__u32 payload;
};

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, struct facts);
} parsed SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	UINT(max_entries, OUTCOMES);
	TYPE(key, __u32);
	TYPE(value, __u64);
} outcomes SEC(".maps");

struct cursor {
	__u32 offset; /* of what is read next, from the frame's start */
	__u16 protocol;
};

static NOINLINE int parse_vlans(struct xdp_md *ctx, struct cursor *at, struct facts *facts)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

#pragma unroll
	for (int n = 0; n < VLANS; n++) {
		if (at->protocol != ETH_P_8021Q && at->protocol != ETH_P_8021AD)
			break;
		struct vlan_tag *tag = data + sizeof(struct ethhdr) + n * sizeof(*tag);
		if ((void *)(tag + 1) > end)
			return SHORT;
		facts->vlan[n] = ntohs(tag->control) & 0xfff;
		facts->vlans = n + 1;
		at->protocol = ntohs(tag->inner);
		at->offset += sizeof(*tag);
	}
	return OK;
}

static NOINLINE int parse_ipv4(struct xdp_md *ctx, struct cursor *at, struct facts *facts)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 offset = at->offset;

	if (offset > 64)
		return BAD_HEADER;
	struct iphdr *ip = data + offset;
	if ((void *)(ip + 1) > end)
		return SHORT;
	__u32 length = ip->ihl * 4, total = ntohs(ip->tot_len);
	if (ip->version != 4 || length < sizeof(*ip) || total < length)
		return BAD_HEADER;
	if (data + offset + length > end)
		return SHORT;
	facts->version = 4;
	facts->extensions = (length - sizeof(*ip)) / 4;
	facts->payload = total - length;
	at->offset = offset + length;
	at->protocol = ip->protocol;
	return ntohs(ip->frag_off) & 0x1fff ? FRAGMENT : OK;
}

static NOINLINE int parse_ipv6(struct xdp_md *ctx, struct cursor *at, struct facts *facts)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 offset = at->offset;

	if (offset > 64)
		return BAD_HEADER;
	struct ipv6hdr *ip = data + offset;
	if ((void *)(ip + 1) > end)
		return SHORT;
	if (ip->version != 6)
		return BAD_HEADER;
	facts->version = 6;
	facts->payload = ntohs(ip->payload_len);
	__u8 next = ip->nexthdr;
	offset += sizeof(*ip);
	for (int n = 0; n < EXTENSIONS; n++) {
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
		    next != IPPROTO_FRAGMENT)
			break;
		if (offset > 512)
			return BAD_HEADER;
		struct extension *extension = data + offset;
		if ((void *)(extension + 1) > end)
			return SHORT;
		__u32 bytes = next == IPPROTO_FRAGMENT ? 8 : (extension->words + 1) * 8;
		if (next == IPPROTO_FRAGMENT && (extension->rest[0] || extension->rest[1] & 0xf8))
			return FRAGMENT;
		if (bytes > facts->payload)
			return BAD_HEADER;
		facts->payload -= bytes;
		facts->extensions++;
		next = extension->next;
		offset += bytes;
	}
	at->offset = offset;
	at->protocol = next;
	return OK;
}

static NOINLINE int parse_tcp_options(struct xdp_md *ctx, __u32 offset, __u32 bytes, struct facts *facts)
{
	__u32 stop = offset + bytes;

	for (int n = 0; n < OPTIONS; n++) {
		__u8 head[2], body[8];

		if (offset >= stop || xdp_load_bytes(ctx, offset, head, 1))
			return OK;
		if (head[0] == 0)
			return OK;
		if (head[0] == 1) {
			offset++;
			continue;
		}
		if (offset + 2 > stop || xdp_load_bytes(ctx, offset, head, 2) || head[1] < 2 ||
		    offset + head[1] > stop)
			return BAD_HEADER;
		if (head[0] == 2 && head[1] == 4 && !xdp_load_bytes(ctx, offset + 2, body, 2))
			facts->mss = body[0] << 8 | body[1];
		else if (head[0] == 3 && head[1] == 3 && !xdp_load_bytes(ctx, offset + 2, body, 1))
			facts->window_scale = body[0];
		else if (head[0] == 4 && head[1] == 2)
			facts->sack = 1;
		else if (head[0] == 8 && head[1] == 10 && !xdp_load_bytes(ctx, offset + 2, body, 8)) {
			facts->timestamp = (__u32)body[0] << 24 | body[1] << 16 | body[2] << 8 | body[3];
			facts->echo = (__u32)body[4] << 24 | body[5] << 16 | body[6] << 8 | body[7];
		}
		offset += head[1];
	}
	return OK;
}

static NOINLINE int parse_transport(struct xdp_md *ctx, struct cursor *at, struct facts *facts)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 offset = at->offset;

	facts->transport = at->protocol;
	facts->l4_offset = offset;
	if (offset > 1024)
		return BAD_HEADER;
	if (at->protocol == IPPROTO_UDP) {
		struct udphdr *udp = data + offset;
		if ((void *)(udp + 1) > end || facts->payload < sizeof(*udp))
			return SHORT;
		facts->source_port = ntohs(udp->source);
		facts->target_port = ntohs(udp->dest);
		facts->payload -= sizeof(*udp);
		return OK;
	}
	if (at->protocol != IPPROTO_TCP)
		return at->protocol == IPPROTO_ICMP || at->protocol == IPPROTO_ICMPV6 ? OK : OTHER_TRANSPORT;
	struct tcphdr *tcp = data + offset;
	if ((void *)(tcp + 1) > end)
		return SHORT;
	__u32 length = tcp->doff * 4;
	if (length < sizeof(*tcp) || length > facts->payload)
		return BAD_HEADER;
	facts->source_port = ntohs(tcp->source);
	facts->target_port = ntohs(tcp->dest);
	facts->payload -= length;
	return parse_tcp_options(ctx, offset + sizeof(*tcp), length - sizeof(*tcp), facts);
}

static NOINLINE int parse(struct xdp_md *ctx, struct facts *facts)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct cursor at = {.offset = sizeof(*ethernet)};
	int outcome;

	if ((void *)(ethernet + 1) > end)
		return SHORT;
	at.protocol = ntohs(ethernet->h_proto);
	outcome = parse_vlans(ctx, &at, facts);
	if (outcome)
		return outcome;
	facts->ethertype = at.protocol;
	facts->l3_offset = at.offset;
	if (at.protocol == ETH_P_IP)
		outcome = parse_ipv4(ctx, &at, facts);
	else if (at.protocol == ETH_P_IPV6)
		outcome = parse_ipv6(ctx, &at, facts);
	else
		return NOT_IP;
	return outcome ? outcome : parse_transport(ctx, &at, facts);
}

/* Global, so that the kernel verifies it by itself. */
NOINLINE int is_broken(int outcome)
{
	return outcome == SHORT || outcome == BAD_HEADER;
}

SEC("xdp")
int parse_packet(struct xdp_md *ctx)
{
	struct facts facts = {};
	__u32 first = 0, outcome = parse(ctx, &facts);
	__u64 *count = map_lookup(&outcomes, &outcome);

	if (count)
		*count += 1;
	map_update(&parsed, &first, &facts, BPF_ANY);
	return is_broken(outcome) ? XDP_DROP : XDP_PASS;
}

LICENSE("GPL");
