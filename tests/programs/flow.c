/* SPDX-License-Identifier: MIT OR Apache-2.0
 * One TCP stream in one direction, by a queue pair or by sockets of the kernel, and its rate.
 *
 * usage: vrnic_flow PORT toe | tcp
 *        vrnic_flow ADDRESS PORT toe | tcp SECONDS
 *
 * The first form receives, and prints megabytes per second from the first byte to the last one.
 */
#include <arpa/inet.h>
#include <sched.h>
#include <time.h>
#include "side.h"
#include "vrnicdv.h"

enum { BUFFERS = 16, PART = 64 << 10 };

static unsigned char memory[BUFFERS][PART];

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void tell(uint64_t bytes, double since)
{
	printf("%.1f MB/s\n", bytes / 1e6 / (now() - since));
}

static void post(struct side *side, int buffer, int sends)
{
	struct ibv_sge sge = { (uintptr_t)memory[buffer], PART, side->mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_send_wr send = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED }, *worse;

	if (sends)
		expect(ibv_post_send(side->qp, &send, &worse), 0, "ibv_post_send");
	else
		expect(ibv_post_recv(side->qp, &receive, &bad), 0, "ibv_post_recv");
}

/* Waits for a completion. Returns false when the connection has ended. */
static int poll_one(struct side *side, struct ibv_wc *wc)
{
	int count = 0;

	for (long polls = 0; polls < MAX_POLLS && count == 0; polls++) {
		count = ibv_poll_cq(side->cq, 1, wc);
		if (count == 0)
			sched_yield();
	}
	errno = ETIMEDOUT;
	need(count == 1, "waiting for a completion");
	return wc->status == IBV_WC_SUCCESS;
}

static void make_toe(struct side *side)
{
	struct vrnicdv_qp_attr attr = { .flags = VRNICDV_QP_TOE };

	side->context = open_device();
	side->pd = ibv_alloc_pd(side->context);
	side->cq = ibv_create_cq(side->context, 2 * BUFFERS, NULL, NULL, 0);
	need(side->pd && side->cq, "creating objects");
	struct ibv_qp_init_attr init = {
		.send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_DRIVER,
		.cap = { .max_send_wr = BUFFERS, .max_recv_wr = BUFFERS, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	side->qp = vrnicdv_create_qp(side->pd, &init, &attr);
	side->mr = ibv_reg_mr(side->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	need(side->qp && side->mr, "creating a queue pair");
}

static void receive_toe(struct side *side, int listener)
{
	struct ibv_qp_attr last = { .qp_state = IBV_QPS_SQD };
	uint64_t bytes = 0;
	double since = 0;
	struct ibv_wc wc;

	for (int buffer = 0; buffer < BUFFERS; buffer++)
		post(side, buffer, 0);
	expect(vrnicdv_accept_stream(side->qp, listener), 0, "vrnicdv_accept_stream");
	while (poll_one(side, &wc) && wc.byte_len > 0) {
		if (bytes == 0)
			since = now();
		bytes += wc.byte_len;
		post(side, wc.wr_id, 0);
	}
	tell(bytes, since);
	expect(ibv_modify_qp(side->qp, &last, IBV_QP_STATE), 0, "closing");
	while (poll_one(side, &wc))
		;
}

static void send_toe(struct side *side, const struct sockaddr_in *to, double seconds)
{
	struct ibv_qp_attr last = { .qp_state = IBV_QPS_SQD };
	struct ibv_wc wc;
	double end;

	expect(vrnicdv_connect_stream(side->qp, (const struct sockaddr *)to, sizeof(*to)), 0,
	       "vrnicdv_connect_stream");
	end = now() + seconds;
	for (int buffer = 0; buffer < BUFFERS; buffer++)
		post(side, buffer, 1);
	for (int sending = BUFFERS; sending > 0;) {
		need(poll_one(side, &wc), "sending");
		if (now() < end)
			post(side, wc.wr_id, 1);
		else
			sending--;
	}
	expect(ibv_modify_qp(side->qp, &last, IBV_QP_STATE), 0, "closing");
	post(side, 0, 0);
	/* The other side closes its direction when it has everything. */
	need(poll_one(side, &wc) && wc.byte_len == 0, "waiting for the end");
}

static void receive_tcp(int listener)
{
	int connection = accept(listener, NULL, NULL);
	uint64_t bytes = 0;
	double since = 0;
	ssize_t length;

	need(connection >= 0, "accept");
	while ((length = recv(connection, memory, sizeof(memory), 0)) > 0) {
		if (bytes == 0)
			since = now();
		bytes += length;
	}
	need(length == 0, "recv");
	tell(bytes, since);
	close(connection);
}

static void send_tcp(const struct sockaddr_in *to, double seconds)
{
	int connection = socket(AF_INET, SOCK_STREAM, 0);
	double end;

	need(connect(connection, (const struct sockaddr *)to, sizeof(*to)) == 0, "connect");
	for (end = now() + seconds; now() < end;)
		need(send(connection, memory, sizeof(memory), 0) > 0, "send");
	need(shutdown(connection, SHUT_WR) == 0, "shutdown");
	need(recv(connection, memory, 1, 0) == 0, "waiting for the end");
}

int main(int argc, char **argv)
{
	int sends = argc == 5, toe = argc > 2 && strcmp(argv[sends ? 3 : 2], "toe") == 0, yes = 1;
	struct sockaddr_in at = { .sin_family = AF_INET };
	static struct side side;
	int listener;

	need(argc == 3 || argc == 5, "reading the arguments");
	at.sin_port = htons(atoi(argv[sends ? 2 : 1]));
	if (toe)
		make_toe(&side);
	if (sends) {
		need(inet_pton(AF_INET, argv[1], &at.sin_addr) == 1, "reading the address");
		if (toe)
			send_toe(&side, &at, atof(argv[4]));
		else
			send_tcp(&at, atof(argv[4]));
		return 0;
	}
	listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	need(bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(listener, 1) == 0, "listen");
	if (toe)
		receive_toe(&side, listener);
	else
		receive_tcp(listener);
	return 0;
}
