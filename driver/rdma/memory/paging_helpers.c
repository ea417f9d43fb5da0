// SPDX-License-Identifier: GPL-2.0
/* See paging_helpers.h. */

#include <linux/capability.h>
#include <linux/dma-mapping.h>
#include <linux/hmm.h>
#include <linux/hmm-dma.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/pci-p2pdma.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <rdma/ib_umem_odp.h>

#include "fault_helpers.h"
#include "paging_helpers.h"

bool rdma_helper_frees_memory(void)
{
	return current->flags & (PF_KSWAPD | PF_MEMALLOC);
}

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING

/* How often a lock is tried while the kernel changes the mappings meanwhile. */
#define LOCK_TRIES 8

struct rdma_paged {
	struct ib_umem_odp *odp;
	rdma_paged_unmap_t unmap;
	const void *user;
	/* The memory of the process, which outlives it, and the process' user. */
	struct mm_struct *mm;
	kuid_t uid;
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

/* Counts pages as locked memory of the process. */
static int charge(struct rdma_paged *paged, u64 pages)
{
	paged->charged = pages;
	if (atomic64_add_return(pages, &paged->mm->pinned_vm) > paged->limit)
		return -ENOMEM;
	return 0;
}

/*
 * Counts the lists that the core allocates for the pages of a range. They are kernel memory that
 * stays as long as the range, whether it has pages or not.
 */
static int charge_lists(struct rdma_paged *paged, struct device *dma, unsigned long start,
			size_t length)
{
	u64 entry = sizeof(unsigned long) + (dma_need_unmap(dma) ? sizeof(dma_addr_t) : 0);
	unsigned long end;
	u64 pages;

	if (check_add_overflow(start, length, &end) || end > ULONG_MAX - PAGE_SIZE)
		return -EOVERFLOW;
	pages = (PAGE_ALIGN(end) - (start & PAGE_MASK)) >> PAGE_SHIFT;
	return charge(paged, DIV_ROUND_UP(pages * entry, PAGE_SIZE));
}

static void discard(struct rdma_paged *paged)
{
	atomic64_sub(paged->charged, &paged->mm->pinned_vm);
	mmdrop(paged->mm);
	kfree(paged);
}

/*
 * Replaces the lists that the core has allocated for the pages of a new memory by lists that count
 * for the control group of the process. The core frees them in the same way.
 */
static int account_lists(struct ib_umem_odp *odp)
{
	/* A group that is full is told so, and none of its processes is killed. */
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN;
	u64 pages = ib_umem_odp_num_pages(odp);
	unsigned long *pfns = kvcalloc(pages, sizeof(*pfns), gfp);
	dma_addr_t *addresses = NULL;

	if (pfns && odp->map.dma_list)
		addresses = kvcalloc(pages, sizeof(*addresses), gfp);
	if (!pfns || (odp->map.dma_list && !addresses)) {
		kvfree(pfns);
		return -ENOMEM;
	}
	/* The kernel may tell the memory of changed mappings already. */
	mutex_lock(&odp->umem_mutex);
	swap(odp->map.pfn_list, pfns);
	swap(odp->map.dma_list, addresses);
	mutex_unlock(&odp->umem_mutex);
	kvfree(pfns);
	kvfree(addresses);
	return 0;
}

/* Takes over the memory, which may be an error pointer. */
static struct rdma_paged *wrap(struct rdma_paged *paged, struct ib_umem_odp *odp)
{
	int error;

