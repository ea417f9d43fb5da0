/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Ranges (docs/direct.md) of queue pairs whose numbers are used again at once: threads create queue pairs, allocate a
 * range for each, and destroy them, on an adapter that has few. The end of a queue pair must not take the range of
 * another one.
 *
 * usage: renumber SECONDS
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include "side.h"
#include "vrnicdv.h"

enum { THREADS = 6, LOOKS = 4, LOOK_US = 300 };

static struct side common;
static time_t end;

/* Creates a queue pair as soon as there is one. */
static struct ibv_qp *next_qp(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = common.cq, .recv_cq = common.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp;

	while (!(qp = ibv_create_qp(common.pd, &init)) && time(NULL) < end + 20)
		sched_yield();
	need(qp != NULL, "ibv_create_qp");
	return qp;
}

static void *run(void *count)
{
	while (time(NULL) < end) {
		struct ibv_qp *qp = next_qp();
		struct vrnicdv_range *range = vrnicdv_alloc_range(qp);
		struct vrnicdv_range_state found;

		need(range != NULL, "vrnicdv_alloc_range");
		for (int look = 0; look < LOOKS; look++) {
			expect(vrnicdv_query_range(range, &found), 0, "its range");
			usleep(LOOK_US);
		}
		expect(vrnicdv_free_range(range), 0, "freeing its range");
		expect(ibv_destroy_qp(qp), 0, "ibv_destroy_qp");
		++*(long *)count;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	long counts[THREADS] = { 0 }, all = 0;

	need(argc == 2, "usage: renumber SECONDS");
	end = time(NULL) + atoi(argv[1]);
	common.context = open_device();
	common.pd = ibv_alloc_pd(common.context);
	common.cq = ibv_create_cq(common.context, 16, NULL, NULL, 0);
	need(common.pd && common.cq, "a protection domain and a completion queue");
	for (int i = 0; i < THREADS; i++)
		need(pthread_create(&threads[i], NULL, run, &counts[i]) == 0, "pthread_create");
	for (int i = 0; i < THREADS; i++) {
		need(pthread_join(threads[i], NULL) == 0, "pthread_join");
		all += counts[i];
	}
	need(ibv_destroy_cq(common.cq) == 0 && ibv_dealloc_pd(common.pd) == 0, "the end");
	ibv_close_device(common.context);
	printf("ok %ld queue pairs\n", all);
	return 0;
}
