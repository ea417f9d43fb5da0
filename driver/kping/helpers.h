/* SPDX-License-Identifier: GPL-2.0 */
/* Macros, static inlines and structs with unnamed unions of the core, as functions with plain parameters. */
#ifndef VRNIC_KPING_HELPERS_H
#define VRNIC_KPING_HELPERS_H

#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

struct rdma_cm_id *kping_create_id(rdma_cm_event_handler handler, void *context);
int kping_bind(struct rdma_cm_id *id, u16 port);
int kping_resolve(struct rdma_cm_id *id, u32 address, u16 port, unsigned long timeout_ms);
int kping_connect(struct rdma_cm_id *id, bool accept);

struct ib_pd *kping_alloc_pd(struct ib_device *device);
void kping_dealloc_pd(struct ib_pd *pd);
int kping_create_qp(struct rdma_cm_id *id, struct ib_pd *pd, struct ib_cq *cq, u32 depth, u32 sges);

u64 kping_map(struct ib_device *device, void *memory, u32 length);
void kping_unmap(struct ib_device *device, u64 address, u32 length);
void kping_set_sg(struct scatterlist *list, u32 count, u32 nth, void *memory, u32 length);
int kping_map_sg(struct ib_device *device, struct scatterlist *list, u32 count);
void kping_unmap_sg(struct ib_device *device, struct scatterlist *list, u32 count);
int kping_dereg_mr(struct ib_mr *mr);

int kping_post_recv(struct ib_qp *qp, struct ib_cqe *cqe, struct ib_sge *sges, u32 count);
int kping_post_send(struct ib_qp *qp, struct ib_cqe *cqe, struct ib_sge *sges, u32 count, u32 invalidate);
int kping_post_rdma(struct ib_qp *qp, struct ib_cqe *cqe, struct ib_sge *sges, u32 count, bool write,
		    u64 address, u32 key);
int kping_post_reg(struct ib_qp *qp, struct ib_cqe *cqe, struct ib_mr *mr);
int kping_post_inv(struct ib_qp *qp, struct ib_cqe *cqe, u32 key);
struct ib_cqe *kping_wc_cqe(const struct ib_wc *wc);
u32 kping_wc_invalidated(const struct ib_wc *wc);

#endif
