/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Reservations of what a connection needs for RDMA: those that are refused, with their reasons, and completion queues
 * that follow the queues on them.
 */
#include "side.h"
#include "vrnicdv.h"

enum { ROUNDS = 30, LINKS = 3, MANY = 1 << 30 };

static struct side side;
static struct ibv_qp *stream;
static struct ibv_device_attr limits;

static struct ibv_qp *make_toe(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_DRIVER,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct vrnicdv_qp_attr attr = { .flags = VRNICDV_QP_TOE };
	struct ibv_qp *qp = vrnicdv_create_qp(side.pd, &init, &attr);

	need(qp != NULL, "vrnicdv_create_qp");
	return qp;
}

static void set_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	expect(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0, "ibv_modify_qp");
}

/* Returns a reservation that is granted, with queues whose sizes are no powers of two. */
static struct vrnicdv_reservation good(void)
{
	return (struct vrnicdv_reservation){ .stream = stream, .cap = { 20, 25, 1, 1, 0 }, .ird = 1, .ord = 1 };
}

/* Asks for a reservation that must be refused. Nothing is left of it. */
static void refused(struct vrnicdv_reservation wanted, int error, uint32_t reason, uint32_t would_do)
{
	expect(vrnicdv_reserve_rdma(&wanted), error, "vrnicdv_reserve_rdma");
	if (wanted.reason != reason || wanted.would_do != would_do || wanted.qp || wanted.pd || wanted.cq ||
	    wanted.new_pd || wanted.new_cq) {
		fprintf(stderr, "refused with reason %u, and %u would do, not %u and %u, or something is left\n",
			wanted.reason, wanted.would_do, reason, would_do);
		exit(1);
	}
}

static void refusals(void)
{
	struct vrnicdv_reservation wanted = good();

	wanted.ird = limits.max_qp_rd_atom + 1;
	refused(wanted, EINVAL, VRNICDV_IRD_TOO_LARGE, limits.max_qp_rd_atom);
	wanted = good();
	wanted.ord = limits.max_qp_init_rd_atom + 1;
	refused(wanted, EINVAL, VRNICDV_ORD_TOO_LARGE, limits.max_qp_init_rd_atom);
	wanted = good();
	wanted.cap.max_recv_wr = limits.max_cqe;
	refused(wanted, EINVAL, VRNICDV_CQ_TOO_LARGE, limits.max_cqe);
	wanted = good();
	wanted.cap.max_send_sge = MANY;
	refused(wanted, ENOMEM, VRNICDV_NO_QP, 0);
	wanted = good();
	wanted.stream = make_qp(&side);
	refused(wanted, EOPNOTSUPP, VRNICDV_NO_RNIC, 0);
	expect(ibv_destroy_qp(wanted.stream), 0, "ibv_destroy_qp");
	wanted = good();
	wanted.stream = make_toe();
	set_state(wanted.stream, IBV_QPS_INIT);
	set_state(wanted.stream, IBV_QPS_ERR);
	refused(wanted, ENOTCONN, VRNICDV_NO_CONNECTION, 0);
	expect(ibv_destroy_qp(wanted.stream), 0, "ibv_destroy_qp");
}

/* A shared completion queue has room for the queues on it, and no more than the next power of two. */
static void follows(const struct ibv_cq *cq, uint32_t entries)
{
	if (cq->cqe < (int)entries || cq->cqe >= 2 * (int)(entries ? entries : 1)) {
		fprintf(stderr, "the queue has %d entries, and its queues need %u\n", cq->cqe, entries);
		exit(1);
	}
}

static void sums(void)
{
	struct ibv_cq *cq = ibv_create_cq(side.context, 1, NULL, NULL, 0);
	struct vrnicdv_reservation links[LINKS];
	uint32_t entries = 0, before;

	need(cq != NULL, "ibv_create_cq");
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < LINKS; i++) {
			before = entries;
			links[i] = good();
			links[i].pd = side.pd;
			links[i].cq = cq;
			links[i].entries = &entries;
			expect(vrnicdv_reserve_rdma(&links[i]), 0, "vrnicdv_reserve_rdma");
			need(links[i].qp && links[i].cq == cq && !links[i].new_cq && !links[i].new_pd, "sharing");
			need(entries == before + links[i].cap.max_send_wr + links[i].cap.max_recv_wr, "adding");
			follows(cq, entries);
		}
		for (int i = 0; i < LINKS; i++) {
			expect(vrnicdv_release_rdma(&links[i]), 0, "vrnicdv_release_rdma");
			need(!links[i].qp, "releasing");
			follows(cq, entries);
		}
		need(entries == 0, "subtracting");
	}
	expect(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

/* A shared completion queue that cannot grow is left as it is. The new one is armed: a flush raises an event. */
static void another_queue(void)
{
	struct ibv_recv_wr wr = { .wr_id = 5 }, *bad;
	struct vrnicdv_reservation wanted = good();
	uint32_t entries = limits.max_cqe;
	int before = side.cq->cqe;
	struct side other = side;
	struct ibv_cq *found;
	void *context;

	wanted.pd = side.pd;
	wanted.cq = side.cq;
	wanted.entries = &entries;
	wanted.channel = ibv_create_comp_channel(side.context);
	need(wanted.channel != NULL, "ibv_create_comp_channel");
	expect(vrnicdv_reserve_rdma(&wanted), 0, "vrnicdv_reserve_rdma");
	need(wanted.new_cq && wanted.cq != side.cq && side.cq->cqe == before, "another completion queue");
	need(entries == (uint32_t)limits.max_cqe, "leaving the number");
	expect(ibv_post_recv(wanted.qp, &wr, &bad), 0, "ibv_post_recv");
	set_state(wanted.qp, IBV_QPS_ERR);
	alarm(30);
	need(!ibv_get_cq_event(wanted.channel, &found, &context) && found == wanted.cq, "an event");
	ibv_ack_cq_events(found, 1);
	other.cq = found;
	completion(&other, 5, IBV_WC_WR_FLUSH_ERR, 0);
	expect(vrnicdv_release_rdma(&wanted), 0, "vrnicdv_release_rdma");
	expect(ibv_destroy_cq(wanted.cq), 0, "ibv_destroy_cq");
	expect(ibv_destroy_comp_channel(wanted.channel), 0, "ibv_destroy_comp_channel");
}

int main(void)
{
	side.context = open_device();
	side.pd = ibv_alloc_pd(side.context);
	side.cq = ibv_create_cq(side.context, 16, NULL, NULL, 0);
	need(side.pd && side.cq && !ibv_query_device(side.context, &limits), "creating objects");
	stream = make_toe();
	refusals();
	sums();
	another_queue();
	expect(ibv_destroy_qp(stream), 0, "ibv_destroy_qp");
	expect(ibv_destroy_cq(side.cq), 0, "ibv_destroy_cq");
	expect(ibv_dealloc_pd(side.pd), 0, "ibv_dealloc_pd");
	expect(ibv_close_device(side.context), 0, "ibv_close_device");
	printf("all reservations were right\n");
	return 0;
}
