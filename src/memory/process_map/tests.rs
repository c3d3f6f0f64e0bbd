//! Every kind of memory that a span may lie in: what is a file gets a view with the file's bytes, all else an error
//! that says why. Each by both ways to read the map table, and without the privileges that root has.

use super::*;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path as StdPath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const PAGE: usize = 4096;
/// Pages of a test's file: enough for the lines and descriptors of a test process.
const PAGES: usize = 2048;
const SIZE: usize = PAGES * PAGE;

/// A folder of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("dlro-view-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // Where files are not copied, as they are on overlayfs.
        let temporary = std::env::temp_dir();
        let proven = is_proven(File::open(&temporary).unwrap()).unwrap();
        let path = if proven { temporary } else { PathBuf::from("/dev/shm") }.join(name);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    /// A file with that content.
    fn file(&self, name: impl AsRef<StdPath>, salt: u64) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content(salt)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Every page begins with its number xor a salt, and goes on with the places in it.
fn content(salt: u64) -> Vec<u8> {
    let mut page: Vec<u8> = (0..PAGE as u16 / 2).flat_map(u16::to_ne_bytes).collect();
    let mut all = Vec::with_capacity(SIZE);
    for number in 0..PAGES as u64 {
        page[..8].copy_from_slice(&(number ^ salt).to_ne_bytes());
        all.extend_from_slice(&page);
    }
    all
}

/// A mapping that a producer made.
struct Map {
    at: *mut u8,
    length: usize,
}

impl Map {
    fn of(file: impl AsFd, flags: c_int, protection: c_int, length: usize) -> Self {
        Map::at(core::ptr::null_mut(), file.as_fd().as_raw_fd(), flags, protection, length, 0)
    }

    fn at(at: *mut u8, fd: RawFd, flags: c_int, protection: c_int, length: usize, offset: usize) -> Self {
        // SAFETY: a new mapping, or one over a mapping of the test's own.
        let at = unsafe { libc::mmap(at.cast(), length, protection, flags, fd, offset as libc::off_t) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Map { at: at.cast(), length }
    }

    fn shared(path: &StdPath) -> Self {
        Map::of(File::open(path).unwrap(), libc::MAP_SHARED, libc::PROT_READ, SIZE)
    }

    fn private(path: &StdPath) -> Self {
        Map::of(File::open(path).unwrap(), libc::MAP_PRIVATE, libc::PROT_READ | libc::PROT_WRITE, SIZE)
    }

    fn byte(&self, offset: usize) -> *mut u8 {
        self.at.wrapping_add(offset)
    }

    fn protect(&self, offset: usize, length: usize, protection: c_int) {
        // SAFETY: pages of the test's own.
        assert_eq!(unsafe { libc::mprotect(self.byte(offset).cast(), length, protection) }, 0);
    }
}

// SAFETY: an address and a length; a test uses a map from one thread at a time, or only looks it up.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the test's own.
        unsafe { libc::munmap(self.at.cast(), self.length) };
    }
}

fn bytes(at: *const u8, length: usize) -> &'static [u8] {
    // SAFETY: the test has mapped them and keeps them.
    unsafe { core::slice::from_raw_parts(at, length) }
}

/// Runs a test's body on a thread that may not use /proc/self/map_files, as most processes may not.
fn unprivileged(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let header = [0x2008_0522u32, 0]; // version 3, this thread
            let none = [0u32; 6];
            // SAFETY: both arrays are as long as the kernel expects.
            assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }, 0);
            body();
        });
        if let Err(panic) = run.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The answer of both ways, which must be the same.
fn view(address: *const u8, length: usize) -> Result<Mapping> {
    let asked = Search::new(address, length as u64, true).and_then(|mut search| search.run());
    let scanned = Search::new(address, length as u64, false).and_then(|mut search| search.run());
    match (&asked, &scanned) {
        (Ok(a), Ok(b)) => assert!(bytes(a.first(), length) == bytes(b.first(), length)),
        (Err(a), Err(b)) => assert_eq!(a, b),
        other => panic!("{other:?}"),
    }
    asked
}

