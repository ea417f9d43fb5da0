// SPDX-License-Identifier: GPL-2.0
/*
 * Page faults in the name of a process, in a work item.
 *
 * The process decides how long such a fault takes: userfaultfd and FUSE let programs supply pages.
 * So nobody waits for one. A fault has no reference to a region, a device or an adapter. It has
 * references to the memory of the process and to this module, whose code it runs. Whoever has begun
 * it may give it up: this kills it. All waits of page faults end when their thread is killed, with
 * one exception: if a FUSE server has taken a request without having announced FUSE_ASYNC_READ, the
 * kernel waits until the server answers or ends. The fault then goes on, and keeps the module
 * loaded.
 *
 * Faults of different users do not wait for each other, unless the numbers of the users are equal
 * modulo QUEUES.
 */

#include <linux/cred.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/refcount.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "fault_helpers.h"

#define QUEUES 32
/* Faults of a queue at a time; each has a thread. */
#define MAX_FAULTS 16

struct rdma_fault {
	struct work_struct work;
	/* The owner, and the work item until it has run. */
	refcount_t references;
	struct rdma_fault_range range;
	const void *user;
	/* Protects what follows. */
	spinlock_t lock;
	/* NULL when it was called, or must not be called any more. */
	rdma_faulted_t done;
	/* The thread, while a signal can end the fault. */
	struct task_struct *task;
};

static struct workqueue_struct *queues[QUEUES];

static void put(struct rdma_fault *fault)
{
	if (refcount_dec_and_test(&fault->references)) {
		mmdrop(fault->range.mm);
		kfree(fault);
	}
}

/* Makes pages present, and returns the number of the first ones that are, or an error. */
static long fault_in(const struct rdma_fault_range *range)
{
	unsigned int flags = FOLL_HONOR_NUMA_FAULT | (range->write ? FOLL_WRITE : 0);
	struct mm_struct *mm = range->mm;
	struct mem_cgroup *group, *old;
	int locked = 1;
	long result;

	if (!mmget_not_zero(mm))
		return -EINVAL;
	/* The tables of the pages belong to the process, and not to this thread. */
	group = get_mem_cgroup_from_mm(mm);
	old = set_active_memcg(group);
	result = mmap_read_lock_killable(mm);
	if (!result) {
		result = get_user_pages_remote(mm, range->start, range->count, flags, NULL, &locked);
		if (locked)
			mmap_read_unlock(mm);
	}
	set_active_memcg(old);
	mem_cgroup_put(group);
	mmput_async(mm);
	return result;
}

/* Lets the owner kill the thread. Returns false if the owner has given the fault up. */
static bool begin(struct rdma_fault *fault)
{
	bool wanted;

	allow_kernel_signal(SIGKILL);
	spin_lock(&fault->lock);
	wanted = fault->done;
	if (wanted)
		fault->task = current;
	spin_unlock(&fault->lock);
	return wanted;
}

/* The opposite; a signal that has come is forgotten. */
static void end(struct rdma_fault *fault)
{
	spin_lock(&fault->lock);
	fault->task = NULL;
	spin_unlock(&fault->lock);
	disallow_signal(SIGKILL);
}

static void run(struct work_struct *work)
{
	struct rdma_fault *fault = container_of(work, struct rdma_fault, work);
	long result = begin(fault) ? fault_in(&fault->range) : -EINTR;

	end(fault);
	spin_lock(&fault->lock);
	if (fault->done)
		fault->done(fault->user, result);
	fault->done = NULL;
	spin_unlock(&fault->lock);
	put(fault);
	/* The removal of the queues waits for the rest of this function. */
	module_put(THIS_MODULE);
}

struct rdma_fault *rdma_fault_start(const struct rdma_fault_range *range, rdma_faulted_t done,
				    const void *user)
{
	struct rdma_fault *fault = kmalloc(sizeof(*fault), GFP_KERNEL);

	if (!fault)
		return ERR_PTR(-ENOMEM);
	if (!try_module_get(THIS_MODULE)) {
		kfree(fault);
		return ERR_PTR(-ENODEV);
	}
	INIT_WORK(&fault->work, run);
	refcount_set(&fault->references, 2);
	fault->range = *range;
	mmgrab(range->mm);
	fault->user = user;
	spin_lock_init(&fault->lock);
	fault->done = done;
	fault->task = NULL;
	queue_work(queues[__kuid_val(range->uid) % QUEUES], &fault->work);
	return fault;
}

void rdma_helper_fault_end(struct rdma_fault *fault)
{
	spin_lock(&fault->lock);
	fault->done = NULL;
	if (fault->task)
		send_sig(SIGKILL, fault->task, 1);
	spin_unlock(&fault->lock);
	if (cancel_work(&fault->work)) {
		put(fault);
		module_put(THIS_MODULE);
	}
	put(fault);
}

int rdma_helper_faults_init(void)
{
	for (int n = 0; n < QUEUES; n++) {
		queues[n] = alloc_workqueue("vrnic_faults", WQ_UNBOUND, MAX_FAULTS);
		if (!queues[n]) {
			rdma_helper_faults_exit();
			return -ENOMEM;
		}
	}
	return 0;
}

/* There is no fault, because each keeps the module. */
void rdma_helper_faults_exit(void)
{
	for (int n = 0; n < QUEUES; n++) {
		if (queues[n])
			destroy_workqueue(queues[n]);
		queues[n] = NULL;
	}
}
