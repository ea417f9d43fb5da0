/* SPDX-License-Identifier: GPL-2.0 */
/* Page faults in the name of a process, in a work item. */
#ifndef VRNIC_RDMA_FAULT_HELPERS_H
#define VRNIC_RDMA_FAULT_HELPERS_H

#include <linux/mm_types.h>
#include <linux/uidgid.h>

#include "paging_helpers.h"

/* Pages of a process. */
struct rdma_fault_range {
	struct mm_struct *mm;
	unsigned long start;
	unsigned long count;
	/* True if they are to be written. */
	bool write;
	/* The user of the process. */
	kuid_t uid;
};

/* See rdma_helper_fault_start. */
struct rdma_fault *rdma_fault_start(const struct rdma_fault_range *range, rdma_faulted_t done,
				    const void *user);

#endif
