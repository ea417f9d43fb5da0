/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Three mistakes of programs that rely on an order which no standard promises. They work by luck,
 * until an adapter moves bytes in another order. Queue pairs of the process move data between two
 * memories.
 *
 * usage: mistakes last-byte|flag|reuse [ROUNDS [relaxed]]  ends with 1 if any round found wrong data; with `relaxed`
 * the memory that is written has IBV_ACCESS_RELAXED_ORDERING
 */
#include <stdbool.h>
#include "side.h"

enum { BYTES = 4096, FLAG = 2 * BYTES, SIZE = 3 * BYTES, ROUNDS = 300, DATA = 1, SECOND = 2 };

/* Two connections from the memory `from` to the memory `to`. */
struct rig {
	struct side a[2], b[2];
	struct ibv_mr *from_mr, *to_mr;
	unsigned char from[SIZE], to[SIZE];
};

static struct rig rig;

static void open_rig(int more)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);

	need(pd != NULL, "ibv_alloc_pd");
	rig.from_mr = ibv_reg_mr(pd, rig.from, SIZE, RIGHTS);
	rig.to_mr = ibv_reg_mr(pd, rig.to, SIZE, RIGHTS | more);
	need(rig.from_mr && rig.to_mr, "ibv_reg_mr");
	for (int nth = 0; nth < 2; nth++) {
		rig.a[nth] = open_side(context, pd);
		rig.b[nth] = open_side(context, pd);
		connect_to(&rig.a[nth], rig.b[nth].qp);
		connect_to(&rig.b[nth], rig.a[nth].qp);
	}
}

/* Writes bytes to the same place of the other memory. */
static void post(struct side *side, uint64_t id, int at, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)(rig.from + at), .length = length, .lkey = rig.from_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = id, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = (uintptr_t)(rig.to + at), .rkey = rig.to_mr->rkey },
	}, *bad;

	expect(ibv_post_send(side->qp, &wr, &bad), 0, "ibv_post_send");
}

static void await_byte(int at, unsigned char value)
{
	volatile unsigned char *byte = rig.to + at;
	long polls = 0;

	while (*byte != value && polls++ < MAX_POLLS)
		;
	errno = ETIMEDOUT;
	need(*byte == value, "waiting for a byte");
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static bool arrived(unsigned char value)
{
	const volatile unsigned char *to = rig.to;

	for (int at = 0; at < BYTES; at++)
		if (to[at] != value)
			return false;
	return true;
}

/* Takes the last byte of a message for its end. */
static bool last_byte(unsigned char value)
{
	bool right;

	post(&rig.a[0], DATA, 0, BYTES);
	await_byte(BYTES - 1, value);
	right = arrived(value);
	completion(&rig.a[0], DATA, IBV_WC_SUCCESS, 0);
	return right;
}

/* Takes a flag, which another connection carries, for the end of the data before it. */
static bool flag(unsigned char value)
{
	bool right;

	rig.from[FLAG] = value;
	post(&rig.a[0], DATA, 0, BYTES);
	post(&rig.a[1], SECOND, FLAG, 1);
	await_byte(FLAG, value);
	right = arrived(value);
	completion(&rig.a[0], DATA, IBV_WC_SUCCESS, 0);
	completion(&rig.a[1], SECOND, IBV_WC_SUCCESS, 0);
	return right;
}

/* Uses the buffer again when the receiver has the last byte, instead of after the completion. */
static bool reuse(unsigned char value)
{
	post(&rig.a[0], DATA, 0, BYTES);
	await_byte(BYTES - 1, value);
	memset(rig.from, 0, BYTES);
	completion(&rig.a[0], DATA, IBV_WC_SUCCESS, 0);
	return arrived(value);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; bool (*round)(unsigned char); } mistakes[] = {
		{ "last-byte", last_byte }, { "flag", flag }, { "reuse", reuse },
	};
	int rounds = argc > 2 ? atoi(argv[2]) : ROUNDS, wrong = 0;
	bool (*round)(unsigned char) = NULL;

	for (int nth = 0; nth < 3; nth++)
		if (argc > 1 && strcmp(argv[1], mistakes[nth].name) == 0)
			round = mistakes[nth].round;
	errno = EINVAL;
	need(round && rounds > 0, "the name of a mistake, and the number of rounds");
	open_rig(argc > 3 && strcmp(argv[3], "relaxed") == 0 ? IBV_ACCESS_RELAXED_ORDERING : 0);
	for (int nth = 0; nth < rounds; nth++) {
		unsigned char value = 1 + nth % 255;

		memset(rig.from, value, BYTES);
		wrong += !round(value);
	}
	printf("%d of %d rounds found wrong data\n", wrong, rounds);
	return wrong > 0;
}