#[track_caller]
fn refused(address: *const u8, length: usize, why: &str) {
    match view(address, length) {
        Err(Error::Unsupported { what }) if what.contains(why) => {}
        other => panic!("expected \"{why}\", got {other:?}"),
    }
}

#[track_caller]
fn same(view: &Mapping, expected: &[u8]) {
    assert!(bytes(view.first(), expected.len()) == expected, "the view holds something else");
}

/// Writes through a view; the file keeps what it had.
fn write_first(view: &Mapping, value: u8) {
    // SAFETY: copy-on-write memory of the test's own.
    unsafe { view.first().write_volatile(value) };
}

#[test]
fn a_shared_map_gets_a_view_that_is_its_own_and_follows_the_file() {
    let folder = Folder::new();
    let path = folder.file("a", 1);
    let map = Map::shared(&path);
    unprivileged(|| {
        let (offset, length) = (3 * PAGE + 123, SIZE - 5 * PAGE);
        let view = view(map.byte(offset), length).unwrap();
        same(&view, &content(1)[offset..][..length]);
        write_first(&view, 0xee);
        assert_eq!(bytes(map.byte(offset), 1)[0], content(1)[offset], "the file keeps what it had");
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0xdd; 3 * PAGE], offset as u64).unwrap();
        assert_eq!(bytes(view.first(), 1)[0], 0xee, "a written page stays");
        assert_eq!(bytes(view.first().wrapping_add(PAGE), 1)[0], 0xdd, "another follows");
    });
}

#[test]
fn a_private_map_gets_one_as_long_as_no_page_of_the_span_was_written() {
    let folder = Folder::new();
    let path = folder.file("a", 2);
    unprivileged(|| {
        let map = Map::private(&path);
        same(&view(map.byte(0), SIZE).unwrap(), &content(2)); // no page is there yet
        assert!(bytes(map.byte(0), SIZE) == content(2));
        same(&view(map.byte(0), SIZE).unwrap(), &content(2)); // all are
        // SAFETY: the test's own.
        unsafe { map.byte(700 * PAGE + 5).write_volatile(1) };
        refused(map.byte(0), SIZE, "differ from the file");
        refused(map.byte(700 * PAGE + 4000), SIZE - 700 * PAGE - 4000, "differ from the file");
        same(&view(map.byte(701 * PAGE), SIZE - 701 * PAGE).unwrap(), &content(2)[701 * PAGE..]);
        same(&view(map.byte(0), 700 * PAGE).unwrap(), &content(2)[..700 * PAGE]);
        // Written back to what it was: still a page of its own.
        // SAFETY: as before.
        unsafe { map.byte(700 * PAGE + 5).write_volatile(content(2)[700 * PAGE + 5]) };
        refused(map.byte(0), SIZE, "differ from the file");
    });
}

#[test]
fn a_page_that_was_written_and_swapped_out_is_no_page_of_the_file() {
    let folder = Folder::new();
    let map = Map::private(&folder.file("a", 2));
    // SAFETY: the test's own. MADV_PAGEOUT swaps where there is swap; either way the page is anonymous.
    unsafe {
        map.byte(PAGE).write_volatile(1);
        libc::madvise(map.byte(0).cast(), SIZE, libc::MADV_PAGEOUT);
    }
    unprivileged(|| refused(map.byte(0), SIZE, "differ from the file"));
}

#[test]
fn a_view_of_a_view_is_one_as_long_as_it_was_not_written() {
    let folder = Folder::new();
    let path = folder.file("a", 2);
    unprivileged(|| {
        let map = Map::shared(&path);
        let first = view(map.byte(0), SIZE).unwrap();
        drop(map);
        let second = view(first.first(), SIZE).unwrap();
        write_first(&first, 9);
        refused(first.first(), SIZE, "differ from the file");
        same(&second, &content(2));
    });
}

