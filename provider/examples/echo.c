/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * A server that answers each TCP client with the client's own bytes. The adapter runs TCP, and no byte is
 * copied: a buffer that was received into is sent, and is received into again when the client has
 * acknowledged it.
 *
 * usage: vrnicdv_echo PORT [push | release] [length] [wait MILLISECONDS]
 *
 * With push, a receive also completes at the end of a segment with the flag PSH, so that short answers come
 * at once. With release, the server takes the bytes of a receive that is not full when nothing else is to do.
 * With length, sends complete by the length of TCP's queue. With wait, the first bytes of a client are received
 * by the kernel. The server ends with its first client.
 */
#include <poll.h>
#include <sched.h>
#include <unistd.h>
#include "example.h"

enum { BUFFERS = 16, LENGTH = 16 << 10, IS_SEND = 1 << 8, IDLE_POLLS = 100 };

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[BUFFERS][LENGTH];
};

static void receive(struct side *side, int buffer)
{
	struct ibv_sge sge = { (uintptr_t)side->memory[buffer], LENGTH, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	done(ibv_post_recv(side->qp, &wr, &bad), "ibv_post_recv");
}

static void answer(struct side *side, int buffer, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)side->memory[buffer], length, side->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = buffer | IS_SEND, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	done(ibv_post_send(side->qp, &wr, &bad), "ibv_post_send");
}

/* Moves the queue pair to a state: SQD closes the own direction after the sends that are posted. */
static void enter(struct side *side, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	done(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE), "ibv_modify_qp");
}

/* Gives the queue pair the connection of a client, after some milliseconds. */
static void accept_client(struct side *side, int listener, int delay)
{
	struct pollfd waits = { listener, POLLIN, 0 };

	need(poll(&waits, 1, -1) == 1, "poll");
	usleep(delay * 1000);
	done(vrnicdv_accept_stream(side->qp, listener), "vrnicdv_accept_stream");
	close(listener);
}

/* Answers until both directions are closed. Returns the number of bytes, or -1 if the client has ended the
 * connection in another way. */
static long echo(struct side *side, int releases)
{
	int sending = 0, ended = 0, closed = 0, idle = 0;
	long total = 0;
	struct ibv_wc wc;

	for (;;) {
		int count = ibv_poll_cq(side->cq, 1, &wc);
		int buffer = wc.wr_id & ~IS_SEND;

		need(count >= 0, "ibv_poll_cq");
		idle = count == 0 ? idle + 1 : 0;
		if (count == 0) {
			if (releases && !ended && idle % IDLE_POLLS == 0)
				done(vrnicdv_release_receives(side->qp), "vrnicdv_release_receives");
			sched_yield();
		} else if (wc.status == IBV_WC_WR_FLUSH_ERR) {
			/* The connection has ended. */
			return closed ? total : -1;
		} else if (wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "a request has failed: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		} else if (wc.wr_id & IS_SEND) {
			sending--;
			receive(side, buffer);
		} else if (wc.byte_len == 0) {
			ended = 1;
		} else {
			answer(side, buffer, wc.byte_len);
			sending++;
			total += wc.byte_len;
		}
		if (ended && !closed && sending == 0) {
			enter(side, IBV_QPS_SQD);
			closed = 1;
		}
	}
}

int main(int argc, char **argv)
{
	static struct side side;
	struct vrnicdv_qp_attr attr = { .flags = VRNICDV_QP_TOE };
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	int listener, delay = 0, releases = 0;
	long total;

	need(argc > 1, "reading the port");
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "push") == 0)
			attr.flags |= VRNICDV_QP_PUSH;
		else if (strcmp(argv[i], "length") == 0)
			attr.flags |= VRNICDV_QP_QUEUE_LENGTH;
		else if (strcmp(argv[i], "release") == 0)
			releases = 1;
		else if (strcmp(argv[i], "wait") == 0 && i + 1 < argc)
			delay = atoi(argv[++i]);
	}
	side.cq = ibv_create_cq(context, 2 * BUFFERS, NULL, NULL, 0);
	need(pd && side.cq, "a protection domain and a completion queue");
	struct ibv_qp_init_attr init = {
		.send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_DRIVER,
		.cap = { .max_send_wr = BUFFERS, .max_recv_wr = BUFFERS, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	side.qp = vrnicdv_create_qp(pd, &init, &attr);
	need(side.qp != NULL, "vrnicdv_create_qp");
	side.mr = ibv_reg_mr(pd, side.memory, sizeof(side.memory), IBV_ACCESS_LOCAL_WRITE);
	need(side.mr != NULL, "ibv_reg_mr");
	listener = listen_at(atoi(argv[1]));
	for (int buffer = 0; buffer < BUFFERS; buffer++)
		receive(&side, buffer);
	accept_client(&side, listener, delay);
	total = echo(&side, releases);
	if (total < 0)
		printf("the client has reset the connection\n");
	else
		printf("answered %ld bytes\n", total);
	done(ibv_destroy_qp(side.qp), "ibv_destroy_qp");
	done(ibv_dereg_mr(side.mr), "ibv_dereg_mr");
	done(ibv_destroy_cq(side.cq), "ibv_destroy_cq");
	done(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
	done(ibv_close_device(context), "ibv_close_device");
	return 0;
}
