//! Memory of somebody else that shows a file: the file is found, memory and file are proven to agree, and the
//! same bytes are mapped once more, copy-on-write.
//!
//! What makes it certain. The kernel's map table says for every page of the process which inode it shows and
//! where. A shared mapping, and a private one without an anonymous page, shows the page cache of that inode and
//! nothing else; so does a new private mapping. The inode is alive as long as either mapping is, so its number
//! is not used twice meanwhile, and two mappings with the same device, inode and offset show the same bytes. Both
//! are looked up after the new one was made.
//!
//! That needs filesystems whose inode numbers mean one file, and which hand out one page cache for it; see
//! [`PROVEN`]. Whatever is not understood is an error, and the caller copies. Nothing here allocates from the
//! heap. Not covered: shared memory whose missing pages a userfaultfd handler fills in; a private mapping shows
//! zeros there, and nothing but smaps tells.

use super::mapped::{Mapping, Mode, last, page_size};
use crate::error::{Error, Result};
use core::ffi::{CStr, c_int};
use core::fmt::{self, Write};
use core::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Filesystems that give every file of a device an inode number of its own, report the same one through fstat and
/// the map table, and keep one page cache for it: ext2 to ext4, XFS, tmpfs with memfd and POSIX shared memory.
///
/// Not among them, and why: overlayfs maps another inode before a file is first written than after; Btrfs numbers
/// per subvolume and the map table does not say which; NFS and FUSE number as their servers like; hugetlbfs kills
/// who writes a private page when no huge page is left.
const PROVEN: [i64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// Regions that a span may consist of. mprotect splits mappings, but not into crowds.
const MOST_REGIONS: usize = 64;

/// Maps the `nbytes` from `address` on once more, copy-on-write, if they are proven to show a file.
///
/// The memory is looked up, never read. The new mapping follows the file on pages that were not written yet.
pub fn private_view(address: *const u8, nbytes: u64) -> Result<Mapping> {
    Search::new(address, nbytes, true)?.run()
}

const NOT_SHOWN: &str = "a private mapping of memory that the map table does not show";

fn refuse<T>(what: &'static str) -> Result<T> {
    Err(Error::Unsupported { what })
}

/// A range of addresses, not empty.
#[derive(Clone, Copy)]
struct Span {
    first: u64,
    end: u64,
}

impl Span {
    fn new(address: *const u8, nbytes: u64) -> Result<Self> {
        let first = address.addr() as u64;
        match first.checked_add(nbytes) {
            Some(end) if end > first => Ok(Span { first, end }),
            _ => refuse("a private mapping of no bytes"),
        }
    }

    const fn nbytes(self) -> u64 {
        self.end - self.first
    }
}

/// Where the first byte of a span lies. Two spans of the same place show the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    device: (u32, u32),
    inode: u64,
    offset: u64,
}

/// A line of the map table.
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    readable: bool,
    shared: bool,
    /// Of its first byte.
    place: Place,
}

/// A C string on the stack. What does not fit makes it unusable, never shorter.
struct CText<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

/// A path as long as the kernel takes one.
type PathText = CText<4096>;

impl<const N: usize> CText<N> {
    const fn new() -> Self {
        CText { bytes: [0; N], len: 0 }
    }

    fn format(arguments: fmt::Arguments) -> Result<Self> {
        let mut text = CText::new();
        text.write_fmt(arguments).or(refuse("a longer path"))?;
        Ok(text)
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn c_str(&self) -> Result<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).or(refuse("a longer path"))
    }
}

impl<const N: usize> Write for CText<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let end = self.len + s.len();
        if end >= N {
            return Err(fmt::Error);
        }
        self.bytes[self.len..end].copy_from_slice(s.as_bytes());
        self.bytes[end] = 0;
        self.len = end;
        Ok(())
    }
}

