// What rdma-unit-test has to know of the adapter: its own sources describe each device that it tests in such a class.
#pragma once

#include <string>

#include "internal/introspection_registrar.h"
#include "internal/introspection_rxe.h"
#include "public/introspection.h"

// The devices of `scripts/lab` are called vrnic0, vrnic1 and so on.
class Adapter : public rdma_unit_test::NicIntrospection {
 public:
  Adapter(const std::string& name, const ibv_device_attr& attributes)
      : NicIntrospection(name, attributes) {}

  // The kernel registers no region of zero bytes.
  bool SupportsZeroLengthMr() const override { return false; }
  bool SupportsReRegMr() const override { return true; }
  // A completion queue that overflows raises an event and ends its queue pairs.
  bool FullCqIdlesQp() const override { return false; }
  // Posting to a queue pair that cannot send fails at once.
  bool SilentlyDropSendWrWhenResetInitRtr() const override { return false; }
  // Some tests do fewer rounds then, as they need for emulated guests.
  bool IsSlowNic() const override { return true; }
};

// Makes the tests know the adapter, and rxe, with which its results are compared.
inline void RegisterDevices() {
  rdma_unit_test::IntrospectionRegistrar::GetInstance().Register(
      "vrnic", [](const std::string& name, const ibv_device_attr& attributes) {
        return new Adapter(name, attributes);
      });
  rdma_unit_test::IntrospectionRxe::Register();
}
