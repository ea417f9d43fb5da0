// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

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

int kclient_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr)
{
	return ib_post_recv(qp, wr, NULL);
}

int kclient_post_send(struct ib_qp *qp, const struct ib_send_wr *wr)
{
	return ib_post_send(qp, wr, NULL);
}
