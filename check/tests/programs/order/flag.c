/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The data and the flag that tells of them are written by two queue pairs, and nothing waits for the data.
 */
#include "two.h"

static void write_data(struct two *two)
{
	MUST(!post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, data(two, 16384)));
}

static void write_flag(struct two *two, struct ibv_qp *qp)
{
	struct ibv_sge sge = data(two, 8);
	struct ibv_send_wr wr = { .wr_id = 8, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)two->buffer + SIZE - 8;
	wr.wr.rdma.rkey = two->mr->rkey;
	MUST(!ibv_post_send(qp, &wr, &bad));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ibv_qp *more[2];
	struct two two;

	start(&two);
	for (int i = 0; i < 2; i++) {
		more[i] = create_pair(&two);
		to_init(more[i]);
	}
	for (int i = 0; i < 2; i++)
		to_rts(more[i], more[1 - i]->qp_num);
	write_data(&two);
	if (!wrong)
		MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	write_flag(&two, more[0]);
	for (int i = 0; i < 1 + wrong; i++)
		MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	for (int i = 0; i < 2; i++)
		MUST(!ibv_destroy_qp(more[i]));
	finish(&two);
	return 0;
}
