// SPDX-License-Identifier: GPL-2.0
/*
 * Reservations of direct.h: what a connection needs for RDMA, made in the name of a kernel client by the calls
 * that the client itself would use, in a work item.
 */

#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "../direct.h"
#include "reserve.h"

/* The port of a queue pair of an RNIC. */
#define VRNIC_RESERVED_PORT 1

/* Returns the number of completions that the queues may have outstanding. */
static u32 vrnic_entries(const struct ib_qp_cap *cap)
{
	u32 entries;

	return check_add_overflow(cap->max_send_wr, cap->max_recv_wr, &entries) ? U32_MAX : entries;
}

static int vrnic_refuse(struct vrnic_reservation *r, u32 reason, u32 would_do, int err)
{
	r->reason = reason;
	r->would_do = would_do;
	return err;
}

/* Creates the queue pair, and brings it to INIT. */
static int vrnic_reserve_qp(struct vrnic_reservation *r, struct ib_cq *cq)
{
	struct ib_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = r->cap, .qp_type = IB_QPT_RC, .create_flags = r->create_flags,
		.sq_sig_type = IB_SIGNAL_REQ_WR, .event_handler = r->event_handler, .qp_context = r->qp_context,
	};
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT, .port_num = VRNIC_RESERVED_PORT, .qp_access_flags = r->access,
	};
	struct ib_qp *qp = ib_create_qp(r->pd, &init);
	int err;

	if (IS_ERR(qp))
		return vrnic_refuse(r, VRNIC_RESERVE_NO_QP, 0, PTR_ERR(qp));
	err = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS);
	if (err) {
		ib_destroy_qp(qp);
		return vrnic_refuse(r, VRNIC_RESERVE_NO_QP, 0, err);
	}
	r->qp = qp;
	r->cq = cq;
	r->cap = init.cap;
	return 0;
}

/*
 * Makes room in a completion queue for the entries of a queue pair that uses it already. The queue grows by powers
 * of two, and so seldom.
 */
static int vrnic_grow(struct vrnic_shared_cq *shared, u32 entries, u32 most)
{
	u32 needed;
	int err = 0;

	if (check_add_overflow(shared->entries, entries, &needed) || needed > most)
		return -EINVAL;
	if (needed > shared->cq->cqe)
		err = vrnic_cq_resize(shared->cq, needed);
	if (!err)
		shared->entries = needed;
	return err;
}

/* Makes the queue pair on the shared completion queue, if that may have another one and can grow. */
static int vrnic_reserve_shared(struct vrnic_reservation *r, u32 most)
{
	struct vrnic_shared_cq *shared = r->shared;
	const struct ib_qp_cap asked = r->cap;
	int err = -ENOSPC;

	mutex_lock(&shared->lock);
	if (shared->qps < shared->max_qps)
		err = vrnic_reserve_qp(r, shared->cq);
	/* The queue pair comes first: without it the queue need not grow. */
	if (!err && vrnic_grow(shared, vrnic_entries(&r->cap), most)) {
		ib_destroy_qp(r->qp);
		r->qp = NULL;
		r->cq = NULL;
		r->cap = asked;
		err = -ENOSPC;
	}
	if (!err) {
		shared->qps++;
		r->entries = vrnic_entries(&r->cap);
	}
	mutex_unlock(&shared->lock);
	return err;
}