fn open(path: &CStr, flags: c_int) -> Result<OwnedFd> {
    // SAFETY: a valid C string.
    let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) };
    // SAFETY: open just returned it to us alone.
    if fd < 0 { Err(last("open")) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

fn read(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize> {
    loop {
        // SAFETY: the buffer is ours and as long as that.
        let got = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        match last("read") {
            _ if got >= 0 => return Ok(got as usize),
            Error::Io { errno: libc::EINTR, .. } => {}
            error => return Err(error),
        }
    }
}

/// `struct procmap_query` of Linux 6.11 and later: one line of the map table, asked for by address.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const _: () = assert!(size_of::<Query>() == 104);
/// `_IOWR('f', 17, struct procmap_query)`
const PROCMAP_QUERY: u32 = 0xc068_6611;
const QUERY_READABLE: u64 = 1;
const QUERY_SHARED: u64 = 8;

/// The process's map table.
struct Maps {
    file: OwnedFd,
    /// Whether the kernel may be asked for one line; else the text is read.
    query: bool,
    /// How many lines of text are read at most.
    most_lines: u64,
}

impl Maps {
    /// The region that an address lies in, and the name of the file that it shows.
    fn find(&mut self, address: u64, name: &mut PathText) -> Result<Region> {
        if self.query {
            match self.ask(address, name) {
                // An older kernel.
                Err(Error::Io { errno: libc::ENOTTY | libc::EINVAL, .. }) => self.query = false,
                answer => return answer,
            }
        }
        self.scan(address, name)
    }

    fn ask(&self, address: u64, name: &mut PathText) -> Result<Region> {
        name.bytes.fill(0);
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_addr: address,
            vma_name_size: name.bytes.len() as u32,
            vma_name_addr: name.bytes.as_mut_ptr().expose_provenance() as u64,
            ..Query::default()
        };
        // SAFETY: the kernel writes the struct, whose size it was told, and the name, whose size it was told.
        if unsafe { libc::ioctl(self.file.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) } < 0 {
            return match last("ioctl") {
                Error::Io { errno: libc::ENOENT, .. } => refuse(NOT_SHOWN),
                error => Err(error),
            };
        }
        name.len = (query.vma_name_size as usize).clamp(1, name.bytes.len()) - 1; // with its NUL
        Ok(Region {
            start: query.vma_start,
            end: query.vma_end,
            readable: query.vma_flags & QUERY_READABLE != 0,
            shared: query.vma_flags & QUERY_SHARED != 0,
            place: Place { device: (query.dev_major, query.dev_minor), inode: query.inode, offset: query.vma_offset },
        })
    }

    fn scan(&self, address: u64, name: &mut PathText) -> Result<Region> {
        // SAFETY: no memory is involved.
        if unsafe { libc::lseek(self.file.as_raw_fd(), 0, libc::SEEK_SET) } != 0 {
            return Err(last("lseek"));
        }
        let mut buffer = [0; 8192];
        let (mut filled, mut lines, mut cut) = (0, 0, false);
        loop {
            let more = read(&self.file, &mut buffer[filled..])?;
            filled += more;
            let mut from = 0;
            loop {
                let rest = &buffer[from..filled];
                let whole = rest.iter().position(|&byte| byte == b'\n');
                // A line longer than the buffer has a path longer than any; what stands in front of it counts.
                let line = match whole {
                    Some(length) => &rest[..length],
                    None if rest.len() == buffer.len() => rest,
                    None => break,
                };
                from += line.len() + usize::from(whole.is_some());
                if !core::mem::replace(&mut cut, whole.is_none()) {
                    lines += 1;
                    match parse(line) {
                        Some((region, _)) if region.end <= address && lines < self.most_lines => {}
                        Some((region, path)) if region.start <= address && address < region.end => {
                            unescape(path, name);
                            return Ok(region);
                        }
                        _ => return refuse(NOT_SHOWN),
                    }
                }
            }
            if more == 0 {
                return refuse(NOT_SHOWN);
            }
            buffer.copy_within(from..filled, 0);
            filled -= from;
        }
    }
}

/// Reads a line of /proc/self/maps, `start-end perms offset major:minor inode   path`, and leaves the path as it
/// stands there.
fn parse(line: &[u8]) -> Option<(Region, &[u8])> {
    fn number(line: &mut &[u8], radix: u32, end: u8) -> Option<u64> {
        let length = line.iter().position(|&byte| byte == end)?;
        let value = u64::from_str_radix(core::str::from_utf8(&line[..length]).ok()?, radix).ok()?;
        *line = &line[length + 1..];
        Some(value)
    }
    let mut rest = line;
    let start = number(&mut rest, 16, b'-')?;
    let end = number(&mut rest, 16, b' ')?;
    let (permissions, after) = rest.split_at_checked(5)?; // `rwxs `
    rest = after;
    let offset = number(&mut rest, 16, b' ')?;
    let device = (number(&mut rest, 16, b':')? as u32, number(&mut rest, 16, b' ')? as u32);
    let inode = number(&mut rest, 10, b' ')?;
    let place = Place { device, inode, offset };
    let region = Region { start, end, readable: permissions[0] == b'r', shared: permissions[3] == b's', place };
    Some((region, rest.trim_ascii_start()))
}

/// Writes a path of the map table's text as it is: there a line break is `\012`. That a name may hold those four
/// characters itself does no harm: a wrong path leads to a wrong inode, which is noticed.
fn unescape(escaped: &[u8], name: &mut PathText) {
    name.len = 0;
    let mut rest = escaped;
    while let Some(&byte) = rest.first() {
        let (byte, length) = if rest.starts_with(b"\\012") { (b'\n', 4) } else { (byte, 1) };
        rest = &rest[length..];
        if name.len + 1 == name.bytes.len() {
            name.len = 0; // longer than any path
            break;
        }
        name.bytes[name.len] = byte;
        name.len += 1;
    }
    name.bytes[name.len] = 0;
}

/// Refuses pages that belong to this process alone, since what they hold is not in the file.
fn check_no_anonymous_page(span: Span) -> Result<()> {
    // A 64-bit number per page; these bits are told to every process of itself.
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_A_FILE: u64 = 1 << 61;
    const SOFT_DIRTY: u64 = 1 << 55;
    let pagemap = open(c"/proc/thread-self/pagemap", libc::O_RDONLY)?;
    let page = page_size();
    let (mut at, end) = (span.first / page, span.end.div_ceil(page));
    let mut entries = [0u64; 512];
    while at < end {
        let want = ((end - at) as usize).min(entries.len()) * size_of::<u64>();
        // SAFETY: the buffer is ours and at least that long.
        let got =
            unsafe { libc::pread(pagemap.as_raw_fd(), entries.as_mut_ptr().cast(), want, (at * 8) as libc::off_t) };
        if got <= 0 || got % 8 != 0 {
            return Err(last("pread"));
        }
        let got = got as usize / size_of::<u64>();
        for &entry in &entries[..got] {
            // Not there yet: it will come from the file. Guard pages and the like have other bits.
            let absent = entry & !SOFT_DIRTY == 0;
            if !absent && (entry & OF_A_FILE == 0 || entry & (PRESENT | SWAPPED) == 0) {
                return refuse("a private mapping of memory with pages that differ from the file");
            }
        }
        at += got as u64;
    }
    Ok(())
}

/// What fstat and fstatfs say of a descriptor.
enum Candidate {
    /// It is not the file.
    Other,
    /// It is, and all of the span lies in it.
    File,
}

fn candidate(fd: RawFd, place: &Place, nbytes: u64) -> Result<Candidate> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills the struct where it succeeds; any number may be asked about.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return Ok(Candidate::Other);
    }
    // SAFETY: filled.
    let status = unsafe { status.assume_init() };
    let device = (libc::major(status.st_dev) as u32, libc::minor(status.st_dev) as u32);
    if device != place.device || status.st_ino != place.inode {
        return Ok(Candidate::Other);
    }
    if status.st_mode & libc::S_IFMT != libc::S_IFREG {
        return refuse("a private mapping of what is no regular file");
    }
    if place.offset.checked_add(nbytes).is_none_or(|end| end > status.st_size as u64) {
        return refuse("a private mapping of memory behind the file's end");
    }
    // SAFETY: open as long as the caller's descriptor is; if it is not any more, fstatfs fails.
    if is_proven(unsafe { BorrowedFd::borrow_raw(fd) })? {
        Ok(Candidate::File)
    } else {
        refuse("a private mapping of a file on such a filesystem")
    }
}

