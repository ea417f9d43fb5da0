/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * One TCP connection, first for bytes and then for RDMA messages. A client and a server tell each other by
 * bytes where their memory is, and which of them begins; then the client writes to the server's memory, and
 * the server reads from the client's.
 *
 * usage: vrnicdv_switch PORT [late MILLISECONDS]
 *        vrnicdv_switch ADDRESS PORT [late MILLISECONDS]
 *
 * With late, the first RDMA receive is posted this much later than RDMA has begun.
 */
#include <endian.h>
#include <poll.h>
#include <unistd.h>
#include "example.h"

enum { LENGTH = 256 << 10, READS = 4, MANY_READS = 1000, ENTRIES = 32, TIMEOUT_MS = 20000,
       ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

/* What each end tells the other by bytes, in network byte order. */
struct greeting {
	char name[8];
	uint64_t address;
	uint32_t key;
	uint32_t reads;
};

struct side {
	struct ibv_context *context;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_qp *stream, *rdma;
	struct ibv_mr *mr;
	struct ibv_qp_cap cap;
	struct greeting own, peer;
	char word[16], data[LENGTH];
};

/* Connects the first queue pair to a server at an address, or gives it the connection of a client. */
static void connect_bytes(struct side *side, const char *address, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener;

	if (address) {
		need(inet_pton(AF_INET, address, &at.sin_addr) == 1, "parsing the address");
		done(vrnicdv_connect_stream(side->stream, (struct sockaddr *)&at, sizeof(at)),
		     "vrnicdv_connect_stream");
		return;
	}
	listener = listen_at(port);
	done(vrnicdv_accept_stream(side->stream, listener), "vrnicdv_accept_stream");
	close(listener);
}

static void create(struct side *side)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_DRIVER,
					 .cap = side->cap };
	struct vrnicdv_qp_attr bytes = { .flags = VRNICDV_QP_TOE };

	side->context = open_device();
	side->pd = ibv_alloc_pd(side->context);
	side->cq = ibv_create_cq(side->context, ENTRIES, NULL, NULL, 0);
	need(side->pd && side->cq, "creating objects");
	attr.send_cq = attr.recv_cq = side->cq;
	side->stream = vrnicdv_create_qp(side->pd, &attr, &bytes);
	need(side->stream != NULL, "vrnicdv_create_qp");
	side->mr = ibv_reg_mr(side->pd, side, sizeof(*side), ACCESS);
	need(side->mr != NULL, "ibv_reg_mr");
	memcpy(side->own.name, "switch", 7);
	side->own.address = htobe64((uintptr_t)side->data);
	side->own.key = htobe32(side->mr->rkey);
	side->own.reads = htobe32(READS);
}

/* Reserves what RDMA needs. The completion queue grows by the entries of the new queue pair. */
static void reserve(struct side *side)
{
	struct vrnicdv_reservation wanted = { .stream = side->stream, .pd = side->pd, .cq = side->cq,
					      .cap = side->cap, .ird = MANY_READS, .ord = READS, .access = ACCESS };
	int before = side->cq->cqe;

	errno = 0;
	need(vrnicdv_reserve_rdma(&wanted) == EINVAL && wanted.reason == VRNICDV_IRD_TOO_LARGE && !wanted.qp,
	     "refusing too many READs");
	need(wanted.would_do >= READS && wanted.would_do < MANY_READS, "telling how many READs would do");
	wanted.ird = READS;
	done(vrnicdv_reserve_rdma(&wanted), "vrnicdv_reserve_rdma");
	need(!wanted.new_pd && !wanted.new_cq && wanted.cq->cqe >= before + (int)side->cap.max_send_wr,
	     "growing the completion queue");
	side->rdma = wanted.qp;
}

