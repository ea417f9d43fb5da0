/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Sends SCSI commands to a disk by SG_IO, for the suite iscsi.
 *
 * usage: vrnic_scsi DISK mixed COUNT | vrnic_scsi DISK slow MILLISECONDS | vrnic_scsi DISK resets COUNT
 *
 * mixed: READs of 4 KiB by several threads, and beside them, COUNT times, an operation of tapes (REWIND), which the
 * adapter refuses. Each REWIND must fail in the transport, and each READ must succeed.
 *
 * slow: a READ for which the kernel waits so long, and which the kernel must abort, and then one that it waits for.
 *
 * resets: resets of the disk, each of which must succeed.
 */
#include <fcntl.h>
#include <pthread.h>
#include <scsi/sg.h>
#include <sys/ioctl.h>
#include "side.h"

enum { REWIND = 0x01, READ_10 = 0x28, READERS = 3, LEN = 4096, TIMEOUT_MS = 60000, DID_TIME_OUT = 3, DID_ERROR = 7 };

/* SG_SCSI_RESET_NO_ESCALATE of the kernel. */
enum { NO_ESCALATE = 0x100 };

static const char *disk;
static volatile int is_over;

static sg_io_hdr_t command_within(int file, unsigned char operation, unsigned char block, void *data,
				  unsigned len, unsigned timeout_ms)
{
	unsigned char cdb[10] = { operation, [5] = block, [8] = len / 512 }, sense[32];
	sg_io_hdr_t io = {
		.interface_id = 'S',
		.dxfer_direction = len ? SG_DXFER_FROM_DEV : SG_DXFER_NONE,
		.cmd_len = operation == READ_10 ? 10 : 6,
		.mx_sb_len = sizeof(sense),
		.dxfer_len = len,
		.dxferp = data,
		.cmdp = cdb,
		.sbp = sense,
		.timeout = timeout_ms,
	};

	need(ioctl(file, SG_IO, &io) == 0, "SG_IO");
	return io;
}

static sg_io_hdr_t command(int file, unsigned char operation, unsigned char block, void *data, unsigned len)
{
	return command_within(file, operation, block, data, len, TIMEOUT_MS);
}

static void *read_on(void *count)
{
	int file = open(disk, O_RDWR);
	char *data = aligned_alloc(4096, LEN);

	need(file >= 0 && data, "opening the disk");
	while (!is_over) {
		sg_io_hdr_t io = command(file, READ_10, 8 * (*(long *)count % 8), data, LEN);

		need(io.host_status == 0 && io.status == 0, "a READ");
		++*(long *)count;
	}
	close(file);
	free(data);
	return NULL;
}

static void slow(int file, unsigned timeout_ms)
{
	char *data = aligned_alloc(4096, LEN);
	sg_io_hdr_t io = command_within(file, READ_10, 0, data, LEN, timeout_ms);

	if (io.host_status != DID_TIME_OUT)
		fprintf(stderr, "status %x of the host, %x of the disk\n", io.host_status, io.status);
	need(io.host_status == DID_TIME_OUT, "the end of a READ that takes too long");
	io = command(file, READ_10, 0, data, LEN);
	need(io.host_status == 0 && io.status == 0, "a READ behind the one that was aborted");
	free(data);
}

static void resets(int file, int count)
{
	while (count-- > 0) {
		int what = SG_SCSI_RESET_DEVICE | NO_ESCALATE;

		need(ioctl(file, SG_SCSI_RESET, &what) == 0, "a reset of the disk");
		usleep(20000);
	}
}

static void mixed(int file, int count)
{
	pthread_t readers[READERS];
	long counts[READERS] = { 0 }, sum = 0;

	for (int nth = 0; nth < READERS; nth++)
		need(!pthread_create(&readers[nth], NULL, read_on, &counts[nth]), "pthread_create");
	for (int left = count; left > 0; left--) {
		sg_io_hdr_t io = command(file, REWIND, 0, NULL, 0);

		need(io.host_status == DID_ERROR, "a REWIND that the adapter refuses");
		usleep(20000);
	}
	is_over = 1;
	for (int nth = 0; nth < READERS; nth++) {
		pthread_join(readers[nth], NULL);
		sum += counts[nth];
	}
	printf("%ld READs\n", sum);
}

int main(int argc, char **argv)
{
	int file;

	need(argc == 4, "usage: vrnic_scsi DISK mixed COUNT | slow MILLISECONDS | resets COUNT");
	disk = argv[1];
	file = open(disk, O_RDWR);
	need(file >= 0, "opening the disk");
	if (!strcmp(argv[2], "mixed"))
		mixed(file, atoi(argv[3]));
	else if (!strcmp(argv[2], "resets"))
		resets(file, atoi(argv[3]));
	else
		slow(file, atoi(argv[3]));
	return 0;
}
