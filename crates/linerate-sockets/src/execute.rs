//! exec(3) and its relatives: a socket without FD_CLOEXEC goes to a program that this library may not be in.

use std::ffi::{c_char, c_int, c_void};

use crate::next::{self, before};
use crate::table;

type Strings = *const *const c_char;

/// `becomes`: this process executes it, and not a child.
fn note_execution(becomes: bool) {
    table::errno_kept(|| {
        table::each(|socket| {
            // SAFETY: a query.
            let flags = unsafe { next::fcntl(socket.fd, libc::F_GETFD, std::ptr::null_mut()) };
            if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
                socket.pass_on("another program is executed");
                if becomes {
                    socket.hand_over();
                }
            }
        });
    });
}

before! {
    execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int { note_execution(true); }
    execv(path: *const c_char, arguments: Strings) -> c_int { note_execution(true); }
    execvp(file: *const c_char, arguments: Strings) -> c_int { note_execution(true); }
    execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int { note_execution(true); }
    fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int { note_execution(true); }
    execveat(folder: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int) -> c_int {
        note_execution(true);
    }
    system(command: *const c_char) -> c_int { note_execution(false); }
    popen(command: *const c_char, kind: *const c_char) -> isize { note_execution(false); }
    posix_spawn(pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings) -> c_int { note_execution(false); }
    posix_spawnp(pid: *mut libc::pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings) -> c_int { note_execution(false); }
    /// A socket that a child of posix_spawn(3) gets under another number.
    posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, new: c_int) -> c_int {
        if let Some(socket) = table::enter(fd) {
            socket.pass_on("a child of posix_spawn gets it");
            socket.leave();
        }
    }
}

/// Functions whose arguments end with a null pointer: all registers of arguments stay as they are, and the C library's
/// function finds the stack of the caller.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lists {
    use std::ffi::c_void;

    use crate::next::Symbol;

    macro_rules! listing {
        ($($name:ident, $text:literal, $resolve:ident;)*) => {
            $(extern "C" fn $resolve() -> *mut c_void {
                static NEXT: Symbol = Symbol::new($text);
                super::note_execution(true);
                NEXT.resolve()
            }

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!(
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    "call {resolve}",
                    "mov r11, rax",
                    "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "jmp r11",
                    resolve = sym $resolve
                );
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!(
                    "stp x29, x30, [sp, #-80]!",
                    "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]",
                    "stp x4, x5, [sp, #48]", "stp x6, x7, [sp, #64]",
                    "bl {resolve}",
                    "mov x16, x0",
                    "ldp x0, x1, [sp, #16]", "ldp x2, x3, [sp, #32]",
                    "ldp x4, x5, [sp, #48]", "ldp x6, x7, [sp, #64]",
                    "ldp x29, x30, [sp], #80",
                    "br x16",
                    resolve = sym $resolve
                );
            })*
        };
    }

    listing! {
        execl, c"execl", resolve_execl;
        execlp, c"execlp", resolve_execlp;
        execle, c"execle", resolve_execle;
    }
}
