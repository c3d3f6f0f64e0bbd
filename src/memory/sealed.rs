//! Memory that the kernel keeps from changing, for every process: sealed memfds.

use super::mapped::Opened;
use crate::error::{Error, Result};
use std::os::fd::OwnedFd;

#[cfg(target_os = "linux")]
mod linux {
    use super::super::mapped::{last, last_errno};
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd};

    /// Nobody can write, shrink or grow it any more, nor take that back.
    const SEALS: i32 = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

    /// Makes a memfd of `nbytes`, has `fill` write it, and seals it.
    ///
    /// The bytes start as 0.
    pub fn seal(nbytes: u64, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<OwnedFd> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a valid C string.
        let fd = unsafe { libc::memfd_create(c"dlpack_ro".as_ptr(), flags) };
        if fd < 0 {
            return Err(last("memfd_create"));
        }
        // SAFETY: memfd_create just returned it to us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let no_memory = Error::NoMemory { nbytes: usize::try_from(nbytes).unwrap_or(usize::MAX) };
        let size = libc::off_t::try_from(nbytes).map_err(|_| no_memory)?;
        // Reserved now, so that a machine without memory is an error here and no SIGBUS below.
        // SAFETY: an open descriptor.
        match unsafe { libc::posix_fallocate(fd.as_raw_fd(), 0, size) } {
            0 => {}
            libc::ENOSPC | libc::ENOMEM | libc::EFBIG => return Err(no_memory),
            errno => return Err(Error::Io { call: "fallocate", errno }),
        }
        {
            let mut window = Window::new(&fd, nbytes as usize)?;
            fill(window.bytes())?;
        }
        // SAFETY: an open descriptor; the writable mapping is gone, which F_SEAL_WRITE demands.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(last("fcntl(F_ADD_SEALS)"));
        }
        Ok(fd)
    }

    /// A writable mapping of a memfd while it is filled.
    struct Window {
        start: *mut libc::c_void,
        length: usize,
    }

    impl Window {
        fn new(fd: &OwnedFd, length: usize) -> Result<Self> {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
            let start =
                unsafe { libc::mmap(core::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
            if start == libc::MAP_FAILED {
                let errno = last_errno();
                return Err(match errno {
                    libc::ENOMEM => Error::NoMemory { nbytes: length },
                    errno => Error::Io { call: "mmap", errno },
                });
            }
            Ok(Window { start, length })
        }

        fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: mapped writable for as long as self lives, and the memfd is known to nobody else.
            unsafe { core::slice::from_raw_parts_mut(self.start.cast(), self.length) }
        }
    }

    impl Drop for Window {
        fn drop(&mut self) {
            // SAFETY: ours alone.
            unsafe { libc::munmap(self.start, self.length) };
        }
    }

    /// Whether the kernel keeps everybody from changing what the descriptor shows.
    pub fn is_sealed(file: &Opened) -> bool {
        let all = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        // SAFETY: an open descriptor. Files that are no memfd answer -1.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        seals >= 0 && seals & all == all
    }
}

#[cfg(target_os = "linux")]
pub use linux::{is_sealed, seal};

/// Only Linux has sealed memory.
#[cfg(not(target_os = "linux"))]
pub fn seal(_: u64, _: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<OwnedFd> {
    Err(Error::Unsupported { what: "sealed memory" })
}

/// Only Linux has sealed memory.
#[cfg(not(target_os = "linux"))]
pub fn is_sealed(_: &Opened) -> bool {
    false
}
