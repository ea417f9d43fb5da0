// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/net.h>
#include <net/addrconf.h>
#include <net/flow.h>
#include <net/inet_ecn.h>
#include <net/ipv6.h>
#include <net/neighbour.h>
#include <net/route.h>
#include <net/tcp.h>

#include "helpers.h"

/* Bytes of the longest segments that the adapter takes, so that they fit RoCE's longest frame. */
#define IWARP_MSS_MAX 4096

/* A socket, and the callbacks that it had before iwarp_changed was put in their place. */
struct iwarp_socket {
	struct socket *sock;
	const void *user;
	iwarp_wake_t wake;
	void (*data_ready)(struct sock *sk);
	void (*state_change)(struct sock *sk);
	void (*error_report)(struct sock *sk);
};

/* The callback of all changes. What is accepted inherits it, but not the pointer to the user. */
static void iwarp_changed(struct sock *sk)
{
	struct iwarp_socket *s;

	read_lock_bh(&sk->sk_callback_lock);
	rcu_read_lock();
	s = rcu_dereference_sk_user_data(sk);
	if (s)
		s->wake(s->user);
	rcu_read_unlock();
	read_unlock_bh(&sk->sk_callback_lock);
}

static struct iwarp_socket *iwarp_socket_wrap(struct socket *sock)
{
	struct iwarp_socket *s = kzalloc(sizeof(*s), GFP_KERNEL);

	if (!s) {
		sock_release(sock);
		return ERR_PTR(-ENOMEM);
	}
	s->sock = sock;
	s->data_ready = sock->sk->sk_data_ready;
	s->state_change = sock->sk->sk_state_change;
	s->error_report = sock->sk->sk_error_report;
	return s;
}

static struct iwarp_socket *iwarp_socket_create(const struct net_device *netdev, int family)
{
	struct socket *sock;
	int err;

	if (family != AF_INET && family != AF_INET6)
		return ERR_PTR(-EAFNOSUPPORT);
	err = sock_create_kern(dev_net(netdev), family, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (err)
		return ERR_PTR(err);
	sk_net_refcnt_upgrade(sock->sk);
	sock_set_reuseaddr(sock->sk);
	/* As TCP_MAXSEG does. Accepted connections inherit it. */
	WRITE_ONCE(tcp_sk(sock->sk)->rx_opt.user_mss, IWARP_MSS_MAX);
	return iwarp_socket_wrap(sock);
}

static int iwarp_address_length(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
						sizeof(struct sockaddr_in);
}

static bool iwarp_is_wildcard(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET6)
		return ipv6_addr_any(&((const struct sockaddr_in6 *)address)->sin6_addr);
	return ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
}

struct iwarp_socket *iwarp_socket_connect(const struct net_device *netdev,
					  const struct sockaddr_storage *local,
					  const struct sockaddr_storage *remote, int tos)
{
	struct iwarp_socket *s = iwarp_socket_create(netdev, local->ss_family);
	int err;

	if (IS_ERR(s))
		return s;
	if (tos >= 0 && local->ss_family == AF_INET)
		ip_sock_set_tos(s->sock->sk, tos);
	err = kernel_bind(s->sock, (void *)local, iwarp_address_length(local));
	if (!err)
		err = kernel_connect(s->sock, (void *)remote, iwarp_address_length(remote),
				     O_NONBLOCK);
	if (err && err != -EINPROGRESS) {
		iwarp_socket_free(s);
		return ERR_PTR(err);
	}
	return s;
}

static bool iwarp_is_vlan_of(const struct net_device *dev, const struct net_device *netdev)
{
	return is_vlan_dev(dev) && vlan_dev_real_dev(dev) == netdev &&
	       vlan_dev_vlan_proto(dev) == htons(ETH_P_8021Q);
}

int iwarp_next_device(struct net_device *netdev, const struct sockaddr_storage *local, int after)
{
	struct net_device *upper;
	struct list_head *iter;
	int next = -1;

	if (!iwarp_is_wildcard(local))
		return after < 0 ? 0 : -1;
	if (after < LOOPBACK_IFINDEX)
		return LOOPBACK_IFINDEX;
	if (netdev->ifindex > after)
		next = netdev->ifindex;
	rcu_read_lock();
	netdev_for_each_upper_dev_rcu(netdev, upper, iter) {
		if (iwarp_is_vlan_of(upper, netdev) && upper->ifindex > after &&
		    (next < 0 || upper->ifindex < next))
			next = upper->ifindex;
	}
	rcu_read_unlock();
	return next;
}

struct iwarp_socket *iwarp_socket_listen(const struct net_device *netdev, int device,
					 const struct sockaddr_storage *local, bool v6only,
					 int backlog)
{
	struct iwarp_socket *s = iwarp_socket_create(netdev, local->ss_family);
	struct sock *sk;
	int err;

	if (IS_ERR(s))
		return s;
	sk = s->sock->sk;
	if (v6only && local->ss_family == AF_INET6)
		sk->sk_ipv6only = true;
	sk->sk_bound_dev_if = device;
	err = kernel_bind(s->sock, (void *)local, iwarp_address_length(local));
	if (!err)
		err = kernel_listen(s->sock, backlog);
	if (err) {
		iwarp_socket_free(s);
		return ERR_PTR(err);
	}
	return s;
}

