// SPDX-License-Identifier: GPL-2.0
/* See paging_helpers.h. */

#include <linux/capability.h>
#include <linux/dma-mapping.h>
#include <linux/hmm.h>
#include <linux/hmm-dma.h>
#include <linux/mmu_notifier.h>
#include <linux/pci-p2pdma.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <rdma/ib_umem_odp.h>

#include "paging_helpers.h"

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING

struct rdma_paged {
	struct ib_umem_odp *odp;
	rdma_paged_unmap_t unmap;
	const void *user;
	/* The memory of the process, which outlives it. */
	struct mm_struct *mm;
	/* Pages that the process may lock, and those that this counts as. */
	u64 limit;
	u64 charged;
};

bool rdma_helper_has_paging(void)
{
	return true;
}

/* Returns whether the device has been given one of these pages. */
static bool any_mapped(struct ib_umem_odp *odp, u64 first, u64 end)
{
	for (; first < end; first++) {
		if (odp->map.pfn_list[first] & HMM_PFN_DMA_MAPPED)
			return true;
	}
	return false;
}

static bool paged_invalidate(struct mmu_interval_notifier *notifier,
			     const struct mmu_notifier_range *range, unsigned long seq)
{
	struct ib_umem_odp *odp = container_of(notifier, struct ib_umem_odp, notifier);
	struct rdma_paged *paged;
	u64 start, end, first, last;

	if (!mmu_notifier_range_blockable(range))
		return false;
	mutex_lock(&odp->umem_mutex);
	mmu_interval_set_seq(notifier, seq);
	start = max_t(u64, ib_umem_start(odp), range->start);
	end = min_t(u64, ib_umem_end(odp), range->end);
	first = (start - ib_umem_start(odp)) >> PAGE_SHIFT;
	last = DIV_ROUND_UP(end - ib_umem_start(odp), PAGE_SIZE);
	/* Until it is set, no page was given to the device. */
	paged = odp->private;
	if (start < end && paged && any_mapped(odp, first, last))
		paged->unmap(paged->user, first, last - first);
	ib_umem_odp_unmap_dma_pages(odp, start, end);
	mutex_unlock(&odp->umem_mutex);
	return true;
}

static const struct mmu_interval_notifier_ops paged_ops = {
	.invalidate = paged_invalidate,
};

/* Returns how many pages the calling process may lock. */
static u64 limit_of_caller(void)
{
	return capable(CAP_IPC_LOCK) ? S64_MAX : rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
}

/*
 * Counts the lists that the core allocates for the pages of a range as locked memory of the
 * process. They are kernel memory that stays as long as the range, whether it has pages or not.
 */
static int charge(struct rdma_paged *paged, struct device *dma, unsigned long start,
		  size_t length)
{
	u64 entry = sizeof(unsigned long) + (dma_need_unmap(dma) ? sizeof(dma_addr_t) : 0);
	unsigned long end;
	u64 pages;

	if (check_add_overflow(start, length, &end) || end > ULONG_MAX - PAGE_SIZE)
		return -EOVERFLOW;
	pages = (PAGE_ALIGN(end) - (start & PAGE_MASK)) >> PAGE_SHIFT;
	paged->charged = DIV_ROUND_UP(pages * entry, PAGE_SIZE);
	if (atomic64_add_return(paged->charged, &paged->mm->pinned_vm) > paged->limit)
		return -ENOMEM;
	return 0;
}

static void discard(struct rdma_paged *paged)
{
	atomic64_sub(paged->charged, &paged->mm->pinned_vm);
	mmdrop(paged->mm);
	kfree(paged);
}

/* Takes over the memory, which may be an error pointer. */
static struct rdma_paged *wrap(struct rdma_paged *paged, struct ib_umem_odp *odp)
{
	if (IS_ERR(odp)) {
		discard(paged);
		return ERR_CAST(odp);
	}
	paged->odp = odp;
	if (!odp->is_implicit_odp) {
		mutex_lock(&odp->umem_mutex);
		odp->private = paged;
		mutex_unlock(&odp->umem_mutex);
	}
	return paged;
}

static struct rdma_paged *alloc(struct mm_struct *mm, u64 limit, rdma_paged_unmap_t unmap,
				const void *user)
{
	struct rdma_paged *paged = kzalloc(sizeof(*paged), GFP_KERNEL_ACCOUNT);

	if (paged) {
		mmgrab(mm);
		paged->mm = mm;
		paged->limit = limit;
		paged->unmap = unmap;
		paged->user = user;
	}
	return paged;
}

