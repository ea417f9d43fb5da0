/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A socket that is given to the adapter while its peer sends.
 *
 * usage: vrnic_busy PORT
 *        vrnic_busy ADDRESS PORT
 *
 * The client sends a block every half millisecond. The server receives the first ones by the socket, then gives it to
 * a queue pair, and receives the rest there. It prints how many bytes were right, and how long none came meanwhile.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <time.h>
#include "side.h"
#include "vrnicdv.h"

enum { BLOCK = 1000, BLOCKS = 4000, BY_SOCKET = 1000, BUFFERS = 32, SIZE = 16 << 10 };

static unsigned char memory[BUFFERS][SIZE];

static long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void check_from(const unsigned char *bytes, long from, long count)
{
	for (long at = 0; at < count; at++)
		if (bytes[at] != (from + at) * 7 % 251) {
			fprintf(stderr, "byte %ld is wrong\n", from + at);
			exit(1);
		}
}

static void receive(struct side *side, int buffer)
{
	struct ibv_sge sge = { (uintptr_t)memory[buffer], SIZE, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	expect(ibv_post_recv(side->qp, &wr, &bad), 0, "ibv_post_recv");
}

static void send_all(const struct sockaddr_in *to)
{
	int connection = socket(AF_INET, SOCK_STREAM, 0), yes = 1, error = -1;
	unsigned char block[BLOCK];

	for (int tries = 0; tries < 300 && error; tries++) {
		error = connect(connection, (struct sockaddr *)to, sizeof(*to));
		usleep(error ? 100000 : 0);
	}
	need(error == 0, "connect");
	setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	for (long nth = 0; nth < BLOCKS; nth++) {
		for (long at = 0; at < BLOCK; at++)
			block[at] = (nth * BLOCK + at) * 7 % 251;
		need(write(connection, block, BLOCK) == BLOCK, "write");
		usleep(500);
	}
	need(shutdown(connection, SHUT_WR) == 0 && read(connection, block, 1) == 0, "shutdown");
}

static void take_all(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), connection, yes = 1, error = EAGAIN;
	struct side side = { .context = open_device() };
	struct vrnicdv_qp_attr attr = { .flags = VRNICDV_QP_TOE | VRNICDV_QP_PUSH };
	long total = 0, last = 0, begun, attached, pause = 0;
	struct vrnicdv_connection found = { 0 };
	struct ibv_wc wc;

	side.pd = ibv_alloc_pd(side.context);
	side.cq = ibv_create_cq(side.context, 2 * BUFFERS, NULL, NULL, 0);
	side.mr = ibv_reg_mr(side.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr init = {
		.send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_DRIVER,
		.cap = { .max_send_wr = 1, .max_recv_wr = BUFFERS, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	side.qp = vrnicdv_create_qp(side.pd, &init, &attr);
	need(side.mr && side.qp, "creating objects");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	need(bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(listener, 1) == 0, "listen");
	connection = accept(listener, NULL, NULL);
	need(connection >= 0, "accept");
	while (total < BLOCK * BY_SOCKET) {
		long count = read(connection, memory[0], SIZE);

		need(count > 0, "read");
		check_from(memory[0], total, count);
		total += count;
		last = now_us();
	}
	for (int buffer = 0; buffer < BUFFERS; buffer++)
		receive(&side, buffer);
	begun = now_us();
	for (int tries = 0; tries < 10000 && error == EAGAIN; tries++)
		error = vrnicdv_attach_socket(side.qp, connection);
	attached = now_us() - begun;
	expect(error, 0, "vrnicdv_attach_socket");
	for (;;) {
		if (ibv_poll_cq(side.cq, 1, &wc) == 0)
			continue;
		need(wc.status == IBV_WC_SUCCESS, "receiving");
		if (wc.byte_len == 0)
			break;
		pause = pause ? pause : now_us() - last;
		check_from(memory[wc.wr_id], total, wc.byte_len);
		total += wc.byte_len;
		receive(&side, wc.wr_id);
	}
	printf("received %ld bytes; attached in %ld us, a pause of %ld us\n", total, attached, pause);
	expect(vrnicdv_disconnect(side.qp, false, 0), 0, "vrnicdv_disconnect");
	for (int ms = 0; ms < 5000 && !(found.events & VRNICDV_CONNECTION_CLOSED); ms++) {
		expect(vrnicdv_query_connection(side.qp, &found), 0, "vrnicdv_query_connection");
		usleep(1000);
	}
	need(found.events & VRNICDV_CONNECTION_CLOSED, "closing");
	expect(ibv_destroy_qp(side.qp), 0, "ibv_destroy_qp");
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };

	need(argc == 2 || argc == 3, "reading the arguments");
	if (argc == 2) {
		take_all(atoi(argv[1]));
		return 0;
	}
	to.sin_port = htons(atoi(argv[2]));
	need(inet_pton(AF_INET, argv[1], &to.sin_addr) == 1, "reading the address");
	send_all(&to);
	return 0;
}