/* Makes the queue pair on a completion queue of its own, which is armed at once. */
static int vrnic_reserve_alone(struct vrnic_reservation *r, u32 most)
{
	u32 entries = vrnic_entries(&r->cap);
	struct ib_cq *cq;
	int err, vector;

	if (entries > most)
		return vrnic_refuse(r, VRNIC_RESERVE_CQ_TOO_LARGE, most, -EINVAL);
	vector = vrnic_any_vector(r->stream);
	if (vector < 0)
		return vrnic_refuse(r, VRNIC_RESERVE_NO_QP, 0, vector);
	cq = ib_alloc_cq(r->stream->device, NULL, entries, vector, r->poll);
	if (IS_ERR(cq))
		return vrnic_refuse(r, VRNIC_RESERVE_NO_QP, 0, PTR_ERR(cq));
	err = vrnic_reserve_qp(r, cq);
	entries = vrnic_entries(&r->cap);
	/* The actual queues may be longer than those that were asked for. */
	if (!err && entries > cq->cqe) {
		err = entries > most ? -EINVAL : vrnic_cq_resize(cq, entries);
		if (err) {
			ib_destroy_qp(r->qp);
			r->qp = NULL;
			r->cq = NULL;
			vrnic_refuse(r, VRNIC_RESERVE_CQ_TOO_LARGE, most, err);
		}
	}
	if (err)
		ib_free_cq(cq);
	r->new_cq = !err;
	return err;
}

static int vrnic_reserve_all(struct vrnic_reservation *r)
{
	struct ib_device_attr *attrs = &r->stream->device->attrs;
	struct vrnic_connection now;
	int err = vrnic_connection_query(r->stream, &now);

	if (err == -EINVAL || err == -EOPNOTSUPP || r->stream->qp_type != IB_QPT_DRIVER)
		return vrnic_refuse(r, VRNIC_RESERVE_NO_RNIC, 0, -EOPNOTSUPP);
	if (err || now.status != VRNIC_CONNECTION_RTS)
		return vrnic_refuse(r, VRNIC_RESERVE_NO_CONNECTION, 0, -ENOTCONN);
	if ((r->pd && r->pd->device != r->stream->device) || (r->shared && r->shared->cq->device != r->stream->device))
		return vrnic_refuse(r, VRNIC_RESERVE_NO_QP, 0, -EINVAL);
	if (r->ird > attrs->max_qp_rd_atom)
		return vrnic_refuse(r, VRNIC_RESERVE_IRD_TOO_LARGE, attrs->max_qp_rd_atom, -EINVAL);
	if (r->ord > attrs->max_qp_init_rd_atom)
		return vrnic_refuse(r, VRNIC_RESERVE_ORD_TOO_LARGE, attrs->max_qp_init_rd_atom, -EINVAL);
	if (!r->pd) {
		struct ib_pd *pd = ib_alloc_pd(r->stream->device, 0);

		if (IS_ERR(pd))
			return vrnic_refuse(r, VRNIC_RESERVE_NO_PD, 0, PTR_ERR(pd));
		r->pd = pd;
		r->new_pd = true;
	}
	err = r->shared ? vrnic_reserve_shared(r, attrs->max_cqe) : -ENOSPC;
	if (err)
		err = vrnic_reserve_alone(r, attrs->max_cqe);
	if (err && r->new_pd) {
		ib_dealloc_pd(r->pd);
		r->pd = NULL;
		r->new_pd = false;
	}
	return err;
}

static void vrnic_reserve_work(struct work_struct *work)
{
	struct vrnic_reservation *r = container_of(work, struct vrnic_reservation, work);
	int err = vrnic_reserve_all(r);

	if (!err)
		r->reason = VRNIC_RESERVED;
	r->done(r, err);
}

void vrnic_reserve(struct vrnic_reservation *r)
{
	r->would_do = 0;
	r->new_pd = false;
	r->new_cq = false;
	r->qp = NULL;
	r->cq = NULL;
	INIT_WORK(&r->work, vrnic_reserve_work);
	queue_work(system_dfl_wq, &r->work);
}
EXPORT_SYMBOL_GPL(vrnic_reserve);

int vrnic_release(struct vrnic_reservation *r)
{
	int err = ib_destroy_qp(r->qp);

	if (err)
		return err;
	r->qp = NULL;
	if (r->new_cq) {
		ib_free_cq(r->cq);
	} else {
		mutex_lock(&r->shared->lock);
		r->shared->qps--;
		r->shared->entries -= r->entries;
		mutex_unlock(&r->shared->lock);
	}
	r->cq = NULL;
	if (r->new_pd)
		ib_dealloc_pd(r->pd);
	return 0;
}
EXPORT_SYMBOL_GPL(vrnic_release);
