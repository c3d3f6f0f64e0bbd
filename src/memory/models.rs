//! Models of reference counting and of the borrow rule, checked by loom over every interleaving and every
//! value that the memory model lets a load see. `tests/loom.rs` runs them; by hand:
//! `RUSTFLAGS="--cfg loom" cargo test --lib memory::models`.

use super::{Keeper, Memory, Mutability, heap};
use Mutability::{Immutable, Writable};
use core::ffi::c_void;
use core::ptr::NonNull;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// What a producer lends: bytes, and how often they were given back.
struct Producer {
    /// Stands for the bytes: loom fails where two accesses are not ordered and one of them writes.
    bytes: UnsafeCell<u32>,
    releases: AtomicUsize,
}

impl Producer {
    fn new() -> Arc<Producer> {
        Arc::new(Producer { bytes: UnsafeCell::new(0), releases: AtomicUsize::new(0) })
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.bytes.with(|bytes| unsafe { *bytes })
    }

    fn write(&self) {
        // SAFETY: loom checks that nobody uses them meanwhile.
        self.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
    }
}

/// Unmaps or reuses the bytes, as far as anybody can tell.
unsafe extern "C" fn release(producer: *mut c_void) {
    // SAFETY: the pointer comes from `Arc::into_raw` in `memory`, once.
    let producer = unsafe { Arc::from_raw(producer.cast_const().cast::<Producer>()) };
    producer.write();
    producer.releases.fetch_add(1, Ordering::Relaxed);
}

/// A thread's right to use the memory.
#[derive(Clone, Copy)]
struct Reference(NonNull<Memory>);

// SAFETY: Memory may be used by any thread that holds a reference.
unsafe impl Send for Reference {}

impl Reference {
    fn memory(&self) -> &Memory {
        // SAFETY: a reference is held.
        unsafe { self.0.as_ref() }
    }

    fn leave(self, entered: Mutability) {
        // SAFETY: one reference and one tensor are given up; no test uses them afterwards.
        unsafe { Memory::leave(self.0, entered) }
    }
}

/// Memory with one tensor over it, and `more` further ones of the same mutability.
fn memory(producer: &Arc<Producer>, mutability: Mutability, more: usize) -> Reference {
    let owner = Arc::into_raw(producer.clone()).cast_mut().cast();
    let memory = heap::allocate(size_of::<Memory>()).unwrap().cast::<Memory>();
    let keeper = Keeper::Owner { owner, release: Some(release) };
    // SAFETY: freshly allocated for it.
    unsafe { memory.write(Memory::with_one(0, mutability, false, (core::ptr::null_mut(), 0), keeper)) };
    let reference = Reference(memory);
    for _ in 0..more {
        reference.memory().borrow.enter(mutability, false).unwrap();
        reference.memory().retain();
    }
    reference
}

fn released_once(producer: &Producer) {
    assert_eq!(producer.releases.load(Ordering::Relaxed), 1);
}

/// The last one to leave gives the bytes back after everybody else's last look, also where it sees that it is
/// the sole user and skips the decrement.
#[test]
fn bytes_are_given_back_once_and_after_every_last_use() {
    loom::model(|| {
        let producer = Producer::new();
        let reference = memory(&producer, Immutable, 2);
        let threads = [(); 2].map(|()| {
            let producer = producer.clone();
            thread::spawn(move || {
                producer.read();
                reference.leave(Immutable);
            })
        });
        producer.read();
        reference.leave(Immutable);
        threads.map(|thread| thread.join().unwrap());
        released_once(&producer);
    });
}

/// A user who takes one more reference, uses it and drops both, beside one who leaves.
#[test]
fn retaining_beside_leaving_keeps_the_bytes() {
    loom::model(|| {
        let producer = Producer::new();
        let reference = memory(&producer, Immutable, 1);
        let other = {
            let producer = producer.clone();
            thread::spawn(move || {
                reference.memory().borrow.enter(Immutable, false).unwrap();
                reference.memory().retain();
                reference.leave(Immutable);
                producer.read();
                reference.leave(Immutable);
            })
        };
        producer.read();
        reference.leave(Immutable);
        other.join().unwrap();
        released_once(&producer);
    });
}

/// What a writer wrote is seen by whoever is promised that nobody writes, and by nobody earlier.
#[test]
fn an_immutable_tensor_sees_all_writes_before_it_and_none_after() {
    loom::model(|| {
        let producer = Producer::new();
        let reference = memory(&producer, Writable, 0);
        // A read-only tensor: counted as a reference, not in the borrow state.
        reference.memory().retain();
        let writer = {
            let producer = producer.clone();
            thread::spawn(move || {
                producer.write();
                reference.leave(Writable);
            })
        };
        let entered = if reference.memory().borrow.become_immutable(Mutability::ReadOnly, false).is_ok() {
            assert_eq!(producer.read(), 1);
            Immutable
        } else {
            Mutability::ReadOnly
        };
        reference.leave(entered);
        writer.join().unwrap();
        released_once(&producer);
    });
}

/// The other way round: whoever may write does so after the last one who relied on nobody writing.
#[test]
fn a_writer_comes_after_every_immutable_tensors_last_look() {
    loom::model(|| {
        let producer = Producer::new();
        let reference = memory(&producer, Writable, 0);
        let borrow = &reference.memory().borrow;
        borrow.become_immutable(Writable, false).unwrap();
        reference.memory().retain(); // stands for a buffer, which may make tensors of any kind
        let reader = {
            let producer = producer.clone();
            thread::spawn(move || {
                producer.read();
                reference.leave(Immutable);
            })
        };
        let entered = if borrow.enter(Writable, false).is_ok() {
            producer.write();
            Writable
        } else {
            Mutability::ReadOnly
        };
        reference.leave(entered);
        reader.join().unwrap();
        released_once(&producer);
    });
}

/// Two who want opposite things at the same time: one of them gets it, or both one after the other.
#[test]
fn writers_and_immutables_never_meet() {
    loom::model(|| {
        let producer = Producer::new();
        let reference = memory(&producer, Writable, 0);
        reference.memory().borrow.leave(Writable);
        reference.memory().retain();
        let writer = {
            let producer = producer.clone();
            thread::spawn(move || {
                let borrow = &reference.memory().borrow;
                let entered = borrow.enter(Writable, false).map_or(Mutability::ReadOnly, |()| Writable);
                if entered == Writable {
                    producer.write();
                }
                reference.leave(entered);
            })
        };
        let borrow = &reference.memory().borrow;
        let entered = borrow.enter(Immutable, false).map_or(Mutability::ReadOnly, |()| Immutable);
        if entered == Immutable {
            let before = producer.read();
            thread::yield_now();
            assert_eq!(producer.read(), before);
        }
        reference.leave(entered);
        writer.join().unwrap();
        released_once(&producer);
    });
}
