/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The common part of the programs: errors, and a connected queue pair with memory.
 */
#ifndef SIDE_H
#define SIDE_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <infiniband/verbs.h>

enum { GID_INDEX = 1, LENGTH = 64 << 10, RANGE = 4096, MAX_POLLS = 100000000 };

/* All rights to a region, and of a peer. */
enum { RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC };

/* What each side tells of itself. */
struct address {
	union ibv_gid gid;
	uint64_t at;
	uint32_t qpn, key;
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct address peer;
	unsigned char *memory;
	int socket;
};

static void need(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s failed: %s\n", what, strerror(errno));
		exit(1);
	}
}

/* For calls that return an errno. */
static void expect(int error, int expected, const char *what)
{
	if (error != expected) {
		fprintf(stderr, "%s: %s, not %s\n", what, strerror(error), strerror(expected));
		exit(1);
	}
}

static unsigned char pattern(int at, int seed)
{
	return (at * 31 + seed * 101) % 253;
}

static void fill(unsigned char *to, int length, int seed)
{
	for (int at = 0; at < length; at++)
		to[at] = pattern(at, seed);
}

static void check(const unsigned char *found, int length, int seed, const char *what)
{
	for (int at = 0; at < length; at++)
		if (found[at] != pattern(at, seed)) {
			fprintf(stderr, "%s: byte %d is wrong\n", what, at);
			exit(1);
		}
}

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	need(list != NULL, "ibv_get_device_list");
	for (int i = 0; list[i] && !context; i++)
		if (strncmp(ibv_get_device_name(list[i]), "vrnic", 5) == 0)
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	need(context != NULL, "opening a vrnic device");
	return context;
}

static struct ibv_qp *make_qp(struct side *side)
{
	struct ibv_qp_init_attr init = {
		.send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(side->pd, &init);

	need(qp != NULL, "ibv_create_qp");
	return qp;
}

static void connect_qp(struct ibv_qp *qp, const struct address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};

	expect(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     IBV_QP_ACCESS_FLAGS), 0, "INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qpn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = peer->gid, .sgid_index = GID_INDEX, .hop_limit = 64 } },
	};
	expect(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0, "RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};
	expect(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0, "RTS");
}

/* Connects it to a queue pair of the same device, which gets all rights. */
static void connect_to(struct side *side, struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = { .qp_access_flags = RIGHTS };
	struct address address = { .qpn = peer->qp_num };

	expect(ibv_query_gid(side->context, 1, GID_INDEX, &address.gid), 0, "ibv_query_gid");
	connect_qp(side->qp, &address);
	expect(ibv_modify_qp(side->qp, &attr, IBV_QP_ACCESS_FLAGS), 0, "the rights of the peer");
}

/* Returns a queue pair with a CQ of its own, not connected. */
static struct side open_side(struct ibv_context *context, struct ibv_pd *pd)
{
	struct side side = { .context = context, .pd = pd };

	side.cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	need(side.cq != NULL, "ibv_create_cq");
	side.qp = make_qp(&side);
	return side;
}

/* Waits for a completion. */
static struct ibv_wc next(struct side *side)
{
	struct ibv_wc wc = { 0 };
	int count = 0;

	for (long polls = 0; polls < MAX_POLLS && count == 0; polls++)
		count = ibv_poll_cq(side->cq, 1, &wc);
	errno = ETIMEDOUT;
	need(count == 1, "waiting for a completion");
	return wc;
}

/* Waits for a completion, and returns its operation; a cause of zero is any. */
static enum ibv_wc_opcode completion(struct side *side, uint64_t id, enum ibv_wc_status status, uint32_t cause)
{
	struct ibv_wc wc = next(side);

	if (wc.wr_id != id || wc.status != status || (cause && wc.vendor_err != cause)) {
		fprintf(stderr, "request %lu completed with %s (%u), expected: %lu with %s (%u)\n", wc.wr_id,
			ibv_wc_status_str(wc.status), wc.vendor_err, id, ibv_wc_status_str(status), cause);
		exit(1);
	}
	return wc.opcode;
}

#endif
