/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The server of vrnic_transfer, and a client of it with device memory and a range.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <arpa/inet.h>
#include <signal.h>
#include "side.h"
#include "vrnicdv.h"

enum { PORT = 7477 };

static struct side make_side(int socket)
{
	struct side side = { .context = open_device(), .socket = socket };

	side.pd = ibv_alloc_pd(side.context);
	side.cq = ibv_create_cq(side.context, 16, NULL, NULL, 0);
	need(side.pd && side.cq, "a protection domain and a completion queue");
	side.memory = aligned_alloc(RANGE, LENGTH);
	need(side.memory != NULL, "memory");
	side.mr = ibv_reg_mr(side.pd, side.memory, LENGTH,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	need(side.mr != NULL, "ibv_reg_mr");
	side.qp = make_qp(&side);

	struct address own = { .at = (uintptr_t)side.memory, .qpn = side.qp->qp_num, .key = side.mr->rkey };
	need(ibv_query_gid(side.context, 1, GID_INDEX, &own.gid) == 0, "ibv_query_gid");
	need(write(socket, &own, sizeof(own)) == sizeof(own), "telling the peer");
	need(recv(socket, &side.peer, sizeof(own), MSG_WAITALL) == sizeof(own), "hearing of the peer");
	connect_qp(side.qp, &side.peer);
	/* Neither side begins before the other one can answer. */
	need(write(socket, "", 1) == 1 && read(socket, &own, 1) == 1, "the peer");
	return side;
}

static void close_side(struct side *side)
{
	expect(ibv_destroy_qp(side->qp), 0, "ibv_destroy_qp");
	expect(ibv_destroy_cq(side->cq), 0, "ibv_destroy_cq");
	expect(ibv_dereg_mr(side->mr), 0, "ibv_dereg_mr");
	expect(ibv_dealloc_pd(side->pd), 0, "ibv_dealloc_pd");
	expect(ibv_close_device(side->context), 0, "ibv_close_device");
	free(side->memory);
	close(side->socket);
}

/* Answers a client: for each of its bytes, fills all memory by that seed and answers what was there. */
static void serve(int socket)
{
	struct side side = make_side(socket);
	unsigned char seed;

	while (read(side.socket, &seed, 1) == 1) {
		if (write(side.socket, side.memory, LENGTH) != LENGTH)
			break;
		fill(side.memory, LENGTH, seed);
		if (write(side.socket, "", 1) != 1)
			break;
	}
	close_side(&side);
	exit(0);
}

static void listen_for_clients(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(PORT) };
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

/* Returns what the server had, and fills its memory. */
static const unsigned char *exchange(struct side *side, unsigned char seed)
{
	static unsigned char found[LENGTH];
	char end;

	need(write(side->socket, &seed, 1) == 1, "asking the server");
	need(recv(side->socket, found, LENGTH, MSG_WAITALL) == LENGTH, "the server's memory");
	need(read(side->socket, &end, 1) == 1, "the server");
	return found;
}

/* A side with device memory and a range. */
struct client {
	struct side side;
	struct ibv_dm *dm;
	struct ibv_mr *key;
	struct vrnicdv_range *range;
};

static const char *server;

static struct client make_client(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct ibv_alloc_dm_attr attr = { .length = LENGTH };
	struct client client;
	int s = socket(AF_INET, SOCK_STREAM, 0);

	need(inet_pton(AF_INET, server, &to.sin_addr) == 1, "the server's address");
	for (int tries = 0; connect(s, (struct sockaddr *)&to, sizeof(to)) != 0; tries++) {
		need(tries < 50, "connecting");
		usleep(100000);
	}
	client.side = make_side(s);
	client.dm = ibv_alloc_dm(client.side.context, &attr);
	need(client.dm != NULL, "ibv_alloc_dm");
	client.key = ibv_reg_dm_mr(client.side.pd, client.dm, 0, LENGTH, IBV_ACCESS_LOCAL_WRITE |
				   IBV_ACCESS_ZERO_BASED);
	need(client.key != NULL, "ibv_reg_dm_mr");
	client.range = vrnicdv_alloc_range(client.side.qp);
	need(client.range != NULL, "vrnicdv_alloc_range");
	return client;
}

static void close_client(struct client *client)
{
	if (client->range)
		expect(vrnicdv_free_range(client->range), 0, "vrnicdv_free_range");
	expect(ibv_dereg_mr(client->key), 0, "ibv_dereg_mr");
	if (client->dm)
		expect(ibv_free_dm(client->dm), 0, "ibv_free_dm");
	close_side(&client->side);
}

#endif