#[test]
fn a_replaced_file_is_told_from_the_one_that_is_mapped() {
    let folder = Folder::new();
    let path = folder.file("a", 3);
    let file = File::open(&path).unwrap();
    let map = Map::of(&file, libc::MAP_SHARED, libc::PROT_READ, SIZE);
    fs::rename(folder.file("b", 4), &path).unwrap();
    unprivileged(|| same(&view(map.byte(0), SIZE).unwrap(), &content(3))); // through the descriptor
    drop(file);
    unprivileged(|| refused_or_failed(&map));
    // The kernel's list of mappings still leads to the old file.
    if may_open_mappings() {
        same(&view(map.byte(0), SIZE).unwrap(), &content(3));
    }
}

#[track_caller]
fn refused_or_failed(map: &Map) {
    match view(map.byte(0), SIZE) {
        Err(Error::Io { call: "open", errno: libc::EPERM }) => {} // the last way that is tried
        other => panic!("{other:?}"),
    }
}

fn may_open_mappings() -> bool {
    let maps = fs::read_to_string("/proc/thread-self/maps").unwrap();
    let range = maps.lines().find(|line| line.contains(" /")).unwrap().split(' ').next().unwrap();
    File::open(format!("/proc/self/map_files/{range}")).is_ok()
}

#[test]
fn an_unlinked_file_needs_a_descriptor() {
    let folder = Folder::new();
    let path = folder.file("a", 7);
    let file = File::open(&path).unwrap();
    let map = Map::of(&file, libc::MAP_SHARED, libc::PROT_READ, SIZE);
    fs::remove_file(&path).unwrap();
    folder.file("a (deleted)", 8); // what the map table calls the other
    unprivileged(|| same(&view(map.byte(0), SIZE).unwrap(), &content(7)));
    drop(file);
    unprivileged(|| refused_or_failed(&map));
    if may_open_mappings() {
        same(&view(map.byte(0), SIZE).unwrap(), &content(7));
    }
}

#[test]
fn a_file_that_has_become_too_short_is_refused_without_touching_the_memory() {
    let folder = Folder::new();
    let path = folder.file("a", 9);
    let map = Map::shared(&path);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.set_len(SIZE as u64 - 1).unwrap();
    unprivileged(|| {
        refused(map.byte(0), SIZE, "behind the file's end");
        same(&view(map.byte(0), SIZE - 1).unwrap(), &content(9)[..SIZE - 1]);
        file.set_len(PAGE as u64).unwrap();
        refused(map.byte(0), SIZE - 1, "behind the file's end");
        refused(map.byte(2 * PAGE), PAGE * 600, "behind the file's end");
        file.set_len(0).unwrap();
        refused(map.byte(0), SIZE, "behind the file's end");
    });
}

#[test]
fn several_mappings_of_one_run_of_a_file_are_one() {
    let folder = Folder::new();
    let path = folder.file("a", 10);
    unprivileged(|| {
        let map = Map::private(&path);
        map.protect(100 * PAGE, 200 * PAGE, libc::PROT_READ);
        let view_of_both = view(map.byte(50 * PAGE + 1), SIZE - 60 * PAGE).unwrap();
        same(&view_of_both, &content(10)[50 * PAGE + 1..][..SIZE - 60 * PAGE]);
        // A written page in the second region.
        // SAFETY: the test's own.
        unsafe { map.byte(400 * PAGE).write_volatile(1) };
        refused(map.byte(0), SIZE, "differ from the file");
        // In crowds they are not looked at.
        for page in (0..200).step_by(2) {
            map.protect((500 + page) * PAGE, PAGE, libc::PROT_READ);
        }
        refused(map.byte(401 * PAGE), SIZE - 401 * PAGE, "that many pieces");
    });
}

#[test]
fn a_shared_and_a_private_mapping_of_one_run_are_one() {
    let folder = Folder::new();
    let file = File::open(folder.file("a", 11)).unwrap();
    unprivileged(|| {
        let map = Map::of(&file, libc::MAP_SHARED, libc::PROT_READ, SIZE);
        let half = SIZE / 2;
        let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED;
        let upper = Map::at(map.byte(half), file.as_raw_fd(), fixed, libc::PROT_READ | libc::PROT_WRITE, half, half);
        same(&view(map.byte(0), SIZE).unwrap(), &content(11));
        // SAFETY: the test's own.
        unsafe { upper.byte(0).write_volatile(1) };
        refused(map.byte(0), SIZE, "differ from the file");
        core::mem::forget(upper); // a part of `map`
    });
}

