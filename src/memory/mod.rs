//! Where bytes live, who may write them, and when they are given back.

pub mod borrow;
pub mod buffer;
pub mod guard;
pub mod heap;
pub mod mapped;
pub mod npy;
pub mod replacement;
pub mod safetensors;
pub mod sealed;

#[cfg(all(test, loom))]
mod models;

// On 32 bits the map table cuts inode numbers off, and cut ones prove nothing.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod process_map;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
pub mod process_map {
    //! Nothing: only Linux says which file memory shows.
    use super::mapped::Mapping;
    use crate::error::{Error, Result};

    /// Answers that it cannot be done, so that a copy is made.
    pub fn private_view(_address: *const u8, _nbytes: u64) -> Result<Mapping> {
        Err(Error::Unsupported { what: "a private mapping of somebody else's memory" })
    }
}

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
