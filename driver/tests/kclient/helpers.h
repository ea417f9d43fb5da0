/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Static inlines of the core and macros of the connection manager that kernel clients need, as
 * functions with plain parameters.
 */
#ifndef VRNIC_KCLIENT_HELPERS_H
#define VRNIC_KCLIENT_HELPERS_H

#include <linux/scatterlist.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

u64 kclient_map(struct ib_device *device, void *memory, u32 length);
void kclient_unmap(struct ib_device *device, u64 address, u32 length);
/* Memory of the device's own, in whole pages, or NULL; not zeroed. */
void *kclient_peer_alloc(struct ib_device *device, size_t size);
void kclient_peer_free(struct ib_device *device, void *memory, size_t size);
/* Returns the address by which PCI devices reach such memory, or 0 if it is another device's. */
u64 kclient_peer_address(struct ib_device *device, void *memory);
void kclient_set_sg(struct scatterlist *list, u32 count, u32 nth, void *memory, u32 length);
int kclient_map_sg(struct ib_device *device, struct scatterlist *list, u32 count);
void kclient_unmap_sg(struct ib_device *device, struct scatterlist *list, u32 count);
bool kclient_in_hardirq(void);
/* Asks for an event of the next completion, or of the next one that is solicited. */
int kclient_arm(struct ib_cq *cq, bool solicited_only);
int kclient_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr);
int kclient_post_send(struct ib_qp *qp, const struct ib_send_wr *wr);
struct rdma_cm_id *kclient_cm_create_id(rdma_cm_event_handler handler, void *context);
int kclient_cm_bind(struct rdma_cm_id *id, u16 port);
int kclient_cm_resolve(struct rdma_cm_id *id, u32 address, u16 port, unsigned long timeout_ms);
int kclient_cm_connect(struct rdma_cm_id *id, bool accept);

#endif
