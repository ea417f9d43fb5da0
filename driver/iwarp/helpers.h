/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sockets of the kernel for TCP connections, and the state of TCP that the adapter takes over. Only
 * helpers.c, lent.c and snapshot.c access struct tcp_sock.
 *
 * Functions may sleep unless their comment says otherwise. They return 0 or a negative error
 * number, and pointers may be error pointers.
 */
#ifndef VRNIC_IWARP_HELPERS_H
#define VRNIC_IWARP_HELPERS_H

#include <linux/netdevice.h>
#include <linux/socket.h>

struct iwarp_socket;

/* Called with the user's pointer when the state of a socket has changed. Must not sleep. */
typedef void (*iwarp_wake_t)(const void *user);

/* The state of an established, idle connection. Numbers are in host byte order. */
struct iwarp_snapshot {
	bool ipv6;
	bool sack;
	bool timestamps;
	bool microseconds;
	bool tagged;
	/* True if the guest is connected to itself. The frames stay in the adapter. */
	bool own;
	/* True if the peer has closed its direction. receive_next is then behind its end. */
	bool peer_closed;
	u8 traffic_class;
	u8 hop_limit;
	u8 send_scale;
	u8 receive_scale;
	/* The MACs of the interface and of the next hop. */
	u8 smac[6];
	u8 dmac[6];
	u16 vlan;
	u16 local_port;
	u16 remote_port;
	u16 mss;
	u8 local[16];
	u8 remote[16];
	u32 send_next;
	u32 receive_next;
	u32 send_window;
	u32 max_send_window;
	u32 receive_window;
	u32 timestamp;
	u32 recent_timestamp;
};

/*
 * Begins to connect, in the network namespace of netdev. tos is the type of service, or negative
 * for the default. If TCP has another socket at the local port, or a connection from that port to
 * the remote address, and the port is in the range of ephemeral ports, the connection gets another
 * port.
 */
struct iwarp_socket *iwarp_socket_connect(const struct net_device *netdev,
					  const struct sockaddr_storage *local,
					  const struct sockaddr_storage *remote, int tos);
/*
 * Returns the number of the next network device after `after` on which to listen for netdev, or -1
 * if there is none. `after` is -1 for the first one. The core listens at a wildcard address on each
 * device, so such a listener has a socket for netdev, one for each VLAN of it, and one for
 * connections of the guest to itself (LOOPBACK_IFINDEX), unless netdev is a port of a bridge or
 * bond, which has the addresses. Other listeners have one socket for any device (0). The core
 * accepts connections only in the network namespace of the listener's owner, `net`, so there are no
 * sockets while netdev is in another one.
 */
int iwarp_next_device(struct net_device *netdev, const struct net *net,
		      const struct sockaddr_storage *local, int after);
/*
 * Listens in the network namespace of netdev, on the network device with this number. tos is the
 * type of service of its connections, as above.
 */
struct iwarp_socket *iwarp_socket_listen(const struct net_device *netdev, int device,
					 const struct sockaddr_storage *local, bool v6only,
					 int backlog, int tos);
/* Returns whether the socket still listens. The guest can end it (ss -K). */
bool iwarp_socket_listens(const struct iwarp_socket *s);
/* Returns the next connection of a listener, or -EAGAIN. */
struct iwarp_socket *iwarp_socket_accept(struct iwarp_socket *listener);
/* Calls wake at each change from now on. Must be called only once. */
void iwarp_socket_watch(struct iwarp_socket *s, const void *user, iwarp_wake_t wake);
/* Returns 1 if the connection is established, 0 if it is not yet, or its error. */
int iwarp_socket_status(struct iwarp_socket *s);
/* Reads the bytes that have arrived. Returns their number, 0 at the end, or -EAGAIN. */
int iwarp_socket_read(struct iwarp_socket *s, void *buffer, size_t length);
/* Sends as many bytes as fit. Returns their number. */
int iwarp_socket_write(struct iwarp_socket *s, const void *buffer, size_t length);
/* Gets the addresses of both ends. Mapped IPv4 addresses are converted to IPv4. */
int iwarp_socket_names(struct iwarp_socket *s, struct sockaddr_storage *local,
		       struct sockaddr_storage *remote);
/*
 * Takes the connection out of the socket: fills in the state. The socket then sends no segment when
 * it is closed. The connection must be idle. It must run through netdev or a VLAN of it, and so
 * through card, or be a connection of the guest to itself with an address of theirs.
 */
int iwarp_socket_take(struct iwarp_socket *s, const struct net_device *netdev,
		      struct net_device *card, struct iwarp_snapshot *out);
/*
 * Returns the TCP socket of the calling process behind this descriptor. The program may close the
 * descriptor.
 */
struct iwarp_socket *iwarp_socket_lend(int fd);
/*
 * Returns a connected TCP socket of the kernel. It belongs to its owner unless its connection is taken;
 * then it is released when this is freed.
 */
struct iwarp_socket *iwarp_socket_lend_kernel(struct socket *sock);
/*
 * Returns how many bytes of a lent socket were received and not read. It is not locked, so that is
 * any number when it has no connection.
 */
size_t iwarp_socket_unread(const struct iwarp_socket *s);
/*
 * Locks a lent socket, fills in the state of its connection as iwarp_socket_take, and copies the
 * bytes that were received and not read. Returns their number, or -EMSGSIZE if there are more than
 * size. On success the socket stays locked until iwarp_socket_release: segments that arrive wait.
 */
int iwarp_socket_hold(struct iwarp_socket *s, const struct net_device *netdev,
		      struct net_device *card, void *buffer, size_t size,
		      struct iwarp_snapshot *out);
/*
 * Unlocks the socket. If the connection was taken, the socket of a program is closed, without a
 * segment; a holder has its addresses until this is freed. The socket of a kernel client neither
 * sends nor receives any more, and sends no segment when it is closed.
 */
void iwarp_socket_release(struct iwarp_socket *s, bool taken);
/*
 * Looks up the MACs of the frames of a connection that was taken out, as they are now. If the next
 * hop is not known, asks for it, and leaves dmac as it was.
 */
int iwarp_socket_macs(struct iwarp_socket *s, const struct net_device *netdev,
		      struct net_device *card, const struct iwarp_snapshot *taken, u8 *smac,
		      u8 *dmac);
/* Returns whether the socket has received nothing since the connection was taken out. */
bool iwarp_socket_is_untouched(struct iwarp_socket *s, const struct iwarp_snapshot *taken);
/* Sends bytes in a connection that was taken out, before the adapter sends any. */
int iwarp_socket_greet(struct iwarp_socket *s, const void *request, size_t length);
/* Gives the connection back to the socket, so that a close ends it in the usual way. */
void iwarp_socket_give_back(struct iwarp_socket *s);
/* Closes the socket. wake is not called any more. */
void iwarp_socket_free(struct iwarp_socket *s);

#endif
