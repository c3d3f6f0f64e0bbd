//! Where bytes live, who may write them, and when they are given back.

pub mod borrow;
pub mod buffer;
pub mod guard;
pub mod heap;
pub mod mapped;
pub mod npy;
pub mod sealed;

#[cfg(all(test, loom))]
mod models;

/// The atomics of the state machines here. Under `--cfg loom` they are a model checker's, which tries every
/// interleaving and every value that the memory model lets a load see; see `models`.
mod sync {
    #[cfg(not(loom))]
    pub use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
}

pub use buffer::{Keeper, Memory};

/// What may happen to memory, from weak to strong.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutability {
    /// Whoever holds a tensor over it may write.
    Writable = 0,
    /// The holder must not write; somebody else may.
    ReadOnly = 1,
    /// Nobody writes while the tensor lives.
    Immutable = 2,
}
