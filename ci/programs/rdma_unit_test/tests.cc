// Runs those cases of rdma-unit-test that are linked with it, on the adapter.
#include "absl/debugging/failure_signal_handler.h"
#include "absl/flags/parse.h"
#include "absl/log/initialize.h"
#include "device.h"
#include "gtest/gtest.h"

int main(int argc, char* argv[]) {
  testing::InitGoogleTest(&argc, argv);
  absl::InitializeLog();
  absl::InstallFailureSignalHandler({});
  absl::ParseCommandLine(argc, argv);
  RegisterDevices();
  return RUN_ALL_TESTS();
}
