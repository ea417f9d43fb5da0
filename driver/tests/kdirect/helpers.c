// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/crc32.h>
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

u32 kdirect_crc(u32 crc, const void *bytes, size_t length)
{
	return ~crc32_le(~crc, bytes, length);
}
