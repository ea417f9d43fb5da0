// SPDX-License-Identifier: GPL-2.0
/* See snapshot.h. */

#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <net/addrconf.h>
#include <net/inet_ecn.h>
#include <net/ipv6.h>
#include <net/neighbour.h>
#include <net/route.h>
#include <net/tcp.h>

#include "snapshot.h"

bool iwarp_is_vlan_of(const struct net_device *dev, const struct net_device *netdev)
{
	return is_vlan_dev(dev) && vlan_dev_real_dev(dev) == netdev &&
	       vlan_dev_vlan_proto(dev) == htons(ETH_P_8021Q);
}

/* Returns whether segments must be signed (MD5 or AO), which the adapter does not support. */
static bool iwarp_is_signed(const struct tcp_sock *tp)
{
	bool is_signed = false;

#ifdef CONFIG_TCP_MD5SIG
	is_signed |= rcu_access_pointer(tp->md5sig_info) != NULL;
#endif
#ifdef CONFIG_TCP_AO
	is_signed |= rcu_access_pointer(tp->ao_info) != NULL;
#endif
	return is_signed;
}

static int iwarp_check(const struct sock *sk, bool lent)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	bool closed = lent && sk->sk_state == TCP_CLOSE_WAIT;

	if ((sk->sk_state != TCP_ESTABLISHED && !closed) || tp->repair)
		return -ECONNRESET;
	if (tp->snd_una != tp->snd_nxt || tp->snd_nxt != tp->write_seq)
		return -EAGAIN;
	/* The bytes in front of these arrive soon. */
	if (lent && !RB_EMPTY_ROOT(&tp->out_of_order_queue))
		return -EAGAIN;
	if ((tp->rcv_nxt != tp->copied_seq && !lent) ||
	    !RB_EMPTY_ROOT(&tp->out_of_order_queue) || tp->urg_data)
		return -EPROTO;
	if (tcp_ecn_mode_any(tp) || iwarp_is_signed(tp) || inet_csk(sk)->icsk_ulp_ops)
		return -EOPNOTSUPP;
	return 0;
}

/* Returns whether the remote address is an address of netdev or of a VLAN of it. */
static bool iwarp_is_own(const struct sock *sk, const struct net_device *netdev, bool ipv6)
{
	struct net *net = sock_net(sk);
	const struct net_device *dev;
	bool is_own;

	rcu_read_lock();
	dev = ipv6 ? ipv6_dev_find(net, &sk->sk_v6_daddr, NULL) :
		     __ip_dev_find(net, sk->sk_daddr, false);
	is_own = dev && (dev == netdev || iwarp_is_vlan_of(dev, netdev));
	rcu_read_unlock();
	return is_own;
}

/* Returns whether a MAC is that of card or of a device on top of it, which frames do not leave. */
static bool iwarp_is_near(struct net_device *card, const u8 *mac)
{
	struct net_device *upper;
	struct list_head *iter;
	bool is_near;

	rcu_read_lock();
	is_near = ether_addr_equal(card->dev_addr, mac);
	netdev_for_each_upper_dev_rcu(card, upper, iter)
		is_near |= netif_is_macvlan(upper) && ether_addr_equal(upper->dev_addr, mac);
	rcu_read_unlock();
	return is_near;
}

/*
 * Returns an error if frames with the destination and the VLAN tag of frame leave a bridge by another
 * port than card, or with another tag. A bridge that does not know the MAC may send them by any.
 */
static int iwarp_check_bridge(const struct net_device *bridge, const struct net_device *card,
			      const struct iwarp_snapshot *frame)
{
	struct net_device_path_ctx context = { .dev = bridge };
	struct net_device_path_stack paths;
	const struct net_device_path *path;
	int err = 0;

	ether_addr_copy(context.daddr, frame->dmac);
	if (frame->tagged) {
		context.vlan[0].id = frame->vlan & VLAN_VID_MASK;
		context.vlan[0].proto = htons(ETH_P_8021Q);
		context.num_vlans = 1;
	}
	rcu_read_lock();
	if (dev_fill_forward_path(&context, &paths) >= 0) {
		for (path = paths.path; path < paths.path + paths.num_paths; path++)
			if (path->type == DEV_PATH_BRIDGE ?
			    path->bridge.vlan_mode != DEV_PATH_BR_VLAN_KEEP : path->dev != card)
				err = -ECONNREFUSED;
		dev_fill_forward_path_release(&paths);
	}
	rcu_read_unlock();
	return err;
}

/* Fills in the MAC of the next hop. If it is not known, asks for it. */
static int iwarp_next_hop(const struct sock *sk, bool ipv6, struct dst_entry *dst,
			  struct iwarp_snapshot *out)
{
	struct neighbour *neighbour;

	neighbour = dst_neigh_lookup(dst, ipv6 ? (void *)&sk->sk_v6_daddr : (void *)&sk->sk_daddr);
	if (!neighbour)
		return -EHOSTUNREACH;
	if (READ_ONCE(neighbour->nud_state) & NUD_VALID)
		neigh_ha_snapshot((char *)out->dmac, neighbour, neighbour->dev);
	else
		neigh_event_send(neighbour, NULL);
	neigh_release(neighbour);
	return is_valid_ether_addr(out->dmac) ? 0 : -EHOSTUNREACH;
}

/* Fills in the MACs of frames, and their VLAN tag. */
static int iwarp_station(const struct sock *sk, const struct net_device *netdev,
			 struct net_device *card, bool ipv6, struct dst_entry *dst,
			 struct iwarp_snapshot *out)
{
	struct net_device *dev = dst_dev(dst);
	int err;

