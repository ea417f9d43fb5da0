/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One-line wrappers of macros and static inlines that bindgen cannot translate; see the C
 * entity of the same name without the prefix.
 */
#ifndef VRNIC_RDMA_HELPERS_H
#define VRNIC_RDMA_HELPERS_H

#include <linux/netdevice.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/iter.h>
#include <rdma/iw_cm.h>
#include <rdma/restrack.h>
#include <rdma/uverbs_ioctl.h>

struct rdma_eventfd;

struct ib_device *rdma_helper_alloc_device(size_t size);
struct ib_udata *rdma_helper_bundle_udata(struct uverbs_attr_bundle *bundle);
void rdma_helper_umem_block_iter_start(struct ib_block_iter *iter, struct ib_umem *umem,
				       unsigned long pgsz);
bool rdma_helper_umem_block_iter_next(struct ib_block_iter *iter);
u64 rdma_helper_block_iter_dma_address(struct ib_block_iter *iter);
size_t rdma_helper_umem_num_dma_blocks(struct ib_umem *umem, unsigned long pgsz);
struct ib_ucontext *rdma_helper_udata_ucontext(struct ib_udata *udata);
/* Returns the number of the device memory that this call of a process allocates. */
u32 rdma_helper_dm_handle(struct uverbs_attr_bundle *bundle);
int rdma_helper_is_udata_in_empty(struct ib_udata *udata);
int rdma_helper_no_udata_io(struct ib_udata *udata);
int rdma_helper_mmap_uncached(struct ib_ucontext *context, struct vm_area_struct *vma,
			      unsigned long pfn, unsigned long size,
			      struct rdma_user_mmap_entry *entry);
u8 rdma_helper_port_state(struct net_device *netdev);
/* Writes the name of a device to IFNAMSIZ bytes. */
void rdma_helper_netdev_name(struct net_device *netdev, char *out);
/* Returns the eventfd of the calling process, or an error pointer. */
struct rdma_eventfd *rdma_helper_eventfd_get(int fd);
/* Can be called in any context. */
void rdma_helper_eventfd_signal(struct rdma_eventfd *eventfd);
void rdma_helper_eventfd_put(struct rdma_eventfd *eventfd);
/* Copies the MAC of an Ethernet device to 6 bytes. */
void rdma_helper_netdev_mac(const struct net_device *netdev, u8 *out);
u32 rdma_helper_netdev_mtu(const struct net_device *netdev);
int rdma_helper_netdev_rdma_mtu(const struct net_device *netdev);
/* Reports to the clients whether a port is active, unless they know it. */
void rdma_helper_report_port(struct ib_device *device, u32 port, bool active);
/* Looks for addresses that no notification has named. */
void rdma_helper_rescan_addresses(struct ib_device *device);
/* Like rdma_alloc_hw_stats_struct(); optional counters are off. */
struct rdma_hw_stats *rdma_helper_alloc_stats(const struct rdma_stat_desc *descs, int count,
					      unsigned long lifespan);
void rdma_helper_netdev_hold(struct net_device *netdev);
void rdma_helper_netdev_put(struct net_device *netdev);
struct nlattr *rdma_helper_driver_nest_start(struct sk_buff *message);
void rdma_helper_nest_finish(struct sk_buff *message, struct nlattr *nest, bool keep);
int rdma_helper_put_raw(struct sk_buff *message, const void *data, u32 length);
/* Returns whether this queue pair was created for the kernel client that has an identifier. */
bool rdma_helper_iw_client_has_qp(const struct iw_cm_id *id, const struct ib_qp *qp);
/* Returns the network namespace of the client, which has not destroyed the identifier. */
const struct net *rdma_helper_iw_net(const struct iw_cm_id *id);

#endif
