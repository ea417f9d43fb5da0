/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * A command whose data the target reaches only until it responds.
 *
 * An initiator and a target, two queue pairs of this process, play a read from a storage device: the
 * initiator sends a command with 64 KiB of buffer attached, the target writes the data by the tag that it
 * finds in the command and responds, and when the initiator sees the response the buffer is its own again.
 * A late write by the same tag is refused.
 *
 * usage: vrnicdv_command [GID index]
 */
#include "example.h"

enum { DATA_LEN = 64 << 10, MAX_POLLS = 100000000 };

/* Commands and responses begin with the tag, so its offset is 0 in both. */
struct message {
	uint32_t tag;
	char text[60];
};

struct memory {
	struct message command, received, response, answered;
	char buffer[DATA_LEN], source[DATA_LEN];
};

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

/* With commands if there is an attribute, else a plain one. */
static struct side make_side(struct ibv_pd *pd, const struct vrnicdv_qp_attr *commands)
{
	struct side side = { .cq = ibv_create_cq(pd->context, 16, NULL, NULL, 0) };

	need(side.cq != NULL, "ibv_create_cq");
	struct ibv_qp_init_attr init = {
		.send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	side.qp = commands ? vrnicdv_create_qp(pd, &init, commands) : ibv_create_qp(pd, &init);
	need(side.qp != NULL, "creating a queue pair");
	return side;
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer, uint8_t gid_index)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};

	done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .sgid_index = gid_index, .hop_limit = 64 } },
	};
	need(ibv_query_gid(qp->context, 1, gid_index, &attr.ah_attr.grh.dgid) == 0, "ibv_query_gid");
	done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};
	done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

/* The next completion. */
static struct ibv_wc completion(struct side *side, const char *of)
{
	struct ibv_wc wc;
	int count = 0;

	for (long polls = 0; polls < MAX_POLLS && count == 0; polls++)
		count = ibv_poll_cq(side->cq, 1, &wc);
	errno = ETIMEDOUT;
	need(count == 1, of);
	return wc;
}

static void expect(const struct ibv_wc *wc, enum ibv_wc_status status, const char *of)
{
	if (wc->status != status) {
		fprintf(stderr, "%s: %s, not %s\n", of, ibv_wc_status_str(wc->status),
			ibv_wc_status_str(status));
		exit(1);
	}
}

static struct ibv_sge segment(void *at, uint32_t length, struct ibv_mr *mr)
{
	return (struct ibv_sge){ .addr = (uintptr_t)at, .length = length, .lkey = mr->lkey };
}

static void receive(struct side *side, void *at, struct ibv_mr *mr)
{
	struct ibv_sge sge = segment(at, sizeof(struct message), mr);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	done(ibv_post_recv(side->qp, &wr, &bad), "ibv_post_recv");
}

/* The target's part of a command: data by the tag, at address zero of what the tag stands for. */
static struct ibv_wc write_data(struct side *target, struct memory *memory, struct ibv_mr *mr, uint32_t tag)
{
	struct ibv_sge sge = segment(memory->source, DATA_LEN, mr);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .wr.rdma = { .rkey = tag },
	}, *bad;

	done(ibv_post_send(target->qp, &wr, &bad), "posting a write");
	return completion(target, "write by the tag");
}

static void respond(struct side *target, struct memory *memory, struct ibv_mr *mr, uint32_t tag)
{
	struct ibv_sge sge = segment(&memory->response, sizeof(struct message), mr);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 }, *bad;

	memory->response = (struct message){ .tag = htonl(tag), .text = "done" };
	done(ibv_post_send(target->qp, &wr, &bad), "posting the response");
	struct ibv_wc wc = completion(target, "response");
	expect(&wc, IBV_WC_SUCCESS, "response");
}

static uint32_t send_command(struct side *initiator, struct memory *memory, struct ibv_mr *mr)
{
	struct ibv_sge data = segment(memory->buffer, DATA_LEN, mr);
	struct ibv_sge message = segment(&memory->command, sizeof(struct message), mr);
	struct vrnicdv_command command = {
		.access = IBV_ACCESS_REMOTE_WRITE, .tag_offset = offsetof(struct message, tag),
		.data = &data, .num_data = 1, .message = &message, .num_message = 1,
	};

	strcpy(memory->command.text, "read 64 KiB");
	done(vrnicdv_post_command(initiator->qp, &command), "vrnicdv_post_command");
	struct ibv_wc wc = completion(initiator, "command");
	expect(&wc, IBV_WC_SUCCESS, "command");
	return wc.invalidated_rkey;
}

int main(int argc, char **argv)
{
	uint8_t gid_index = argc > 1 ? (uint8_t)atoi(argv[1]) : 1;
	const struct vrnicdv_qp_attr commands = {
		.tag_form = VRNICDV_TAG_GENERAL, .tag_offset = offsetof(struct message, tag),
		.max_command_sge = 1,
	};
	struct memory *memory = calloc(1, sizeof(*memory));
	struct ibv_pd *pd = ibv_alloc_pd(open_device());

	need(memory && pd, "ibv_alloc_pd");
	/* No right for the peer: what it may reach, each command says. */
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(*memory), IBV_ACCESS_LOCAL_WRITE);
	need(mr != NULL, "ibv_reg_mr");
	struct side initiator = make_side(pd, &commands), target = make_side(pd, NULL);
	connect_qp(initiator.qp, target.qp->qp_num, gid_index);
	connect_qp(target.qp, initiator.qp->qp_num, gid_index);
	memset(memory->source, 'x', DATA_LEN);
	receive(&target, &memory->received, mr);
	receive(&initiator, &memory->answered, mr);

	uint32_t sent = send_command(&initiator, memory, mr);
	struct ibv_wc wc = completion(&target, "receive of the command");
	expect(&wc, IBV_WC_SUCCESS, "receive of the command");
	uint32_t tag = ntohl(memory->received.tag);
	printf("command '%s' carries tag %#x\n", memory->received.text, tag);
	need(tag == sent, "the command's own account of its tag");

	wc = write_data(&target, memory, mr, tag);
	expect(&wc, IBV_WC_SUCCESS, "write by the tag");
	respond(&target, memory, mr, tag);
	wc = completion(&initiator, "receive of the response");
	expect(&wc, IBV_WC_SUCCESS, "receive of the response");
	need(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == tag, "release of the tag");
	need(memcmp(memory->buffer, memory->source, DATA_LEN) == 0, "comparing the data");
	printf("response '%s' released tag %#x, %d bytes are there\n", memory->answered.text, tag, DATA_LEN);

	wc = write_data(&target, memory, mr, tag);
	expect(&wc, IBV_WC_REM_ACCESS_ERR, "late write");
	printf("a late write by tag %#x was refused\n", tag);
	return 0;
}