	if (dev->flags & IFF_LOOPBACK) {
		if (!iwarp_is_own(sk, netdev, ipv6))
			return -ECONNREFUSED;
		out->own = true;
		ether_addr_copy(out->smac, netdev->dev_addr);
		ether_addr_copy(out->dmac, netdev->dev_addr);
		return 0;
	}
	if (dev != netdev) {
		/* The VLAN may be removed now. Its priorities stay until readers have finished. */
		rcu_read_lock();
		out->tagged = iwarp_is_vlan_of(dev, netdev);
		if (out->tagged)
			out->vlan = vlan_dev_vlan_id(dev) |
				    vlan_dev_get_egress_qos_mask(dev, READ_ONCE(sk->sk_priority));
		rcu_read_unlock();
		if (!out->tagged)
			return -ECONNREFUSED;
	}
	ether_addr_copy(out->smac, dev->dev_addr);
	err = iwarp_next_hop(sk, ipv6, dst, out);
	if (err)
		return err;
	out->own = iwarp_is_near(card, out->dmac);
	return netif_is_bridge_master(netdev) ? iwarp_check_bridge(netdev, card, out) : 0;
}

/* Fills in the state below TCP. */
static int iwarp_path(struct sock *sk, const struct net_device *netdev, struct net_device *card,
		      bool ipv6, struct iwarp_snapshot *out)
{
	struct dst_entry *dst = __sk_dst_check(sk, 0);
	int err;

	if (!dst && !inet_csk(sk)->icsk_af_ops->rebuild_header(sk))
		dst = __sk_dst_get(sk);
	if (!dst)
		return -EHOSTUNREACH;
	err = iwarp_station(sk, netdev, card, ipv6, dst, out);
	if (err)
		return err;
	if (ipv6) {
		out->hop_limit = ip6_dst_hoplimit(dst);
		out->traffic_class = inet6_sk(sk)->tclass & ~INET_ECN_MASK;
	} else {
		out->hop_limit = ip4_dst_hoplimit(dst);
		out->traffic_class = READ_ONCE(inet_sk(sk)->tos) & ~INET_ECN_MASK;
	}
	return 0;
}

static void iwarp_addresses(const struct sock *sk, bool ipv6, struct iwarp_snapshot *out)
{
	out->ipv6 = ipv6;
	out->local_port = ntohs(inet_sk(sk)->inet_sport);
	out->remote_port = ntohs(inet_sk(sk)->inet_dport);
	if (ipv6) {
		memcpy(out->local, &inet6_sk(sk)->saddr, 16);
		memcpy(out->remote, &sk->sk_v6_daddr, 16);
	} else {
		memcpy(out->local, &inet_sk(sk)->inet_saddr, 4);
		memcpy(out->remote, &sk->sk_daddr, 4);
	}
}

static void iwarp_state(const struct tcp_sock *tp, struct iwarp_snapshot *out)
{
	const struct tcp_options_received *options = &tp->rx_opt;

	out->peer_closed = ((const struct sock *)tp)->sk_state == TCP_CLOSE_WAIT;
	out->sack = options->sack_ok;
	/* In a connection to itself, the kernel would send the request with a later timestamp. */
	out->timestamps = options->tstamp_ok && !out->own;
	out->microseconds = tp->tcp_usec_ts;
	out->send_scale = options->wscale_ok ? options->snd_wscale : 0;
	out->receive_scale = options->wscale_ok ? options->rcv_wscale : 0;
	/* The kernel's MSS does not include the options that are in each segment. */
	out->mss = tp->mss_cache + tp->tcp_header_len - sizeof(struct tcphdr);
	out->send_next = tp->snd_nxt;
	out->receive_next = tp->rcv_nxt;
	out->send_window = tp->snd_wnd;
	out->max_send_window = tp->max_window;
	out->receive_window = tcp_receive_window(tp);
	out->timestamp = tcp_clock_ts(tp->tcp_usec_ts) + tp->tsoffset;
	out->recent_timestamp = options->ts_recent;
}

/* Returns whether the connection uses IPv6, and not IPv4 by a socket of IPv6. */
static bool iwarp_is_ipv6(const struct sock *sk)
{
	return sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr);
}

int iwarp_macs(struct sock *sk, const struct net_device *netdev, struct net_device *card,
	       const struct iwarp_snapshot *taken, u8 *smac, u8 *dmac)
{
	struct iwarp_snapshot now = {};
	int err = iwarp_path(sk, netdev, card, iwarp_is_ipv6(sk), &now);

	if (err == -EHOSTUNREACH && is_valid_ether_addr(now.smac))
		err = 0;
	if (err)
		return err;
	/* The peer's address has moved to this system, which does not have the connection. */
	if (now.own && !taken->own && ether_addr_equal(now.smac, now.dmac))
		return -ECONNREFUSED;
	/* The adapter knows the connection by its VLAN, too. */
	if (now.tagged != taken->tagged || (now.vlan ^ taken->vlan) & VLAN_VID_MASK)
		return -ECONNREFUSED;
	ether_addr_copy(smac, now.smac);
	if (is_valid_ether_addr(now.dmac))
		ether_addr_copy(dmac, now.dmac);
	return 0;
}

int iwarp_snapshot(struct sock *sk, const struct net_device *netdev, struct net_device *card,
		   bool lent, struct iwarp_snapshot *out)
{
	bool ipv6 = iwarp_is_ipv6(sk);
	int err;

	memset(out, 0, sizeof(*out));
	err = iwarp_check(sk, lent);
	if (!err)
		err = iwarp_path(sk, netdev, card, ipv6, out);
	if (err)
		return err;
	iwarp_addresses(sk, ipv6, out);
	iwarp_state(tcp_sk(sk), out);
	return 0;
}