#[test]
fn neighbours_that_are_no_run_of_one_file_are_refused() {
    let folder = Folder::new();
    let (a, b) = (File::open(folder.file("a", 12)).unwrap(), File::open(folder.file("b", 13)).unwrap());
    unprivileged(|| {
        let half = SIZE / 2;
        let over = |at: *mut u8, file: &File, offset| {
            let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
            core::mem::forget(Map::at(at, file.as_raw_fd(), fixed, libc::PROT_READ, half, offset));
        };
        let map = Map::of(&a, libc::MAP_SHARED, libc::PROT_READ, SIZE);
        over(map.byte(half), &b, half);
        refused(map.byte(0), SIZE, "several files or parts");
        over(map.byte(half), &a, 0);
        refused(map.byte(0), SIZE, "several files or parts");
        over(map.byte(half), &a, half);
        same(&view(map.byte(0), SIZE).unwrap(), &content(12));
        // A hole behind it, and memory behind it that is of no file.
        // SAFETY: the test's own.
        unsafe { libc::munmap(map.byte(half).cast(), half) };
        assert!(view(map.byte(0), SIZE).is_err());
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        core::mem::forget(Map::at(map.byte(half), -1, anonymous, libc::PROT_READ, half, 0));
        refused(map.byte(0), SIZE, "shows no file");
        same(&view(map.byte(0), half).unwrap(), &content(12)[..half]);
    });
}

#[test]
fn pages_that_may_not_be_read_are_no_part_of_a_view_and_do_not_disturb_their_neighbours() {
    let folder = Folder::new();
    let map = Map::shared(&folder.file("a", 14));
    map.protect(0, PAGE, libc::PROT_NONE);
    map.protect(SIZE - PAGE, PAGE, libc::PROT_NONE);
    unprivileged(|| {
        same(&view(map.byte(PAGE), SIZE - 2 * PAGE).unwrap(), &content(14)[PAGE..SIZE - PAGE]);
        refused(map.byte(0), SIZE - PAGE, "shows no file");
        refused(map.byte(PAGE), SIZE - PAGE, "shows no file");
    });
}

fn memfd(flags: u32) -> Option<File> {
    // SAFETY: a C string; the descriptor is new.
    unsafe {
        let fd = libc::memfd_create(c"view\nof \\012".as_ptr(), libc::MFD_CLOEXEC | flags);
        (fd >= 0).then(|| File::from_raw_fd(fd))
    }
}

#[test]
fn a_memfd_needs_a_descriptor_and_may_be_sealed() {
    let mut file = memfd(libc::MFD_ALLOW_SEALING).unwrap();
    file.write_all(&content(15)).unwrap();
    let map = Map::of(&file, libc::MAP_SHARED, libc::PROT_READ, SIZE);
    unprivileged(|| same(&view(map.byte(0), SIZE).unwrap(), &content(15)));
    drop(map);
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
    let map = Map::of(&file, libc::MAP_PRIVATE, libc::PROT_READ, SIZE);
    unprivileged(|| {
        let view = view(map.byte(0), SIZE).unwrap();
        write_first(&view, 1);
        same(&view, &[&[1], &content(15)[1..]].concat());
        assert!(bytes(map.byte(0), SIZE) == content(15));
    });
    drop(file);
    unprivileged(|| refused_or_failed(&map));
    if may_open_mappings() {
        same(&view(map.byte(0), SIZE).unwrap(), &content(15));
    }
}

