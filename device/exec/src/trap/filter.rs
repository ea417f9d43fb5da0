//! The filter that selects the system calls which the supervisor answers (`seccomp(2)`, in the
//! kernel Documentation/userspace-api/seccomp_filter.rst). It runs for each system call, so it is
//! short: about fifty instructions, 0.05 to 0.1 microseconds.
//!
//! The filter is written by hand, because crates that make filters allow or forbid system calls:
//! they have no action that asks a supervisor, and no program that jumps over the tests of one
//! system call.

use std::mem::offset_of;

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_USER_NOTIF, c_long, seccomp_data, sock_filter,
};

use super::task::DEVICES_MAX;

/// The request number of all ioctls of RDMA (`RDMA_VERBS_IOCTL` in rdma/rdma_user_ioctl_cmds.h).
pub const RDMA_IOCTL: u32 = 0xc018_1b01;
/// One past the highest descriptor: `AT_FDCWD` is above it.
const DESCRIPTORS: u32 = 1 << 30;
/// `AUDIT_ARCH_X86_64` of linux/audit.h. System calls of 32-bit programs are not selected.
const ARCH: u32 = 0xc000_003e;
/// `NETLINK_RDMA` of linux/netlink.h.
const NETLINK_RDMA: u32 = 20;

/// System calls with a path. The filter cannot read it, so all of them are selected.
const WITH_PATHS: [c_long; 12] = [
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_openat2,
];
/// System calls by which a process gets other memory.
const EXECUTES: [c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// A test of an argument.
#[derive(Clone, Copy)]
enum Test {
    /// The lower half of the argument is this number.
    Is(usize, u32),
    /// The lower half of the argument is at least the first number, and below the second.
    Between(usize, u32, u32),
}

/// Returns the filter. Device files have descriptors from `first_descriptor` on.
#[must_use]
pub fn filter(first_descriptor: u32) -> Vec<sock_filter> {
    let mut code = vec![
        load(offset_of!(seccomp_data, arch)),
        jump(BPF_JEQ, ARCH, 1, 0),
        end(SECCOMP_RET_ALLOW),
        load(offset_of!(seccomp_data, nr)),
    ];
    let mut rule = |number: c_long, tests: &[Test]| code.extend(rule(number, tests));
    let device = Test::Between(0, first_descriptor, DESCRIPTORS);
    for number in WITH_PATHS {
        rule(number, &[]);
    }
    rule(libc::SYS_ioctl, &[Test::Is(1, RDMA_IOCTL)]);
    rule(libc::SYS_fstat, &[device]);
    // Not those of programs with thousands of descriptors.
    let limit = first_descriptor.saturating_add(DEVICES_MAX).min(DESCRIPTORS);
    rule(libc::SYS_write, &[Test::Between(0, first_descriptor, limit)]);
    for number in EXECUTES {
        rule(number, &[]);
    }
    // CAST: a small number.
    rule(libc::SYS_socket, &[Test::Is(0, libc::AF_NETLINK as u32), Test::Is(2, NETLINK_RDMA)]);
    code.push(end(SECCOMP_RET_ALLOW));
    code
}

/// Returns the code that selects a system call whose arguments pass all tests. Other system calls
/// jump over it with their number still loaded.
fn rule(number: c_long, tests: &[Test]) -> Vec<sock_filter> {
    let mut body = Vec::new();
    for test in tests {
        match *test {
            Test::Is(argument, value) => {
                body.extend([
                    load(argument_offset(argument)),
                    jump(BPF_JEQ, value, 1, 0),
                    end(SECCOMP_RET_ALLOW),
                ]);
            }
            Test::Between(argument, least, limit) => {
                body.extend([
                    load(argument_offset(argument)),
                    jump(BPF_JGE, least, 1, 0),
                    end(SECCOMP_RET_ALLOW),
                    jump(BPF_JGE, limit, 0, 1),
                    end(SECCOMP_RET_ALLOW),
                ]);
            }
        }
    }
    body.push(end(SECCOMP_RET_USER_NOTIF));
    // CAST: the numbers of system calls and the lengths of these bodies are small.
    let mut code = vec![jump(BPF_JEQ, number as u32, 0, body.len() as u8)];
    code.extend(body);
    code
}

/// Returns the offset of the lower half of an argument.
const fn argument_offset(argument: usize) -> usize {
    offset_of!(seccomp_data, args) + argument * size_of::<u64>()
}

fn load(offset: usize) -> sock_filter {
    // CAST: the codes are 16-bit numbers, and the offset is that of a field of a short struct.
    statement(BPF_LD | BPF_W | BPF_ABS, offset as u32)
}

fn end(action: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, action)
}