bool iwarp_socket_listens(const struct iwarp_socket *s)
{
	return inet_sk_state_load(s->sock->sk) == TCP_LISTEN;
}

struct iwarp_socket *iwarp_socket_accept(struct iwarp_socket *listener)
{
	struct iwarp_socket *s;
	struct socket *sock;
	int err;

	err = kernel_accept(listener->sock, &sock, O_NONBLOCK);
	if (err)
		return ERR_PTR(err);
	s = iwarp_socket_wrap(sock);
	if (!IS_ERR(s)) {
		s->data_ready = listener->data_ready;
		s->state_change = listener->state_change;
		s->error_report = listener->error_report;
	}
	return s;
}

void iwarp_socket_watch(struct iwarp_socket *s, const void *user, iwarp_wake_t wake)
{
	struct sock *sk = s->sock->sk;

	s->user = user;
	s->wake = wake;
	write_lock_bh(&sk->sk_callback_lock);
	__rcu_assign_sk_user_data_with_flags(sk, s, SK_USER_DATA_NOCOPY);
	sk->sk_data_ready = iwarp_changed;
	sk->sk_state_change = iwarp_changed;
	sk->sk_error_report = iwarp_changed;
	write_unlock_bh(&sk->sk_callback_lock);
}

int iwarp_socket_status(struct iwarp_socket *s)
{
	struct sock *sk = s->sock->sk;
	int err = sock_error(sk);

	if (err)
		return err;
	switch (READ_ONCE(sk->sk_state)) {
	case TCP_ESTABLISHED:
		return 1;
	case TCP_SYN_SENT:
	case TCP_SYN_RECV:
		return 0;
	default:
		return -ECONNRESET;
	}
}

int iwarp_socket_read(struct iwarp_socket *s, void *buffer, size_t length)
{
	struct kvec part = { .iov_base = buffer, .iov_len = length };
	struct msghdr message = {};

	return kernel_recvmsg(s->sock, &message, &part, 1, length, MSG_DONTWAIT);
}

int iwarp_socket_write(struct iwarp_socket *s, const void *buffer, size_t length)
{
	struct kvec part = { .iov_base = (void *)buffer, .iov_len = length };
	struct msghdr message = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };

	return kernel_sendmsg(s->sock, &message, &part, 1, length);
}

/* Makes an address of IPv4 that stands in one of IPv6 one of its own. */
static void iwarp_unmap(struct sockaddr_storage *address)
{
	const struct sockaddr_in6 mapped = *(struct sockaddr_in6 *)address;
	struct sockaddr_in *plain = (struct sockaddr_in *)address;

	if (address->ss_family != AF_INET6 || !ipv6_addr_v4mapped(&mapped.sin6_addr))
		return;
	memset(address, 0, sizeof(*address));
	plain->sin_family = AF_INET;
	plain->sin_port = mapped.sin6_port;
	plain->sin_addr.s_addr = mapped.sin6_addr.s6_addr32[3];
}

int iwarp_socket_names(struct iwarp_socket *s, struct sockaddr_storage *local,
		       struct sockaddr_storage *remote)
{
	int length = kernel_getsockname(s->sock, (struct sockaddr *)local);

	if (length >= 0)
		length = kernel_getpeername(s->sock, (struct sockaddr *)remote);
	if (length < 0)
		return length;
	iwarp_unmap(local);
	iwarp_unmap(remote);
	return 0;
}

/* Returns whether a signature of each segment, which the adapter does not make, was agreed. */
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

static int iwarp_check(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (sk->sk_state != TCP_ESTABLISHED || tp->repair)
		return -ECONNRESET;
	if (tp->snd_una != tp->snd_nxt || tp->snd_nxt != tp->write_seq)
		return -EAGAIN;
	if (tp->rcv_nxt != tp->copied_seq || !RB_EMPTY_ROOT(&tp->out_of_order_queue) ||
	    tp->urg_data)
		return -EPROTO;
	if (tcp_ecn_mode_any(tp) || iwarp_is_signed(tp) || inet_csk(sk)->icsk_ulp_ops)
		return -EOPNOTSUPP;
	return 0;
}

/* Returns whether the remote address is the guest's, on netdev or on a VLAN of it. */
static bool iwarp_is_own(const struct sock *sk, const struct net_device *netdev, bool ipv6)
{
	struct net *net = dev_net(netdev);
	const struct net_device *dev;
	bool is_own;

	rcu_read_lock();
	dev = ipv6 ? ipv6_dev_find(net, &sk->sk_v6_daddr, NULL) :
		     __ip_dev_find(net, sk->sk_daddr, false);
	is_own = dev && (dev == netdev || iwarp_is_vlan_of(dev, netdev));
	rcu_read_unlock();
	return is_own;
}

