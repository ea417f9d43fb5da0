// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

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

/* What hw_p2p_keep() has taken. */
struct hw_kept {
	struct pci_dev *pdev;
	void *memory;
	size_t size;
};

static void hw_p2p_release(void *data)
{
	struct hw_kept *kept = data;

	pci_free_p2pmem(kept->pdev, kept->memory, kept->size);
}

void *hw_p2p_keep(struct pci_dev *pdev, int bar, size_t size, u64 offset)
{
	struct hw_kept *kept = devm_kzalloc(&pdev->dev, sizeof(*kept), GFP_KERNEL);
	int error;

	if (!kept)
		return ERR_PTR(-ENOMEM);
	error = pci_p2pdma_add_resource(pdev, bar, size, offset);
	if (error)
		return ERR_PTR(error);
	*kept = (struct hw_kept){ .pdev = pdev, .memory = pci_alloc_p2pmem(pdev, size), .size = size };
	if (!kept->memory)
		return ERR_PTR(-ENOMEM);
	/* Before the kernel takes its page structs back. */
	error = devm_add_action_or_reset(&pdev->dev, hw_p2p_release, kept);
	return error ? ERR_PTR(error) : kept->memory;
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
