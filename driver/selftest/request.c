// SPDX-License-Identifier: GPL-2.0
/* Posting, and waiting for what becomes of it. */
#include <linux/printk.h>

#include "kverbs.h"

#define TIMEOUT (5 * HZ)

void send_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct side *side = container_of(wc->wr_cqe, struct side, send_cqe);

	side->send_wc = *wc;
	complete(&side->sent);
}

void recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct side *side = container_of(wc->wr_cqe, struct side, recv_cqe);

	side->recv_wc = *wc;
	if (wc->status == IB_WC_WR_FLUSH_ERR)
		atomic_inc(&side->flushed);
	complete(&side->received);
}

int await(struct completion *done, const struct ib_wc *wc, enum ib_wc_status status,
		 const char *what)
{
	if (!wait_for_completion_timeout(done, TIMEOUT)) {
		pr_err("%s: no completion\n", what);
		return -ETIMEDOUT;
	}
	if (wc->status != status) {
		pr_err("%s: status %d (vendor %#x), wanted %d\n", what, wc->status,
		       wc->vendor_err, status);
		return -EIO;
	}
	return 0;
}

int expect(bool ok, const char *what)
{
	if (ok)
		return 0;
	pr_err("%s: wrong result\n", what);
	return -EIO;
}

struct ib_sge sge_of(struct test *test, struct side *side, u32 offset, u32 length)
{
	return (struct ib_sge) {
		.addr = side->dma + offset,
		.length = length,
		.lkey = test->pd->local_dma_lkey,
	};
}

int post_recv(struct test *test, struct side *side, u32 offset, u32 length)
{
	struct ib_sge sge = sge_of(test, side, offset, length);
	struct ib_recv_wr wr = { .wr_cqe = &side->recv_cqe, .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(side->qp, &wr, NULL);
}

int post_send(struct side *side, struct ib_send_wr *wr, struct ib_sge *sge, int flags)
{
	wr->wr_cqe = &side->send_cqe;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->send_flags = flags | IB_SEND_SIGNALED;
	return ib_post_send(side->qp, wr, NULL);
}
