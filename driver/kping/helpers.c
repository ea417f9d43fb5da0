// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/in.h>
#include <net/net_namespace.h>

#include "helpers.h"

struct rdma_cm_id *kping_create_id(rdma_cm_event_handler handler, void *context)
{
	return rdma_create_id(&init_net, handler, context, RDMA_PS_TCP, IB_QPT_RC);
}

int kping_bind(struct rdma_cm_id *id, u16 port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	return rdma_bind_addr(id, (struct sockaddr *)&address);
}

int kping_resolve(struct rdma_cm_id *id, u32 address, u16 port, unsigned long timeout_ms)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(address),
	};

	return rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, timeout_ms);
}

int kping_connect(struct rdma_cm_id *id, bool accept)
{
	struct rdma_conn_param param = {
		.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	return accept ? rdma_accept(id, &param) : rdma_connect(id, &param);
}
