// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel client that logs in by bytes and moves data by RDMA on the same connection, by the functions of direct.h.
 *
 * Loaded with peer=0 it is a server until it is removed. With the IPv4 address of a server (as a number, first byte
 * highest) it connects to it once in each way; loading fails if anything is wrong, and the kernel log says what.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/in.h>
#include <linux/inetdevice.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <rdma/ib_verbs.h>

#include "../../direct.h"

#define DATA 65536
#define HALF (DATA / 2)
#define DEPTH 8
#define READS 4
#define LIMIT_MS 20000
/* Queue pairs on one completion queue, and how many reservations there are in its test. */
#define SHARERS 3
#define RESERVATIONS 4
/* Bytes of messages that the server receives before it begins. */
#define EARLY 64

static unsigned int peer;
module_param(peer, uint, 0444);
MODULE_PARM_DESC(peer, "IPv4 address of the server, as a number; 0 to be one");
static unsigned int port = 7476;
module_param(port, uint, 0444);
MODULE_PARM_DESC(port, "Port of the server");

/* What happens to the transition. The client tells the server. */
enum way {
	PLAIN,
	/* The server begins late, when the client's messages have arrived as bytes. */
	LATE_START,
	/* The server posts the first receive late. */
	LATE_RECEIVE,
	/* The client begins, never posts a receive, and gives up, which resets the connection. */
	RESET,
	/* The server does so. */
	NO_RECEIVE,
	WAYS,
};

static const char *const names[WAYS] = { "plain", "late start", "late receive", "reset", "no receive" };

struct greeting {
	u64 address;
	u32 key;
	u32 way;
};

struct side {
	bool is_client;
	u32 way;
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *stream;
	struct vrnic_reservation reservation;
	struct completion reserved;
	int reserve_err;
	struct greeting other;
	/* A bit for each request that has completed. */
	unsigned long completed;
	u8 *data;
	u64 mapped;
};

/* Logs what failed. */
static int need(struct side *side, bool good, const char *what)
{
	if (!good)
		pr_err("%s, %s: %s failed\n", side->is_client ? "client" : "server", names[side->way], what);
	return good ? 0 : -EIO;
}

#define TRY(side, condition) do { int err_ = need(side, condition, #condition); if (err_) return err_; } while (0)

static u8 pattern(size_t at, u32 seed)
{
	return (at * 31 + seed * 101) % 253;
}

static void fill(struct side *side, u32 seed)
{
	for (size_t at = 0; at < HALF; at++)
		side->data[at] = pattern(at, seed);
}

static bool is_filled(struct side *side, size_t from, u32 seed)
{
	for (size_t at = 0; at < HALF; at++)
		if (READ_ONCE(side->data[from + at]) != pattern(at, seed))
			return false;
	return true;
}

static int receive(struct side *side, struct ib_qp *qp, u64 id, size_t at, u32 length)
{
	struct ib_sge sge = { .addr = side->mapped + at, .length = length, .lkey = side->pd->local_dma_lkey };
	struct ib_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(qp, &wr, NULL);
}

static int post(struct side *side, struct ib_qp *qp, u64 id, enum ib_wr_opcode opcode, size_t at, u32 length)
{
	struct ib_sge sge = { .addr = side->mapped + at, .length = length, .lkey = side->pd->local_dma_lkey };
	struct ib_rdma_wr wr = {
		.wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IB_SEND_SIGNALED },
		.remote_addr = side->other.address, .rkey = side->other.key,
	};

	return ib_post_send(qp, &wr.wr, NULL);
}

/* Waits until this request has completed, maybe after others. None may fail. */
static bool completes(struct side *side, struct ib_cq *cq, u64 id)
{
	struct ib_wc wc;

	for (int ms = 0; ms < LIMIT_MS && !test_bit(id, &side->completed); ms++) {
		if (ib_poll_cq(cq, 1, &wc) != 1) {
			usleep_range(500, 1000);
			continue;
		}
		if (wc.status != IB_WC_SUCCESS || wc.wr_id >= BITS_PER_LONG) {
			pr_err("request %llu has completed with %u\n", wc.wr_id, wc.status);
			return false;
		}
		set_bit(wc.wr_id, &side->completed);
	}
	return test_bit(id, &side->completed);
}

