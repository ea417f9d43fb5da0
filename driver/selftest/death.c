// SPDX-License-Identifier: GPL-2.0
/*
 * What becomes of requests that are outstanding when the adapter dies, and of those that are
 * posted later: all are flushed, in order, as on a queue pair in error. So ib_drain_qp() returns.
 */
#include <linux/delay.h>

#include "kverbs.h"

#define BEFORE 5
#define AFTER 3

static int post_recvs(struct test *test, struct side *side, int count)
{
	int ret = 0;

	while (count-- && !ret)
		ret = post_recv(test, side, HALF, HALF);
	return ret;
}

int prepare_death(struct test *test)
{
	atomic_set(&test->a.flushed, 0);
	atomic_set(&test->b.flushed, 0);
	return reconnect(test) ?:
	       post_recvs(test, &test->a, BEFORE) ?: post_recvs(test, &test->b, BEFORE);
}

/* Requests that were outstanding are flushed without anybody's asking. */
static int await_flush(struct side *side)
{
	int tries = 1000;

	while (atomic_read(&side->flushed) < BEFORE && tries--)
		msleep(20);
	return expect(atomic_read(&side->flushed) == BEFORE, "receives outstanding at death");
}

static int drain(struct test *test, struct side *side)
{
	struct ib_send_wr wr = { .opcode = IB_WR_SEND };
	struct ib_sge sge = sge_of(test, side, 0, HALF);
	int ret;

	ret = post_recvs(test, side, AFTER) ?: post_send(side, &wr, &sge, 0);
	if (ret)
		return ret;
	ib_drain_qp(side->qp);
	return await(&side->sent, &side->send_wc, IB_WC_WR_FLUSH_ERR, "SEND after death") ?:
	       expect(atomic_read(&side->flushed) == BEFORE + AFTER, "receives after death");
}

/* To be called when the adapter has died. */
int test_death(struct test *test)
{
	return await_flush(&test->a) ?: await_flush(&test->b) ?: drain(test, &test->a) ?:
	       drain(test, &test->b);
}
