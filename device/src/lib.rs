//! vrnicd: the daemon that emulates vrnic adapters for QEMU over vfio-user