static void receive(struct side *side, struct ibv_qp *qp, void *to, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)to, length, side->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	done(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static void post(struct side *side, struct ibv_qp *qp, enum ibv_wr_opcode opcode, void *at, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)at, length, side->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = be64toh(side->peer.address);
	wr.wr.rdma.rkey = be32toh(side->peer.key);
	done(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

/* Waits for a number of completions. Returns the length of the last one. */
static uint32_t completions(struct side *side, int count)
{
	struct ibv_wc wc = { 0 };

	for (int had = 0; had < count;) {
		int found = ibv_poll_cq(side->cq, 1, &wc);

		need(found >= 0, "ibv_poll_cq");
		if (found > 0 && wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "a work request failed: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		had += found;
	}
	return wc.byte_len;
}

/* Begins RDMA. From then on what arrives belongs to messages, and only the last bytes are still sent. */
static void begin(struct side *side, int late)
{
	struct vrnicdv_rdma_attr attr = { .flags = VRNICDV_RDMA_CRC, .ird = READS,
					  .ord = be32toh(side->peer.reads) };

	done(vrnicdv_start_rdma(side->stream, side->rdma, &attr), "vrnicdv_start_rdma");
	usleep(1000 * late);
}

/* Waits until RDMA has begun. */
static void opened(struct side *side)
{
	struct pollfd events = { .fd = side->context->async_fd, .events = POLLIN };
	struct ibv_async_event event = { .event_type = 0 };

	while (event.event_type != IBV_EVENT_COMM_EST) {
		errno = ETIMEDOUT;
		need(poll(&events, 1, TIMEOUT_MS) == 1, "waiting for the beginning of RDMA");
		need(ibv_get_async_event(side->context, &event) == 0, "ibv_get_async_event");
		ibv_ack_async_event(&event);
		errno = ECONNRESET;
		need(event.event_type != IBV_EVENT_QP_FATAL, "the beginning of RDMA");
	}
	done(ibv_destroy_qp(side->stream), "ibv_destroy_qp");
}

/* Closes the connection, or waits until the peer has. */
static void finish(struct side *side, int first)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct ibv_qp_init_attr init;

	if (first)
		done(ibv_modify_qp(side->rdma, &attr, IBV_QP_STATE), "ibv_modify_qp");
	for (int tries = 0; tries < TIMEOUT_MS && attr.qp_state != IBV_QPS_ERR; tries++) {
		usleep(1000);
		done(ibv_query_qp(side->rdma, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
	}
	errno = ETIMEDOUT;
	need(attr.qp_state == IBV_QPS_ERR, "closing the connection");
	done(ibv_destroy_qp(side->rdma), "ibv_destroy_qp");
}

static void fill(struct side *side)
{
	for (int i = 0; i < LENGTH; i++)
		side->data[i] = (char)(i * 7 + i / 256);
}

static int is_filled(const struct side *side)
{
	for (int i = 0; i < LENGTH; i++)
		if (side->data[i] != (char)(i * 7 + i / 256))
			return 0;
	return 1;
}

static void serve(struct side *side, int late)
{
	receive(side, side->stream, &side->peer, sizeof(side->peer));
	completions(side, 1);
	begin(side, 0);
	/* The last bytes: the client begins when it has them. */
	post(side, side->stream, IBV_WR_SEND, &side->own, sizeof(side->own));
	completions(side, 1);
	usleep(1000 * late);
	receive(side, side->rdma, side->word, sizeof(side->word));
	opened(side);
	need(completions(side, 1) == 5 && is_filled(side), "comparing what the client has written");
	memset(side->data, 0, LENGTH);
	post(side, side->rdma, IBV_WR_RDMA_READ, side->data, LENGTH);
	completions(side, 1);
	need(is_filled(side), "comparing what was read");
	post(side, side->rdma, IBV_WR_SEND, side->word, 5);
	completions(side, 1);
	finish(side, 0);
}

static void ask(struct side *side, int late)
{
	receive(side, side->stream, &side->peer, sizeof(side->peer));
	post(side, side->stream, IBV_WR_SEND, &side->own, sizeof(side->own));
	completions(side, 2);
	begin(side, late);
	receive(side, side->rdma, side->word, sizeof(side->word));
	opened(side);
	fill(side);
	post(side, side->rdma, IBV_WR_RDMA_WRITE, side->data, LENGTH);
	memcpy(side->word, "there", 5);
	post(side, side->rdma, IBV_WR_SEND, side->word, 5);
	/* The server's message arrives after it has read. */
	completions(side, 3);
	finish(side, 1);
}

int main(int argc, char **argv)
{
	static struct side side = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	int late = argc > 3 && !strcmp(argv[argc - 2], "late") ? atoi(argv[argc - 1]) : 0;
	const char *address = argc - (late ? 2 : 0) == 3 ? argv[1] : NULL;

	if (argc < 2) {
		fprintf(stderr, "usage: %s [ADDRESS] PORT [late MILLISECONDS]\n", argv[0]);
		return 2;
	}
	create(&side);
	connect_bytes(&side, address, atoi(argv[address ? 2 : 1]));
	reserve(&side);
	if (address)
		ask(&side, late);
	else
		serve(&side, late);
	printf("%s %d bytes on the connection\n", address ? "wrote" : "read", LENGTH);
	return 0;
}
