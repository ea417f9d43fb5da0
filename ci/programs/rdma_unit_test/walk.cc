// Runs the random walk of rdma-unit-test on the adapter: `--clients` of them create, use and destroy objects in random
// order for `--duration` seconds, and know of each request how it must end. A result that they do not expect ends the
// program with a message.
#include "absl/debugging/failure_signal_handler.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/log/initialize.h"
#include "absl/time/time.h"
#include "device.h"
#include "random_walk/action_weights.h"
#include "random_walk/flags.h"
#include "random_walk/internal/single_node_orchestrator.h"

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
