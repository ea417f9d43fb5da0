// SPDX-License-Identifier: GPL-2.0
/*
 * Sockets of programs and of kernel clients whose connection the adapter takes over; see helpers.h.
 *
 * A program could still connect its socket elsewhere, close its connection, or bind others to its
 * port, in several threads. So a *holder*, a socket of the driver that no program can reach, gets
 * the addresses and ports of the connection, and the program's socket is closed, as after its
 * creation. Kernel clients do not use their socket any more, which is its own holder therefore.
 */

#include <linux/file.h>
#include <linux/net.h>
#include <net/inet_sock.h>
#include <net/ipv6.h>
#include <net/tcp.h>

#include "helpers.h"
#include "snapshot.h"
#include "socket.h"

/* Returns a holder for a socket like this, or an error pointer. */
static struct socket *iwarp_holder(const struct sock *sk)
{
	struct socket *holder;
	int err;

	err = sock_create_kern(sock_net(sk), sk->sk_family, SOCK_STREAM, IPPROTO_TCP, &holder);
	if (err)
		return ERR_PTR(err);
	sk_net_refcnt_upgrade(holder->sk);
	/* It connects without a segment, and is closed without one. */
	tcp_sk(holder->sk)->repair = 1;
	return holder;
}

/* Copies the local address, and what decides about routes and about who may bind to the port. */
static void iwarp_holder_copy(struct sock *own, const struct sock *sk)
{
	own->sk_bound_dev_if = sk->sk_bound_dev_if;
	own->sk_mark = sk->sk_mark;
	own->sk_priority = sk->sk_priority;
	own->sk_uid = sk->sk_uid;
	own->sk_reuseport = sk->sk_reuseport;
	own->sk_ipv6only = sk->sk_ipv6only;
	inet_assign_bit(TRANSPARENT, own, inet_test_bit(TRANSPARENT, sk));
	inet_sk(own)->tos = inet_sk(sk)->tos;
	inet_sk(own)->inet_saddr = inet_sk(sk)->inet_saddr;
	own->sk_rcv_saddr = sk->sk_rcv_saddr;
	if (sk->sk_family == AF_INET6) {
		inet6_sk(own)->tclass = inet6_sk(sk)->tclass;
		inet6_sk(own)->saddr = inet6_sk(sk)->saddr;
		own->sk_v6_rcv_saddr = sk->sk_v6_rcv_saddr;
	}
}

/* Adds a holder to the users of the port of sk. Whoever may bind to it beside sk still may. */
static int iwarp_holder_bind(struct sock *own, const struct sock *sk)
{
	int err;

	own->sk_reuse = SK_FORCE_REUSE;
	err = own->sk_prot->get_port(own, inet_sk(sk)->inet_num);
	own->sk_reuse = sk->sk_reuse;
	if (err)
		return err;
	inet_sk(own)->inet_sport = inet_sk(sk)->inet_sport;
	own->sk_userlocks |= SOCK_BINDADDR_LOCK | SOCK_BINDPORT_LOCK;
	return 0;
}

/*
 * Connects a holder to the peer of sk. Its port is zero at first, which no connection has: the real
 * one is not free yet.
 */
static int iwarp_holder_connect(struct sock *own, const struct sock *sk)
{
	struct sockaddr_storage peer = { .ss_family = sk->sk_family };
	struct sockaddr_in6 *peer6 = (struct sockaddr_in6 *)&peer;
	int err;

	if (sk->sk_family == AF_INET6)
		peer6->sin6_addr = sk->sk_v6_daddr;
	else
		((struct sockaddr_in *)&peer)->sin_addr.s_addr = sk->sk_daddr;
	/* A number as far as possible from those of late segments, which are ignored therefore. */
	tcp_sk(own)->rcv_nxt = tcp_sk(sk)->rcv_nxt + (1U << 31);
	err = own->sk_prot->connect(own, (void *)&peer, sizeof(*peer6));
	/* Another connection between these hosts is being taken. */
	if (err)
		return err == -EADDRNOTAVAIL ? -EAGAIN : err;
	own->sk_prot->unhash(own);
	inet_sk(own)->inet_dport = inet_sk(sk)->inet_dport;
	/* Routes may depend on the port. */
	__sk_dst_reset(own);
	return 0;
}

/* Prepares a holder for the connection of sk, which must be locked until that is taken, or is not. */
static int iwarp_holder_prepare(struct socket *holder, const struct sock *sk)
{
	struct sock *own = holder->sk;
	int err;

	/* Sockets of the kernel are a class of their own for lockdep. */
	lock_sock(own);
	iwarp_holder_copy(own, sk);
	err = iwarp_holder_bind(own, sk);
	if (!err)
		err = iwarp_holder_connect(own, sk);
	release_sock(own);
	return err;
}

