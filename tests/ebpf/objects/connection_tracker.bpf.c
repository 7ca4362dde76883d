/* Follows TCP and UDP connections over IPv4 and IPv6 and drops TCP segments that belong to none.
 *
 * A connection is kept under its two ends, the lesser first, so that both directions share it. Counters are added to
 * atomically; totals stand behind a spin lock; the ring buffer `events` tells of connections that come and go. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "bpf_api.h"

enum state { NONE, SYN_SENT, SYN_RECEIVED, ESTABLISHED, CLOSING, CLOSED, STATES };
enum kind { OPENED, ENDED, REFUSED };

struct end {
	__u32 address[4];
	__u16 port;
	__u16 pad;
};

struct connection_key {
	struct end low;
	struct end high;
	__u32 protocol;
};

struct connection {
	__u64 first_ns;
	__u64 last_ns;
	__u64 frames[2];
	__u64 bytes[2];
	__u32 state;
	__u8 opener; /* the direction of the first frame */
	__u8 fins;   /* bit d: direction d has sent FIN */
	__u8 pad[2];
};

struct totals {
	struct bpf_spin_lock lock;
	__u32 open;
	__u64 opened;
	__u64 ended;
	__u64 refused;
};

struct event {
	struct connection_key key;
	__u32 kind;
	__u64 frames;
	__u64 bytes;
};

struct {
	UINT(type, BPF_MAP_TYPE_LRU_HASH);
	UINT(max_entries, 1024);
	TYPE(key, struct connection_key);
	TYPE(value, struct connection);
} connections SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, struct totals);
} totals SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_RINGBUF);
	UINT(max_entries, 1 << 16);
} events SEC(".maps");

struct packet {
	struct connection_key key;
	__u32 direction; /* 0: from the lesser end to the greater */
	__u32 flags;     /* of TCP */
};

enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

static INLINE int less(const struct end *one, const struct end *other)
{
#pragma unroll
	for (int n = 0; n < 4; n++) {
		if (one->address[n] != other->address[n])
			return one->address[n] < other->address[n];
	}
	return one->port < other->port;
}

static NOINLINE int read_packet(struct __sk_buff *skb, struct packet *packet)
{
	struct end source = {}, target = {};
	struct ethhdr ethernet;
	__u32 offset = sizeof(ethernet);
	__u8 protocol, tcp[14];
	__be16 port[2];

	if (skb_load_bytes(skb, 0, &ethernet, sizeof(ethernet)))
		return -1;
	if (ethernet.h_proto == htons(ETH_P_IP)) {
		struct iphdr ip;

		if (skb_load_bytes(skb, offset, &ip, sizeof(ip)) || ip.ihl < 5)
			return -1;
		if (ip.frag_off & htons(0x1fff))
			return 1;
		source.address[3] = ntohl(ip.saddr);
		target.address[3] = ntohl(ip.daddr);
		protocol = ip.protocol;
		offset += ip.ihl * 4;
	} else if (ethernet.h_proto == htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (skb_load_bytes(skb, offset, &ip, sizeof(ip)))
			return -1;
#pragma unroll
		for (int n = 0; n < 4; n++) {
			source.address[n] = ntohl(ip.saddr.in6_u.u6_addr32[n]);
			target.address[n] = ntohl(ip.daddr.in6_u.u6_addr32[n]);
		}
		protocol = ip.nexthdr;
		offset += sizeof(ip);
	} else {
		return 1;
	}
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return 1;
	if (skb_load_bytes(skb, offset, port, sizeof(port)))
		return -1;
	source.port = ntohs(port[0]);
	target.port = ntohs(port[1]);
	packet->flags = 0;
	if (protocol == IPPROTO_TCP) {
		if (skb_load_bytes(skb, offset, tcp, sizeof(tcp)))
			return -1;
		packet->flags = tcp[13];
	}
	packet->direction = !less(&source, &target);
	packet->key.low = packet->direction ? target : source;
	packet->key.high = packet->direction ? source : target;
	packet->key.protocol = protocol;
	return 0;
}