fn statement(code: u32, k: u32) -> sock_filter {
    // CAST: the codes are 16-bit numbers.
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn jump(condition: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    // CAST: the codes are 16-bit numbers.
    sock_filter { code: (BPF_JMP | condition | BPF_K) as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel does (net/core/filter.c).
    fn run(code: &[sock_filter], arch: u32, number: c_long, args: [u64; 6]) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = &code[at];
            at += 1;
            let class = u32::from(step.code);
            if class == BPF_LD | BPF_W | BPF_ABS {
                let offset = step.k as usize;
                accumulator = match offset {
                    0 => number as u32,
                    4 => arch,
                    _ => args[(offset - 16) / 8] as u32,
                };
            } else if class == BPF_RET | BPF_K {
                return step.k;
            } else {
                let taken = match class & 0xf0 {
                    BPF_JEQ => accumulator == step.k,
                    BPF_JGE => accumulator >= step.k,
                    _ => panic!("an instruction that the filter does not have"),
                };
                at += usize::from(if taken { step.jt } else { step.jf });
            }
        }
    }

    fn selects(number: c_long, args: [u64; 6]) -> bool {
        run(&filter(960), ARCH, number, args) == SECCOMP_RET_USER_NOTIF
    }

    #[test]
    fn only_requests_of_rdma_are_selected_of_ioctls() {
        assert!(selects(libc::SYS_ioctl, [3, RDMA_IOCTL.into(), 0, 0, 0, 0]));
        assert!(!selects(libc::SYS_ioctl, [3, 0x5401, 0, 0, 0, 0]));
    }

    #[test]
    fn only_high_descriptors_are_selected_of_fstat_and_write() {
        for (descriptor, selected) in [(959, false), (960, true), (0xffff_ff9c, false)] {
            for number in [libc::SYS_fstat, libc::SYS_write] {
                assert_eq!(selects(number, [descriptor, 0, 0, 0, 0, 0]), selected, "{number}");
            }
        }
        assert!(selects(libc::SYS_write, [1215; 6]) && !selects(libc::SYS_write, [1216; 6]));
    }

    #[test]
    fn all_paths_and_executions_are_selected() {
        for number in WITH_PATHS.into_iter().chain(EXECUTES) {
            assert!(selects(number, [0; 6]), "{number}");
        }
    }

    #[test]
    fn only_netlink_of_rdma_is_selected_of_sockets() {
        assert!(selects(libc::SYS_socket, [16, 3, 20, 0, 0, 0]));
        assert!(!selects(libc::SYS_socket, [16, 3, 0, 0, 0, 0]));
        assert!(!selects(libc::SYS_socket, [2, 1, 20, 0, 0, 0]));
    }

    #[test]
    fn nothing_else_is_selected() {
        for number in [libc::SYS_read, libc::SYS_mmap, libc::SYS_close, 451] {
            assert!(!selects(number, [1000; 6]), "{number}");
        }
        let other = run(&filter(960), 0x4000_0003, libc::SYS_openat, [0; 6]);
        assert_eq!(other, SECCOMP_RET_ALLOW);
    }
}
