// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/etherdevice.h>
#include <linux/eventfd.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <rdma/ib_addr.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_cm.h>
#include <rdma/rdma_netlink.h>

#include "helpers.h"

struct ib_device *rdma_helper_alloc_device(size_t size)
{
	return _ib_alloc_device(size, &init_net);
}

void rdma_helper_umem_block_iter_start(struct ib_block_iter *iter, struct ib_umem *umem,
				       unsigned long pgsz)
{
	__rdma_umem_block_iter_start(iter, umem, pgsz);
}

bool rdma_helper_umem_block_iter_next(struct ib_block_iter *iter)
{
	return __rdma_umem_block_iter_next(iter);
}

u64 rdma_helper_block_iter_dma_address(struct ib_block_iter *iter)
{
	return rdma_block_iter_dma_address(iter);
}

size_t rdma_helper_umem_num_dma_blocks(struct ib_umem *umem, unsigned long pgsz)
{
	return ib_umem_num_dma_blocks(umem, pgsz);
}

struct rdma_eventfd *rdma_helper_eventfd_get(int fd)
{
	return (struct rdma_eventfd *)eventfd_ctx_fdget(fd);
}

void rdma_helper_eventfd_signal(struct rdma_eventfd *eventfd)
{
	eventfd_signal((struct eventfd_ctx *)eventfd);
}

void rdma_helper_eventfd_put(struct rdma_eventfd *eventfd)
{
	eventfd_ctx_put((struct eventfd_ctx *)eventfd);
}

struct ib_udata *rdma_helper_bundle_udata(struct uverbs_attr_bundle *bundle)
{
	return &bundle->driver_udata;
}

struct ib_ucontext *rdma_helper_udata_ucontext(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}

u32 rdma_helper_dm_handle(struct uverbs_attr_bundle *bundle)
{
	return uverbs_attr_get_uobject(bundle, UVERBS_ATTR_ALLOC_DM_HANDLE)->id;
}

int rdma_helper_is_udata_in_empty(struct ib_udata *udata)
{
	return ib_is_udata_in_empty(udata);
}

int rdma_helper_no_udata_io(struct ib_udata *udata)
{
	return ib_no_udata_io(udata);
}

int rdma_helper_mmap_uncached(struct ib_ucontext *context, struct vm_area_struct *vma,
			      unsigned long pfn, unsigned long size,
			      struct rdma_user_mmap_entry *entry)
{
	return rdma_user_mmap_io(context, vma, pfn, size, pgprot_noncached(vma->vm_page_prot),
				 entry);
}

u8 rdma_helper_port_state(struct net_device *netdev)
{
	return ib_get_curr_port_state(netdev);
}

void rdma_helper_netdev_name(struct net_device *netdev, char *out)
{
	/* A name changes under the RTNL. */
	rtnl_lock();
	strscpy(out, netdev->name, IFNAMSIZ);
	rtnl_unlock();
}

void rdma_helper_netdev_mac(const struct net_device *netdev, u8 *out)
{
	/* A MAC changes under the RTNL. */
	rtnl_lock();
	ether_addr_copy(out, netdev->dev_addr);
	rtnl_unlock();
}

u32 rdma_helper_netdev_mtu(const struct net_device *netdev)
{
	return READ_ONCE(netdev->mtu);
}

int rdma_helper_netdev_rdma_mtu(const struct net_device *netdev)
{
	return iboe_get_mtu(READ_ONCE(netdev->mtu));
}

/*
 * Like ib_dispatch_port_state_event(), which reports the state of the network device alone. Both
 * keep the state that clients know in the same place.
 */
void rdma_helper_report_port(struct ib_device *device, u32 port, bool active)
{
	enum ib_port_state state = active ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	struct ib_event event = {
		.device = device,
		.event = active ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR,
		.element.port_num = port,
	};
	enum ib_port_state known;

	/* Before and after its registration the device has no clients. */
	if (!rdma_is_port_valid(device, port) || !ib_device_try_get(device))
		return;
	write_lock_irq(&device->cache_lock);
	known = device->port_data[port].cache.last_port_state;
	device->port_data[port].cache.last_port_state = state;
	write_unlock_irq(&device->cache_lock);
	if (known != state)
		ib_dispatch_event(&event);
	ib_device_put(device);
}

void rdma_helper_rescan_addresses(struct ib_device *device)
{
	if (!ib_device_try_get(device))
		return;
	rdma_roce_rescan_device(device);
	ib_device_put(device);
}

struct rdma_hw_stats *rdma_helper_alloc_stats(const struct rdma_stat_desc *descs, int count,
					      unsigned long lifespan)
{
	struct rdma_hw_stats *stats = rdma_alloc_hw_stats_struct(descs, count, lifespan);
	int i;

	for (i = 0; stats && i < count; i++)
		if (descs[i].flags & IB_STAT_FLAG_OPTIONAL)
			set_bit(i, stats->is_disabled);
	return stats;
}

void rdma_helper_netdev_hold(struct net_device *netdev)
{
	dev_hold(netdev);
}

void rdma_helper_netdev_put(struct net_device *netdev)
{
	dev_put(netdev);
}

struct nlattr *rdma_helper_driver_nest_start(struct sk_buff *message)
{
	return nla_nest_start(message, RDMA_NLDEV_ATTR_DRIVER);
}

void rdma_helper_nest_finish(struct sk_buff *message, struct nlattr *nest, bool keep)
{
	if (keep)
		nla_nest_end(message, nest);
	else
		nla_nest_cancel(message, nest);
}

int rdma_helper_put_raw(struct sk_buff *message, const void *data, u32 length)
{
	return nla_put(message, RDMA_NLDEV_ATTR_RES_RAW, length, data);
}

/*
 * Returns the identifier of the client that an identifier of iWARP belongs to. All of them come
 * from drivers/infiniband/core/cma.c, whose own struct begins with the struct for clients.
 */
static const struct rdma_cm_id *rdma_helper_client(const struct iw_cm_id *id)
{
	return id->context;
}

bool rdma_helper_iw_client_has_qp(const struct iw_cm_id *id, const struct ib_qp *qp)
{
	const struct rdma_cm_id *client = rdma_helper_client(id);

	/* Queue pairs of processes are not among its fields. */
	return client && READ_ONCE(client->qp) == qp;
}

const struct net *rdma_helper_iw_net(const struct iw_cm_id *id)
{
	return rdma_helper_client(id)->route.addr.dev_addr.net;
}
