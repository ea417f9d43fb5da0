// SPDX-License-Identifier: GPL-2.0
/* See paging_helpers.h. */

#include <linux/hmm.h>
#include <linux/hmm-dma.h>
#include <linux/mmu_notifier.h>
#include <linux/pci-p2pdma.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <rdma/ib_umem_odp.h>

#include "paging_helpers.h"

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING

struct rdma_paged {
	struct ib_umem_odp *odp;
	rdma_paged_unmap_t unmap;
	const void *user;
	/* Of an anchor. */
	struct mm_struct *mm;
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

/* Takes over the memory, which may be an error pointer. */
static struct rdma_paged *wrap(struct rdma_paged *paged, struct ib_umem_odp *odp)
{
	if (IS_ERR(odp)) {
		kfree(paged);
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

static struct rdma_paged *alloc(rdma_paged_unmap_t unmap, const void *user)
{
	struct rdma_paged *paged = kzalloc(sizeof(*paged), GFP_KERNEL);

	if (paged) {
		paged->unmap = unmap;
		paged->user = user;
	}
	return paged;
}

struct rdma_paged *rdma_helper_paged_get(struct ib_device *device, unsigned long start,
					 size_t length, int access, rdma_paged_unmap_t unmap,
					 const void *user)
{
	struct rdma_paged *paged = alloc(unmap, user);

	if (!paged)
		return ERR_PTR(-ENOMEM);
	/* Huge pages are used as the small pages that they consist of. */
	access &= ~IB_ACCESS_HUGETLB;
	return wrap(paged, ib_umem_odp_get(device, start, length, access, &paged_ops));
}

struct rdma_paged *rdma_helper_paged_anchor(struct ib_device *device, int access)
{
	struct rdma_paged *paged = alloc(NULL, NULL);
	struct mm_struct *mm = current->mm;
	struct rdma_paged *anchor;

	if (!paged)
		return ERR_PTR(-ENOMEM);
	/* The core takes a reference for the parts alone, and finds the memory by the anchor. */
	mmgrab(mm);
	paged->mm = mm;
	anchor = wrap(paged, ib_umem_odp_alloc_implicit(device, access));
	if (IS_ERR(anchor))
		mmdrop(mm);
	return anchor;
}

struct rdma_paged *rdma_helper_paged_part(struct rdma_paged *anchor, unsigned long start,
					  size_t length, rdma_paged_unmap_t unmap,
					  const void *user)
{
	struct rdma_paged *paged = alloc(unmap, user);

	if (!paged)
		return ERR_PTR(-ENOMEM);
	return wrap(paged, ib_umem_odp_alloc_child(anchor->odp, start, length, &paged_ops));
}

void rdma_helper_paged_release(struct rdma_paged *paged)
{
	ib_umem_odp_release(paged->odp);
	if (paged->mm)
		mmdrop(paged->mm);
	kfree(paged);
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
