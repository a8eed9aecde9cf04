use std::ptr;

use super::*;

#[test]
fn a_set_of_one_is_told_from_others() {
    for fd in [0, 5, 63, 64, 1023] {
        // SAFETY: a plain array of words, and descriptors that it has room for.
        unsafe {
            let mut set: libc::fd_set = std::mem::zeroed();
            assert!(!has_only(&set, fd));
            libc::FD_SET(fd, &mut set);
            assert!(has_only(&set, fd));
            for other in [1, 62, 100, 1022].into_iter().filter(|other| *other < fd) {
                libc::FD_SET(other, &mut set);
                assert!(!has_only(&set, fd), "{fd} {other}");
                libc::FD_CLR(other, &mut set);
            }
        }
    }
}

#[test]
fn what_is_not_known_is_asked_of_the_system() {
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors; sets and times that are alive during the calls.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let ask = || {
            let mut set: libc::fd_set = std::mem::zeroed();
            libc::FD_SET(pipe[0], &mut set);
            let mut none = libc::timeval { tv_sec: 0, tv_usec: 0 };
            select(pipe[0] + 1, &mut set, ptr::null_mut(), ptr::null_mut(), &mut none)
        };
        forget_readable();
        assert_eq!(ask(), 0);
        // Another test may close a handle at any time.
        let known = (0..1000).any(|_| {
            remember_readable(pipe[0]);
            ask() == 1
        });
        assert!(known);
        forget_readable();
        assert_eq!(ask(), 0);
        assert_eq!(libc::write(pipe[1], b"x".as_ptr().cast(), 1), 1);
        assert_eq!(ask(), 1);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
    }
}