/* Waits until the connection has this status and these events. */
static bool reaches(struct ib_qp *qp, u32 status, u32 events)
{
	struct vrnic_connection now = { 0 };

	for (int ms = 0; ms < LIMIT_MS; ms++) {
		if (!vrnic_connection_query(qp, &now) && now.status == status && (now.events & events) == events)
			return true;
		usleep_range(500, 1000);
	}
	pr_err("the status is %u with events %x, not %u with %x\n", now.status, now.events, status, events);
	return false;
}

static void reserved(struct vrnic_reservation *reservation, int err)
{
	struct side *side = container_of(reservation, struct side, reservation);

	side->reserve_err = err;
	complete(&side->reserved);
}

/* Reserves, and waits for the result. */
static int reserve(struct side *side, u32 reads, struct vrnic_shared_cq *shared, struct ib_pd *pd)
{
	side->reservation = (struct vrnic_reservation){
		.stream = side->stream, .pd = pd, .shared = shared, .poll = IB_POLL_DIRECT, .ird = reads, .ord = reads,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.done = reserved,
	};
	reinit_completion(&side->reserved);
	vrnic_reserve(&side->reservation);
	wait_for_completion(&side->reserved);
	return side->reserve_err;
}

/* Several reservations share a completion queue, which grows, until it has as many as it may have. */
static int share(struct side *side)
{
	struct vrnic_reservation kept[RESERVATIONS];
	struct vrnic_shared_cq shared;
	struct ib_cq *cq = ib_alloc_cq(side->device, NULL, 1, 0, IB_POLL_DIRECT);
	u32 entries = 0;

	TRY(side, !IS_ERR(cq));
	vrnic_share_cq(&shared, cq, SHARERS);
	for (int nth = 0; nth < RESERVATIONS; nth++) {
		TRY(side, !reserve(side, READS, &shared, NULL));
		kept[nth] = side->reservation;
		TRY(side, kept[nth].reason == VRNIC_RESERVED && kept[nth].new_pd && kept[nth].qp);
		TRY(side, kept[nth].new_cq == (nth == SHARERS));
		entries += nth < SHARERS ? kept[nth].cap.max_send_wr + kept[nth].cap.max_recv_wr : 0;
		TRY(side, cq->cqe >= entries && is_power_of_2(cq->cqe));
	}
	TRY(side, kept[0].cq == cq && kept[SHARERS].cq != cq);
	TRY(side, shared.entries == entries && shared.qps == SHARERS);
	for (int nth = 0; nth < RESERVATIONS; nth++)
		TRY(side, !vrnic_release(&kept[nth]));
	TRY(side, !shared.entries && !shared.qps);
	ib_free_cq(cq);
	return 0;
}

/* Refusals have a reason and the value that would do. Then what is needed is reserved. */
static int prepare(struct side *side)
{
	u32 most = side->device->attrs.max_qp_rd_atom;

	TRY(side, reserve(side, most + 1, NULL, side->pd) == -EINVAL);
	TRY(side, side->reservation.reason == VRNIC_RESERVE_IRD_TOO_LARGE && side->reservation.would_do == most);
	TRY(side, !side->reservation.qp && !side->reservation.cq);
	if (side->way == PLAIN)
		TRY(side, !share(side));
	TRY(side, !reserve(side, READS, NULL, side->pd));
	TRY(side, side->reservation.new_cq && !side->reservation.new_pd);
	return 0;
}

/* The login: each side says where its memory is. */
static int greet(struct side *side, u32 way)
{
	struct greeting *own = (void *)side->data, *other = (void *)(side->data + HALF);

	*own = (struct greeting){ side->mapped + HALF, side->pd->unsafe_global_rkey, way };
	TRY(side, !receive(side, side->stream, 1, HALF, sizeof(*other)));
	if (!side->is_client)
		TRY(side, completes(side, side->cq, 1));
	TRY(side, !post(side, side->stream, 2, IB_WR_SEND, 0, sizeof(*own)));
	TRY(side, completes(side, side->cq, 2));
	if (side->is_client)
		TRY(side, completes(side, side->cq, 1));
	TRY(side, other->way < WAYS);
	side->other = *other;
	side->way = side->is_client ? way : other->way;
	return 0;
}