#[test]
fn memory_of_no_file_is_refused() {
    unprivileged(|| {
        let heap = vec![1u8; SIZE];
        refused(heap.as_ptr(), SIZE, "shows no file");
        let stack = [1u8; 64 * PAGE];
        let mut search = Search::new(stack.as_ptr(), stack.len() as u64, true).unwrap();
        assert!(matches!(search.run(), Err(Error::Unsupported { what }) if what.contains("shows no file")));
        for flags in [libc::MAP_PRIVATE, libc::MAP_SHARED] {
            let flags = flags | libc::MAP_ANONYMOUS;
            let map = Map::at(core::ptr::null_mut(), -1, flags, libc::PROT_READ | libc::PROT_WRITE, SIZE, 0);
            match view(map.byte(0), SIZE) {
                Err(_) => {}
                Ok(_) => panic!("anonymous memory has no file, nor shared memory one that can be opened"),
            }
        }
        // Nothing at all, the last page of the address space, and more than there is.
        assert!(view(core::ptr::without_provenance(PAGE), SIZE).is_err());
        assert!(view(core::ptr::without_provenance(usize::MAX - PAGE + 1), PAGE - 1).is_err());
        refused(core::ptr::without_provenance(usize::MAX - PAGE + 1), 2 * PAGE, "no bytes");
        refused(heap.as_ptr(), 0, "no bytes");
    });
}

#[test]
fn shared_anonymous_memory_is_a_file_for_those_who_may_open_it() {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let map = Map::at(core::ptr::null_mut(), -1, flags, libc::PROT_READ | libc::PROT_WRITE, SIZE, 0);
    // SAFETY: the test's own.
    unsafe { map.byte(0).write_bytes(7, SIZE) };
    if may_open_mappings() {
        let view = view(map.byte(0), SIZE).unwrap();
        write_first(&view, 1);
        assert!(bytes(map.byte(0), SIZE).iter().all(|&byte| byte == 7));
    }
}

#[test]
fn huge_pages_are_refused_since_to_write_a_private_one_may_kill() {
    let Some(file) = memfd(libc::MFD_HUGETLB) else { return }; // the kernel has none
    let length = 4 << 20;
    file.set_len(length as u64).unwrap();
    // Never touched, so it needs no huge page to be there.
    let map = Map::of(&file, libc::MAP_SHARED | libc::MAP_NORESERVE, libc::PROT_READ, length);
    unprivileged(|| refused(map.byte(0), length, "such a filesystem"));
}

#[test]
fn shared_memory_in_transparent_huge_pages_is_like_any_other() {
    let mut file = memfd(0).unwrap();
    file.set_len(SIZE as u64).unwrap();
    let map = Map::of(&file, libc::MAP_SHARED, libc::PROT_READ | libc::PROT_WRITE, SIZE);
    // SAFETY: the test's own. A kernel without huge pages for shared memory takes small ones.
    unsafe { libc::madvise(map.byte(0).cast(), SIZE, libc::MADV_HUGEPAGE) };
    file.write_all(&content(16)).unwrap();
    assert!(bytes(map.byte(0), SIZE) == content(16));
    let private = Map::of(&file, libc::MAP_PRIVATE, libc::PROT_READ | libc::PROT_WRITE, SIZE);
    assert!(bytes(private.byte(0), SIZE) == content(16));
    unprivileged(|| {
        same(&view(map.byte(0), SIZE).unwrap(), &content(16));
        same(&view(private.byte(0), SIZE).unwrap(), &content(16));
        // SAFETY: the test's own.
        unsafe { private.byte(SIZE / 2).write_volatile(1) };
        refused(private.byte(0), SIZE, "differ from the file");
    });
}

#[test]
fn odd_names_are_found() {
    let folder = Folder::new();
    let long = format!("{}/{}/{}", "d".repeat(200), "e".repeat(250), "f".repeat(250));
    fs::create_dir_all(folder.0.join(&long)).unwrap();
    for name in ["two\nlines\n", " space in front", "back\\slash", "a (deleted)", "näme", &format!("{long}/file")] {
        let map = Map::shared(&folder.file(name, 17));
        unprivileged(|| same(&view(map.byte(0), SIZE).unwrap(), &content(17)));
    }
    // The text cannot tell this one from a line break; the query can, and neither is wrong.
    let map = Map::shared(&folder.file("four\\012characters", 18));
    folder.file("four\ncharacters", 19);
    unprivileged(|| {
        let search = |query| Search::new(map.byte(0), SIZE as u64, query).and_then(|mut search| search.run());
        assert!(search(false).is_err());
        if let Ok(view) = search(true) {
            same(&view, &content(18));
        }
    });
}

