// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/crc32.h>
#include <linux/math64.h>
#include <linux/memremap.h>

#include "../../direct.h"
#include "helpers.h"

struct file *kdirect_open(u32 number)
{
	dev_t dev = MKDEV(number >> MINORBITS, number & MINORMASK);
	struct file *disk = bdev_file_open_by_dev(dev, BLK_OPEN_READ | BLK_OPEN_WRITE, NULL, NULL);

	if (!IS_ERR(disk) && !blk_queue_pci_p2pdma(bdev_get_queue(file_bdev(disk)))) {
		bdev_fput(disk);
		return ERR_PTR(-EOPNOTSUPP);
	}
	return disk;
}

void kdirect_close(struct file *disk)
{
	bdev_fput(disk);
}

struct kdirect_wait {
	struct completion ended;
	struct ib_qp *qp;
	const struct kdirect_end *ends;
	u32 count;
};

/* Called in an interrupt. */
static void kdirect_end(struct bio *bio)
{
	struct kdirect_wait *wait = bio->bi_private;
	u32 nth;

	for (nth = 0; !bio->bi_status && nth < wait->count; nth++) {
		const struct kdirect_end *end = &wait->ends[nth];

		if (end->mark)
			vrnic_mark(wait->qp, end->number, end->mark, false);
		else
			vrnic_range_done(wait->qp, end->number);
	}
	complete(&wait->ended);
}

int kdirect_move(struct file *disk, bool write, u64 sector, void *memory, u32 length,
		 struct ib_qp *qp, const struct kdirect_end *ends, u32 count)
{
	struct kdirect_wait wait = { .qp = qp, .ends = ends, .count = count };
	blk_opf_t op = (write ? REQ_OP_WRITE : REQ_OP_READ) | REQ_SYNC | REQ_NOMERGE;
	struct page *page = virt_to_page(memory);
	struct bio *bio;
	int error = -EINVAL;

	/* The block layer would take RAM as well. */
	if (!is_pci_p2pdma_page(page))
		return -EINVAL;
	init_completion(&wait.ended);
	bio = bio_alloc(file_bdev(disk), 1, op, GFP_KERNEL);
	bio->bi_iter.bi_sector = sector;
	bio->bi_private = &wait;
	bio->bi_end_io = kdirect_end;
	if (bio_add_page(bio, page, length, 0) == length) {
		submit_bio(bio);
		wait_for_completion_io(&wait.ended);
		error = blk_status_to_errno(bio->bi_status);
	}
	bio_put(bio);
	return error;
}

/* Adds bytes of the window, which may be in two pages; returns false if there is no room. */
static bool kdirect_add(struct bio *bio, void *start, u32 length)
{
	while (length) {
		u32 part = min_t(u32, length, PAGE_SIZE - offset_in_page(start));

		if (bio_add_page(bio, virt_to_page(start), part, offset_in_page(start)) != part)
			return false;
		start += part;
		length -= part;
	}
	return true;
}

/* Adds every step-th range, from the first one on, to the request for a disk. A range may be there several times. */
static int kdirect_fill(struct bio *bio, const struct kdirect_transfer *transfer, u32 first, u32 step)
{
	u32 nth;

	for (nth = first; nth < transfer->count; nth += step) {
		u32 at = nth * VRNIC_RANGE_LEN;
		void *start = vrnic_range_page(transfer->qp, transfer->ends[nth].number);

		if (IS_ERR(start))
			return PTR_ERR(start);
		if (at >= transfer->length)
			break;
		if (!kdirect_add(bio, start, min_t(u32, transfer->length - at, VRNIC_RANGE_LEN)))
			return -EINVAL;
	}
	return 0;
}

int kdirect_move_through(const struct kdirect_transfer *transfer)
{
	blk_opf_t op = (transfer->write ? REQ_OP_WRITE : REQ_OP_READ) | REQ_SYNC | REQ_NOMERGE;
	u32 disks = transfer->disks[1] ? 2 : 1;
	struct kdirect_wait waits[2] = {};
	struct bio *bios[2] = {};
	int error = 0;
	u32 nth;

	for (nth = 0; nth < disks; nth++) {
		struct bio *bio = bio_alloc(file_bdev(transfer->disks[nth]), 2 * transfer->count, op, GFP_KERNEL);

		bios[nth] = bio;
		init_completion(&waits[nth].ended);
		bio->bi_iter.bi_sector = div_u64(transfer->sector, disks);
		bio->bi_private = &waits[nth];
		bio->bi_end_io = kdirect_end;
		error = error ? error : kdirect_fill(bio, transfer, nth, disks);
	}
	for (nth = 0; nth < disks; nth++) {
		/* A short transfer has nothing for the second disk. */
		if (!error && bios[nth]->bi_iter.bi_size)
			submit_bio(bios[nth]);
		else
			complete(&waits[nth].ended);
	}
	for (nth = 0; nth < disks; nth++)
		wait_for_completion_io(&waits[nth].ended);
	for (nth = 0; nth < disks; nth++) {
		error = error ? error : blk_status_to_errno(bios[nth]->bi_status);
		bio_put(bios[nth]);
	}
	return error;
}

u32 kdirect_crc(u32 crc, const void *bytes, size_t length)
{
	return ~crc32_le(~crc, bytes, length);
}
