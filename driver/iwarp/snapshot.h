/* SPDX-License-Identifier: GPL-2.0 */
/* The state of a TCP connection that the adapter takes over. */
#ifndef VRNIC_IWARP_SNAPSHOT_H
#define VRNIC_IWARP_SNAPSHOT_H

#include <net/sock.h>

#include "helpers.h"

/* Bytes of the longest segment that the adapter receives. It fits into RoCE's longest frame. */
#define IWARP_MSS_MAX 4096

/* Returns whether dev is a VLAN of netdev. */
bool iwarp_is_vlan_of(const struct net_device *dev, const struct net_device *netdev);
/*
 * Fills in the state of the connection of a locked socket. The conditions of iwarp_socket_take
 * apply. A lent socket may have bytes that were not read.
 */
int iwarp_snapshot(struct sock *sk, const struct net_device *netdev, struct net_device *card,
		   bool lent, struct iwarp_snapshot *out);
/* As iwarp_socket_macs, for a locked socket. */
int iwarp_macs(struct sock *sk, const struct net_device *netdev, struct net_device *card,
	       const struct iwarp_snapshot *taken, u8 *smac, u8 *dmac);

#endif
