/* A job of MPI that checks all results itself. The scripts of ci/ports run it with four ranks on two guests.
 * Usage: mpi messages|collectives|onesided … */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

/* Ends the job with a message if a result is wrong. */
static void expect(int right, const char *what, long seen, long wanted)
{
	if (right)
		return;
	fprintf(stderr, "mpi: rank %d: %s: %ld instead of %ld\n", rank, what, seen, wanted);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void equal(const char *what, long seen, long wanted)
{
	expect(seen == wanted, what, seen, wanted);
}

/* The byte at a place of a message that a rank sends in a round. */
static uint8_t pattern(int sender, int round, size_t place)
{
	return (uint8_t)(sender * 31 + round * 7 + place * 3 + (place >> 8));
}

static void fill(uint8_t *data, size_t length, int sender, int round)
{
	for (size_t i = 0; i < length; i++)
		data[i] = pattern(sender, round, i);
}

static void check(const uint8_t *data, size_t length, int sender, int round)
{
	for (size_t i = 0; i < length; i++)
		equal("a byte of a message", data[i], pattern(sender, round, i));
}

/* Prints a line once all ranks have come here. */
static void done(const char *what)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		printf("mpi: %s\n", what);
		fflush(stdout);
	}
}

/* Each rank of the first half exchanges messages of all sizes with one of the second half. */
static void messages(void)
{
	const size_t largest = 1 << 20;
	const int rounds = 2;
	uint8_t *out = malloc(largest), *in = malloc(largest);
	int peer = (rank + ranks / 2) % ranks;
	MPI_Status status;

	for (size_t length = 1; length <= largest; length *= 32) {
		for (int round = 0; round < rounds; round++) {
			int got;

			fill(out, length, rank, round);
			memset(in, 0, length);
			if (rank < peer) {
				MPI_Send(out, length, MPI_BYTE, peer, round, MPI_COMM_WORLD);
				MPI_Recv(in, length, MPI_BYTE, peer, round, MPI_COMM_WORLD, &status);
			} else {
				MPI_Recv(in, length, MPI_BYTE, peer, round, MPI_COMM_WORLD, &status);
				MPI_Send(out, length, MPI_BYTE, peer, round, MPI_COMM_WORLD);
			}
			MPI_Get_count(&status, MPI_BYTE, &got);
			equal("bytes of a message", got, length);
			check(in, length, peer, round);
			/* Both directions at once. */
			memset(in, 0, length);
			MPI_Sendrecv(out, length, MPI_BYTE, peer, 100, in, length, MPI_BYTE, peer, 100, MPI_COMM_WORLD,
				     MPI_STATUS_IGNORE);
			check(in, length, peer, round);
		}
	}
	free(out);
	free(in);
	done("messages of 1 byte to 1 MiB, each way and both ways, were right");
}

static void reductions(void)
{
	long sum = rank + 1, all, before = 0;
	double halves[1000], total[1000];

	MPI_Allreduce(&sum, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	equal("a sum of all ranks", all, (long)ranks * (ranks + 1) / 2);
	MPI_Exscan(&sum, &before, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (rank > 0)
		equal("a sum of the ranks before", before, (long)rank * (rank + 1) / 2);
	for (int i = 0; i < 1000; i++)
		halves[i] = (rank + i) / 2.0;
	MPI_Allreduce(halves, total, 1000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < 1000; i++)
		expect(total[i] == (ranks * (ranks - 1) / 2 + (double)ranks * i) / 2, "a sum of halves", total[i], i);
	MPI_Reduce(&sum, &all, 1, MPI_LONG, MPI_MAX, ranks - 1, MPI_COMM_WORLD);
	if (rank == ranks - 1)
		equal("the largest value", all, ranks);
	done("reductions and prefix sums were right");
}

/* Broadcasts, gathers and exchanges of blocks between all ranks. */
static void exchanges(void)
{
	const size_t length = 50000;
	uint8_t *out = malloc(ranks * length), *in = malloc(ranks * length);

	for (int root = 0; root < ranks; root++) {
		if (rank == root)
			fill(in, length, root, 1);
		else
			memset(in, 0, length);
		MPI_Bcast(in, length, MPI_BYTE, root, MPI_COMM_WORLD);
		check(in, length, root, 1);
	}
	fill(out, length, rank, 2);
	MPI_Allgather(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
	for (int peer = 0; peer < ranks; peer++)
		check(in + peer * length, length, peer, 2);
	for (int peer = 0; peer < ranks; peer++)
		fill(out + peer * length, length, rank, peer);
	MPI_Alltoall(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
	for (int peer = 0; peer < ranks; peer++)
		check(in + peer * length, length, peer, rank);
	MPI_Scatter(out, length, MPI_BYTE, in, length, MPI_BYTE, 0, MPI_COMM_WORLD);
	check(in, length, 0, rank);
	free(out);
	free(in);
	done("broadcasts, gathers and exchanges between all ranks were right");
}

/* All ranks draw tickets from a counter of rank 0: each number is drawn once. */
static void tickets(int each)
{
	int64_t *counter, one = 1, *mine = malloc(each * sizeof(*mine)), *all = NULL;
	MPI_Win window;

	MPI_Win_allocate(sizeof(*counter), sizeof(*counter), MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &window);
	*counter = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < each; i++) {
		MPI_Fetch_and_op(&one, &mine[i], MPI_INT64_T, 0, 0, MPI_SUM, window);
		MPI_Win_flush(0, window);
		if (i > 0)
			expect(mine[i] > mine[i - 1], "a ticket after another", mine[i], mine[i - 1]);
	}
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		all = malloc(ranks * each * sizeof(*all));
	MPI_Gather(mine, each, MPI_INT64_T, all, each, MPI_INT64_T, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		char *drawn = calloc(ranks, each);

		for (int i = 0; i < ranks * each; i++) {
			expect(all[i] >= 0 && all[i] < ranks * each, "a ticket", all[i], ranks * each);
			equal("times that a ticket was drawn", ++drawn[all[i]], 1);
		}
		free(drawn);
		free(all);
	}
	MPI_Win_free(&window);
	free(mine);
	done("fetch-and-op: each ticket was drawn once");
}

/* A lock by compare-and-swap in the last rank guards a sum there that is read, changed and written. */
static void swap_lock(int each)
{
	int64_t *words, none = 0, mine = rank + 1, holder, sum;
	int owner = ranks - 1, waiting;
	MPI_Win window;

	MPI_Win_allocate(2 * sizeof(*words), sizeof(*words), MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window);
	words[0] = words[1] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < each; i++) {
		do {
			/* Open MPI answers the requests of other ranks in such calls only, if UCX does atomics by messages. */
			MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &waiting, MPI_STATUS_IGNORE);
			MPI_Compare_and_swap(&mine, &none, &holder, MPI_INT64_T, owner, 0, window);
			MPI_Win_flush(owner, window);
		} while (holder != 0);
		MPI_Get(&sum, 1, MPI_INT64_T, owner, 1, 1, MPI_INT64_T, window);
		MPI_Win_flush(owner, window);
		sum += mine;
		MPI_Put(&sum, 1, MPI_INT64_T, owner, 1, 1, MPI_INT64_T, window);
		MPI_Win_flush(owner, window);
		MPI_Compare_and_swap(&none, &mine, &holder, MPI_INT64_T, owner, 0, window);
		MPI_Win_flush(owner, window);
		equal("the holder of a lock", holder, mine);
	}
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == owner) {
		MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
		equal("a lock at the end", words[0], 0);
		equal("a sum under a lock", words[1], (int64_t)each * ranks * (ranks + 1) / 2);
		MPI_Win_unlock(rank, window);
	}
	MPI_Win_free(&window);
	done("compare-and-swap: a lock guarded a sum");
}

