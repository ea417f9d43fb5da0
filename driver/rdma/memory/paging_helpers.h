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
/* Returns whether the calling thread frees memory that others, or it, wait for. */
bool rdma_helper_frees_memory(void);
/*
 * Returns the memory of this range of the calling process, or an error pointer. What the kernel
 * needs to know its pages counts as locked memory of the process, and for its control group.
 */
struct rdma_paged *rdma_helper_paged_get(struct ib_device *device, unsigned long start,
					 size_t length, int access, rdma_paged_unmap_t unmap,
					 const void *user);
/* Returns the anchor of memories anywhere in the calling process, or an error pointer. */
struct rdma_paged *rdma_helper_paged_anchor(struct ib_device *device, int access);
/*
 * Returns a memory of the process of an anchor, or an error pointer. It counts in the same way, and
 * against the limit that the process had when the anchor was made, whoever calls this.
 */
struct rdma_paged *rdma_helper_paged_part(struct rdma_paged *anchor, unsigned long start,
					  size_t length, rdma_paged_unmap_t unmap,
					  const void *user);
void rdma_helper_paged_release(struct rdma_paged *paged);
/* Returns whether the device may write to it. */
bool rdma_helper_paged_writable(const struct rdma_paged *paged);
/*
 * Locks the memory, and finds out which of these pages are present in the process. Waits for
 * nothing that the process may delay. Returns zero or a negative error: -EBUSY if the process
 * changes its mappings.
 */
int rdma_helper_paged_lock(struct rdma_paged *paged, u64 first, u64 count);
/*
 * Stores the DMA address of a page of a locked memory. Returns -EAGAIN if the page is absent, or
 * has not the rights that the device needs, and another error if the device cannot use it.
 */
int rdma_helper_paged_page(struct rdma_paged *paged, u64 page, u64 *address);
void rdma_helper_paged_unlock(struct rdma_paged *paged);

/* A page fault of the kernel's: see fault_helpers.c. */
struct rdma_fault;
/* Is told how many pages are present now, or of a negative error; does not sleep. */
typedef void (*rdma_faulted_t)(const void *user, long result);

/* Makes the queues of page faults, and removes them, for the whole module. */
int rdma_helper_faults_init(void);
void rdma_helper_faults_exit(void);
/*
 * Begins to make pages of a memory, or of an anchor, present in the process, and returns, or returns
 * an error pointer. `done` is called when the first ones are, or an error was met.
 */
struct rdma_fault *rdma_helper_fault_start(const struct rdma_paged *paged, u64 first, u64 count,
					   rdma_faulted_t done, const void *user);
/* Gives up a page fault, which may go on. Its function is not called any more. */
void rdma_helper_fault_end(struct rdma_fault *fault);

#endif
