// Runs the random walk of rdma-unit-test on the adapter: `--clients` of them create, use and destroy objects in random
// order for `--duration` seconds, and know of each request how it must end. A result that they do not expect ends the
// program with a message. The number in RDMA_UNIT_TEST_SEED, if there is one, determines all random numbers. Two
// walks with one seed can differ nevertheless, because requests and threads do not end in the same order each time.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <random>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/log/initialize.h"
#include "absl/time/time.h"
#include "device.h"
#include "random_walk/action_weights.h"
#include "random_walk/flags.h"
#include "random_walk/internal/single_node_orchestrator.h"

// Takes the place of the function of the C library from which Abseil gets the seeds of its random numbers.
extern "C" int getentropy(void* bytes, size_t length) {
  static const char* seed = getenv("RDMA_UNIT_TEST_SEED");
  static std::mt19937_64 numbers(seed ? strtoull(seed, nullptr, 10) : 0);
  static std::mutex turn;
  if (!seed) {
    return syscall(SYS_getrandom, bytes, length, 0) < 0 ? -1 : 0;
  }
  std::lock_guard<std::mutex> lock(turn);
  for (size_t done = 0; done < length;) {
    const auto number = numbers();
    const size_t some = std::min(sizeof(number), length - done);
    memcpy(static_cast<char*>(bytes) + done, &number, some);
    done += some;
  }
  return 0;
}

int main(int argc, char* argv[]) {
  absl::InitializeLog();
  absl::ParseCommandLine(argc, argv);
  absl::InstallFailureSignalHandler({});
  RegisterDevices();
  rdma_unit_test::random_walk::ActionWeights weights =
      rdma_unit_test::random_walk::SimpleRdmaActions();
  rdma_unit_test::random_walk::SingleNodeOrchestrator walk(
      absl::GetFlag(FLAGS_clients), weights);
  walk.RunClients(absl::Seconds(absl::GetFlag(FLAGS_duration)));
  return 0;
}
