//! Files mapped into memory: read-only, or copy-on-write.

use super::Mutability;
use crate::error::{Error, Result};
use core::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nobody can write through the mapping: a write is SIGSEGV.
    ReadOnly,
    /// As `ReadOnly`, of memory that the kernel keeps from changing.
    Sealed,
    /// Writes go to pages of our own, made when they are first written. The file never changes.
    CopyOnWrite,
}

impl Mode {
    /// What a tensor over such a mapping may promise. A file is never immutable: whoever can write it can change
    /// what was not written here.
    pub const fn mutability(self) -> Mutability {
        match self {
            Mode::ReadOnly => Mutability::ReadOnly,
            Mode::Sealed => Mutability::Immutable,
            Mode::CopyOnWrite => Mutability::Writable,
        }
    }
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
        Opened::new(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Takes a descriptor of the caller's, who keeps it: what is kept here is another one for the same file.
    pub fn from_fd(fd: i32) -> Result<Self> {
        // SAFETY: fcntl answers EBADF for a number that is no open descriptor.
        let fd = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 {
            return Err(last("fcntl(F_DUPFD_CLOEXEC)"));
        }
        // SAFETY: fcntl just returned it to us alone.
        Opened::new(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn new(file: File) -> Result<Self> {
        let status = file.metadata().map_err(|error| io("fstat", &error))?;
        if !status.is_file() {
            return Err(Error::NotRegularFile);
        }
        Ok(Opened { file, size: status.len() })
    }

    /// The same file with the size that it has now.
    pub fn measured_again(self) -> Result<Self> {
        Opened::new(self.file)
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
        let mut mapping = Mapping::new(self.file.as_fd(), offset, nbytes, mode)?;
        if mode != Mode::CopyOnWrite {
            mapping.file = Some(self.file);
        }
        Ok(mapping)
    }
}

impl AsRawFd for Opened {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A mapping. A read-only one keeps the file that it shows open, so that it can be mapped once more,
/// copy-on-write; a copy-on-write one is never mapped again and holds no descriptor.
#[derive(Debug)]
pub struct Mapping {
    /// The byte that was asked for, in the first page.
    first: *mut u8,
    /// From the start of that page on.
    length: usize,
    /// Where in the file `first` lies.
    offset: u64,
    file: Option<File>,
    mode: Mode,
}

impl Mapping {
    /// Maps a file that somebody else holds open. The descriptor is not needed any more afterwards.
    pub fn new(file: BorrowedFd, offset: u64, nbytes: u64, mode: Mode) -> Result<Self> {
        let lead = offset % page_size();
        let file_offset = offset - lead;
        let length = usize::try_from(nbytes + lead).map_err(|_| Error::Overflow { what: "the length to map" })?;
        let (protection, flags) = match mode {
            // Linux before 6.7 refuses a shared mapping of sealed memory; of what cannot change a private one is as good.
            Mode::Sealed => (libc::PROT_READ, libc::MAP_PRIVATE),
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
        let first = start.cast::<u8>().wrapping_add(lead as usize);
        Ok(Mapping { first, length: length.max(1), offset, file: None, mode })
    }

    /// The byte at the offset that was asked for.
    pub const fn first(&self) -> *mut u8 {
        self.first
    }

    /// Where the first page begins.
    fn start(&self) -> *mut u8 {
        self.first.wrapping_sub(self.first.addr() % page_size() as usize)
    }

    /// Start and length in bytes of the pages.
    pub fn range(&self) -> (*mut u8, usize) {
        (self.start(), self.length)
    }

    /// Maps `nbytes` from `address` on, an address within this mapping, again: copy-on-write, on its own.
    pub fn again_copy_on_write(&self, address: *const u8, nbytes: u64) -> Result<Mapping> {
        let inside = address.addr().wrapping_sub(self.start().addr()) as u64;
        debug_assert!(inside + nbytes <= self.length as u64);
        // The pages of a copy-on-write mapping may differ from the file's by now.
        let again = Error::Unsupported { what: "a second mapping of copy-on-write memory" };
        let file = self.file.as_ref().filter(|_| self.mode != Mode::CopyOnWrite).ok_or(again)?;
        let offset = (self.offset + address.addr() as u64) - self.first.addr() as u64;
        Mapping::new(file.as_fd(), offset, nbytes, Mode::CopyOnWrite)
    }
}

/// Anonymous pages, zeroed, which share no page with anything else.
#[derive(Debug)]
pub struct Pages {
    start: *mut u8,
    length: usize,
}

impl Pages {
    /// Maps enough pages for `nbytes`.
    pub fn new(nbytes: usize) -> Result<Self> {
        let no_memory = Error::NoMemory { nbytes };
        let length = nbytes.max(1).checked_next_multiple_of(page_size() as usize).ok_or(no_memory)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED { Err(no_memory) } else { Ok(Pages { start: start.cast(), length }) }
    }

    /// Start and length in bytes.
    pub const fn range(&self) -> (*mut u8, usize) {
        (self.start, self.length)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: these pages are ours, and their last user is gone.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, and its last user is gone.
        unsafe { libc::munmap(self.start().cast(), self.length) };
    }
}

/// Size in bytes of a page of memory.
pub fn page_size() -> u64 {
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

/// What the system call before has left in errno.
pub fn last(call: &'static str) -> Error {
    Error::Io { call, errno: last_errno() }
}
