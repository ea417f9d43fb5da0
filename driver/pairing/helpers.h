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

#endif
