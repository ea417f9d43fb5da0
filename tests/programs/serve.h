/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A server that forks for each client, and the ends of a connection.
 */
#ifndef SERVE_H
#define SERVE_H

#include <arpa/inet.h>
#include <signal.h>
#include "side.h"

/* Calls serve() for each client, in a process of its own. */
static void listen_for_clients(int port, void (*serve)(int socket))
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

	signal(SIGCHLD, SIG_IGN);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	need(bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0, "bind");
	need(listen(listener, 8) == 0, "listen");
	for (;;) {
		int client = accept(listener, NULL, NULL);

		need(client >= 0, "accept");
		if (fork() == 0)
			serve(client);
		close(client);
	}
}

/* Returns a socket that is connected to a server, which may not listen yet. */
static int reach(const char *server, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int s = socket(AF_INET, SOCK_STREAM, 0);

	need(inet_pton(AF_INET, server, &to.sin_addr) == 1, "the server's address");
	for (int tries = 0; connect(s, (struct sockaddr *)&to, sizeof(to)) != 0; tries++) {
		need(tries < 50, "connecting");
		usleep(100000);
	}
	return s;
}

/* Connects a queue pair to a queue pair of the peer. Both sides send the address and the key of their memory. */
static void meet(struct side *side, int socket)
{
	struct side opened = open_side(side->context, side->pd);
	struct address own = { .at = (uintptr_t)side->memory, .key = side->mr->rkey };
	char ready;

	side->socket = socket;
	side->cq = opened.cq;
	side->qp = opened.qp;
	own.qpn = side->qp->qp_num;
	need(ibv_query_gid(side->context, 1, GID_INDEX, &own.gid) == 0, "ibv_query_gid");
	need(write(socket, &own, sizeof(own)) == sizeof(own), "telling the peer");
	need(recv(socket, &side->peer, sizeof(own), MSG_WAITALL) == sizeof(own), "hearing of the peer");
	connect_qp(side->qp, &side->peer);
	/* Neither side begins before the other one can answer. */
	need(write(socket, "", 1) == 1 && read(socket, &ready, 1) == 1, "the peer");
}

/* Ends the queue pair. */
static void part(struct side *side)
{
	expect(ibv_destroy_qp(side->qp), 0, "ibv_destroy_qp");
	expect(ibv_destroy_cq(side->cq), 0, "ibv_destroy_cq");
	close(side->socket);
}

/* Returns a side with registered memory and without a queue pair. Copies of it can have one each. */
static struct side begin_side(int rights)
{
	struct side side = { .context = open_device() };

	side.pd = ibv_alloc_pd(side.context);
	side.memory = aligned_alloc(RANGE, LENGTH);
	need(side.pd && side.memory, "a protection domain and memory");
	side.mr = ibv_reg_mr(side.pd, side.memory, LENGTH, rights);
	need(side.mr != NULL, "ibv_reg_mr");
	return side;
}

/* Frees all that begin_side() has returned. The side has no queue pair any more. */
static void end_side(struct side *side)
{
	expect(ibv_dereg_mr(side->mr), 0, "ibv_dereg_mr");
	expect(ibv_dealloc_pd(side->pd), 0, "ibv_dealloc_pd");
	expect(ibv_close_device(side->context), 0, "ibv_close_device");
	free(side->memory);
}

#endif
