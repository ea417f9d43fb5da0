/* SPDX-License-Identifier: GPL-2.0 */
/* Memory of a process that the device uses without pinning it. */
#ifndef VRNIC_RDMA_PAGING_HELPERS_H
#define VRNIC_RDMA_PAGING_HELPERS_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

/* Makes pages of the memory absent, and waits until the device no longer uses them; sleeps. */
typedef void (*rdma_paged_unmap_t)(const void *user, u64 first, u64 count);

/* Memory whose pages come and go, or the anchor of such memories. */
struct rdma_paged;

/* Returns whether the kernel has on-demand paging. */
bool rdma_helper_has_paging(void);
/*
 * Returns the memory of this range of the calling process, or an error pointer. What the kernel
 * needs to know its pages counts as locked memory of the process.
 */
struct rdma_paged *rdma_helper_paged_get(struct ib_device *device, unsigned long start,
					 size_t length, int access, rdma_paged_unmap_t unmap,
					 const void *user);
/* Returns the anchor of memories anywhere in the calling process, or an error pointer. */
struct rdma_paged *rdma_helper_paged_anchor(struct ib_device *device, int access);
/*
 * Returns a memory of the process of an anchor, or an error pointer. It counts in the same way, and
 * against the limit that the process had when the anchor was made.
 */
struct rdma_paged *rdma_helper_paged_part(struct rdma_paged *anchor, unsigned long start,
					  size_t length, rdma_paged_unmap_t unmap,
					  const void *user);
void rdma_helper_paged_release(struct rdma_paged *paged);
/* Returns whether the device may write to it. */
bool rdma_helper_paged_writable(const struct rdma_paged *paged);
/*
 * Locks the memory when pages of it are present in the process: all of these, if they are to be
 * faulted in, or those that happen to be. Returns zero or a negative error.
 */
int rdma_helper_paged_lock(struct rdma_paged *paged, u64 first, u64 count, bool fault);
/* Returns the DMA address of a page of a locked memory, or zero if the device must not use it. */
u64 rdma_helper_paged_page(struct rdma_paged *paged, u64 page);
void rdma_helper_paged_unlock(struct rdma_paged *paged);

#endif
