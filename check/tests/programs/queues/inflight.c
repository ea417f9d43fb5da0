/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A queue pair is destroyed before the completion of its request.
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

	start(&two);
	post_write(&two);
	if (!wrong)
		MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	finish(&two);
	return 0;
}