/// Whether a file is on one of the filesystems that prove something.
fn is_proven(file: impl AsFd) -> Result<bool> {
    let mut filesystem = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: fstatfs fills the struct where it succeeds.
    if unsafe { libc::fstatfs(file.as_fd().as_raw_fd(), filesystem.as_mut_ptr()) } != 0 {
        return Err(last("fstatfs"));
    }
    #[allow(clippy::unnecessary_cast)] // its type is another one on every platform
    // SAFETY: filled.
    let kind = unsafe { filesystem.assume_init() }.f_type as i64;
    Ok(PROVEN.contains(&kind))
}

/// A search for the file behind a span.
struct Search {
    span: Span,
    maps: Maps,
    /// How many lines and how many descriptors are looked at, at most.
    most: u64,
    name: PathText,
}

impl Search {
    fn new(address: *const u8, nbytes: u64, query: bool) -> Result<Self> {
        let span = Span::new(address, nbytes)?;
        // To look at one (1.3 microseconds each, measured) must not take longer than to copy what it stands for.
        let most = nbytes / (4 * page_size());
        let file = open(c"/proc/thread-self/maps", libc::O_RDONLY)?;
        Ok(Search { span, maps: Maps { file, query, most_lines: most }, most, name: PathText::new() })
    }

    fn run(&mut self) -> Result<Mapping> {
        let (region, place) = self.locate(self.span, false)?;
        let view = match self.view_of_open_file(&place)? {
            Some(view) => view,
            None => self.view_by_name(&region, &place)?,
        };
        // A descriptor may have been closed and used again, and whoever promised the memory may have mapped it anew.
        let made = Span::new(view.first(), self.span.nbytes())?;
        if self.locate(made, false)?.1 != place || self.locate(self.span, true)?.1 != place {
            return refuse("a private mapping of memory that changes meanwhile");
        }
        Ok(view)
    }

