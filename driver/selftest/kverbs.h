/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of the kernel client share; see kverbs.c. */
#ifndef VRNIC_KVERBS_H
#define VRNIC_KVERBS_H

#include <linux/completion.h>
#include <linux/kernel.h>
#include <rdma/ib_verbs.h>

#define DEPTH 16
#define INLINE 64
#define BUFFER 8192
#define HALF (BUFFER / 2)

/* One side of a connection. */
struct side {
	struct ib_qp *qp;
	u8 *buffer;
	u64 dma;
	struct ib_cqe send_cqe, recv_cqe;
	struct completion sent, received;
	struct ib_wc send_wc, recv_wc;
	/* Receives that ended in a flush. */
	atomic_t flushed;
};

struct test {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct side a, b;
};

/* connection.c: two queue pairs of a device, connected to each other. */
int open_side(struct test *test, struct side *side);
void close_side(struct test *test, struct side *side);
int connect_both(struct test *test);
/* Through the reset state, by which errors end and nothing is outstanding. */
int reconnect(struct test *test);

/* request.c: posting, and waiting for what becomes of it. */
struct ib_sge sge_of(struct test *test, struct side *side, u32 offset, u32 length);
int post_recv(struct test *test, struct side *side, u32 offset, u32 length);
int post_send(struct side *side, struct ib_send_wr *wr, struct ib_sge *sge, int flags);
int await(struct completion *done, const struct ib_wc *wc, enum ib_wc_status status,
	  const char *what);
int expect(bool ok, const char *what);
void send_done(struct ib_cq *cq, struct ib_wc *wc);
void recv_done(struct ib_cq *cq, struct ib_wc *wc);

/* data.c: SEND, WRITE, READ, atomics, errors. */
int test_data(struct test *test);

/* memory.c: fast registration and invalidation. */
int test_memory(struct test *test);

/* address.c: address handles. */
int test_address(struct test *test);

/* death.c: what is outstanding when the adapter dies. */
int prepare_death(struct test *test);
int test_death(struct test *test);

#endif
