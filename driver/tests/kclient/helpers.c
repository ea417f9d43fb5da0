// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/in.h>
#include <linux/pci-p2pdma.h>
#include <linux/preempt.h>
#include <net/net_namespace.h>

#include "helpers.h"

u64 kclient_map(struct ib_device *device, void *memory, u32 length)
{
	u64 address = ib_dma_map_single(device, memory, length, DMA_BIDIRECTIONAL);

	return ib_dma_mapping_error(device, address) ? 0 : address;
}

void kclient_unmap(struct ib_device *device, u64 address, u32 length)
{
	ib_dma_unmap_single(device, address, length, DMA_BIDIRECTIONAL);
}

void *kclient_peer_alloc(struct ib_device *device, size_t size)
{
	struct device *parent = device->dev.parent;

	return parent && dev_is_pci(parent) ? pci_alloc_p2pmem(to_pci_dev(parent), size) : NULL;
}

void kclient_peer_free(struct ib_device *device, void *memory, size_t size)
{
	pci_free_p2pmem(to_pci_dev(device->dev.parent), memory, size);
}

u64 kclient_peer_address(struct ib_device *device, void *memory)
{
	struct device *parent = device->dev.parent;

	return parent && dev_is_pci(parent) ? pci_p2pmem_virt_to_bus(to_pci_dev(parent), memory) : 0;
}

void kclient_set_sg(struct scatterlist *list, u32 count, u32 nth, void *memory, u32 length)
{
	if (!nth)
		sg_init_table(list, count);
	sg_set_buf(&list[nth], memory, length);
}

int kclient_map_sg(struct ib_device *device, struct scatterlist *list, u32 count)
{
	return ib_dma_map_sg(device, list, count, DMA_BIDIRECTIONAL);
}

void kclient_unmap_sg(struct ib_device *device, struct scatterlist *list, u32 count)
{
	ib_dma_unmap_sg(device, list, count, DMA_BIDIRECTIONAL);
}

bool kclient_in_hardirq(void)
{
	return in_hardirq();
}

int kclient_arm(struct ib_cq *cq, bool solicited_only)
{
	return ib_req_notify_cq(cq, solicited_only ? IB_CQ_SOLICITED : IB_CQ_NEXT_COMP);
}

int kclient_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr)
{
	return ib_post_recv(qp, wr, NULL);
}

int kclient_post_send(struct ib_qp *qp, const struct ib_send_wr *wr)
{
	return ib_post_send(qp, wr, NULL);
}

struct rdma_cm_id *kclient_cm_create_id(rdma_cm_event_handler handler, void *context)
{
	return rdma_create_id(&init_net, handler, context, RDMA_PS_TCP, IB_QPT_RC);
}

int kclient_cm_bind(struct rdma_cm_id *id, u16 port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	return rdma_bind_addr(id, (struct sockaddr *)&address);
}

int kclient_cm_resolve(struct rdma_cm_id *id, u32 address, u16 port, unsigned long timeout_ms)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(address),
	};

	return rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, timeout_ms);
}

int kclient_cm_connect(struct rdma_cm_id *id, bool accept)
{
	struct rdma_conn_param param = {
		.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	int err;

	if (!accept)
		return rdma_connect(id, &param);
	/* Callers are not in the handler of an event, which would hold this lock. */
	rdma_lock_handler(id);
	err = rdma_accept(id, &param);
	rdma_unlock_handler(id);
	return err;
}
