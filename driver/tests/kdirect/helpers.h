/* SPDX-License-Identifier: GPL-2.0 */
/* The disk of a server, for vrnic_kdirect. */
#ifndef VRNIC_KDIRECT_HELPERS_H
#define VRNIC_KDIRECT_HELPERS_H

#include <linux/fs.h>
#include <rdma/ib_verbs.h>

/* Opens the disk of this number; -EOPNOTSUPP for one that cannot reach memory of other PCI devices. */
struct file *kdirect_open(u32 number);
void kdirect_close(struct file *disk);
/* What ends a transfer: the mark of a word, or if that is zero, the number of a range. */
struct kdirect_end {
	u32 number;
	u32 mark;
};
/*
 * Moves length bytes from or to the disk, to or from memory of a PCI device, and waits for the end.
 * When the disk's controller has moved them all, the transfers of the queue pair end.
 */
int kdirect_move(struct file *disk, bool write, u64 sector, void *memory, u32 length,
		 struct ib_qp *qp, const struct kdirect_end *ends, u32 count);
/*
 * Moves length bytes from or to disks through the ranges of ends in the window, and waits for the end. If there is a
 * second disk, it has every other range, and both have the same sectors, from half of the sector on.
 */
struct kdirect_transfer {
	struct file *disks[2];
	bool write;
	u64 sector;
	u32 length;
	struct ib_qp *qp;
	const struct kdirect_end *ends;
	u32 count;
};
int kdirect_move_through(const struct kdirect_transfer *transfer);
/* Continues a CRC-32 as gzip has it, which starts at zero. */
u32 kdirect_crc(u32 crc, const void *bytes, size_t length);

#endif
