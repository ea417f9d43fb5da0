/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * A proxy from TCP to RDMA and back. One takes clients, and forwards their bytes as RDMA messages to another
 * one, which is a client of the server that they want. Clients and server speak TCP and notice nothing.
 *
 * usage: vrnicdv_proxy PORT ADDRESS PORT
 *        vrnicdv_proxy exit PORT ADDRESS PORT
 *
 * The first form listens for clients, and connects to the second one; the second one connects to the server. Each
 * client has a process of its own on both. No byte is copied: a buffer into which TCP has received is sent
 * as a message, and the other way round.
 */
#include <endian.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>
#include "example.h"

enum { BUFFERS = 16, LENGTH = 64 << 10, IDLE_POLLS = 1000, IDLE_US = 50, OPEN_TRIES = 20000,
       ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

/* What a completion is of: its wr_id is this and the number of the buffer. */
enum kind { BYTES_IN = 1 << 8, MESSAGE_OUT = 2 << 8, MESSAGE_IN = 3 << 8, BYTES_OUT = 4 << 8, CREDIT = 5 << 8 };

/* Where a proxy has its count of credits, in network byte order. */
struct greeting {
	uint64_t address;
	uint32_t key;
};

struct proxy {
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	/* The client or the server, and the other proxy: first for bytes, then for messages. */
	struct ibv_qp *bytes, *first, *link;
	struct greeting own, peer;
	/* The receives that the other proxy has posted so far, which it writes, and the messages sent to it. */
	volatile uint64_t granted;
	uint64_t sent, posted;
	/* The buffers that wait for a credit, in order; a length of 0 is the end. */
	struct { int buffer; uint32_t length; } waiting[BUFFERS];
	int first_waiting, num_waiting;
	char in[BUFFERS][LENGTH], out[BUFFERS][LENGTH];
	/* The ends of both directions: of the bytes that come, and of the messages. */
	int in_ended, in_passed, out_ended, sending;
};

static struct proxy proxy;

static void create(void)
{
	struct ibv_context *context = open_device();
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_DRIVER,
		.cap = { .max_send_wr = BUFFERS, .max_recv_wr = BUFFERS, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct vrnicdv_qp_attr push = { .flags = VRNICDV_QP_TOE | VRNICDV_QP_PUSH };

	proxy.pd = ibv_alloc_pd(context);
	proxy.cq = ibv_create_cq(context, 4 * BUFFERS, NULL, NULL, 0);
	need(proxy.pd && proxy.cq, "creating objects");
	init.send_cq = init.recv_cq = proxy.cq;
	proxy.bytes = vrnicdv_create_qp(proxy.pd, &init, &push);
	proxy.first = vrnicdv_create_qp(proxy.pd, &init, &push);
	proxy.mr = ibv_reg_mr(proxy.pd, &proxy, sizeof(proxy), ACCESS);
	need(proxy.bytes && proxy.first && proxy.mr, "creating queue pairs");
	proxy.own.address = htobe64((uintptr_t)&proxy.granted);
	proxy.own.key = htobe32(proxy.mr->rkey);
}

static void receive(struct ibv_qp *qp, uint64_t id, void *to, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)to, length, proxy.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	done(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static void transmit(struct ibv_qp *qp, uint64_t id, const void *from, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)from, length, proxy.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = length > 0, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	done(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

/* Posts a receive for a message, and tells the other proxy. */
static void grant(int buffer)
{
	struct ibv_sge sge = { (uintptr_t)&proxy.posted, sizeof(proxy.posted), proxy.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = CREDIT, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;

	receive(proxy.link, MESSAGE_IN | buffer, proxy.out[buffer], LENGTH);
	proxy.posted++;
	wr.wr.rdma.remote_addr = be64toh(proxy.peer.address);
	wr.wr.rdma.rkey = be32toh(proxy.peer.key);
	done(ibv_post_send(proxy.link, &wr, &bad), "ibv_post_send");
}

/* Waits for a completion of the first connection to the other proxy. */
static void completed(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(proxy.cq, 1, &wc) == 0)
		sched_yield();
	errno = ECONNRESET;
	need(wc.status == IBV_WC_SUCCESS, "greeting the other proxy");
}

/* Begins RDMA on the connection to the other proxy. */
static void begin(void)
{
	struct vrnicdv_rdma_attr attr = { .flags = VRNICDV_RDMA_CRC };

	done(vrnicdv_start_rdma(proxy.first, proxy.link, &attr), "vrnicdv_start_rdma");
}

/* Turns the connection to the other proxy into one for messages. Each tells the other where its count is. */
static void open_link(int answers)
{
	struct vrnicdv_reservation wanted = {
		.stream = proxy.first, .pd = proxy.pd, .cq = proxy.cq, .access = ACCESS,
		.cap = { 2 * BUFFERS, BUFFERS, 1, 1, sizeof(uint64_t) },
	};
	struct vrnicdv_connection now = { 0 };

	done(vrnicdv_reserve_rdma(&wanted), "vrnicdv_reserve_rdma");
	proxy.cq = wanted.cq;
	proxy.link = wanted.qp;
	receive(proxy.first, 0, &proxy.peer, sizeof(proxy.peer));
	if (answers) {
		completed();
		begin();
	}
	transmit(proxy.first, 0, &proxy.own, sizeof(proxy.own));
	completed();
	if (!answers) {
		completed();
		begin();
	}
	for (; proxy.posted < BUFFERS; proxy.posted++)
		receive(proxy.link, MESSAGE_IN | proxy.posted, proxy.out[proxy.posted], LENGTH);
	proxy.granted = BUFFERS;
	for (int tries = 0; tries < OPEN_TRIES && now.status == VRNICDV_CONNECTION_IDLE; tries++) {
		usleep(1000);
		done(vrnicdv_query_connection(proxy.link, &now), "vrnicdv_query_connection");
	}
	errno = ECONNRESET;
	need(now.status == VRNICDV_CONNECTION_RTS, "the beginning of RDMA");
	done(ibv_destroy_qp(proxy.first), "ibv_destroy_qp");
}

/* Passes bytes on as messages, as far as the other proxy has posted receives. */
static void pass_on(void)
{
	while (proxy.num_waiting > 0 && proxy.sent < proxy.granted) {
		int buffer = proxy.waiting[proxy.first_waiting].buffer;
		uint32_t length = proxy.waiting[proxy.first_waiting].length;

		transmit(proxy.link, MESSAGE_OUT | buffer, proxy.in[buffer], length);
		proxy.first_waiting = (proxy.first_waiting + 1) % BUFFERS;
		proxy.num_waiting--;
		proxy.sent++;
	}
}

static void completion(const struct ibv_wc *wc)
{
	int kind = wc->wr_id & ~0xff, buffer = wc->wr_id & 0xff, place;
	struct ibv_qp_attr last = { .qp_state = IBV_QPS_SQD };

	if (kind == BYTES_IN && !proxy.in_ended) {
		place = (proxy.first_waiting + proxy.num_waiting++) % BUFFERS;
		proxy.waiting[place].buffer = buffer;
		proxy.waiting[place].length = wc->byte_len;
		proxy.in_ended = wc->byte_len == 0;
	} else if (kind == MESSAGE_OUT && proxy.in_ended) {
		proxy.in_passed = proxy.num_waiting == 0;
	} else if (kind == MESSAGE_OUT) {
		receive(proxy.bytes, BYTES_IN | buffer, proxy.in[buffer], LENGTH);
	} else if (kind == MESSAGE_IN && wc->byte_len > 0) {
		transmit(proxy.bytes, BYTES_OUT | buffer, proxy.out[buffer], wc->byte_len);
		proxy.sending++;
	} else if (kind == MESSAGE_IN) {
		done(ibv_modify_qp(proxy.bytes, &last, IBV_QP_STATE), "ibv_modify_qp");
		proxy.out_ended = 1;
	} else if (kind == BYTES_OUT) {
		proxy.sending--;
		if (!proxy.out_ended)
			grant(buffer);
	}
}

/* Forwards in both directions until both have ended. Returns 0 if a connection has failed before. */
static int forward(void)
{
	struct ibv_wc wc;

	for (long idle = 0; !proxy.in_passed || !proxy.out_ended || proxy.sending > 0; idle++) {
		int count = ibv_poll_cq(proxy.cq, 1, &wc);

		need(count >= 0, "ibv_poll_cq");
		if (count > 0) {
			idle = 0;
			/* Receives that are left are flushed when both directions are closed. */
			if (wc.status == IBV_WC_SUCCESS)
				completion(&wc);
			else if (!proxy.in_ended || !proxy.out_ended)
				return 0;
		}
		pass_on();
		if (idle > IDLE_POLLS)
			usleep(IDLE_US);
	}
	return 1;
}

/* Waits until a connection is closed on both sides, or has ended. */
static void wait_for_end(struct ibv_qp *qp)
{
	struct vrnicdv_connection now = { .status = VRNICDV_CONNECTION_RTS };

	while (now.status == VRNICDV_CONNECTION_RTS || now.status == VRNICDV_CONNECTION_CLOSING) {
		usleep(1000);
		done(vrnicdv_query_connection(qp, &now), "vrnicdv_query_connection");
	}
}

/* Closes both connections. The last credits may be outstanding, and the other proxy may be the first. */
static void finish(void)
{
	while (vrnicdv_disconnect(proxy.link, false, 0) == EBUSY)
		usleep(1000);
	wait_for_end(proxy.link);
	wait_for_end(proxy.bytes);
	done(ibv_destroy_qp(proxy.link), "ibv_destroy_qp");
	done(ibv_destroy_qp(proxy.bytes), "ibv_destroy_qp");
}

static void connect_to(struct ibv_qp *qp, const struct sockaddr_in *at)
{
	done(vrnicdv_connect_stream(qp, (const struct sockaddr *)at, sizeof(*at)), "vrnicdv_connect_stream");
}

/* Serves a client, or a proxy. */
static void serve(int socket, int is_exit, const struct sockaddr_in *next)
{
	struct ibv_qp *taken;
	int error;

	create();
	taken = is_exit ? proxy.first : proxy.bytes;
	/* Bytes may be under way. */
	while ((error = vrnicdv_attach_socket(taken, socket)) == EAGAIN)
		usleep(1000);
	done(error, "vrnicdv_attach_socket");
	close(socket);
	connect_to(is_exit ? proxy.bytes : proxy.first, next);
	open_link(is_exit);
	for (int buffer = 0; buffer < BUFFERS; buffer++)
		receive(proxy.bytes, BYTES_IN | buffer, proxy.in[buffer], LENGTH);
	if (!forward()) {
		vrnicdv_disconnect(proxy.bytes, true, 0);
		vrnicdv_disconnect(proxy.link, true, 0);
		exit(1);
	}
	finish();
}

int main(int argc, char **argv)
{
	int is_exit = argc == 5 && !strcmp(argv[1], "exit"), listener;
	struct sockaddr_in next = { .sin_family = AF_INET };

	if (!is_exit && argc != 4) {
		fprintf(stderr, "usage: %s [exit] PORT ADDRESS PORT\n", argv[0]);
		return 2;
	}
	argv += is_exit;
	need(inet_pton(AF_INET, argv[2], &next.sin_addr) == 1, "parsing the address");
	next.sin_port = htons(atoi(argv[3]));
	listener = listen_at(atoi(argv[1]));
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int socket = accept(listener, NULL, NULL);

		need(socket >= 0, "accept");
		if (fork() == 0) {
			close(listener);
			serve(socket, is_exit, &next);
			return 0;
		}
		close(socket);
	}
}