/* Fills in the station to which frames go, and the tag that they have. */
static int iwarp_station(const struct sock *sk, const struct net_device *netdev, bool ipv6,
			 struct dst_entry *dst, struct iwarp_snapshot *out)
{
	struct net_device *dev = dst_dev(dst);
	struct neighbour *neighbour;

	if (dev->flags & IFF_LOOPBACK) {
		if (!iwarp_is_own(sk, netdev, ipv6))
			return -ECONNREFUSED;
		out->own = true;
		ether_addr_copy(out->dmac, netdev->dev_addr);
		return 0;
	}
	if (dev != netdev) {
		if (!iwarp_is_vlan_of(dev, netdev))
			return -ECONNREFUSED;
		out->tagged = true;
		out->vlan = vlan_dev_vlan_id(dev) |
			    vlan_dev_get_egress_qos_mask(dev, READ_ONCE(sk->sk_priority));
	}
	neighbour = dst_neigh_lookup(dst, ipv6 ? (void *)&sk->sk_v6_daddr : (void *)&sk->sk_daddr);
	if (!neighbour)
		return -EHOSTUNREACH;
	if (READ_ONCE(neighbour->nud_state) & NUD_VALID)
		neigh_ha_snapshot((char *)out->dmac, neighbour, neighbour->dev);
	neigh_release(neighbour);
	return is_valid_ether_addr(out->dmac) ? 0 : -EHOSTUNREACH;
}

/* Fills in what is below TCP. */
static int iwarp_path(struct sock *sk, const struct net_device *netdev, bool ipv6,
		      struct iwarp_snapshot *out)
{
	struct dst_entry *dst = __sk_dst_check(sk, 0);
	int err;

	if (!dst && !inet_csk(sk)->icsk_af_ops->rebuild_header(sk))
		dst = __sk_dst_get(sk);
	if (!dst)
		return -EHOSTUNREACH;
	err = iwarp_station(sk, netdev, ipv6, dst, out);
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

	out->sack = options->sack_ok;
	/* The kernel's clock has gone on when it sends the request of a connection with itself. */
	out->timestamps = options->tstamp_ok && !out->own;
	out->microseconds = tp->tcp_usec_ts;
	out->send_scale = options->wscale_ok ? options->snd_wscale : 0;
	out->receive_scale = options->wscale_ok ? options->rcv_wscale : 0;
	/* The kernel's does not count the options that are in each segment. */
	out->mss = tp->mss_cache + tp->tcp_header_len - sizeof(struct tcphdr);
	out->send_next = tp->snd_nxt;
	out->receive_next = tp->rcv_nxt;
	out->send_window = tp->snd_wnd;
	out->max_send_window = tp->max_window;
	out->receive_window = tcp_receive_window(tp);
	out->timestamp = tcp_clock_ts(tp->tcp_usec_ts) + tp->tsoffset;
	out->recent_timestamp = options->ts_recent;
}

int iwarp_socket_take(struct iwarp_socket *s, const struct net_device *netdev,
		      struct iwarp_snapshot *out)
{
	struct sock *sk = s->sock->sk;
	bool ipv6;
	int err;

	memset(out, 0, sizeof(*out));
	lock_sock(sk);
	ipv6 = sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr);
	err = iwarp_check(sk);
	if (!err)
		err = iwarp_path(sk, netdev, ipv6, out);
	if (!err) {
		iwarp_addresses(sk, ipv6, out);
		iwarp_state(tcp_sk(sk), out);
		/* From here on the socket is closed without a segment. */
		tcp_sk(sk)->repair = 1;
	}
	release_sock(sk);
	return err;
}

bool iwarp_socket_is_untouched(struct iwarp_socket *s, const struct iwarp_snapshot *taken)
{
	struct sock *sk = s->sock->sk;
	bool untouched;

	lock_sock(sk);
	untouched = sk->sk_state == TCP_ESTABLISHED &&
		    tcp_sk(sk)->rcv_nxt == taken->receive_next;
	release_sock(sk);
	return untouched;
}

static void iwarp_set_repair(struct iwarp_socket *s, bool repair)
{
	struct sock *sk = s->sock->sk;

	lock_sock(sk);
	tcp_sk(sk)->repair = repair;
	release_sock(sk);
}

int iwarp_socket_greet(struct iwarp_socket *s, const void *request, size_t length)
{
	int sent;

	iwarp_set_repair(s, false);
	sent = iwarp_socket_write(s, request, length);
	iwarp_set_repair(s, true);
	if (sent < 0)
		return sent;
	return sent == length ? 0 : -ENOBUFS;
}

void iwarp_socket_give_back(struct iwarp_socket *s)
{
	iwarp_set_repair(s, false);
}

void iwarp_socket_free(struct iwarp_socket *s)
{
	struct sock *sk = s->sock->sk;

	write_lock_bh(&sk->sk_callback_lock);
	rcu_assign_sk_user_data(sk, NULL);
	sk->sk_data_ready = s->data_ready;
	sk->sk_state_change = s->state_change;
	sk->sk_error_report = s->error_report;
	write_unlock_bh(&sk->sk_callback_lock);
	sock_release(s->sock);
	kfree(s);
}