struct rdma_paged *rdma_helper_paged_get(struct ib_device *device, unsigned long start,
					 size_t length, int access, rdma_paged_unmap_t unmap,
					 const void *user)
{
	struct rdma_paged *paged = alloc(current->mm, limit_of_caller(), unmap, user);
	int error;

	if (!paged)
		return ERR_PTR(-ENOMEM);
	error = charge(paged, device->dma_device, start, length);
	if (error) {
		discard(paged);
		return ERR_PTR(error);
	}
	/* Huge pages are used as the small pages that they consist of. */
	access &= ~IB_ACCESS_HUGETLB;
	return wrap(paged, ib_umem_odp_get(device, start, length, access, &paged_ops));
}

struct rdma_paged *rdma_helper_paged_anchor(struct ib_device *device, int access)
{
	struct rdma_paged *paged = alloc(current->mm, limit_of_caller(), NULL, NULL);

	if (!paged)
		return ERR_PTR(-ENOMEM);
	return wrap(paged, ib_umem_odp_alloc_implicit(device, access));
}

struct rdma_paged *rdma_helper_paged_part(struct rdma_paged *anchor, unsigned long start,
					  size_t length, rdma_paged_unmap_t unmap,
					  const void *user)
{
	struct rdma_paged *paged = alloc(anchor->mm, anchor->limit, unmap, user);
	int error;

	if (!paged)
		return ERR_PTR(-ENOMEM);
	error = charge(paged, anchor->odp->umem.ibdev->dma_device, start, length);
	if (error) {
		discard(paged);
		return ERR_PTR(error);
	}
	return wrap(paged, ib_umem_odp_alloc_child(anchor->odp, start, length, &paged_ops));
}

void rdma_helper_paged_release(struct rdma_paged *paged)
{
	ib_umem_odp_release(paged->odp);
	discard(paged);
}

bool rdma_helper_paged_writable(const struct rdma_paged *paged)
{
	return paged->odp->umem.writable;
}

int rdma_helper_paged_lock(struct rdma_paged *paged, u64 first, u64 count, bool fault)
{
	struct ib_umem_odp *odp = paged->odp;
	u64 access = odp->umem.writable ? HMM_PFN_WRITE : 0;
	u64 start = ib_umem_start(odp) + (first << PAGE_SHIFT);
	int pages;

	if (first > ib_umem_odp_num_pages(odp) || count > ib_umem_odp_num_pages(odp) - first)
		return -EFAULT;
	pages = ib_umem_odp_map_dma_and_lock(odp, start, count << PAGE_SHIFT, access, fault);
	return min(pages, 0);
}

u64 rdma_helper_paged_page(struct rdma_paged *paged, u64 page)
{
	struct ib_umem_odp *odp = paged->odp;
	struct pci_p2pdma_map_state p2pdma = {};
	unsigned long pfn = odp->map.pfn_list[page];
	struct device *dma = odp->umem.ibdev->dma_device;
	unsigned long need = HMM_PFN_VALID | (odp->umem.writable ? HMM_PFN_WRITE : 0);
	bool mapped = pfn & HMM_PFN_DMA_MAPPED;
	dma_addr_t address;

	if ((pfn & need) != need)
		return 0;
	address = hmm_dma_map_pfn(dma, &odp->map, page, &p2pdma);
	if (dma_mapping_error(dma, address))
		return 0;
	odp->npages += !mapped;
	return address & PAGE_MASK;
}

void rdma_helper_paged_unlock(struct rdma_paged *paged)
{
	mutex_unlock(&paged->odp->umem_mutex);
}

#else

bool rdma_helper_has_paging(void)
{
	return false;
}

struct rdma_paged *rdma_helper_paged_get(struct ib_device *device, unsigned long start,
					 size_t length, int access, rdma_paged_unmap_t unmap,
					 const void *user)
{
	return ERR_PTR(-EOPNOTSUPP);
}

struct rdma_paged *rdma_helper_paged_anchor(struct ib_device *device, int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

struct rdma_paged *rdma_helper_paged_part(struct rdma_paged *anchor, unsigned long start,
					  size_t length, rdma_paged_unmap_t unmap,
					  const void *user)
{
	return ERR_PTR(-EOPNOTSUPP);
}

void rdma_helper_paged_release(struct rdma_paged *paged)
{
}

bool rdma_helper_paged_writable(const struct rdma_paged *paged)
{
	return false;
}

int rdma_helper_paged_lock(struct rdma_paged *paged, u64 first, u64 count, bool fault)
{
	return -EOPNOTSUPP;
}

u64 rdma_helper_paged_page(struct rdma_paged *paged, u64 page)
{
	return 0;
}

void rdma_helper_paged_unlock(struct rdma_paged *paged)
{
}

#endif
