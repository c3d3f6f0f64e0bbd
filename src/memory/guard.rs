//! The guard: when somebody writes to protected memory, a report that names the tensor, and then whatever
//! would have happened anyway.
//!
//! Opt-in. What runs in the signal handler reads fixed tables through atomics, formats into its own stack and
//! calls write(2): no lock, no allocation, nothing that is not async-signal-safe.

use super::Mutability;
use crate::error::{Error, Result};

/// What the report says of a tensor; plain data, copied while the process is healthy.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// The lowest protected byte and the number of bytes.
    pub range: (usize, usize),
    /// Address of the first element.
    pub first: usize,
    /// The first elements of a name, UTF-8, cut at a character.
    pub label: [u8; Watched::LABEL],
    /// How many bytes of it count.
    pub label_length: usize,
    /// Data type in words.
    pub dtype: [u8; 32],
    /// How many bytes of it count.
    pub dtype_length: usize,
    /// Bytes from one element to the next along each axis, for the index; none if the tensor has more axes.
    pub strides: [i64; Watched::AXES],
    /// Dimensions.
    pub shape: [i64; Watched::AXES],
    /// The axes, the one with the widest stride first.
    pub order: [usize; Watched::AXES],
    /// How many count; 0 also where no index can be given.
    pub ndim: usize,
    /// Bytes of an element; 0 for packed sub-byte ones.
    pub item: usize,
    /// What its holder may do.
    pub mutability: Mutability,
}

impl Watched {
    /// Bytes of a label that are kept.
    pub const LABEL: usize = 64;
    /// Axes for which an index is worked out.
    pub const AXES: usize = 8;
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use core::cell::UnsafeCell;
    use core::fmt::Write;
    use core::mem::MaybeUninit;
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    use std::sync::Mutex;

    /// Tensors that can be watched at a time.
    const CAPACITY: usize = 256;

    /// A sequence lock: odd while it is written. The handler reads, and believes what it read only if the
    /// number was even and the same before and after.
    struct Entry {
        sequence: AtomicUsize,
        used: AtomicBool,
        watched: UnsafeCell<MaybeUninit<Watched>>,
    }

    // SAFETY: written under WRITER only; read through the sequence number.
    unsafe impl Sync for Entry {}

