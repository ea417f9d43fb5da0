/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Maps peer-to-peer memory of a PCI device, and holds it until the process is killed. The memory is mapped in pieces,
 * so that holes between memory that others have are held, too. Prints the number of bytes.
 *
 * usage: hold FILE BYTES (FILE is p2pmem/allocate of the device in sysfs)
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fd = argc == 3 ? open(argv[1], O_RDWR) : -1;
	size_t left = argc == 3 ? strtoul(argv[2], NULL, 0) : 0, held = 0;

	if (fd < 0) {
		fprintf(stderr, "usage: hold FILE BYTES; FILE can be opened\n");
		return 1;
	}
	for (size_t piece = 1 << 20; piece >= 4096; piece /= 2) {
		while (left >= piece && mmap(NULL, piece, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED) {
			left -= piece;
			held += piece;
		}
	}
	printf("held %zu\n", held);
	fflush(stdout);
	pause();
	return 0;
}
