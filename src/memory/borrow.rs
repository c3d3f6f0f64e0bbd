//! The borrow rule as one atomic word: any number of writable tensors, or any number of immutable ones,
//! never both at a time.

use super::Mutability;
use crate::error::{Error, Result};
use core::sync::atomic::{AtomicU64, Ordering};

/// Two counts, and what the memory itself allows.
///
/// Bits 0..31 count writable tensors, bits 31..62 immutable ones, bits 62..64 hold the mutability.
/// Read-only tensors stand in nobody's way and are not counted.
#[derive(Debug)]
pub struct Borrow(AtomicU64);

const COUNT: u64 = (1 << 31) - 1;
const IMMUTABLE_ONE: u64 = 1 << 31;
const MUTABILITY: u32 = 62;

#[derive(Clone, Copy)]
struct State {
    writable: u64,
    immutable: u64,
    mutability: Mutability,
}

impl State {
    const fn unpack(word: u64) -> Self {
        State {
            writable: word & COUNT,
            immutable: (word >> 31) & COUNT,
            mutability: match word >> MUTABILITY {
                0 => Mutability::Writable,
                1 => Mutability::ReadOnly,
                _ => Mutability::Immutable,
            },
        }
    }

    const fn pack(self) -> u64 {
        (self.mutability as u64) << MUTABILITY | self.immutable << 31 | self.writable
    }
}

impl Borrow {
    /// Memory of the given mutability with one tensor of the same mutability over it.
    pub const fn with_one(mutability: Mutability) -> Self {
        let (writable, immutable) = match mutability {
            Mutability::Writable => (1, 0),
            Mutability::ReadOnly => (0, 0),
            Mutability::Immutable => (0, 1),
        };
        Borrow(AtomicU64::new(State { writable, immutable, mutability }.pack()))
    }

    /// Memory of the given mutability without a tensor over it.
    pub const fn new(mutability: Mutability) -> Self {
        Borrow(AtomicU64::new(State { writable: 0, immutable: 0, mutability }.pack()))
    }

    /// What the memory itself allows now.
    pub fn mutability(&self) -> Mutability {
        State::unpack(self.0.load(Ordering::Acquire)).mutability
    }

    /// Enters a tensor of the wanted mutability, or says who is in the way.
    ///
    /// `lent` memory has an owner outside of this library who may write it at any time, so unless that owner
    /// promised otherwise it is never immutable.
    pub fn enter(&self, wanted: Mutability, lent: bool) -> Result<()> {
        if wanted == Mutability::ReadOnly {
            return Ok(());
        }
        self.update(|state| match (wanted, state.mutability) {
            (Mutability::Writable, Mutability::Writable) if state.immutable > 0 => {
                Err(Error::ImmutablesAlive { immutable: state.immutable })
            }
            (Mutability::Writable, Mutability::Writable) if state.writable < COUNT => {
                Ok(State { writable: state.writable + 1, ..state })
            }
            (Mutability::Writable, Mutability::Writable) => {
                Err(Error::Overflow { what: "the count of writable tensors" })
            }
            (Mutability::Writable, _) => Err(Error::ReadOnly),
            (_, Mutability::ReadOnly) => Err(READ_ONLY_MAY_CHANGE),
            (_, Mutability::Writable) if lent => Err(OWNER_MAY_WRITE),
            (_, Mutability::Writable) if state.writable > 0 => Err(Error::WritersAlive { writable: state.writable }),
            _ if state.immutable < COUNT => Ok(State { immutable: state.immutable + 1, ..state }),
            _ => Err(Error::Overflow { what: "the count of immutable tensors" }),
        })
    }

    /// Takes out a tensor that entered with this mutability.
    pub fn leave(&self, entered: Mutability) {
        // Release: what this tensor's holder wrote is seen by whoever enters next.
        match entered {
            Mutability::Writable => drop(self.0.fetch_sub(1, Ordering::AcqRel)),
            Mutability::ReadOnly => {}
            Mutability::Immutable => drop(self.0.fetch_sub(IMMUTABLE_ONE, Ordering::AcqRel)),
        }
    }

    /// Turns a tensor that entered as `from` into an immutable one, in one step so that nobody gets between.
    pub fn become_immutable(&self, from: Mutability, lent: bool) -> Result<()> {
        let own = u64::from(from == Mutability::Writable);
        if from == Mutability::Immutable {
            return Ok(());
        }
        self.update(|state| match state.mutability {
            Mutability::ReadOnly => Err(READ_ONLY_MAY_CHANGE),
            Mutability::Writable if lent => Err(OWNER_MAY_WRITE),
            Mutability::Writable if state.writable > own => Err(Error::WritersAlive { writable: state.writable - own }),
            _ => Ok(State { writable: state.writable - own, immutable: state.immutable + 1, ..state }),
        })
    }

    /// Turns writable memory into immutable memory for good, once no writable tensor but `own` is alive.
    pub fn freeze(&self, own: u64, lent: bool) -> Result<()> {
        self.update(|state| match state.mutability {
            Mutability::Immutable => Ok(state),
            Mutability::ReadOnly => Err(READ_ONLY_MAY_CHANGE),
            Mutability::Writable if lent => Err(OWNER_MAY_WRITE),
            Mutability::Writable if state.writable > own => Err(Error::WritersAlive { writable: state.writable - own }),
            Mutability::Writable => Ok(State { mutability: Mutability::Immutable, ..state }),
        })
    }

    /// Takes a freeze back that could not be completed.
    pub fn thaw(&self, before: Mutability) {
        let _ = self.update(|state| Ok(State { mutability: before, ..state }));
    }

    /// How many writable and how many immutable tensors are alive.
    pub fn counts(&self) -> (u64, u64) {
        let state = State::unpack(self.0.load(Ordering::Acquire));
        (state.writable, state.immutable)
    }

    fn update(&self, step: impl Fn(State) -> Result<State>) -> Result<()> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let next = step(State::unpack(word))?.pack();
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }
}

const READ_ONLY_MAY_CHANGE: Error =
    Error::NotImmutable { why: "it is read-only for its holder, and whoever owns it may still write it" };
const OWNER_MAY_WRITE: Error = Error::NotImmutable { why: "whoever lent it may still write it" };