    static ENTRIES: [Entry; CAPACITY] = [const {
        Entry {
            sequence: AtomicUsize::new(0),
            used: AtomicBool::new(false),
            watched: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }; CAPACITY];

    /// One writer at a time. The handler never takes it.
    static WRITER: Mutex<()> = Mutex::new(());

    struct Previous(UnsafeCell<MaybeUninit<[libc::sigaction; 2]>>);

    // SAFETY: written once, before INSTALLED is set; only read afterwards.
    unsafe impl Sync for Previous {}

    static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::uninit()));
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

    /// Installs the handler once. What was installed before is called after the report.
    pub fn install() -> Result<()> {
        let _writer = WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if INSTALLED.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut previous = [const { MaybeUninit::<libc::sigaction>::zeroed() }; 2];
        for (signal, before) in SIGNALS.iter().zip(&mut previous) {
            // SAFETY: the old action is asked for and nothing changes.
            if unsafe { libc::sigaction(*signal, core::ptr::null(), before.as_mut_ptr()) } != 0 {
                return Err(super::super::mapped::last("sigaction"));
            }
        }
        // SAFETY: both were filled in; the handler does not run before the actions are set below.
        unsafe { (*PREVIOUS.0.get()).write(previous.map(|before| before.assume_init())) };
        INSTALLED.store(true, Ordering::Release);
        for signal in SIGNALS {
            // SAFETY: all zeros is a value of sigaction.
            let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
            action.sa_sigaction = handler as *const () as usize;
            // ONSTACK: Go and others run on small stacks and demand it. NODEFER: a fault in a previous handler is
            // delivered as it would have been.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            // SAFETY: the handler is async-signal-safe and stays loaded (nodelete).
            if unsafe { libc::sigaction(signal, &action, core::ptr::null_mut()) } != 0 {
                return Err(super::super::mapped::last("sigaction"));
            }
        }
        Ok(())
    }

    /// Puts a tensor on the list; the answer takes it off again.
    pub fn watch(watched: &Watched) -> Result<usize> {
        let _writer = WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let free = ENTRIES.iter().position(|entry| !entry.used.load(Ordering::Relaxed));
        let index = free.ok_or(Error::Unsupported { what: "watching more than 256 tensors at a time" })?;
        let entry = &ENTRIES[index];
        entry.sequence.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        // SAFETY: the writer lock is held; a handler that reads meanwhile sees an odd number and does not believe it.
        unsafe { (*entry.watched.get()).write(*watched) };
        entry.used.store(true, Ordering::Relaxed);
        entry.sequence.fetch_add(1, Ordering::Release);
        Ok(index)
    }

    /// Takes a tensor off the list.
    pub fn unwatch(index: usize) {
        let _writer = WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(entry) = ENTRIES.get(index) {
            entry.sequence.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::Release);
            entry.used.store(false, Ordering::Relaxed);
            entry.sequence.fetch_add(1, Ordering::Release);
        }
    }

    fn find(address: usize) -> Option<Watched> {
        ENTRIES.iter().find_map(|entry| {
            let before = entry.sequence.load(Ordering::Acquire);
            if before % 2 == 1 || !entry.used.load(Ordering::Relaxed) {
                return None;
            }
            // SAFETY: a volatile copy of plain data, believed only if nobody wrote meanwhile.
            let watched = unsafe { entry.watched.get().read_volatile() };
            fence(Ordering::Acquire);
            if entry.sequence.load(Ordering::Relaxed) != before {
                return None;
            }
            // SAFETY: used, so it was written whole; the numbers say that it is so still.
            let watched = unsafe { watched.assume_init() };
            let (start, length) = watched.range;
            (address.wrapping_sub(start) < length).then_some(watched)
        })
    }

    /// Text on the stack.
    struct Text {
        bytes: [u8; 1024],
        length: usize,
    }

    impl Write for Text {
        fn write_str(&mut self, s: &str) -> core::fmt::Result {
            let take = s.len().min(self.bytes.len() - self.length);
            self.bytes[self.length..self.length + take].copy_from_slice(&s.as_bytes()[..take]);
            self.length += take;
            Ok(())
        }
    }

    fn text(bytes: &[u8], length: usize) -> &str {
        core::str::from_utf8(&bytes[..length.min(bytes.len())]).unwrap_or("?")
    }

    /// The index of the element at an address, if it is one.
    fn index(watched: &Watched, address: usize) -> Option<[i64; Watched::AXES]> {
        let item = i64::try_from(watched.item).ok().filter(|&item| item > 0)?;
        let mut rest = address.wrapping_sub(watched.first) as i64;
        let mut index = [0; Watched::AXES];
        let axes = &watched.order[..watched.ndim];
        // Negative strides: start from the lowest byte, and count their axes down.
        for &axis in axes.iter() {
            if watched.strides[axis] < 0 {
                rest -= watched.strides[axis] * (watched.shape[axis] - 1);
            }
        }
        for &axis in axes.iter() {
            let (stride, dimension) = (watched.strides[axis], watched.shape[axis]);
            if dimension <= 1 || stride == 0 {
                continue;
            }
            let step = (rest / stride.abs()).min(dimension - 1);
            index[axis] = if stride > 0 { step } else { dimension - 1 - step };
            rest -= step * stride.abs();
        }
        (0..item).contains(&rest).then_some(index)
    }

    fn report(watched: &Watched, address: usize, code: usize, wrote: bool) {
        let mut out = Text { bytes: [0; 1024], length: 0 };
        let verb = if wrote { "wrote to" } else { "was stopped at" };
        // SAFETY: neither has preconditions; both are async-signal-safe.
        let (process, thread) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
        let mut name = [0u8; 16];
        // SAFETY: PR_GET_NAME writes at most 16 bytes, its NUL included.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let name_length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        let kind = if watched.mutability == Mutability::Immutable { "immutable" } else { "read-only" };
        let offset = address.wrapping_sub(watched.first) as i64;
        let _ = write!(
            out,
            "dlpack_ro: thread {thread} '{}' of process {process} {verb} the {kind} tensor '{}' at address {address:#x}, \
             byte {offset} of its {} elements",
            text(&name, name_length),
            text(&watched.label, watched.label_length),
            text(&watched.dtype, watched.dtype_length),
        );
        if let Some(index) = index(watched, address) {
            let _ = write!(out, ", index {:?}", &index[..watched.ndim]);
        }
        let _ = writeln!(out, "; the code that did it is at {code:#x}");
        // SAFETY: the buffer is ours. A failure to write cannot be reported anywhere.
        unsafe { libc::write(2, out.bytes.as_ptr().cast(), out.length) };
    }

    /// Where the thread was, and whether it was writing, as far as the processor says.
    #[cfg(target_arch = "x86_64")]
    fn cause(context: *const libc::c_void) -> (usize, bool) {
        // SAFETY: the kernel gives a ucontext_t to a handler with SA_SIGINFO.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        (registers[libc::REG_RIP as usize] as usize, registers[libc::REG_ERR as usize] & 2 != 0)
    }

    #[cfg(target_arch = "aarch64")]
    fn cause(context: *const libc::c_void) -> (usize, bool) {
        // SAFETY: the kernel gives a ucontext_t to a handler with SA_SIGINFO.
        (unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc } as usize, true)
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn cause(_: *const libc::c_void) -> (usize, bool) {
        (0, true)
    }

    unsafe extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: errno is this thread's; what was interrupted must not see that we called anything.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: the kernel gives a siginfo_t to a handler with SA_SIGINFO.
        let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
        // A positive code: the kernel raised it for an access, nobody sent it.
        if let Some(watched) = if code > 0 { find(address) } else { None } {
            let (at, wrote) = cause(context);
            report(&watched, address, at, wrote);
        }
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        let which = usize::from(signal == libc::SIGBUS);
        // SAFETY: written before this handler was installed, never again.
        let previous = unsafe { (*PREVIOUS.0.get()).assume_init_ref()[which] };
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                // Back to the default: the access is tried again, and the process ends as it would have.
                // SAFETY: all zeros is SIG_DFL.
                unsafe {
                    let action: libc::sigaction = core::mem::zeroed();
                    libc::sigaction(signal, &action, core::ptr::null_mut());
                    if code <= 0 {
                        // Somebody sent it, and there is no access to be tried again.
                        libc::raise(signal);
                    }
                }
            }
            function if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                // SAFETY: the handler that was installed before, called as the kernel would have called it.
                unsafe {
                    let function: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                        core::mem::transmute(function);
                    function(signal, info, context);
                }
            }
            function => {
                // SAFETY: as above, for a handler without SA_SIGINFO.
                unsafe {
                    let function: unsafe extern "C" fn(i32) = core::mem::transmute(function);
                    function(signal);
                }
            }
        }
    }
}

#[cfg(target_os = "linux")]
pub use linux::{install, unwatch, watch};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::*;

    pub fn install() -> Result<()> {
        Err(Error::Unsupported { what: "the guard" })
    }

    pub fn watch(_: &Watched) -> Result<usize> {
        Err(Error::Unsupported { what: "the guard" })
    }

    pub fn unwatch(_: usize) {}
}

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{install, unwatch, watch};
