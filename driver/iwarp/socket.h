/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRNIC_IWARP_SOCKET_H
#define VRNIC_IWARP_SOCKET_H

#include "helpers.h"

/* A socket, and the callbacks that it had before iwarp_changed replaced them. */
struct iwarp_socket {
	struct socket *sock;
	const void *user;
	iwarp_wake_t wake;
	/* True for the socket of a program or of a kernel client: its callbacks stay. */
	bool lent;
	/*
	 * Takes the place of the socket of a program when the connection is taken. Until then this
	 * refers to the file of the program's socket.
	 */
	struct socket *holder;
	/* True if the connection was taken. */
	bool taken;
	void (*data_ready)(struct sock *sk);
	void (*state_change)(struct sock *sk);
	void (*error_report)(struct sock *sk);
};

#endif
