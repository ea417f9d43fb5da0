// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/net.h>
#include <linux/netdevice.h>
#include <net/flow.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/tcp.h>

#include "helpers.h"
#include "snapshot.h"
#include "socket.h"

/* The callback for all changes. Accepted sockets inherit it, but not the pointer to the user. */
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
	struct net *net;
	int err;

	if (family != AF_INET && family != AF_INET6)
		return ERR_PTR(-EAFNOSUPPORT);
	/* The device may be moved to another namespace at any time, and this one may be deleted. */
	rcu_read_lock();
	net = maybe_get_net(dev_net_rcu(netdev));
	rcu_read_unlock();
	if (!net)
		return ERR_PTR(-ENODEV);
	err = sock_create_kern(net, family, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (!err)
		sk_net_refcnt_upgrade(sock->sk);
	put_net(net);
	if (err)
		return ERR_PTR(err);
	sock_set_reuseaddr(sock->sk);
	/* As TCP_MAXSEG does. Accepted connections inherit it. */
	WRITE_ONCE(tcp_sk(sock->sk)->rx_opt.user_mss, IWARP_MSS_MAX);
	return iwarp_socket_wrap(sock);
}

/* Sets the type of service, unless it is negative. Connections of a listener inherit it. */
static void iwarp_set_tos(struct sock *sk, int tos)
{
	if (tos < 0)
		return;
	/* This also sets it for IPv4 connections that an IPv6 socket accepts. */
	ip_sock_set_tos(sk, tos);
	if (sk->sk_family == AF_INET6) {
		/* As IPV6_TCLASS does. */
		lock_sock(sk);
		inet6_sk(sk)->tclass = tos & ~INET_ECN_MASK;
		sk_dst_reset(sk);
		release_sock(sk);
	}
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

/*
 * Returns whether the connection manager may have chosen this port. It chooses from the range of
 * ephemeral ports, without asking TCP. A port outside of this range was chosen by the program.
 */
static bool iwarp_port_may_change(const struct net_device *netdev,
				  const struct sockaddr_storage *local)
{
	/* IPv6 has its port at the same offset. */
	u16 port = ntohs(((const struct sockaddr_in *)local)->sin_port);
	int low, high;

	static_assert(offsetof(struct sockaddr_in, sin_port) ==
		      offsetof(struct sockaddr_in6, sin6_port));
	rcu_read_lock();
	inet_get_local_port_range(dev_net_rcu(netdev), &low, &high);
	rcu_read_unlock();
	return port >= low && port <= high;
}

/* Begins to connect. If any_port is set, TCP chooses a port without a connection to remote. */
static struct iwarp_socket *iwarp_socket_try(const struct net_device *netdev,
					     const struct sockaddr_storage *local,
					     const struct sockaddr_storage *remote, int tos,
					     bool any_port)
{
	struct iwarp_socket *s = iwarp_socket_create(netdev, local->ss_family);
	struct sockaddr_storage address = *local;
	int err;

	if (IS_ERR(s))
		return s;
	iwarp_set_tos(s->sock->sk, tos);
	if (any_port) {
		((struct sockaddr_in *)&address)->sin_port = 0;
		/* As IP_BIND_ADDRESS_NO_PORT does: the port is chosen when remote is known. */
		inet_set_bit(BIND_ADDRESS_NO_PORT, s->sock->sk);
	}
	err = kernel_bind(s->sock, (void *)&address, iwarp_address_length(&address));
	if (!err)
		err = kernel_connect(s->sock, (void *)remote, iwarp_address_length(remote),
				     O_NONBLOCK);
	if (err && err != -EINPROGRESS) {
		iwarp_socket_free(s);
		return ERR_PTR(err);
	}
	return s;
}

struct iwarp_socket *iwarp_socket_connect(const struct net_device *netdev,
					  const struct sockaddr_storage *local,
					  const struct sockaddr_storage *remote, int tos)
{
	struct iwarp_socket *s = iwarp_socket_try(netdev, local, remote, tos, false);

	/* These errors mean that another socket has the port, or a connection from it to remote. */
	if ((s == ERR_PTR(-EADDRINUSE) || s == ERR_PTR(-EADDRNOTAVAIL)) &&
	    iwarp_port_may_change(netdev, local))
		s = iwarp_socket_try(netdev, local, remote, tos, true);
	return s;
}

int iwarp_next_device(struct net_device *netdev, const struct net *net,
		      const struct sockaddr_storage *local, int after)
{
	struct net_device *upper;
	struct list_head *iter;
	int next = -1;

	/* The namespaces are only compared. That of netdev may change at any time. */
	if (!net_eq(read_pnet(&netdev->nd_net), net))
		return -1;
	if (!iwarp_is_wildcard(local))
		return after < 0 ? 0 : -1;
	if (after < LOOPBACK_IFINDEX && !netif_is_bridge_port(netdev) &&
	    !netif_is_bond_slave(netdev))
		return LOOPBACK_IFINDEX;
	if (netdev->ifindex > after)
		next = netdev->ifindex;
	rcu_read_lock();
	netdev_for_each_upper_dev_rcu(netdev, upper, iter) {
		if (iwarp_is_vlan_of(upper, netdev) && net_eq(read_pnet(&upper->nd_net), net) &&
		    upper->ifindex > after && (next < 0 || upper->ifindex < next))
			next = upper->ifindex;
	}
	rcu_read_unlock();
	return next;
}

struct iwarp_socket *iwarp_socket_listen(const struct net_device *netdev, int device,
					 const struct sockaddr_storage *local, bool v6only,
					 int backlog, int tos)
{
	struct iwarp_socket *s = iwarp_socket_create(netdev, local->ss_family);
	struct sock *sk;
	int err;

	if (IS_ERR(s))
		return s;
	sk = s->sock->sk;
	iwarp_set_tos(sk, tos);
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

/* Converts a mapped IPv4 address to an IPv4 address. */
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

int iwarp_socket_take(struct iwarp_socket *s, const struct net_device *netdev,
		      struct net_device *card, struct iwarp_snapshot *out)
{
	struct sock *sk = s->sock->sk;
	int err;

	lock_sock(sk);
	err = iwarp_snapshot(sk, netdev, card, false, out);
	if (!err) {
		/* From here on the socket is closed without a segment. */
		tcp_sk(sk)->repair = 1;
	}
	release_sock(sk);
	return err;
}

int iwarp_socket_macs(struct iwarp_socket *s, const struct net_device *netdev,
		      struct net_device *card, const struct iwarp_snapshot *taken, u8 *smac,
		      u8 *dmac)
{
	/* ether_addr_copy needs aligned addresses. */
	u8 from[ETH_ALEN] __aligned(2), to[ETH_ALEN] __aligned(2);
	int err;

	memcpy(to, dmac, ETH_ALEN);
	lock_sock(s->sock->sk);
	err = iwarp_macs(s->sock->sk, netdev, card, taken, from, to);
	release_sock(s->sock->sk);
	if (err)
		return err;
	memcpy(smac, from, ETH_ALEN);
	memcpy(dmac, to, ETH_ALEN);
	return 0;
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

	if (s->lent) {
		if (s->holder) {
			sock_release(s->holder);
			sockfd_put(s->sock);
		} else if (s->taken) {
			sock_release(s->sock);
		}
		kfree(s);
		return;
	}
	write_lock_bh(&sk->sk_callback_lock);
	rcu_assign_sk_user_data(sk, NULL);
	sk->sk_data_ready = s->data_ready;
	sk->sk_state_change = s->state_change;
	sk->sk_error_report = s->error_report;
	write_unlock_bh(&sk->sk_callback_lock);
	sock_release(s->sock);
	kfree(s);
}
