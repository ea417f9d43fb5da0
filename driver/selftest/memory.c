// SPDX-License-Identifier: GPL-2.0
/*
 * Fast registration of a scattered list of pages, and the three ways to end it: LOCAL_INV, the
 * peer's SEND_WITH_INV, and deregistration. Side b registers, side a is the peer.
 */
#include <linux/gfp.h>
#include <linux/printk.h>
#include <linux/random.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "kverbs.h"

#define PAGES 4
/* Where the list begins in its first page and ends in its last. */
#define HEAD 100
#define TAIL 40
#define LENGTH (PAGES * PAGE_SIZE - HEAD - TAIL)
/* More than there are keys of a region. */
#define ROUNDS 300
#define REMOTE (IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE)

struct region {
	struct ib_mr *mr;
	struct scatterlist sg[PAGES];
	int mapped;
};

static void close_region(struct test *test, struct region *region)
{
	int i;

	if (!IS_ERR_OR_NULL(region->mr))
		ib_dereg_mr(region->mr);
	if (region->mapped)
		ib_dma_unmap_sg(test->device, region->sg, PAGES, DMA_BIDIRECTIONAL);
	for (i = 0; i < PAGES; i++)
		if (sg_page(&region->sg[i]))
			__free_page(sg_page(&region->sg[i]));
}

static int open_region(struct test *test, struct region *region)
{
	struct page *page;
	int i;

	sg_init_table(region->sg, PAGES);
	for (i = 0; i < PAGES; i++) {
		page = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!page)
			return -ENOMEM;
		sg_set_page(&region->sg[i], page, PAGE_SIZE, 0);
	}
	region->sg[0].offset = HEAD;
	region->sg[0].length -= HEAD;
	region->sg[PAGES - 1].length -= TAIL;
	region->mapped = ib_dma_map_sg(test->device, region->sg, PAGES, DMA_BIDIRECTIONAL);
	if (!region->mapped)
		return -ENOMEM;
	region->mr = ib_alloc_mr(test->pd, IB_MR_TYPE_MEM_REG, PAGES);
	return PTR_ERR_OR_ZERO(region->mr);
}

/* Posts a registration with a new key; @next, if any, is posted with it and completes both. */
static int post_reg(struct side *side, struct region *region, struct ib_send_wr *next)
{
	struct ib_reg_wr wr = {
		.wr.opcode = IB_WR_REG_MR,
		.wr.wr_cqe = &side->send_cqe,
		.wr.send_flags = next ? 0 : IB_SEND_SIGNALED,
		.wr.next = next,
		.mr = region->mr,
		.access = REMOTE,
	};
	int mapped;

	ib_update_fast_reg_key(region->mr, ib_inc_rkey(region->mr->rkey));
	mapped = ib_map_mr_sg(region->mr, region->sg, region->mapped, NULL, PAGE_SIZE);
	if (mapped != region->mapped)
		return mapped < 0 ? mapped : -EINVAL;
	wr.key = region->mr->rkey;
	return ib_post_send(side->qp, &wr.wr, NULL);
}

static int reg(struct side *side, struct region *region, enum ib_wc_status status,
	       const char *what)
{
	return post_reg(side, region, NULL) ?: await(&side->sent, &side->send_wc, status, what);
}

static int local_inv(struct side *side, u32 key, enum ib_wc_status status, const char *what)
{
	struct ib_send_wr wr = {
		.opcode = IB_WR_LOCAL_INV,
		.wr_cqe = &side->send_cqe,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = key,
	};

	return ib_post_send(side->qp, &wr, NULL) ?:
	       await(&side->sent, &side->send_wc, status, what);
}

/* A WRITE or READ by a of @length bytes from the start of the region. */
static int reach(struct test *test, struct region *region, enum ib_wr_opcode opcode, u32 length,
		 enum ib_wc_status status, const char *what)
{
	struct ib_rdma_wr wr = {
		.wr.opcode = opcode,
		.remote_addr = region->mr->iova,
		.rkey = region->mr->rkey,
	};
	struct ib_sge sge = sge_of(test, &test->a, 0, length);

	return post_send(&test->a, &wr.wr, &sge, 0) ?:
	       await(&test->a.sent, &test->a.send_wc, status, what);
}

/* What a writes is in the pages, and what is in the pages is what a reads. */
static int moves(struct test *test, struct region *region)
{
	static u8 copy[BUFFER];
	int ret;

	get_random_bytes(test->a.buffer, BUFFER);
	ret = reach(test, region, IB_WR_RDMA_WRITE, BUFFER, IB_WC_SUCCESS, "WRITE to the pages");
	if (ret)
		return ret;
	sg_copy_to_buffer(region->sg, PAGES, copy, BUFFER);
	ret = expect(!memcmp(copy, test->a.buffer, BUFFER), "WRITE to the pages");
	if (ret)
		return ret;
	memset(test->a.buffer, 0, BUFFER);
	return reach(test, region, IB_WR_RDMA_READ, BUFFER, IB_WC_SUCCESS, "READ of the pages") ?:
	       expect(!memcmp(copy, test->a.buffer, BUFFER), "READ of the pages");
}