#[test]
fn the_name_may_lead_to_anything_by_now() {
    let folder = Folder::new();
    let path = folder.file("a", 20);
    let map = Map::shared(&path);
    fs::rename(&path, folder.0.join("b")).unwrap(); // the map table says b from now on
    unprivileged(|| same(&view(map.byte(0), SIZE).unwrap(), &content(20)));
    fs::remove_file(folder.0.join("b")).unwrap();
    let name = std::ffi::CString::new(format!("{} (deleted)", folder.0.join("b").display())).unwrap();
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    unprivileged(|| refused_or_failed(&map)); // and does not wait for a writer
}

/// Whether somebody holds a record lock on the file, asked through a descriptor that holds none.
fn is_locked(file: &File) -> bool {
    // SAFETY: all zeros is a lock.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    // SAFETY: fcntl reads and writes the lock.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) }, 0);
    lock.l_type != libc::F_UNLCK as libc::c_short
}

#[test]
fn record_locks_of_the_process_outlive_a_search() {
    let folder = Folder::new();
    let path = folder.file("a", 21);
    let map = Map::shared(&path);
    // SAFETY: all zeros is a lock: of the whole file.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    let writer = File::options().write(true).open(&path).unwrap();
    // SAFETY: fcntl reads the lock.
    assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETLK, &raw const lock) }, 0);
    // Open for writing only: it cannot be mapped, and to open the file otherwise would end the lock.
    unprivileged(|| refused(map.byte(0), SIZE, "writing only"));
    let reader = File::open(&path).unwrap();
    unprivileged(|| same(&view(map.byte(0), SIZE).unwrap(), &content(21)));
    assert!(is_locked(&reader));
    drop(File::open(&path));
    assert!(!is_locked(&reader), "what this test is about: any close ends the lock");
}

#[test]
fn a_file_in_a_filesystem_that_proves_nothing_is_refused() {
    // What procfs, sysfs and pipes have is no regular file or cannot be mapped; this one can.
    let Ok(file) = File::open("/sys/kernel/btf/vmlinux") else { return };
    let length = file.metadata().unwrap().len() as usize / PAGE * PAGE;
    // SAFETY: a new mapping.
    let at = unsafe {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        libc::mmap(core::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0)
    };
    if at != libc::MAP_FAILED {
        let map = Map { at: at.cast(), length };
        unprivileged(|| assert!(view(map.byte(0), length).is_err()));
    }
}

/// A map table made up by a test.
fn maps(text: &[u8], most_lines: u64) -> Maps {
    let mut file = memfd(0).unwrap();
    file.write_all(text).unwrap();
    Maps { file: file.into(), query: false, most_lines }
}

