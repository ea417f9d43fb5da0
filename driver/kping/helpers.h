/* SPDX-License-Identifier: GPL-2.0 */
/* Macros of the connection manager and functions with socket addresses, as functions with plain parameters. */
#ifndef VRNIC_KPING_HELPERS_H
#define VRNIC_KPING_HELPERS_H

#include <rdma/rdma_cm.h>

struct rdma_cm_id *kping_create_id(rdma_cm_event_handler handler, void *context);
int kping_bind(struct rdma_cm_id *id, u16 port);
int kping_resolve(struct rdma_cm_id *id, u32 address, u16 port, unsigned long timeout_ms);
int kping_connect(struct rdma_cm_id *id, bool accept);

#endif