/* All ranks add to vectors of all ranks at the same time, between fences. */
static void accumulate(int rounds)
{
	enum { LENGTH = 200 };
	int32_t *vector, add[LENGTH];
	MPI_Win window;

	MPI_Win_allocate(sizeof(add), sizeof(*add), MPI_INFO_NULL, MPI_COMM_WORLD, &vector, &window);
	memset(vector, 0, sizeof(add));
	for (int i = 0; i < LENGTH; i++)
		add[i] = rank + i;
	MPI_Win_fence(0, window);
	for (int round = 0; round < rounds; round++) {
		for (int target = 0; target < ranks; target++)
			MPI_Accumulate(add, LENGTH, MPI_INT32_T, target, 0, LENGTH, MPI_INT32_T, MPI_SUM, window);
		MPI_Win_fence(0, window);
	}
	for (int i = 0; i < LENGTH; i++)
		equal("an accumulated sum", vector[i], rounds * (ranks * (ranks - 1) / 2 + ranks * i));
	MPI_Win_free(&window);
	done("accumulate: the sums of all ranks were right");
}

/* Blocks are put and got between fences, and under exclusive locks. */
static void put_and_get(int rounds)
{
	const size_t length = 100000;
	uint8_t *memory, *out = malloc(length), *in = malloc(length);
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
	MPI_Win window;

	MPI_Win_allocate(2 * length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
	for (int round = 0; round < rounds; round++) {
		fill(out, length, rank, round);
		MPI_Win_fence(0, window);
		MPI_Put(out, length, MPI_BYTE, to, 0, length, MPI_BYTE, window);
		MPI_Win_fence(0, window);
		check(memory, length, from, round);
		MPI_Get(in, length, MPI_BYTE, to, 0, length, MPI_BYTE, window);
		MPI_Win_fence(0, window);
		check(in, length, rank, round);
		fill(out, length, rank, round + 50);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, window);
		MPI_Put(out, length, MPI_BYTE, to, length, length, MPI_BYTE, window);
		MPI_Win_unlock(to, window);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
		check(memory + length, length, from, round + 50);
		MPI_Win_unlock(rank, window);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_free(&window);
	free(out);
	free(in);
	done("put and get: all blocks were right");
}

int main(int argc, char **argv)
{
	char host[MPI_MAX_PROCESSOR_NAME];
	int length;

	/* A job that waits for ever ends by the time limit of scripts/lab. */
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Get_processor_name(host, &length);
	expect(ranks >= 2 && ranks % 2 == 0, "ranks, whose number must be even", ranks, 2);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "messages")) {
			messages();
		} else if (!strcmp(argv[i], "collectives")) {
			reductions();
			exchanges();
		} else if (!strcmp(argv[i], "onesided")) {
			put_and_get(2);
			tickets(50);
			swap_lock(10);
			accumulate(5);
		} else {
			expect(0, "a part of the job that does not exist, argument", i, 0);
		}
	}
	if (rank == 0)
		printf("mpi: %d ranks, all parts right\n", ranks);
	MPI_Finalize();
	return 0;
}
