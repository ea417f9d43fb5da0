/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Two threads post to one queue pair, and poll one completion queue. Each takes completions of the other.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "two.h"

#define ROUNDS 500

static struct two two;
static atomic_int done[2];

static void post_one(int own)
{
	struct ibv_sge sge = { (uintptr_t)two.buffer + own * 1024, 64, two.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = own, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)two.buffer + SIZE / 2 + own * 1024;
	wr.wr.rdma.rkey = two.mr->rkey;
	MUST(!ibv_post_send(two.qp[0], &wr, &bad));
}

static void *work(void *argument)
{
	int own = (intptr_t)argument;
	struct ibv_wc wc;

	for (int i = 0; i < ROUNDS; i++) {
		two.buffer[own * 1024] = i;
		done[own] = 0;
		post_one(own);
		while (!done[own]) {
			if (ibv_poll_cq(two.cq, 1, &wc) != 1)
				continue;
			MUST(wc.status == IBV_WC_SUCCESS);
			done[wc.wr_id] = 1;
		}
	}
	return NULL;
}

int main(void)
{
	pthread_t thread;

	start(&two);
	MUST(!pthread_create(&thread, NULL, work, (void *)1));
	work(NULL);
	MUST(!pthread_join(thread, NULL));
	finish(&two);
	return 0;
}
