/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sockets of the kernel that TCP connections are made with, and the state of TCP that the adapter
 * takes over. Everything that knows struct tcp_sock is here and in snapshot.c.
 *
 * Functions may sleep unless said otherwise; they return 0 or a negative error number, and pointers
 * may be error pointers.
 */
#ifndef VRNIC_IWARP_HELPERS_H
#define VRNIC_IWARP_HELPERS_H

#include <linux/netdevice.h>
#include <linux/socket.h>

struct iwarp_socket;

/* Called with the user's pointer when something about a socket has changed; must not sleep. */
typedef void (*iwarp_wake_t)(const void *user);

/* The state of an established connection in which nothing is under way. Numbers of the host. */
struct iwarp_snapshot {
	bool ipv6;
	bool sack;
	bool timestamps;
	bool microseconds;
	bool tagged;
	/* Of the guest with itself. Its frames stay in the adapter. */
	bool own;
	u8 traffic_class;
	u8 hop_limit;
	u8 send_scale;
	u8 receive_scale;
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
 * for the usual one. If TCP has another socket at the local port, or a connection from it to the
 * remote address that has not ended, and the port is one that the system hands out, the connection
 * gets another port.
 */
struct iwarp_socket *iwarp_socket_connect(const struct net_device *netdev,
					  const struct sockaddr_storage *local,
					  const struct sockaddr_storage *remote, int tos);
/*
 * Returns the number of the network device after `after` on which to listen for netdev, or -1. The
 * first one follows -1. The core listens at a wildcard address on each device, so such a listener
 * has a socket for netdev, one for each VLAN of it, and one for the guest's connections with itself
 * (LOOPBACK_IFINDEX); others have one, for any device (0).
 */
int iwarp_next_device(struct net_device *netdev, const struct sockaddr_storage *local, int after);
/*
 * Listens in the network namespace of netdev, on the network device of that number. tos is that of
 * the connections, as above.
 */
struct iwarp_socket *iwarp_socket_listen(const struct net_device *netdev, int device,
					 const struct sockaddr_storage *local, bool v6only,
					 int backlog, int tos);
/* Returns whether it still listens: the guest can end it (ss -K). */
bool iwarp_socket_listens(const struct iwarp_socket *s);
/* Returns the next connection of a listener, or -EAGAIN. */
struct iwarp_socket *iwarp_socket_accept(struct iwarp_socket *listener);
/* Has wake called at each change from now on. To be called once. */
void iwarp_socket_watch(struct iwarp_socket *s, const void *user, iwarp_wake_t wake);
/* Returns 1 for an established connection, 0 for one that is not yet, or its error. */
int iwarp_socket_status(struct iwarp_socket *s);
/* Reads what is there; returns the number of bytes, 0 at the end, or -EAGAIN. */
int iwarp_socket_read(struct iwarp_socket *s, void *buffer, size_t length);
/* Sends as much as fits; returns the number of bytes. */
int iwarp_socket_write(struct iwarp_socket *s, const void *buffer, size_t length);
/* Tells the addresses of both ends; those of IPv4 as such. */
int iwarp_socket_names(struct iwarp_socket *s, struct sockaddr_storage *local,
		       struct sockaddr_storage *remote);
/*
 * Takes the connection out of the socket: fills in the state, and leaves a socket that is silent
 * when it is closed. The connection must be quiescent, and one of netdev, of a VLAN of it, or of the
 * guest with an address that one of them has.
 */
int iwarp_socket_take(struct iwarp_socket *s, const struct net_device *netdev,
		      struct iwarp_snapshot *out);
/* Returns whether nothing has come since the connection was taken out. */
bool iwarp_socket_is_untouched(struct iwarp_socket *s, const struct iwarp_snapshot *taken);
/* Sends bytes in a connection that was taken out, before the adapter's. */
int iwarp_socket_greet(struct iwarp_socket *s, const void *request, size_t length);
/* Gives the connection back to the socket, which closes it in the usual way. */
void iwarp_socket_give_back(struct iwarp_socket *s);
/* Ends the calls of wake, and closes the socket. */
void iwarp_socket_free(struct iwarp_socket *s);

#endif