/* The key is of no use; the attempt ends the connection, which is made again. */
static int refused(struct test *test, struct region *region, const char *what)
{
	return reach(test, region, IB_WR_RDMA_WRITE, 8, IB_WC_REM_ACCESS_ERR, what) ?:
	       reconnect(test);
}

static int local_invalidation(struct test *test, struct region *region)
{
	struct side *b = &test->b;

	return reg(b, region, IB_WC_SUCCESS, "REG_MR") ?: moves(test, region) ?:
	       local_inv(b, region->mr->rkey, IB_WC_SUCCESS, "LOCAL_INV") ?:
	       refused(test, region, "WRITE after LOCAL_INV");
}

/* Each time the key of the time before is stale, and the next is good. */
static int many_keys(struct test *test, struct region *region)
{
	int ret = 0, i;

	for (i = 0; i < ROUNDS && !ret; i++)
		ret = reg(&test->b, region, IB_WC_SUCCESS, "REG_MR again") ?:
		      reach(test, region, IB_WR_RDMA_READ, 8, IB_WC_SUCCESS, "READ") ?:
		      local_inv(&test->b, region->mr->rkey, IB_WC_SUCCESS, "LOCAL_INV again");
	return ret;
}

/* As a storage initiator does: registration and message in one go, invalidation by the peer. */
static int remote_invalidation(struct test *test, struct region *region)
{
	struct side *a = &test->a, *b = &test->b;
	struct ib_sge command_sge = sge_of(test, b, 0, 64), answer_sge = sge_of(test, a, 0, 64);
	struct ib_send_wr command = {
		.opcode = IB_WR_SEND,
		.wr_cqe = &b->send_cqe,
		.send_flags = IB_SEND_SIGNALED,
		.sg_list = &command_sge,
		.num_sge = 1,
	};
	struct ib_send_wr answer = { .opcode = IB_WR_SEND_WITH_INV };
	int ret;

	ret = post_recv(test, a, HALF, HALF) ?: post_recv(test, b, HALF, HALF) ?:
	      post_reg(b, region, &command) ?:
	      await(&b->sent, &b->send_wc, IB_WC_SUCCESS, "REG_MR and SEND") ?:
	      await(&a->received, &a->recv_wc, IB_WC_SUCCESS, "command") ?: moves(test, region);
	if (ret)
		return ret;
	answer.ex.invalidate_rkey = region->mr->rkey;
	return post_send(a, &answer, &answer_sge, 0) ?:
	       await(&a->sent, &a->send_wc, IB_WC_SUCCESS, "SEND_WITH_INV") ?:
	       await(&b->received, &b->recv_wc, IB_WC_SUCCESS, "answer") ?:
	       expect(b->recv_wc.wc_flags & IB_WC_WITH_INVALIDATE &&
		      b->recv_wc.ex.invalidate_rkey == region->mr->rkey, "invalidated key") ?:
	       refused(test, region, "WRITE after SEND_WITH_INV");
}

/* Registering what is registered, and invalidating what is not, are errors of the queue pair. */
static int refusals(struct test *test, struct region *region)
{
	struct side *b = &test->b;
	u32 key;
	int ret;

	ret = reg(b, region, IB_WC_SUCCESS, "REG_MR");
	if (ret)
		return ret;
	key = region->mr->rkey;
	ret = reg(b, region, IB_WC_MW_BIND_ERR, "REG_MR of a valid region") ?: reconnect(test) ?:
	      local_inv(b, key, IB_WC_SUCCESS, "LOCAL_INV") ?:
	      local_inv(b, key, IB_WC_MW_BIND_ERR, "LOCAL_INV of an invalid region") ?:
	      reconnect(test);
	return ret;
}

int test_memory(struct test *test)
{
	struct region region = {};
	int ret;

	if (!(test->device->attrs.device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS)) {
		pr_err("no memory management extensions\n");
		return -EOPNOTSUPP;
	}
	ret = open_region(test, &region) ?: local_invalidation(test, &region) ?:
	      many_keys(test, &region) ?: remote_invalidation(test, &region) ?:
	      refusals(test, &region) ?:
	      /* Deregistration ends a valid registration. */
	      reg(&test->b, &region, IB_WC_SUCCESS, "the last REG_MR");
	close_region(test, &region);
	return ret;
}