/* Call 2. The client's last receive of the stream comes back without bytes; a server that is late has got messages. */
static int start(struct side *side)
{
	struct vrnic_rdma_terms terms = { .ird = READS, .ord = READS, .crc = true, .peer_first = !side->is_client };
	bool is_early = !side->is_client && side->way == LATE_START;

	if (is_early) {
		TRY(side, !receive(side, side->stream, 3, HALF, EARLY));
		TRY(side, completes(side, side->cq, 3));
		msleep(500);
		terms.received = side->data + HALF;
		terms.received_len = EARLY;
	} else if (side->is_client) {
		TRY(side, !receive(side, side->stream, 3, HALF, 8));
	}
	TRY(side, vrnic_rdma_start(side->stream, side->stream, &terms) == -EINVAL);
	TRY(side, !vrnic_rdma_start(side->stream, side->reservation.qp, &terms));
	TRY(side, vrnic_rdma_start(side->stream, side->reservation.qp, &terms) == -ENOTCONN);
	if (side->is_client)
		TRY(side, completes(side, side->cq, 3));
	return 0;
}

/* The client writes half of its data to the server, which reads another half from it. */
static int move(struct side *side)
{
	struct vrnic_reservation *rdma = &side->reservation;

	TRY(side, reaches(rdma->qp, VRNIC_CONNECTION_RTS, 0));
	if (side->is_client) {
		fill(side, 1);
		TRY(side, !post(side, rdma->qp, 5, IB_WR_RDMA_WRITE, 0, HALF));
		TRY(side, completes(side, rdma->cq, 5));
		memcpy(side->data + HALF, side->data, HALF);
		TRY(side, !post(side, rdma->qp, 6, IB_WR_SEND, 0, 8));
		TRY(side, completes(side, rdma->cq, 6));
		TRY(side, completes(side, rdma->cq, 4));
		TRY(side, !vrnic_connection_end(rdma->qp, VRNIC_CONNECTION_CLOSE, 0));
	} else {
		TRY(side, completes(side, rdma->cq, 4));
		TRY(side, is_filled(side, HALF, 1));
		TRY(side, !post(side, rdma->qp, 5, IB_WR_RDMA_READ, 0, HALF));
		TRY(side, completes(side, rdma->cq, 5));
		TRY(side, is_filled(side, 0, 1));
		TRY(side, !post(side, rdma->qp, 6, IB_WR_SEND, 0, 8));
		TRY(side, completes(side, rdma->cq, 6));
	}
	TRY(side, reaches(rdma->qp, VRNIC_CONNECTION_IDLE, VRNIC_CONNECTION_CLOSED));
	return 0;
}

/* What follows the login, in each way. */
static int go_on(struct side *side)
{
	struct vrnic_reservation *rdma = &side->reservation;
	bool ends = side->way == (side->is_client ? RESET : NO_RECEIVE);

	TRY(side, !start(side));
	if (!side->is_client && side->way == LATE_RECEIVE)
		msleep(500);
	if (ends) {
		msleep(500);
		TRY(side, !vrnic_release(rdma));
		return 0;
	}
	if (side->way != RESET) {
		TRY(side, !receive(side, rdma->qp, 4, 0, 8));
		if (side->way != NO_RECEIVE)
			return move(side);
	}
	TRY(side, reaches(rdma->qp, VRNIC_CONNECTION_ERROR, 0));
	return 0;
}

static int make(struct side *side)
{
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_DRIVER, .sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	side->pd = ib_alloc_pd(side->device, IB_PD_UNSAFE_GLOBAL_RKEY);
	TRY(side, !IS_ERR(side->pd));
	side->cq = ib_alloc_cq(side->device, NULL, 2 * DEPTH, 0, IB_POLL_DIRECT);
	TRY(side, !IS_ERR(side->cq));
	init.send_cq = side->cq;
	init.recv_cq = side->cq;
	side->stream = ib_create_qp(side->pd, &init);
	TRY(side, !IS_ERR(side->stream));
	side->data = kzalloc(DATA, GFP_KERNEL);
	TRY(side, side->data);
	side->mapped = ib_dma_map_single(side->device, side->data, DATA, DMA_BIDIRECTIONAL);
	return need(side, !ib_dma_mapping_error(side->device, side->mapped), "mapping");
}