    /// Where a span lies in which file, if it is one run of it; also the first region, whose name is in `name` then.
    fn locate(&mut self, span: Span, check_pages: bool) -> Result<(Region, Place)> {
        let mut other = PathText::new();
        let mut found: Option<(Region, Place)> = None;
        let mut at = span.first;
        for _ in 0..MOST_REGIONS {
            let name = if found.is_none() { &mut self.name } else { &mut other };
            let region = self.maps.find(at, name)?;
            if !region.readable || region.place.inode == 0 || region.start > at || region.end <= at {
                return refuse("a private mapping of memory that shows no file");
            }
            let part = Span { first: at, end: region.end.min(span.end) };
            let here = Place { offset: region.place.offset + (at - region.start), ..region.place };
            let (_, place) = *found.get_or_insert((region, here));
            if here != (Place { offset: place.offset + (at - span.first), ..place }) {
                return refuse("a private mapping of memory that shows several files or parts");
            }
            if check_pages && !region.shared {
                check_no_anonymous_page(part)?;
            }
            if part.end == span.end {
                return found.map_or_else(|| refuse("a private mapping"), Ok);
            }
            at = part.end;
        }
        refuse("a private mapping of memory in that many pieces")
    }

    /// Maps a descriptor that the process has open on the file: the only way to a memfd and to a file that has no
    /// name any more. And the only one that may be taken where there is such a descriptor: to open the file once
    /// more and close it would end the process's record locks on it (fcntl(2), F_SETLK).
    fn view_of_open_file(&self, place: &Place) -> Result<Option<Mapping>> {
        let folder = open(c"/proc/thread-self/fd", libc::O_RDONLY | libc::O_DIRECTORY)?;
        let mut seen = false;
        let mut left = self.most;
        let mut entries = [0u64; 256]; // numbers, so that they are aligned
        loop {
            // SAFETY: the buffer is ours and as long as that.
            let got = unsafe {
                libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), entries.as_mut_ptr(), size_of_val(&entries))
            };
            if got < 0 {
                return Err(last("getdents64"));
            }
            if got == 0 {
                break;
            }
            // SAFETY: the kernel has filled that many bytes.
            let mut rest = unsafe { core::slice::from_raw_parts(entries.as_ptr().cast::<u8>(), got as usize) };
            // struct linux_dirent64: inode 8, offset 8, length of the entry 2, type 1, name
            while let Some(&[low, high]) = rest.get(16..18) {
                let Some((entry, after)) = rest.split_at_checked(u16::from_ne_bytes([low, high]).into()) else { break };
                rest = after;
                let name = entry.get(19..).and_then(|name| CStr::from_bytes_until_nul(name).ok());
                // "." and ".." are no numbers
                let Some(fd) = name.and_then(|name| name.to_str().ok()?.parse::<RawFd>().ok()) else { continue };
                if left == 0 {
                    return refuse("a private mapping in a process with that many descriptors");
                }
                left -= 1;
                if matches!(candidate(fd, place, self.span.nbytes())?, Candidate::Other) {
                    continue;
                }
                seen = true;
                // SAFETY: open a moment ago. If another thread closes it meanwhile mmap fails, or maps something
                // else, which is noticed.
                let file = unsafe { BorrowedFd::borrow_raw(fd) };
                // It may be open for writing only.
                if let Ok(view) = Mapping::new(file, place.offset, self.span.nbytes(), Mode::CopyOnWrite) {
                    return Ok(Some(view));
                }
            }
        }
        if seen { refuse("a private mapping of a file that is open for writing only") } else { Ok(None) }
    }

    /// Opens the file by its name; where it has none, through the kernel's list of mappings, which only processes
    /// with CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN may use.
    fn view_by_name(&self, region: &Region, place: &Place) -> Result<Mapping> {
        if self.name.text().starts_with(b"/") {
            if let Ok(view) = self.view_at(self.name.c_str()?, place) {
                return Ok(view);
            }
        }
        let link = CText::<64>::format(format_args!("/proc/self/map_files/{:x}-{:x}", region.start, region.end))?;
        self.view_at(link.c_str()?, place)
    }

    fn view_at(&self, path: &CStr, place: &Place) -> Result<Mapping> {
        // To look before opening: a device or a FIFO that has the name by now must not notice, and closing another
        // file must not end the process's record locks on that one.
        let link = open(path, libc::O_PATH)?;
        if matches!(candidate(link.as_raw_fd(), place, self.span.nbytes())?, Candidate::Other) {
            return refuse("a private mapping of a file that has lost its name");
        }
        let again = CText::<64>::format(format_args!("/proc/thread-self/fd/{}", link.as_raw_fd()))?;
        let file = open(again.c_str()?, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY)?;
        // SAFETY: open until the end of this function.
        let file = unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) };
        Mapping::new(file, place.offset, self.span.nbytes(), Mode::CopyOnWrite)
    }
}

#[cfg(test)]
mod tests;
