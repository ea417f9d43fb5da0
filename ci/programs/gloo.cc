// Collectives of gloo over ibverbs, on four ranks, which find each other by a Redis server.
// Usage: collectives RANK SERVER
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gloo/allgather_ring.h"
#include "gloo/allreduce_bcube.h"
#include "gloo/allreduce_halving_doubling.h"
#include "gloo/allreduce_ring.h"
#include "gloo/allreduce_ring_chunked.h"
#include "gloo/barrier_all_to_all.h"
#include "gloo/broadcast_one_to_all.h"
#include "gloo/reduce_scatter.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/redis_store.h"
#include "gloo/transport/ibverbs/device.h"

using Numbers = std::vector<float>;
using Ranks = std::shared_ptr<gloo::Context>;

const int RANKS = 4;
const int SIZES[] = {1, 7, 256, 10000, 1 << 20};

// The number at an index of a rank's own block: small, so that sums are exact.
float own(int rank, int index) { return (rank + 1) * (index % 1000); }

// Their sum over all ranks.
float sum(int index) { return RANKS * (RANKS + 1) / 2 * (index % 1000); }

Numbers block(int rank, int size) {
  Numbers numbers(size);
  for (int i = 0; i < size; i++) numbers[i] = own(rank, i);
  return numbers;
}

void check(bool right, const char* what, int size) {
  if (right) return;
  std::fprintf(stderr, "%s: wrong result of %d numbers\n", what, size);
  std::exit(1);
}

// Gloo ends the program if a buffer is destroyed before its last send has completed, for which an algorithm does not
// wait. So numbers and algorithms stay until the end.
template <typename Kept, typename... Arguments>
Kept& keep(Arguments&&... arguments) {
  return *new Kept(std::forward<Arguments>(arguments)...);
}

template <template <typename> class Allreduce>
void allreduce(const Ranks& ranks, const char* what, int smallest = 1) {
  for (int size : SIZES) {
    if (size < smallest) continue;
    Numbers& numbers = keep<Numbers>(size);
    auto& algorithm = keep<Allreduce<float>>(ranks, std::vector<float*>{numbers.data()}, size);
    for (int round = 0; round < 3; round++) {
      const Numbers mine = block(ranks->rank, size);
      std::copy(mine.begin(), mine.end(), numbers.begin());
      algorithm.run();
      for (int i = 0; i < size; i++) check(numbers[i] == sum(i), what, size);
    }
  }
  if (ranks->rank == 0) std::printf("gloo: %s\n", what);
}

void allgather(const Ranks& ranks) {
  for (int size : SIZES) {
    Numbers& mine = keep<Numbers>(block(ranks->rank, size));
    Numbers& all = keep<Numbers>(RANKS * size);
    auto& algorithm = keep<gloo::AllgatherRing<float>>(ranks, std::vector<const float*>{mine.data()}, all.data(), size);
    algorithm.run();
    for (int i = 0; i < RANKS * size; i++) check(all[i] == own(i / size, i % size), "allgather", size);
  }
  if (ranks->rank == 0) std::puts("gloo: allgather, ring");
}

void broadcast(const Ranks& ranks) {
  for (int root = 0; root < RANKS; root++) {
    for (int size : SIZES) {
      Numbers& numbers = keep<Numbers>(block(ranks->rank, size));
      auto& algorithm = keep<gloo::BroadcastOneToAll<float>>(ranks, std::vector<float*>{numbers.data()}, size, root);
      algorithm.run();
      for (int i = 0; i < size; i++) check(numbers[i] == own(root, i), "broadcast", size);
    }
  }
  if (ranks->rank == 0) std::puts("gloo: broadcast, one to all");
}

void reduce_scatter(const Ranks& ranks) {
  for (int size : {RANKS * 64, 1 << 20}) {
    Numbers& numbers = keep<Numbers>(block(ranks->rank, size));
    auto& algorithm = keep<gloo::ReduceScatterHalvingDoubling<float>>(
        ranks, std::vector<float*>{numbers.data()}, size, std::vector<int>(RANKS, size / RANKS));
    algorithm.run();
    int start = ranks->rank * (size / RANKS);
    for (int i = 0; i < size / RANKS; i++) check(numbers[i] == sum(start + i), "reduce-scatter", size);
  }
  if (ranks->rank == 0) std::puts("gloo: reduce-scatter, halving and doubling");
}

void barriers(const Ranks& ranks) {
  auto& barrier = keep<gloo::BarrierAllToAll>(ranks);
  for (int round = 0; round < 100; round++) barrier.run();
  if (ranks->rank == 0) std::puts("gloo: barrier, all to all");
}

// Newer releases share the store, and older ones take a reference.
template <typename Mesh, typename Store>
auto connect(Mesh& ranks, Store store, std::shared_ptr<gloo::transport::Device>& device, int)
    -> decltype(ranks.connectFullMesh(store, device)) {
  ranks.connectFullMesh(store, device);
}

template <typename Mesh, typename Store>
void connect(Mesh& ranks, Store store, std::shared_ptr<gloo::transport::Device>& device, long) {
  ranks.connectFullMesh(*store, device);
}

int main(int, char** arguments) {
  gloo::transport::ibverbs::attr settings{std::getenv("VRNIC_DEVICE"), 1, 1};
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::ibverbs::CreateDevice(settings);
  auto store = std::make_shared<gloo::rendezvous::RedisStore>(arguments[2]);
  auto ranks = std::make_shared<gloo::rendezvous::Context>(std::atoi(arguments[1]), RANKS);
  connect(*ranks, store, device, 0);
  allreduce<gloo::AllreduceRing>(ranks, "allreduce, ring");
  allreduce<gloo::AllreduceRingChunked>(ranks, "allreduce, ring in chunks");
  allreduce<gloo::AllreduceHalvingDoubling>(ranks, "allreduce, halving and doubling");
  // Of 7 numbers its result is wrong, also over gloo's transport by TCP.
  allreduce<gloo::AllreduceBcube>(ranks, "allreduce, hypercube", 256);
  allgather(ranks);
  broadcast(ranks);
  reduce_scatter(ranks);
  barriers(ranks);
  std::fflush(stdout);
  // All ranks have got this rank's last messages when they have ended.
  std::vector<std::string> ends;
  for (int rank = 0; rank < RANKS; rank++) ends.push_back("end/" + std::to_string(rank));
  store->set(ends[ranks->rank], {1});
  store->wait(ends, std::chrono::seconds(60));
  std::_Exit(0);
}
