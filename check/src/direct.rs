//! Copies of memory of the program that may be gone, without a call of the kernel.
//!
//! The copying code is in one place. If one of its loads raises a signal, the handler lets the
//! thread go on where this code returns an error.

use std::ffi::c_void;

/// Copies as many bytes as there is room for, from an address of the program. Returns whether all
/// of them could be read. Only while the signals of its loads come to the handler.
#[cfg(target_arch = "x86_64")]
pub(crate) fn copy(into: &mut [u8], address: usize) -> bool {
    // SAFETY: there is room for the bytes, the process's memory at the address is only read, and
    // the handler ends the copy if there is none.
    unsafe { code::vrnic_check_copy(into.as_mut_ptr(), address, into.len()) == 0 }
}

/// Elsewhere this is not possible.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn copy(_into: &mut [u8], _address: usize) -> bool {
    false
}

/// Lets a copy end with an error, if it is what a signal has interrupted. Returns whether it is.
///
/// # Safety
/// The kernel has passed the registers to a handler.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn give_up(context: *mut c_void) -> bool {
    let context: *mut libc::ucontext_t = context.cast();
    // SAFETY: as the caller promises.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let place = usize::try_from(libc::REG_RIP).ok().and_then(|rip| registers.get_mut(rip));
    let Some(place) = place else { return false };
    let [first, failed] = [
        code::vrnic_check_copy as *const () as usize,
        code::vrnic_check_copy_failed as *const () as usize,
    ];
    let is_copy = (first..failed).contains(&(place.cast_unsigned() as usize));
    if is_copy {
        *place = (failed as u64).cast_signed();
    }
    is_copy
}

/// Elsewhere there is no such copy.
///
/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn give_up(_context: *mut c_void) -> bool {
    false
}

/// The copying code. It uses no stack, so it can end at any instruction.
#[cfg(target_arch = "x86_64")]
mod code {
    use std::arch::global_asm;

    unsafe extern "C" {
        pub(super) fn vrnic_check_copy(into: *mut u8, from: usize, length: usize) -> usize;
        pub(super) fn vrnic_check_copy_failed();
    }

    global_asm!(
        ".pushsection .text.vrnic_check_copy,\"ax\",@progbits",
        ".p2align 4",
        ".globl vrnic_check_copy",
        ".hidden vrnic_check_copy",
        ".type vrnic_check_copy,@function",
        ".globl vrnic_check_copy_failed",
        ".hidden vrnic_check_copy_failed",
        "vrnic_check_copy:",
        ".cfi_startproc",
        "sub rdx, 8",
        "jb 3f",
        "2:",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "add rsi, 8",
        "add rdi, 8",
        "sub rdx, 8",
        "jae 2b",
        "3:",
        "add rdx, 8",
        "jz 5f",
        "4:",
        "mov al, [rsi]",
        "mov [rdi], al",
        "inc rsi",
        "inc rdi",
        "dec rdx",
        "jnz 4b",
        "5:",
        "xor eax, eax",
        "ret",
        "vrnic_check_copy_failed:",
        "mov eax, 1",
        "ret",
        ".cfi_endproc",
        ".size vrnic_check_copy, . - vrnic_check_copy",
        ".popsection",
    );
}
