/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A device is closed while a region of it exists.
 */
#include "two.h"

static struct ibv_mr *add_region(struct two *two)
{
	return ibv_reg_mr(two->pd, two->buffer, 4096, ACCESS);
}

static void close_device(struct two *two)
{
	ibv_close_device(two->context);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two = { .context = open_device() };
	struct ibv_mr *mr;

	two.pd = ibv_alloc_pd(two.context);
	two.buffer = aligned_alloc(4096, SIZE);
	MUST(two.pd && two.buffer);
	mr = add_region(&two);
	MUST(mr);
	if (!wrong) {
		MUST(!ibv_dereg_mr(mr));
		MUST(!ibv_dealloc_pd(two.pd));
	}
	close_device(&two);
	return 0;
}
