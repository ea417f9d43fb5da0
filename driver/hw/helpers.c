// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/err.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/sched.h>
#include <linux/sizes.h>

#include "helpers.h"

int hw_p2p_offer(struct pci_dev *pdev, int bar, size_t size, u64 offset)
{
	int result = pci_p2pdma_add_resource(pdev, bar, size, offset);

	if (!result)
		pci_p2pmem_publish(pdev, true);
	return result;
}

void *hw_p2p_take(struct pci_dev *pdev, int bar, size_t size)
{
	int error = pci_p2pdma_add_resource(pdev, bar, size, 0);
	void *memory = error ? NULL : pci_alloc_p2pmem(pdev, size);

	if (error)
		return ERR_PTR(error);
	return memory ? memory : ERR_PTR(-ENOMEM);
}

void *hw_p2p_alloc(struct pci_dev *pdev, size_t size)
{
	void *memory = pci_alloc_p2pmem(pdev, size);
	size_t done, length;

	for (done = 0; memory && done < size; done += length) {
		length = min_t(size_t, size - done, SZ_1M);
		memset(memory + done, 0, length);
		cond_resched();
	}
	return memory;
}

void hw_p2p_free(struct pci_dev *pdev, void *memory, size_t size)
{
	pci_free_p2pmem(pdev, memory, size);
}

u64 hw_p2p_bus_address(struct pci_dev *pdev, void *memory)
{
	return pci_p2pmem_virt_to_bus(pdev, memory);
}

u64 hw_p2p_offset(struct pci_dev *pdev, int bar, void *memory)
{
	return pci_p2pmem_virt_to_bus(pdev, memory) - pci_bus_address(pdev, bar);
}
