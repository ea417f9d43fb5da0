/* SPDX-License-Identifier: MIT OR Apache-2.0
 * More requests are posted than the completion queue has room for.
 */
#include "two.h"

static void post_write(struct two *two)
{
	MUST(!post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, data(two, 64)));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;
	int size;

	create(&two, 4);
	connect_both(&two);
	size = two.cq->cqe;
	MUST(size < 16);
	for (int i = 0; i < size + wrong; i++)
		post_write(&two);
	for (int i = 0; i < size; i++)
		MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	finish(&two);
	return 0;
}
