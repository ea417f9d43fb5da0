/* SPDX-License-Identifier: GPL-2.0 */
/* Peer-to-peer memory, also for kernels that are configured without it. */
#ifndef VRNIC_HW_HELPERS_H
#define VRNIC_HW_HELPERS_H

#include <linux/pci.h>

/* Lets the kernel give out a part of a BAR, until the driver is unbound. */
int hw_p2p_offer(struct pci_dev *pdev, int bar, size_t size, u64 offset);
/* Adds a BAR, of which nothing was offered before, and returns all of it, which is not accessed; or an error
 * pointer. */
void *hw_p2p_take(struct pci_dev *pdev, int bar, size_t size);
/* Returns zeroed memory of what was offered, in whole pages, or NULL. May sleep. */
void *hw_p2p_alloc(struct pci_dev *pdev, size_t size);
void hw_p2p_free(struct pci_dev *pdev, void *memory, size_t size);
/* Returns the address of such memory on the bus, and its place in the BAR that it is of. */
u64 hw_p2p_bus_address(struct pci_dev *pdev, void *memory);
u64 hw_p2p_offset(struct pci_dev *pdev, int bar, void *memory);

#endif
