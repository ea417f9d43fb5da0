/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The server of vrnic_transfer, and a client of it with device memory and a range.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include "serve.h"
#include "vrnicdv.h"

enum { PORT = 7477 };

static struct side make_side(int socket)
{
	struct side side = begin_side(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);

	meet(&side, socket);
	return side;
}

static void close_side(struct side *side)
{
	part(side);
	end_side(side);
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
	struct ibv_alloc_dm_attr attr = { .length = LENGTH };
	struct client client;

	client.side = make_side(reach(server, PORT));
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
