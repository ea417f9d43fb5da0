// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/etherdevice.h>
#include <linux/pci.h>
#include <linux/rtnetlink.h>
#include <net/net_namespace.h>

#include "helpers.h"

struct net_device *pairing_notifier_netdev(void *info)
{
	return netdev_notifier_info_to_dev(info);
}

bool pairing_is_card(const struct net_device *netdev, const u8 *mac)
{
	const struct device *dev;

	if (netdev->addr_len != ETH_ALEN || !ether_addr_equal(netdev->perm_addr, mac))
		return false;
	/* Virtual devices, some of which have that address too, are below none of the bus. */
	for (dev = netdev->dev.parent; dev; dev = dev->parent)
		if (dev_is_pci(dev))
			return true;
	return false;
}

struct net_device *pairing_find_card(const u8 *mac, const struct net_device *except)
{
	struct net_device *netdev, *found = NULL;
	struct net *net;

	ASSERT_RTNL();
	down_read(&net_rwsem);
	for_each_net(net) {
		for_each_netdev(net, netdev) {
			if (!found && netdev != except && pairing_is_card(netdev, mac))
				found = netdev;
		}
	}
	up_read(&net_rwsem);
	return found;
}
