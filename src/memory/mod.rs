//! Where bytes live, who may write them, and when they are given back.

pub mod borrow;
pub mod buffer;
pub mod heap;
pub mod mapped;
pub mod npy;
pub mod replacement;
pub mod safetensors;

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
