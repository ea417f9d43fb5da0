/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Two ends of a connection of the connection manager in one process, which take turns, for programs that show a rule.
 * The address of the device is in VRNIC_ADDRESS.
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "must.h"

#define PORT 7481
/* Milliseconds in which an address is found. */
#define PATIENCE 5000

struct ends {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *client, *server;
};

static inline struct sockaddr_in address(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	const char *text = getenv("VRNIC_ADDRESS");

	MUST(inet_pton(AF_INET, text ? text : "127.0.0.1", &address.sin_addr) == 1);
	return address;
}

static inline struct rdma_cm_event *take(struct ends *ends, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	MUST(!rdma_get_cm_event(ends->channel, &event));
	if (event->event != type) {
		fprintf(stderr, "%s (%d) instead of %s\n", rdma_event_str(event->event), event->status, rdma_event_str(type));
		exit(1);
	}
	return event;
}

/* Takes an event and acknowledges it. */
static inline void expect(struct ends *ends, enum rdma_cm_event_type type)
{
	MUST(!rdma_ack_cm_event(take(ends, type)));
}

static inline struct rdma_cm_id *create_identifier(struct ends *ends)
{
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(ends->channel, &id, NULL, RDMA_PS_TCP));
	return id;
}

static inline void create_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	MUST(!rdma_create_qp(id, NULL, &attr));
}

static inline void begin_listening(struct ends *ends)
{
	struct sockaddr_in own = address();

	ends->channel = rdma_create_event_channel();
	MUST(ends->channel);
	ends->listener = create_identifier(ends);
	MUST(!rdma_bind_addr(ends->listener, (struct sockaddr *)&own));
	MUST(!rdma_listen(ends->listener, 4));
}

/* Lets an identifier find its way to the listener. */
static inline void resolve(struct ends *ends, struct rdma_cm_id *id)
{
	struct sockaddr_in peer = address();

	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, PATIENCE));
	expect(ends, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!rdma_resolve_route(id, PATIENCE));
	expect(ends, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* Asks for a connection, with private data of this length. */
static inline int ask(struct rdma_cm_id *id, int length)
{
	static const char data[256];
	struct rdma_conn_param param = { .private_data = data, .private_data_len = length, .initiator_depth = 1,
					 .responder_resources = 1, .retry_count = 7, .rnr_retry_count = 7 };

	return rdma_connect(id, &param);
}

/* Accepts a connection. Both ends are connected then. */
static inline void answer(struct ends *ends)
{
	struct rdma_cm_event *event = take(ends, RDMA_CM_EVENT_CONNECT_REQUEST);

	ends->server = event->id;
	create_pair(ends->server);
	MUST(!rdma_accept(ends->server, NULL));
	MUST(!rdma_ack_cm_event(event));
	expect(ends, RDMA_CM_EVENT_ESTABLISHED);
	expect(ends, RDMA_CM_EVENT_ESTABLISHED);
}

/* Begins to listen, and prepares the client. */
static inline void prepare(struct ends *ends)
{
	begin_listening(ends);
	ends->client = create_identifier(ends);
	resolve(ends, ends->client);
	create_pair(ends->client);
}

static inline void join_both(struct ends *ends)
{
	prepare(ends);
	MUST(!ask(ends->client, 4));
	answer(ends);
}

/* Disconnects. The other end does the same when it is told, so that the first one need not wait for its answer. */
static inline void separate(struct ends *ends)
{
	MUST(!rdma_disconnect(ends->client));
	expect(ends, RDMA_CM_EVENT_DISCONNECTED);
	MUST(!rdma_disconnect(ends->server));
	expect(ends, RDMA_CM_EVENT_DISCONNECTED);
}

static inline void destroy_end(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	MUST(!rdma_destroy_id(id));
}

static inline void finish(struct ends *ends)
{
	destroy_end(ends->client);
	destroy_end(ends->server);
	destroy_end(ends->listener);
	rdma_destroy_event_channel(ends->channel);
}
