/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A client of an echo server, by a queue pair of a TCP stream: sends bytes, and compares what comes back.
 *
 * usage: vrnic_dial ADDRESS PORT BYTES
 *
 * The program closes its direction after the last byte, and takes the bytes of receives that are not full.
 */
#include <arpa/inet.h>
#include <sched.h>
#include "side.h"
#include "vrnicdv.h"

enum { BUFFERS = 8, PART = 20000, IS_SEND = 1 << 8, IDLE_POLLS = 100 };

static unsigned char memory[2 * BUFFERS][PART];

static unsigned char byte_at(long at)
{
	return at * 31 ^ at >> 8 ^ at >> 16;
}

static void post_receive(struct side *side, int buffer)
{
	struct ibv_sge sge = { (uintptr_t)memory[BUFFERS + buffer], PART, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	expect(ibv_post_recv(side->qp, &wr, &bad), 0, "ibv_post_recv");
}

/* Posts the bytes from `from` on. Returns how many. */
static long post_part(struct side *side, int buffer, long from, long bytes)
{
	long length = bytes - from < PART ? bytes - from : PART;
	struct ibv_sge sge = { (uintptr_t)memory[buffer], length, side->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = buffer | IS_SEND, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	for (long at = 0; at < length; at++)
		memory[buffer][at] = byte_at(from + at);
	expect(ibv_post_send(side->qp, &wr, &bad), 0, "ibv_post_send");
	return length;
}

static void compare(int buffer, long from, long length)
{
	for (long at = 0; at < length; at++)
		if (memory[BUFFERS + buffer][at] != byte_at(from + at)) {
			fprintf(stderr, "byte %ld is wrong\n", from + at);
			exit(1);
		}
}

static void dial(struct side *side, const char *address, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int error = ECONNREFUSED;

	need(inet_pton(AF_INET, address, &to.sin_addr) == 1, "reading the address");
	/* The server may not listen yet. */
	for (int tries = 0; tries < 300 && error == ECONNREFUSED; tries++) {
		error = vrnicdv_connect_stream(side->qp, (struct sockaddr *)&to, sizeof(to));
		usleep(error ? 100000 : 0);
	}
	expect(error, 0, "vrnicdv_connect_stream");
	expect(vrnicdv_connect_stream(side->qp, (struct sockaddr *)&to, sizeof(to)), EISCONN, "connecting twice");
}

/* Sends and compares until the peer has closed its direction. Returns the number of bytes. */
static long exchange(struct side *side, long bytes)
{
	struct ibv_qp_attr last = { .qp_state = IBV_QPS_SQD };
	int free_buffers = BUFFERS, next = 0, closed = 0, idle = 0;
	long sent = 0, compared = 0;
	struct ibv_wc wc;

	for (long polls = 0; polls < MAX_POLLS; polls++) {
		int count = ibv_poll_cq(side->cq, 1, &wc);

		for (; sent < bytes && free_buffers > 0; free_buffers--, next = (next + 1) % BUFFERS)
			sent += post_part(side, next, sent, bytes);
		if (sent == bytes && !closed) {
			expect(ibv_modify_qp(side->qp, &last, IBV_QP_STATE), 0, "closing");
			closed = 1;
		}
		idle = count == 0 ? idle + 1 : 0;
		if (count == 0) {
			if (idle % IDLE_POLLS == 0)
				expect(vrnicdv_release_receives(side->qp), 0, "vrnicdv_release_receives");
			sched_yield();
			continue;
		}
		errno = ECONNABORTED;
		need(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		if (wc.wr_id & IS_SEND) {
			free_buffers++;
		} else if (wc.byte_len == 0) {
			return compared;
		} else {
			compare(wc.wr_id, compared, wc.byte_len);
			compared += wc.byte_len;
			post_receive(side, wc.wr_id);
		}
	}
	errno = ETIMEDOUT;
	need(0, "waiting for the end");
	return 0;
}

int main(int argc, char **argv)
{
	struct side side = { .context = open_device() };
	struct vrnicdv_qp_attr attr = { .flags = VRNICDV_QP_TOE | VRNICDV_QP_QUEUE_LENGTH };
	long bytes, compared;

	need(argc == 4, "reading the arguments");
	bytes = atol(argv[3]);
	side.pd = ibv_alloc_pd(side.context);
	side.cq = ibv_create_cq(side.context, 2 * BUFFERS, NULL, NULL, 0);
	need(side.pd && side.cq, "a protection domain and a completion queue");
	struct ibv_qp_init_attr init = {
		.send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_DRIVER,
		.cap = { .max_send_wr = BUFFERS, .max_recv_wr = BUFFERS, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	side.qp = vrnicdv_create_qp(side.pd, &init, &attr);
	need(side.qp != NULL, "vrnicdv_create_qp");
	side.mr = ibv_reg_mr(side.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	need(side.mr != NULL, "ibv_reg_mr");
	expect(vrnicdv_release_receives(side.qp), ENOTCONN, "a release without a connection");
	for (int buffer = 0; buffer < BUFFERS; buffer++)
		post_receive(&side, buffer);
	dial(&side, argv[1], atoi(argv[2]));
	compared = exchange(&side, bytes);
	errno = EPIPE;
	need(compared == bytes, "comparing all bytes");
	printf("compared %ld bytes\n", compared);
	expect(ibv_destroy_qp(side.qp), 0, "ibv_destroy_qp");
	expect(ibv_dereg_mr(side.mr), 0, "ibv_dereg_mr");
	expect(ibv_destroy_cq(side.cq), 0, "ibv_destroy_cq");
	expect(ibv_dealloc_pd(side.pd), 0, "ibv_dealloc_pd");
	expect(ibv_close_device(side.context), 0, "ibv_close_device");
	return 0;
}
