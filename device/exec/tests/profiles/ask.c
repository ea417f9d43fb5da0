/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Prints what a device has and what it refuses: a name and a number in each line. The number of an object is zero, or the
 * error of the call that creates it.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"

/* More objects than a device with a limit has. */
#define MANY 200

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char memory[8192];

static struct ibv_qp *create(enum ibv_qp_type type, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = cap };

	errno = 0;
	return ibv_create_qp(pd, &attr);
}

static void say(const char *name, const void *object)
{
	printf("%s %d\n", name, object ? 0 : errno);
}

/* Prints how many objects of a kind there can be, and the error of the next one. */
static void count(const char *name, void *(*make)(void))
{
	int made = 0;

	while (made < MANY && make())
		made++;
	printf("%s-count %d\n%s-error %d\n", name, made, name, made < MANY ? errno : 0);
}

static enum ibv_qp_type usable;

static void *make_pair(void)
{
	struct ibv_qp_cap cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 };

	return create(usable, cap);
}

static void *make_region(void)
{
	errno = 0;
	return ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
}

static void ask_objects(void)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_xrcd_init_attr domain = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
					     .oflags = O_CREAT };
	struct ibv_mw *window;

	errno = 0;
	say("srq", ibv_create_srq(pd, &shared));
	errno = 0;
	say("xrc", ibv_open_xrcd(context, &domain));
	errno = 0;
	window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	say("mw", window);
	if (window)
		MUST(!ibv_dealloc_mw(window));
}

/* Prints the error of a queue pair, and destroys it. Returns whether it could be created. */
static int ask_pair(const char *name, enum ibv_qp_type type, struct ibv_qp_cap cap)
{
	struct ibv_qp *qp = create(type, cap);

	say(name, qp);
	if (qp)
		MUST(!ibv_destroy_qp(qp));
	return qp != NULL;
}

/* Asks for each type of queue pairs, and then for one that is as large as queries say, and for larger ones. */
static void ask_pairs(const struct ibv_device_attr *attr)
{
	const enum ibv_qp_type types[] = { IBV_QPT_UD, IBV_QPT_UC, IBV_QPT_RC };
	const char *names[] = { "ud", "uc", "rc" };
	struct ibv_qp_cap cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 };

	usable = IBV_QPT_RC;
	for (int i = 0; i < 3; i++)
		if (ask_pair(names[i], types[i], cap))
			usable = types[i];
	cap.max_send_sge = attr->max_sge;
	ask_pair("sge-fits", usable, cap);
	cap.max_send_sge++;
	ask_pair("sge-more", usable, cap);
	cap.max_send_sge = 1;
	cap.max_send_wr = attr->max_qp_wr;
	ask_pair("wr-fits", usable, cap);
	cap.max_send_wr++;
	ask_pair("wr-more", usable, cap);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;

	MUST(list && list[0]);
	context = ibv_open_device(list[0]);
	MUST(context && !ibv_query_device(context, &attr) && !ibv_query_port(context, 1, &port));
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	MUST(pd && cq);
	printf("sge %d\nwr %d\nrd-atomic %d\n", attr.max_sge, attr.max_qp_wr, attr.max_qp_rd_atom);
	printf("atomics %d\nport %d\n", attr.atomic_cap, port.state);
	ask_objects();
	ask_pairs(&attr);
	count("mr", make_region);
	count("qp", make_pair);
	return 0;
}
