//! The start of the program with the filter (unsafe code).

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow};
use libc::{
    SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
    SECCOMP_SET_MODE_FILTER, c_ulong, sock_filter, sock_fprog,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::listener::Listener;

/// A program that runs with the filter.
#[derive(Debug)]
pub struct Launched {
    /// The first process of the program.
    pub child: Child,
    /// The thread that answers its system calls.
    pub answering: JoinHandle<bool>,
}

/// Starts a program and its arguments with a filter. `answer` runs in a thread of its own, which
/// answers the system calls, from the first one on: exec is one of them. The kernel kills the first
/// process when the calling thread ends.
///
/// # Errors
/// Says what the host does not permit, or that the program cannot be executed.
pub fn launch(
    program: &OsString,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    filter: Vec<sock_filter>,
    answer: impl FnOnce(Listener) + Send + 'static,
) -> anyhow::Result<Launched> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .context("no socket pair can be created")?;
    let answering = thread::Builder::new().name("answers".to_owned()).spawn(move || {
        let Ok(file) = receive(&ours) else { return false };
        answer(Listener::new(file));
        true
    });
    let answering = answering.context("no thread can be started")?;
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
    let prepare = move || {
        let listener = install(&filter)?;
        send(&theirs, &listener)
    };
    // SAFETY: between fork and exec, `prepare` only makes system calls: it does not allocate, and
    // takes no lock. The socket and the filter live in the closure.
    let child = unsafe { command.pre_exec(prepare) }.spawn();
    // With the closure, our copy of their socket goes, for which the thread may wait.
    drop(command);
    match child {
        Ok(child) => Ok(Launched { child, answering }),
        Err(error) => Err(match answering.join() {
            Ok(true) => {
                let what = format!("{} cannot be executed", program.display());
                anyhow::Error::new(NotExecuted(error)).context(what)
            }
            _ => refusal(&error),
        }),
    }
}

/// A program could not be executed.
#[derive(Debug)]
pub struct NotExecuted(pub io::Error);

impl std::fmt::Display for NotExecuted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotExecuted {}

/// Returns the reason why the kernel does not install the filter.
fn refusal(error: &io::Error) -> anyhow::Error {
    let why = match error.raw_os_error() {
        Some(libc::EBUSY) => {
            "another supervisor answers system calls of this process already. Containers whose \
             runtime does that cannot run it"
        }
        Some(libc::EINVAL | libc::ENOSYS) => {
            "the kernel is too old. It must be Linux 5.14 or later"
        }
        _ => "the host does not permit it",
    };
    anyhow!("the filter for system calls cannot be installed: {error}: {why}")
}

/// Installs the filter for the calling process, which gains no rights any more by executing
/// programs. Returns the file of its system calls.
fn install(filter: &[sock_filter]) -> io::Result<OwnedFd> {
    // The kernel kills this process when the supervisor ends.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    // From Linux 5.19 on, a signal does not end a system call that the supervisor has received.
    let flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
    set(filter, flags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).or_else(|error| {
        match error.raw_os_error() {
            Some(libc::EINVAL) => set(filter, flags),
            _ => Err(error),
        }
    })
}

fn set(filter: &[sock_filter], flags: c_ulong) -> io::Result<OwnedFd> {
    let len = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program describes a slice that lives during the call, and that the kernel only
    // reads.
    let file = unsafe {
        libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    match i32::try_from(file) {
        // SAFETY: the kernel has just created this descriptor for us.
        Ok(file) if file >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a descriptor.
fn send(socket: &OwnedFd, file: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a descriptor.
fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
