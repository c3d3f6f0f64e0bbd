//! The borrow rule as one atomic word: any number of writable tensors, or any number of immutable ones,
//! never both at a time.

use super::Mutability;
use super::sync::{AtomicU64, Ordering};
use crate::error::{Error, Result};

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
    pub fn with_one(mutability: Mutability) -> Self {
        let (writable, immutable) = match mutability {
            Mutability::Writable => (1, 0),
            Mutability::ReadOnly => (0, 0),
            Mutability::Immutable => (0, 1),
        };
        Borrow(AtomicU64::new(State { writable, immutable, mutability }.pack()))
    }

    /// Memory of the given mutability without a tensor over it.
    pub fn new(mutability: Mutability) -> Self {
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
            (Mutability::Writable, Mutability::Writable) => Err(FULL),
            (Mutability::Writable, _) => Err(Error::ReadOnly),
            (_, Mutability::ReadOnly) => Err(READ_ONLY_MAY_CHANGE),
            (_, Mutability::Writable) if lent => Err(OWNER_MAY_WRITE),
            (_, Mutability::Writable) if state.writable > 0 => Err(Error::WritersAlive { writable: state.writable }),
            _ if state.immutable < COUNT => Ok(State { immutable: state.immutable + 1, ..state }),
            _ => Err(FULL),
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
            _ if state.immutable < COUNT => {
                Ok(State { writable: state.writable - own, immutable: state.immutable + 1, ..state })
            }
            _ => Err(FULL),
        })
    }

    /// Turns writable memory into immutable memory for good, once no writable tensor is alive.
    pub fn freeze(&self, lent: bool) -> Result<()> {
        self.update(|state| match state.mutability {
            Mutability::Immutable => Ok(state),
            Mutability::ReadOnly => Err(READ_ONLY_MAY_CHANGE),
            Mutability::Writable if lent => Err(OWNER_MAY_WRITE),
            Mutability::Writable if state.writable > 0 => Err(Error::WritersAlive { writable: state.writable }),
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
const FULL: Error = Error::TooManyTensors { most: COUNT };
const OWNER_MAY_WRITE: Error = Error::NotImmutable { why: "whoever lent it may still write it" };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use Mutability::{Immutable, ReadOnly, Writable};
    use std::collections::HashSet;

    const EACH: [Mutability; 3] = [Writable, ReadOnly, Immutable];

    /// What the tensors hold; the state that the word must agree with.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct Model {
        memory: u8,
        tensors: [Option<u8>; 4],
    }

    impl Model {
        fn count(&self, entered: Mutability) -> u64 {
            self.tensors.iter().filter(|&&tensor| tensor == Some(entered as u8)).count() as u64
        }

        /// The rule in words: immutable memory, or our own memory that nobody (else) may write.
        fn can_be_immutable(&self, lent: bool, own_writable: u64) -> bool {
            self.memory == Immutable as u8
                || self.memory == Writable as u8 && !lent && self.count(Writable) == own_writable
        }

        fn can_be_written(&self) -> bool {
            self.memory == Writable as u8 && self.count(Immutable) == 0
        }

        fn word(&self) -> u64 {
            u64::from(self.memory) << 62 | self.count(Immutable) << 31 | self.count(Writable)
        }
    }

    /// Every call is one atomic step, so threads can do no more than call in some order. All orders of all
    /// calls on up to four tensors are tried: the states that can be reached are few.
    fn explore(memory: Mutability, lent: bool, first: Option<Mutability>) -> usize {
        let start = Model { memory: memory as u8, tensors: [first.map(|first| first as u8), None, None, None] };
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(model) = open.pop() {
            let mut step = |what: &str, allowed: bool, next: Model, call: &dyn Fn(&Borrow) -> Result<()>| {
                let borrow = Borrow(AtomicU64::new(model.word()));
                let result = call(&borrow);
                let context = || format!("{what} on {model:?}, lent {lent}: {result:?}");
                assert_eq!(result.is_ok(), allowed, "{}", context());
                let after = if allowed { &next } else { &model };
                assert_eq!(borrow.0.load(Ordering::Relaxed), after.word(), "{}", context());
                assert!(after.count(Writable) == 0 || after.count(Immutable) == 0, "{}", context());
                assert!(!lent || memory == Immutable || after.count(Immutable) == 0, "{}", context());
                if seen.insert(after.clone()) {
                    open.push(after.clone());
                }
            };
            let frozen = Model { memory: Immutable as u8, ..model.clone() };
            step("freeze", model.can_be_immutable(lent, 0), frozen, &|borrow| borrow.freeze(lent));
            for (slot, tensor) in model.tensors.iter().enumerate() {
                let with = |tensor: Option<Mutability>| {
                    let mut next = model.clone();
                    next.tensors[slot] = tensor.map(|tensor| tensor as u8);
                    next
                };
                let Some(entered) = tensor.map(|number| EACH[number as usize]) else {
                    for wanted in EACH {
                        let allowed = match wanted {
                            Writable => model.can_be_written(),
                            ReadOnly => true,
                            Immutable => model.can_be_immutable(lent, 0),
                        };
                        step("enter", allowed, with(Some(wanted)), &|borrow| borrow.enter(wanted, lent));
                    }
                    continue;
                };
                step("leave", true, with(None), &|borrow| {
                    borrow.leave(entered);
                    Ok(())
                });
                let own = u64::from(entered == Writable);
                let allowed = entered == Immutable || model.can_be_immutable(lent, own);
                step("become", allowed, with(Some(Immutable)), &|borrow| borrow.become_immutable(entered, lent));
            }
        }
        seen.len()
    }

    #[test]
    fn writable_and_immutable_tensors_exclude_each_other_in_every_reachable_state() {
        for lent in [false, true] {
            for memory in EACH {
                assert!(explore(memory, lent, Some(memory)) > 10);
                assert!(explore(memory, lent, None) > 10);
            }
        }
    }

    #[test]
    fn the_first_tensor_is_entered_as_what_the_memory_is() {
        for memory in EACH {
            let model = Model { memory: memory as u8, tensors: [Some(memory as u8), None, None, None] };
            assert_eq!(Borrow::with_one(memory).0.load(Ordering::Relaxed), model.word());
            assert_eq!(Borrow::new(memory).0.load(Ordering::Relaxed), u64::from(memory as u8) << 62);
            assert_eq!(Borrow::new(memory).mutability(), memory);
        }
    }

    #[test]
    fn busy_says_how_many_are_in_the_way_and_only_counts_others() {
        let borrow = Borrow::with_one(Writable);
        borrow.enter(Writable, false).unwrap();
        let sentence = |result: Result<()>| result.unwrap_err().to_string();
        let others = "the memory cannot be immutable while writable tensors over it are alive; ";
        assert_eq!(sentence(borrow.enter(Immutable, false)), format!("{others}2 are"));
        assert_eq!(sentence(borrow.become_immutable(ReadOnly, false)), format!("{others}2 are"));
        assert_eq!(borrow.become_immutable(Writable, false), Err(Error::WritersAlive { writable: 1 }));
        borrow.leave(Writable);
        borrow.become_immutable(Writable, false).unwrap();
        assert_eq!(borrow.enter(Writable, false), Err(Error::ImmutablesAlive { immutable: 1 }));
    }

    #[test]
    fn a_count_that_is_full_is_refused_and_never_runs_into_the_next() {
        let full =
            |writable, immutable| Borrow(AtomicU64::new(State { writable, immutable, mutability: Writable }.pack()));
        for (borrow, wanted) in [(full(COUNT, 0), Writable), (full(0, COUNT), Immutable)] {
            let before = borrow.0.load(Ordering::Relaxed);
            assert_eq!(borrow.enter(wanted, false).unwrap_err().status(), Status::DLRO_ERR_BOUNDS);
            assert_eq!(borrow.0.load(Ordering::Relaxed), before);
        }
        let borrow = full(0, COUNT);
        assert_eq!(borrow.become_immutable(ReadOnly, false).unwrap_err().status(), Status::DLRO_ERR_BOUNDS);
        assert_eq!(borrow.mutability(), Writable);
    }
}
