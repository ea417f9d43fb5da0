/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A region is deregistered while a receive waits for data in it.
 */
#include "two.h"

static void deregister(struct two *two)
{
	MUST(!ibv_dereg_mr(two->mr));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	MUST(!receive(&two));
	if (wrong)
		deregister(&two);
	MUST(!ibv_destroy_qp(two.qp[0]));
	MUST(!ibv_destroy_qp(two.qp[1]));
	if (!wrong)
		deregister(&two);
	MUST(!ibv_destroy_cq(two.cq));
	MUST(!ibv_destroy_comp_channel(two.channel));
	MUST(!ibv_dealloc_pd(two.pd));
	MUST(!ibv_close_device(two.context));
	return 0;
}