/* Frees what there is. */
static void drop(struct side *side)
{
	if (side->reservation.qp && vrnic_release(&side->reservation))
		pr_err("a reservation could not be released\n");
	if (!IS_ERR_OR_NULL(side->stream))
		ib_destroy_qp(side->stream);
	if (side->mapped)
		ib_dma_unmap_single(side->device, side->mapped, DATA, DMA_BIDIRECTIONAL);
	kfree(side->data);
	if (!IS_ERR_OR_NULL(side->cq))
		ib_free_cq(side->cq);
	if (!IS_ERR_OR_NULL(side->pd))
		ib_dealloc_pd(side->pd);
}

/* Goes through one way on a connected socket, which is released or given away. */
static int run(struct socket *sock, bool is_client, u32 way)
{
	struct net_device *netdev = dev_get_by_name(&init_net, "eth0");
	struct side *side = kzalloc(sizeof(*side), GFP_KERNEL);
	int err = -ENODEV;

	if (netdev && side)
		side->device = ib_device_get_by_netdev(netdev, RDMA_DRIVER_UNKNOWN);
	dev_put(netdev);
	if (!side || !side->device) {
		sock_release(sock);
		goto out;
	}
	side->is_client = is_client;
	init_completion(&side->reserved);
	err = make(side);
	for (int tries = 0; !err && tries < 5000; tries++) {
		err = vrnic_stream_attach(side->stream, sock);
		if (err != -EAGAIN)
			break;
		err = 0;
		usleep_range(500, 1000);
	}
	if (err) {
		need(side, false, "attaching the socket");
		sock_release(sock);
	}
	err = err ?: greet(side, way) ?: prepare(side) ?: go_on(side);
	drop(side);
	ib_device_put(side->device);
out:
	kfree(side);
	return err;
}

static int create(struct socket **sock)
{
	int err = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, sock);

	if (!err)
		tcp_sock_set_nodelay((*sock)->sk);
	return err;
}

static int call(u32 way)
{
	struct sockaddr_in to = { AF_INET, htons(port), { htonl(peer) } };
	struct socket *sock;
	int err = create(&sock);

	if (err)
		return err;
	err = kernel_connect(sock, (void *)&to, sizeof(to), 0);
	if (err) {
		sock_release(sock);
		return err;
	}
	return run(sock, true, way);
}

static struct socket *listener;
static struct task_struct *server;

static int serve(void *unused)
{
	struct socket *sock;

	while (!kthread_should_stop())
		if (!kernel_accept(listener, &sock, 0))
			run(sock, false, PLAIN);
	return 0;
}

static int listen(void)
{
	struct sockaddr_in at = { AF_INET, htons(port), { htonl(INADDR_ANY) } };
	int err = create(&listener);

	if (err)
		return err;
	listener->sk->sk_rcvtimeo = HZ / 5;
	sock_set_reuseaddr(listener->sk);
	err = kernel_bind(listener, (void *)&at, sizeof(at)) ?: kernel_listen(listener, 8);
	if (!err) {
		server = kthread_run(serve, NULL, "vrnic_kswitch");
		err = PTR_ERR_OR_ZERO(server);
	}
	if (err)
		sock_release(listener);
	return err;
}

static int __init kswitch_init(void)
{
	int err = 0;

	if (!peer)
		return listen();
	for (u32 way = 0; way < WAYS && !err; way++)
		err = call(way);
	if (!err)
		pr_info("all ways from bytes to RDMA were right\n");
	return err;
}

static void __exit kswitch_exit(void)
{
	if (server) {
		kthread_stop(server);
		sock_release(listener);
	}
}

module_init(kswitch_init);
module_exit(kswitch_exit);
MODULE_DESCRIPTION("Kernel client that moves data by RDMA on a connection on which it has logged in by bytes");
MODULE_AUTHOR("vrnic");
MODULE_LICENSE("GPL");
