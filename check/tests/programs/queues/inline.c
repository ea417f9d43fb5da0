/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Inline data are longer than the queue pair takes.
 */
#include "two.h"

static int post_inline(struct two *two, uint32_t length)
{
	return post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, data(two, length));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	if (wrong) {
		MUST(post_inline(&two, SIZE / 2));
	} else {
		MUST(!post_inline(&two, 64));
		two.buffer[0] = 2;
		MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	}
	finish(&two);
	return 0;
}
