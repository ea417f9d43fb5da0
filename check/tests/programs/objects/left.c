/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A region still exists when the program ends.
 */
#include "two.h"

static struct ibv_mr *add_region(struct two *two)
{
	return ibv_reg_mr(two->pd, two->buffer, 4096, ACCESS);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ibv_mr *mr;
	struct two two;

	start(&two);
	mr = add_region(&two);
	MUST(mr);
	if (wrong)
		return 0;
	MUST(!ibv_dereg_mr(mr));
	finish(&two);
	return 0;
}