#[test]
fn the_text_is_read_whatever_the_lines_are() {
    let find = |text: &[u8], address| {
        let mut name = PathText::new();
        maps(text, 1 << 20).find(address, &mut name).map(|region| (region, name))
    };
    let mut long = b"1000-2000 r--s 00000000 08:01 5          /".to_vec();
    long.extend(std::iter::repeat_n(b'x', 20_000));
    long.extend(b"\n3000-4000 r-xp 00005000 fd:1f 18446744073709551615 /a\\012b (deleted)\n");
    long.extend(b"5000-6000 ---p 00000000 00:00 0 \n");
    let (region, name) = find(&long, 0x1800).unwrap();
    assert!(region.shared && region.readable && region.place.inode == 5 && name.text().is_empty());
    let (region, name) = find(&long, 0x3000).unwrap();
    assert_eq!((region.start, region.end, region.shared), (0x3000, 0x4000, false));
    assert_eq!(region.place, Place { device: (0xfd, 0x1f), inode: u64::MAX, offset: 0x5000 });
    assert_eq!(name.text(), b"/a\nb (deleted)");
    let (region, name) = find(&long, 0x5fff).unwrap();
    assert!(!region.readable && region.place.inode == 0 && name.text().is_empty());
    for address in [0, 0xfff, 0x2000, 0x4800, 0x6000, u64::MAX] {
        assert!(find(&long, address).is_err(), "{address:#x}");
    }
    // As many lines as may be, and a path as long as one may be.
    let many: Vec<u8> = (1..3000u32)
        .flat_map(|n| format!("{:x}-{:x} r--s 0 1:2 3 /n{n}\n", n * 16, n * 16 + 16).into_bytes())
        .collect();
    for n in [1, 2, 1500, 2999] {
        let mut name = PathText::new();
        assert!(maps(&many, n).find(n * 16 + 3, &mut name).is_ok());
        assert_eq!(name.text(), format!("/n{n}").as_bytes());
        assert!(maps(&many, n.max(2) - 1).find(n.max(2) * 16 + 3, &mut name).is_err());
    }
    for (length, fits) in [(4095, true), (4096, false)] {
        let line = format!("0-1000 r--s 0 1:2 3 /{}\n", "y".repeat(length - 1));
        assert_eq!(find(line.as_bytes(), 5).unwrap().1.text().len(), if fits { length } else { 0 });
    }
    for garbage in [
        "",
        "\n",
        "x",
        "0-1000",
        "0-1000 r--s 0 1:2\n",
        "0-g r--s 0 1:2 3 \n",
        "0-1000 r-",
        "\u{fffd}-1 r--s 0 1:2 3 \n",
    ] {
        assert!(find(garbage.as_bytes(), 5).is_err(), "{garbage}");
    }
}

/// Another thread takes the memory away and maps other files there, again and again. Whatever the answer, a view
/// shows one of the files, whole, and the memory itself is never touched.
#[test]
fn a_race_with_unmapping_gives_a_view_of_what_was_there_or_none() {
    let folder = Folder::new();
    let files = [22, 23].map(|salt| File::open(folder.file(salt.to_string(), salt)).unwrap());
    let map = Map::of(&files[0], libc::MAP_SHARED, libc::PROT_READ, SIZE);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while !done.load(Ordering::Relaxed) {
                turn += 1;
                let flags = [libc::MAP_SHARED, libc::MAP_PRIVATE][turn / 2 % 2] | libc::MAP_FIXED;
                let file = files[turn % 2].as_raw_fd();
                core::mem::forget(Map::at(map.byte(0), file, flags, libc::PROT_READ, SIZE, 0));
                if turn % 3 == 0 {
                    // Protected instead of unmapped: else another thread's mapping could come to lie here.
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                    core::mem::forget(Map::at(map.byte(0), -1, flags, libc::PROT_NONE, SIZE, 0));
                }
            }
        });
        let mut views = 0;
        for round in 0..2000 {
            let search = Search::new(map.byte(0), SIZE as u64, round % 2 == 0);
            if let Ok(view) = search.and_then(|mut search| search.run()) {
                views += 1;
                let salt = |page: usize| {
                    let start = bytes(view.first().wrapping_add(page * PAGE), 8);
                    u64::from_ne_bytes(start.try_into().unwrap()) ^ page as u64
                };
                assert!(salt(0) == 22 || salt(0) == 23);
                assert!((0..PAGES).all(|page| salt(page) == salt(0)));
            }
        }
        done.store(true, Ordering::Relaxed);
        println!("{views} of 2000 searches gave a view");
    });
}

#[test]
fn no_search_leaves_a_descriptor_behind() {
    let folder = Folder::new();
    let map = Map::shared(&folder.file("a", 24));
    let highest = || memfd(0).unwrap().as_raw_fd();
    // Other tests open and close; what leaks piles up.
    let before = highest();
    let views: Vec<_> = (0..300).map(|_| view(map.byte(0), SIZE).unwrap()).collect();
    assert!(highest() < before + 300, "a view holds a descriptor");
    drop(views);
}
