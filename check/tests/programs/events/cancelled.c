/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Threads are cancelled while they wait for events. What they destroy then is destroyed for the checker, too.
 */
#include <pthread.h>
#include "two.h"

static struct two two;

static void destroy(void *queue)
{
	MUST(!ibv_destroy_cq(queue));
}

static void *wait_for_completion(void *queue)
{
	struct ibv_cq *cq;
	void *user;

	pthread_cleanup_push(destroy, queue);
	ibv_get_cq_event(two.channel, &cq, &user);
	pthread_cleanup_pop(0);
	return NULL;
}

static void *wait_for_device(void *queue)
{
	struct ibv_async_event event;

	pthread_cleanup_push(destroy, queue);
	ibv_get_async_event(two.context, &event);
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancel(void *(*wait)(void *))
{
	struct ibv_cq *cq = ibv_create_cq(two.context, 16, NULL, NULL, 0);
	pthread_t thread;
	void *result;

	MUST(cq);
	MUST(!pthread_create(&thread, NULL, wait, cq));
	MUST(!pthread_cancel(thread));
	MUST(!pthread_join(thread, &result));
	MUST(result == PTHREAD_CANCELED);
}

int main(void)
{
	start(&two);
	cancel(wait_for_completion);
	cancel(wait_for_device);
	finish(&two);
	return 0;
}
