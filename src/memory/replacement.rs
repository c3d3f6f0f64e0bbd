//! A new file that takes the place of an old one at once and whole, or not at all.
//!
//! With libc and not std: std makes a C string out of every path, and may allocate for it without asking.

use super::mapped::{last, last_errno};
use crate::error::{Error, Result};
use core::ffi::CStr;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

/// A file under a temporary name in the folder of the one that it will replace. Dropped, it is removed.
#[derive(Debug)]
pub struct Replacement<'a> {
    folder: OwnedFd,
    /// Open for writing, until it is closed.
    file: Option<OwnedFd>,
    temporary: Name,
    /// Of the file to replace, within the folder.
    name: &'a CStr,
}

/// How many names of temporary files may be taken before we give up.
const ATTEMPTS: u32 = 100;

/// Linux writes no more than this at once; other systems fail above it.
const MOST_AT_ONCE: usize = 0x7fff_f000;

impl<'a> Replacement<'a> {
    /// Begins a file that will be called `path`.
    pub fn create(path: &'a CStr) -> Result<Self> {
        let bytes = path.to_bytes_with_nul();
        let slash = path.to_bytes().iter().rposition(|&byte| byte == b'/');
        let name = CStr::from_bytes_with_nul(&bytes[slash.map_or(0, |slash| slash + 1)..]).unwrap_or_default();
        if name.is_empty() {
            return Err(Error::Io { call: "open", errno: if bytes.len() == 1 { libc::ENOENT } else { libc::EISDIR } });
        }
        check_replaceable(path)?;
        let folder = open_folder(&bytes[..slash.map_or(0, |slash| slash + 1)])?;
        for attempt in 0..ATTEMPTS {
            let temporary = Name::new(attempt);
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
            // SAFETY: both strings are C strings. The mode is what the umask leaves of it, as for every new file.
            let fd = retry(|| unsafe { libc::openat(folder.as_raw_fd(), temporary.as_ptr(), flags, 0o666) });
            if fd >= 0 {
                // SAFETY: openat just returned it to us alone.
                let file = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                return Ok(Replacement { folder, file, temporary, name });
            }
            if last_errno() != libc::EEXIST {
                return Err(last("open of a temporary file"));
            }
        }
        Err(Error::Io { call: "open of a temporary file", errno: libc::EEXIST })
    }

    /// Appends bytes. Memory that cannot be read is an error of write, and no signal.
    ///
    /// # Safety
    /// `bytes` points to `nbytes` that may be read.
    pub unsafe fn write(&mut self, mut bytes: *const u8, mut nbytes: u64) -> Result<()> {
        let Some(file) = &self.file else { return Err(Error::Io { call: "write", errno: libc::EBADF }) };
        while nbytes > 0 {
            let take = nbytes.min(MOST_AT_ONCE as u64) as usize;
            // SAFETY: the first of the bytes that the caller vouches for. The kernel reads them, and no reference
            // is made: somebody else may be writing them.
            let written = retry(|| unsafe { libc::write(file.as_raw_fd(), bytes.cast(), take) });
            if written < 0 {
                return Err(last("write"));
            }
            if written == 0 {
                return Err(Error::Io { call: "write", errno: libc::EIO }); // it would go on for ever
            }
            bytes = bytes.wrapping_add(written as usize);
            nbytes -= written as u64;
        }
        Ok(())
    }

    /// Puts the file in the place of the old one, on the disk too.
    pub fn finish(mut self) -> Result<()> {
        let Some(file) = self.file.take() else { return Err(Error::Io { call: "close", errno: libc::EBADF }) };
        // SAFETY: fsync takes any descriptor.
        if retry(|| unsafe { libc::fsync(file.as_raw_fd()) }) < 0 {
            self.file = Some(file);
            return Err(last("fsync"));
        }
        // By hand: NFS tells on close that nothing was written. On EINTR it is closed all the same.
        // SAFETY: ours, and given up here.
        if unsafe { libc::close(file.into_raw_fd()) } < 0 && last_errno() != libc::EINTR {
            return Err(last("close"));
        }
        let folder = self.folder.as_raw_fd();
        // SAFETY: both are C strings.
        if unsafe { libc::renameat(folder, self.temporary.as_ptr(), folder, self.name.as_ptr()) } < 0 {
            return Err(last("rename"));
        }
        self.temporary = Name { text: [0; Name::CAPACITY], len: 0 }; // there is nothing to remove any more
        // Some file systems cannot do that with a folder, and say EINVAL.
        // SAFETY: fsync takes any descriptor.
        if retry(|| unsafe { libc::fsync(folder) }) < 0 && last_errno() != libc::EINVAL {
            return Err(last("fsync of the folder"));
        }
        Ok(())
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        if self.temporary.len > 0 {
            // SAFETY: a C string, the name of a file that we made.
            unsafe { libc::unlinkat(self.folder.as_raw_fd(), self.temporary.as_ptr(), 0) };
        }
    }
}

/// Refuses to put a file in the place of a device, a pipe or a folder. A symbolic link is judged by what it leads
/// to, and replaced itself; one that leads nowhere is no obstacle.
fn check_replaceable(path: &CStr) -> Result<()> {
    // SAFETY: all bytes 0 is a stat.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a C string, and a stat of ours.
    if unsafe { libc::stat(path.as_ptr(), &mut status) } == 0 && status.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Error::NotReplaceable);
    }
    Ok(())
}

/// Opens the folder of a path: what stands before its last name, with the slash; nothing means ".".
fn open_folder(before_name: &[u8]) -> Result<OwnedFd> {
    let mut folder = [0u8; libc::PATH_MAX as usize];
    match before_name {
        [] => folder[0] = b'.',
        before_name if before_name.len() < folder.len() => folder[..before_name.len()].copy_from_slice(before_name),
        _ => return Err(Error::Io { call: "open of the folder", errno: libc::ENAMETOOLONG }),
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: NUL-terminated, since at least the last byte was left 0.
    let fd = retry(|| unsafe { libc::open(folder.as_ptr().cast(), flags) });
    if fd < 0 {
        return Err(last("open of the folder"));
    }
    // SAFETY: open just returned it to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Once more for as long as a signal came between.
fn retry<T: PartialOrd + Default>(mut call: impl FnMut() -> T) -> T {
    loop {
        let answer = call();
        if answer >= T::default() || last_errno() != libc::EINTR {
            return answer;
        }
    }
}

/// A short name: the one to replace may have as many bytes as a name can have.
#[derive(Clone, Copy, Debug)]
struct Name {
    text: [u8; Name::CAPACITY],
    len: usize,
}

impl Name {
    const CAPACITY: usize = 64;

    /// Nobody else's: another process has another number, another thread another count, and a process with the
    /// same number (in a container, or before a reboot) another time. Where all agree O_EXCL sees it.
    fn new(attempt: u32) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed).wrapping_add(attempt);
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let time = time.map_or(0, |time| time.as_nanos() as u64);
        let mut name = Name { text: [0; Self::CAPACITY], len: 0 };
        // 53 characters at most, so it cannot fail.
        let _ = write!(name, ".dlpack_ro-{}-{count:x}-{time:x}.tmp", std::process::id());
        name
    }

    fn as_ptr(&self) -> *const core::ffi::c_char {
        self.text.as_ptr().cast()
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        // One less: a NUL stays behind it.
        self.text[..Self::CAPACITY - 1].get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}
