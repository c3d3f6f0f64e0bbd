//! Files mapped into memory: read-only, or copy-on-write.

use crate::error::{Error, Result};
use core::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nobody can write through the mapping: a write is SIGSEGV.
    ReadOnly,
    /// Writes go to pages of our own, made when they are first written. The file never changes.
    CopyOnWrite,
}

/// An open regular file and its size when it was opened.
#[derive(Debug)]
pub struct Opened {
    file: File,
    /// Size in bytes.
    pub size: u64,
}

impl Opened {
    /// Opens a regular file for reading.
    pub fn open(path: &CStr) -> Result<Self> {
        // O_NONBLOCK: opening a FIFO must not wait for a writer. libc and not std: the path is a C string
        // already, and std would allocate another for a long one.
        // SAFETY: a valid C string.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if fd < 0 {
            return Err(last("open"));
        }
        // SAFETY: open just returned it to us alone.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let status = file.metadata().map_err(|error| io("fstat", &error))?;
        if !status.is_file() {
            return Err(Error::NotRegularFile);
        }
        Ok(Opened { file, size: status.len() })
    }

    /// Reads the beginning of the file: as much as fits, or as there is.
    pub fn read_start<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], filled as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(io("read", &error)),
            }
        }
        Ok(&buffer[..filled])
    }

    /// Maps `nbytes` from `offset` on. The pages in front that the offset shares are mapped too.
    pub fn map(self, offset: u64, nbytes: u64, mode: Mode) -> Result<Mapping> {
        Mapping::new(self.file, offset, nbytes, mode)
    }
}

/// A mapping, with the file it shows kept open so that it can be mapped once more in another mode.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    length: usize,
    /// From `start` to the byte that was asked for.
    lead: usize,
    /// Where in the file `start` lies.
    file_offset: u64,
    file: File,
    mode: Mode,
}

impl Mapping {
    fn new(file: File, offset: u64, nbytes: u64, mode: Mode) -> Result<Self> {
        let lead = offset % page_size();
        let file_offset = offset - lead;
        let length = usize::try_from(nbytes + lead).map_err(|_| Error::Overflow { what: "the length to map" })?;
        let (protection, flags) = match mode {
            Mode::ReadOnly => (libc::PROT_READ, libc::MAP_SHARED),
            Mode::CopyOnWrite => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_NORESERVE),
        };
        let at = libc::off_t::try_from(file_offset).map_err(|_| Error::Overflow { what: "the offset to map" })?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { libc::mmap(core::ptr::null_mut(), length.max(1), protection, flags, file.as_raw_fd(), at) };
        if start == libc::MAP_FAILED {
            let errno = last_errno();
            return Err(if errno == libc::ENOMEM {
                Error::NoMemory { nbytes: length }
            } else {
                Error::Io { call: "mmap", errno }
            });
        }
        Ok(Mapping { start: start.cast(), length: length.max(1), lead: lead as usize, file_offset, file, mode })
    }

    /// The byte at the offset that was asked for.
    pub fn first(&self) -> *mut u8 {
        self.start.wrapping_add(self.lead)
    }

    /// Maps `nbytes` from `address` on, an address within this mapping, again: copy-on-write, on its own.
    pub fn again_copy_on_write(&self, address: *const u8, nbytes: u64) -> Result<Mapping> {
        let inside = address.addr().wrapping_sub(self.start.addr()) as u64;
        debug_assert!(inside + nbytes <= self.length as u64);
        if self.mode != Mode::ReadOnly {
            // Its pages may differ from the file's by now.
            return Err(Error::Unsupported { what: "a second mapping of copy-on-write memory" });
        }
        let file = self.file.try_clone().map_err(|error| io("dup", &error))?;
        Mapping::new(file, self.file_offset + inside, nbytes, Mode::CopyOnWrite)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, and its last user is gone.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

fn page_size() -> u64 {
    // SAFETY: sysconf has no preconditions.
    (unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) as u64
}

/// The reason of the last failed call on this thread.
pub fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn io(call: &'static str, error: &std::io::Error) -> Error {
    Error::Io { call, errno: error.raw_os_error().unwrap_or(0) }
}

/// The error of the call that just failed.
pub fn last(call: &'static str) -> Error {
    Error::Io { call, errno: last_errno() }
}