	if (IS_ERR(odp)) {
		discard(paged);
		return ERR_CAST(odp);
	}
	paged->odp = odp;
	error = odp->is_implicit_odp ? 0 : account_lists(odp);
	if (error) {
		ib_umem_odp_release(odp);
		discard(paged);
		return ERR_PTR(error);
	}
	if (!odp->is_implicit_odp) {
		mutex_lock(&odp->umem_mutex);
		odp->private = paged;
		mutex_unlock(&odp->umem_mutex);
	}
	return paged;
}

static struct rdma_paged *alloc(struct mm_struct *mm, u64 limit, kuid_t uid,
				rdma_paged_unmap_t unmap, const void *user)
{
	struct rdma_paged *paged = kzalloc(sizeof(*paged), GFP_KERNEL_ACCOUNT);

	if (paged) {
		mmgrab(mm);
		paged->mm = mm;
		paged->limit = limit;
		paged->uid = uid;
		paged->unmap = unmap;
		paged->user = user;
	}
	return paged;
}

static struct rdma_paged *alloc_of_caller(rdma_paged_unmap_t unmap, const void *user)
{
	return alloc(current->mm, limit_of_caller(), current_uid(), unmap, user);
}

/*
 * Lets the core make memories of the calling process without the lock of its mappings, which a page
 * fault may have as long as the process likes.
 */
static int prepare_parts(void)
{
	struct mm_struct *mm = current->mm;
	int error;

	if (mmap_write_lock_killable(mm))
		return -EINTR;
	error = __mmu_notifier_register(NULL, mm);
	mmap_write_unlock(mm);
	return error;
}

struct rdma_paged *rdma_helper_paged_get(struct ib_device *device, unsigned long start,
					 size_t length, int access, rdma_paged_unmap_t unmap,
					 const void *user)
{
	struct rdma_paged *paged = alloc_of_caller(unmap, user);
	int error;

	if (!paged)
		return ERR_PTR(-ENOMEM);
	error = charge_lists(paged, device->dma_device, start, length);
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
	struct rdma_paged *paged = alloc_of_caller(NULL, NULL);
	int error;

	if (!paged)
		return ERR_PTR(-ENOMEM);
	/* More than what the kernel has for a region without parts. */
	error = charge(paged, 1);
	if (!error)
		error = prepare_parts();
	if (error) {
		discard(paged);
		return ERR_PTR(error);
	}
	return wrap(paged, ib_umem_odp_alloc_implicit(device, access));
}

static struct rdma_paged *new_part(struct rdma_paged *anchor, unsigned long start, size_t length,
				   rdma_paged_unmap_t unmap, const void *user)
{
	struct rdma_paged *paged = alloc(anchor->mm, anchor->limit, anchor->uid, unmap, user);
	int error;

	if (!paged)
		return ERR_PTR(-ENOMEM);
	error = charge_lists(paged, anchor->odp->umem.ibdev->dma_device, start, length);
	if (error) {
		discard(paged);
		return ERR_PTR(error);
	}
	return wrap(paged, ib_umem_odp_alloc_child(anchor->odp, start, length, &paged_ops));
}

struct rdma_paged *rdma_helper_paged_part(struct rdma_paged *anchor, unsigned long start,
					  size_t length, rdma_paged_unmap_t unmap,
					  const void *user)
{
	/* The part belongs to the process, and not to this thread. */
	struct mem_cgroup *group = get_mem_cgroup_from_mm(anchor->mm);
	struct mem_cgroup *old = set_active_memcg(group);
	struct rdma_paged *paged = new_part(anchor, start, length, unmap, user);

	set_active_memcg(old);
	mem_cgroup_put(group);
	return paged;
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

int rdma_helper_paged_lock(struct rdma_paged *paged, u64 first, u64 count)
{
	struct ib_umem_odp *odp = paged->odp;
	u64 pages = ib_umem_odp_num_pages(odp);
	struct hmm_range range = { .notifier = &odp->notifier };
	int error = -EBUSY;

	if (first > pages || count > pages - first)
		return -EFAULT;
	if (!mmget_not_zero(paged->mm))
		return -EINVAL;
	range.start = ib_umem_start(odp) + (first << PAGE_SHIFT);
	range.end = range.start + (count << PAGE_SHIFT);
	range.hmm_pfns = odp->map.pfn_list + first;
	for (int tries = 0; tries < LOCK_TRIES && error == -EBUSY; tries++) {
		range.notifier_seq = mmu_interval_read_begin(range.notifier);
		/* A page fault may have the lock as long as the process likes. */
		if (!mmap_read_trylock(paged->mm))
			break;
		error = hmm_range_fault(&range);
		mmap_read_unlock(paged->mm);
		if (error)
			continue;
		mutex_lock(&odp->umem_mutex);
		if (mmu_interval_read_retry(range.notifier, range.notifier_seq)) {
			mutex_unlock(&odp->umem_mutex);
			error = -EBUSY;
		}
	}
	mmput_async(paged->mm);
	return error;
}

int rdma_helper_paged_page(struct rdma_paged *paged, u64 page, u64 *address)
{
	struct ib_umem_odp *odp = paged->odp;
	struct pci_p2pdma_map_state p2pdma = {};
	unsigned long pfn = odp->map.pfn_list[page];
	struct device *dma = odp->umem.ibdev->dma_device;
	unsigned long need = HMM_PFN_VALID | (odp->umem.writable ? HMM_PFN_WRITE : 0);
	bool mapped = pfn & HMM_PFN_DMA_MAPPED;
	dma_addr_t dma_address;

	if (pfn & HMM_PFN_ERROR)
		return -EFAULT;
	if ((pfn & need) != need)
		return -EAGAIN;
	dma_address = hmm_dma_map_pfn(dma, &odp->map, page, &p2pdma);
	if (dma_mapping_error(dma, dma_address))
		return -ENOMEM;
	odp->npages += !mapped;
	*address = dma_address & PAGE_MASK;
	return 0;
}

void rdma_helper_paged_unlock(struct rdma_paged *paged)
{
	mutex_unlock(&paged->odp->umem_mutex);
}

struct rdma_fault *rdma_helper_fault_start(const struct rdma_paged *paged, u64 first, u64 count,
					   rdma_faulted_t done, const void *user)
{
	struct rdma_fault_range range = {
		.mm = paged->mm,
		.start = ib_umem_start(paged->odp) + (first << PAGE_SHIFT),
		.count = count,
		.write = paged->odp->umem.writable,
		.uid = paged->uid,
	};

	return rdma_fault_start(&range, done, user);
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

int rdma_helper_paged_lock(struct rdma_paged *paged, u64 first, u64 count)
{
	return -EOPNOTSUPP;
}

int rdma_helper_paged_page(struct rdma_paged *paged, u64 page, u64 *address)
{
	return -EOPNOTSUPP;
}

void rdma_helper_paged_unlock(struct rdma_paged *paged)
{
}

struct rdma_fault *rdma_helper_fault_start(const struct rdma_paged *paged, u64 first, u64 count,
					   rdma_faulted_t done, const void *user)
{
	return ERR_PTR(-EOPNOTSUPP);
}

#endif
