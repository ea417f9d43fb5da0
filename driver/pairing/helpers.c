// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <linux/pci.h>
#include <linux/rtnetlink.h>
#include <linux/string.h>
#include <net/bonding.h>
#include <net/neighbour.h>
#include <net/net_namespace.h>
#include <net/netevent.h>
#include <net/rtnetlink.h>

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

/*
 * The number of network devices of one namespace that get an RDMA device, and of their MACs that the
 * adapter knows, if it is not the card's namespace. The owner of such a namespace, who may be any user, can add devices without end.
 */
#define PAIRING_OF_NAMESPACE 8

/* Returns whether a device is a macvlan device, and not a macvtap device, which has no IP. */
static bool pairing_is_macvlan(const struct net_device *upper)
{
	return netif_is_macvlan(upper) && upper->rtnl_link_ops &&
	       !strcmp(upper->rtnl_link_ops->kind, "macvlan");
}

/* Returns whether the namespace of a device has room for it beside those that were found before. */
static bool pairing_has_room(const struct net_device *upper, const struct net_device *card,
			     struct net_device *const *found, size_t count)
{
	size_t others = 0;

	if (net_eq(dev_net(upper), dev_net(card)))
		return true;
	while (count--)
		others += net_eq(dev_net(upper), dev_net(found[count]));
	return others < PAIRING_OF_NAMESPACE;
}

static bool pairing_is_station(const struct net_device *upper, const struct net_device *card)
{
	const struct bonding *bond = netdev_priv(upper);
	const struct net_device *active;

	if (upper->reg_state != NETREG_REGISTERED)
		return false;
	if (!netif_is_bond_master(upper))
		return pairing_is_macvlan(upper) || netif_is_bridge_master(upper);
	active = bond_option_active_slave_get_rcu(bond);
	return active ? active == card : bond->slave_cnt == 1;
}

size_t pairing_stations(struct net_device *card, struct net_device **out, size_t room)
{
	struct net_device *upper;
	struct list_head *iter;
	size_t count = 0;

	/* The RTNL waits for changes that have begun, of which notifications may tell too early. */
	rtnl_lock();
	rcu_read_lock();
	netdev_for_each_upper_dev_rcu(card, upper, iter) {
		if (count < room && pairing_is_station(upper, card) &&
		    pairing_has_room(upper, card, out, count)) {
			dev_hold(upper);
			out[count++] = upper;
		}
	}
	rcu_read_unlock();
	rtnl_unlock();
	return count;
}

bool pairing_is_upper(const struct net_device *netdev, struct net_device *card)
{
	struct net_device *upper;
	struct list_head *iter;
	bool found = false;

	rcu_read_lock();
	netdev_for_each_upper_dev_rcu(card, upper, iter)
		found |= upper == netdev;
	rcu_read_unlock();
	return found;
}

bool pairing_is_above(struct net_device *netdev, struct net_device *card)
{
	bool found;

	rcu_read_lock();
	found = netdev_has_upper_dev_all_rcu(card, netdev);
	rcu_read_unlock();
	return found;
}

/* The MACs that were found before. */
struct pairing_found {
	const struct net_device *card;
	struct pairing_mac *macs;
	size_t count, room;
	/* Whether those of other namespaces than the card's are added, or those of that one. */
	bool others;
};

/*
 * Adds the MAC of a device, unless it was found before or its namespace has enough of them. The
 * devices of the card's namespace come first, and all other namespaces together have half of the
 * room, however many there are.
 */
static int pairing_add_mac(struct net_device *dev, struct netdev_nested_priv *priv)
{
	struct pairing_found *found = priv->data;
	const struct net *net = dev_net(dev), *own = dev_net(found->card);
	size_t of_namespace = 0, of_others = 0, i;

	if (dev->type != ARPHRD_ETHER || !is_valid_ether_addr(dev->dev_addr) ||
	    net_eq(net, own) == found->others)
		return 0;
	for (i = 0; i < found->count; i++) {
		if (ether_addr_equal_unaligned(found->macs[i].mac, dev->dev_addr))
			return 0;
		of_namespace += net_eq(found->macs[i].net, net);
		of_others += !net_eq(found->macs[i].net, own);
	}
	if (found->count == found->room ||
	    (found->others && (of_namespace >= PAIRING_OF_NAMESPACE || of_others >= found->room / 2)))
		return 0;
	memcpy(found->macs[found->count].mac, dev->dev_addr, ETH_ALEN);
	found->macs[found->count].net = net;
	found->count++;
	return 0;
}

size_t pairing_macs(struct net_device *card, struct pairing_mac *out, size_t room)
{
	struct pairing_found found = { .card = card, .macs = out, .room = room };
	struct netdev_nested_priv priv = { .data = &found };

	/* As in pairing_stations. */
	rtnl_lock();
	rcu_read_lock();
	pairing_add_mac(card, &priv);
	netdev_walk_all_upper_dev_rcu(card, pairing_add_mac, &priv);
	found.others = true;
	netdev_walk_all_upper_dev_rcu(card, pairing_add_mac, &priv);
	rcu_read_unlock();
	rtnl_unlock();
	return found.count;
}

bool pairing_is_next_hop(unsigned long event, void *info, struct net_device *card)
{
	const struct netevent_redirect *redirect = info;
	const struct neighbour *neighbour;

	switch (event) {
	case NETEVENT_NEIGH_UPDATE:
		neighbour = info;
		break;
	case NETEVENT_REDIRECT:
		neighbour = redirect->neigh;
		break;
	default:
		return false;
	}
	return READ_ONCE(neighbour->nud_state) & NUD_VALID &&
	       (neighbour->dev == card || pairing_is_above(neighbour->dev, card));
}
