// SPDX-License-Identifier: GPL-2.0
/* Address handles: made where nothing may sleep, and read back. */

#include <linux/spinlock.h>
#include <rdma/ib_cache.h>

#include "kverbs.h"

#define PORT 1
#define FLOW_LABEL 0x12345
#define HOP_LIMIT 17
#define TRAFFIC_CLASS 0x28

static const u8 dmac[ETH_ALEN] = { 0x52, 0x54, 0x00, 0x01, 0x02, 0x03 };

static int check(struct ib_ah *ah, const struct rdma_ah_attr *want)
{
	struct rdma_ah_attr got = {};
	const struct ib_global_route *grh;
	int ret = rdma_query_ah(ah, &got);

	if (ret)
		return ret;
	grh = rdma_ah_read_grh(&got);
	return expect(got.type == RDMA_AH_ATTR_TYPE_ROCE, "type of an address handle") ?:
	       expect(rdma_ah_get_port_num(&got) == PORT, "its port") ?:
	       expect(!memcmp(grh->dgid.raw, want->grh.dgid.raw, 16), "its GID") ?:
	       expect(grh->sgid_index == want->grh.sgid_index, "its source") ?:
	       expect(grh->flow_label == FLOW_LABEL, "its flow label") ?:
	       expect(grh->hop_limit == HOP_LIMIT, "its hop limit") ?:
	       expect(grh->traffic_class == TRAFFIC_CLASS, "its traffic class") ?:
	       expect(!memcmp(got.roce.dmac, dmac, ETH_ALEN), "its MAC");
}

int test_address(struct test *test)
{
	struct rdma_ah_attr attr = { .type = RDMA_AH_ATTR_TYPE_ROCE };
	const struct ib_gid_attr *gid = rdma_get_gid_attr(test->device, PORT, 0);
	DEFINE_SPINLOCK(lock);
	struct ib_ah *ah;
	int ret;

	if (IS_ERR(gid))
		return PTR_ERR(gid);
	rdma_ah_set_port_num(&attr, PORT);
	rdma_ah_set_grh(&attr, NULL, FLOW_LABEL, gid->index, HOP_LIMIT, TRAFFIC_CLASS);
	rdma_ah_set_dgid_raw(&attr, (void *)gid->gid.raw);
	memcpy(attr.roce.dmac, dmac, ETH_ALEN);
	spin_lock_irq(&lock);
	ah = rdma_create_ah(test->pd, &attr, 0);
	spin_unlock_irq(&lock);
	rdma_put_gid_attr(gid);
	if (IS_ERR(ah))
		return PTR_ERR(ah);
	ret = check(ah, &attr);
	spin_lock_irq(&lock);
	rdma_destroy_ah(ah, 0);
	spin_unlock_irq(&lock);
	return ret;
}