static NOINLINE void tell(struct connection_key *key, __u32 kind, struct connection *connection)
{
	struct event *event = ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return;
	event->key = *key;
	event->kind = kind;
	event->frames = connection ? connection->frames[0] + connection->frames[1] : 0;
	event->bytes = connection ? connection->bytes[0] + connection->bytes[1] : 0;
	ringbuf_submit(event, 0);
}

static NOINLINE void sum_up(__u32 kind)
{
	__u32 first = 0;
	struct totals *sums = map_lookup(&totals, &first);

	if (!sums)
		return;
	spin_lock(&sums->lock);
	if (kind == OPENED) {
		sums->opened++;
		sums->open++;
	} else if (kind == ENDED) {
		sums->ended++;
		sums->open--;
	} else {
		sums->refused++;
	}
	spin_unlock(&sums->lock);
}

/* The state after a TCP segment; NONE: the segment does not go with the state. */
NOINLINE int next_state(__u32 state, __u32 flags, __u32 from_opener, __u32 all_fins)
{
	if (flags & RST)
		return CLOSED;
	switch (state) {
	case SYN_SENT:
		if (from_opener)
			return flags & SYN ? SYN_SENT : NONE;
		return (flags & (SYN | ACK)) == (SYN | ACK) ? SYN_RECEIVED : NONE;
	case SYN_RECEIVED:
		if (from_opener && flags & ACK && !(flags & SYN))
			return flags & FIN ? CLOSING : ESTABLISHED;
		return flags & SYN ? SYN_RECEIVED : NONE;
	case ESTABLISHED:
		if (flags & SYN)
			return NONE;
		return flags & FIN ? CLOSING : ESTABLISHED;
	case CLOSING:
		return all_fins && flags & ACK && !(flags & FIN) ? CLOSED : CLOSING;
	}
	return NONE;
}

static NOINLINE int open_connection(struct packet *packet, __u32 length)
{
	struct connection fresh = {};

	if (packet->key.protocol == IPPROTO_TCP && (packet->flags & (SYN | ACK | RST | FIN)) != SYN) {
		sum_up(REFUSED);
		tell(&packet->key, REFUSED, 0);
		return TC_ACT_SHOT;
	}
	fresh.first_ns = fresh.last_ns = ktime_ns();
	fresh.state = packet->key.protocol == IPPROTO_TCP ? SYN_SENT : ESTABLISHED;
	fresh.opener = packet->direction & 1;
	fresh.frames[packet->direction & 1] = 1;
	fresh.bytes[packet->direction & 1] = length;
	map_update(&connections, &packet->key, &fresh, BPF_ANY);
	sum_up(OPENED);
	tell(&packet->key, OPENED, &fresh);
	return TC_ACT_OK;
}

SEC("tc")
int track(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct connection *connection;
	int read = read_packet(skb, &packet);
	__u32 direction, state;

	if (read)
		return read < 0 ? TC_ACT_SHOT : TC_ACT_OK;
	connection = map_lookup(&connections, &packet.key);
	if (!connection)
		return open_connection(&packet, skb->len);
	direction = packet.direction & 1;
	connection->last_ns = ktime_ns();
	__sync_fetch_and_add(&connection->frames[direction], 1);
	__sync_fetch_and_add(&connection->bytes[direction], skb->len);
	if (packet.key.protocol != IPPROTO_TCP)
		return TC_ACT_OK;
	if (packet.flags & FIN)
		connection->fins |= 1 << direction;
	state = next_state(connection->state, packet.flags, direction == connection->opener, connection->fins == 3);
	if (state == NONE) {
		sum_up(REFUSED);
		tell(&packet.key, REFUSED, connection);
		return TC_ACT_SHOT;
	}
	connection->state = state;
	if (state == CLOSED) {
		sum_up(ENDED);
		tell(&packet.key, ENDED, connection);
		map_delete(&connections, &packet.key);
	}
	return TC_ACT_OK;
}

LICENSE("GPL");
