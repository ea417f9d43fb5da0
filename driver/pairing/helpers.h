/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRNIC_PAIRING_HELPERS_H
#define VRNIC_PAIRING_HELPERS_H

#include <linux/netdevice.h>

/* Returns the device that a notification is about. */
struct net_device *pairing_notifier_netdev(void *info);
/* Returns whether a device is a network card with this permanent address. */
bool pairing_is_card(const struct net_device *netdev, const u8 *mac);
/* Finds such a card in any network namespace. The caller holds the RTNL. */
struct net_device *pairing_find_card(const u8 *mac, const struct net_device *except);

/*
 * Writes the network devices directly on top of a network card that share its port: macvlan devices
 * and bridges, and a bond that sends through this card alone. Returns their number, which is at
 * most `room`; the caller gets a reference to each.
 */
size_t pairing_stations(struct net_device *card, struct net_device **out, size_t room);
/* Returns whether a network device is directly on top of a network card. */
bool pairing_is_upper(const struct net_device *netdev, struct net_device *card);
/* Returns whether a network device is on top of a network card, directly or not. */
bool pairing_is_above(struct net_device *netdev, struct net_device *card);

/* The MAC of a network device, and the namespace of the device, which is only compared. */
struct pairing_mac {
	u8 mac[6];
	const struct net *net;
};

/*
 * Writes the MACs of a network card and of all Ethernet devices on top of it, each of them once.
 * Returns their number, which is at most `room`.
 */
size_t pairing_macs(struct net_device *card, struct pairing_mac *out, size_t room);

/*
 * Returns whether a notification of <net/netevent.h> is about a neighbour with a known address that
 * is reached through a network card, or through a device on top of it. Does not sleep.
 */
bool pairing_is_next_hop(unsigned long event, void *info, struct net_device *card);

#endif