/* Moves the addresses of sk, which is locked still, to the holder, and closes sk. */
static void iwarp_holder_take(struct socket *holder, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	lock_sock(holder->sk);
	/* For a moment both have the addresses. Segments find the later one. */
	holder->sk->sk_prot->hash(holder->sk);
	release_sock(holder->sk);
	/* As connect with AF_UNSPEC does, but the peer does not get a reset. */
	tp->repair = 1;
	sk->sk_disconnects++;
	sk->sk_prot->disconnect(sk, 0);
	tp->repair = 0;
	WRITE_ONCE(sk->sk_err, 0);
	sk->sk_socket->state = SS_UNCONNECTED;
}

static struct iwarp_socket *iwarp_lent(struct socket *sock)
{
	struct iwarp_socket *s;

	if (!sk_is_tcp(sock->sk))
		return ERR_PTR(-EOPNOTSUPP);
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s)
		return ERR_PTR(-ENOMEM);
	s->sock = sock;
	s->lent = true;
	return s;
}

struct iwarp_socket *iwarp_socket_lend(int fd)
{
	struct socket *sock, *holder;
	struct iwarp_socket *s;
	int err = 0;

	sock = sockfd_lookup(fd, &err);
	if (!sock)
		return ERR_PTR(err);
	s = iwarp_lent(sock);
	if (IS_ERR(s))
		goto put;
	holder = iwarp_holder(sock->sk);
	if (!IS_ERR(holder)) {
		s->holder = holder;
		return s;
	}
	kfree(s);
	s = ERR_CAST(holder);
put:
	sockfd_put(sock);
	return s;
}

struct iwarp_socket *iwarp_socket_lend_kernel(struct socket *sock)
{
	return iwarp_lent(sock);
}

size_t iwarp_socket_unread(const struct iwarp_socket *s)
{
	const struct tcp_sock *tp = tcp_sk(s->sock->sk);

	return READ_ONCE(tp->rcv_nxt) - READ_ONCE(tp->copied_seq);
}

/* Copies the bytes that were received and not read, which stay. Returns their number. */
static int iwarp_copy_unread(const struct sock *sk, u8 *buffer, size_t size)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 first = tp->copied_seq, count = tp->rcv_nxt - first, done = 0;
	struct sk_buff *skb;

	/* The end of the stream has a number, too, until the program has read it. */
	if (sk->sk_state == TCP_CLOSE_WAIT && count > 0)
		count--;
	if (count > size)
		return -EMSGSIZE;
	skb_queue_walk(&sk->sk_receive_queue, skb) {
		u32 offset = first + done - TCP_SKB_CB(skb)->seq, part;

		if (TCP_SKB_CB(skb)->tcp_flags & TCPHDR_SYN)
			offset--;
		if (offset >= skb->len)
			continue;
		part = min(skb->len - offset, count - done);
		if (skb_copy_bits(skb, offset, buffer + done, part))
			return -EPROTO;
		done += part;
	}
	return done == count ? count : -EPROTO;
}

int iwarp_socket_hold(struct iwarp_socket *s, const struct net_device *netdev,
		      struct net_device *card, void *buffer, size_t size,
		      struct iwarp_snapshot *out)
{
	struct sock *sk = s->sock->sk;
	int err, count = 0;

	lock_sock(sk);
	err = iwarp_snapshot(sk, netdev, card, true, out);
	if (!err) {
		count = iwarp_copy_unread(sk, buffer, size);
		err = min(count, 0);
	}
	if (!err && s->holder)
		err = iwarp_holder_prepare(s->holder, sk);
	if (!err)
		return count;
	release_sock(sk);
	return err;
}

/* Leaves the socket to its program, which can do with it as with any other that is closed. */
static void iwarp_replace(struct iwarp_socket *s)
{
	struct socket *sock = s->sock;

	iwarp_holder_take(s->holder, sock->sk);
	s->sock = s->holder;
	s->holder = NULL;
	release_sock(sock->sk);
	sockfd_put(sock);
}

/* Makes the socket of a kernel client, which does not use it any more, its own holder. */
static void iwarp_keep(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	/* From here on the socket is closed without a segment, and sends no probes. */
	tp->repair = 1;
	sk->sk_prot->keepalive(sk, 0);
	WRITE_ONCE(tp->copied_seq, tp->rcv_nxt);
	__skb_queue_purge(&sk->sk_receive_queue);
	WRITE_ONCE(sk->sk_shutdown, SHUTDOWN_MASK);
	release_sock(sk);
	sk->sk_state_change(sk);
}

void iwarp_socket_release(struct iwarp_socket *s, bool taken)
{
	s->taken = taken;
	if (!taken)
		release_sock(s->sock->sk);
	else if (s->holder)
		iwarp_replace(s);
	else
		iwarp_keep(s->sock->sk);
}
