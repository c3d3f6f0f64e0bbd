//! What a tensor is, what its maker allows, what a consumer needs, and how the two are brought together.

pub mod copy;
pub mod describe;
pub mod dtype;
pub mod export;
pub mod file;
pub mod import;
pub mod layout;
pub mod legacy;
pub mod managed;
pub mod negotiate;
pub mod requirements;
pub mod save;
pub mod strided;
pub mod view;
pub mod watch;
pub mod window;

#[cfg(test)]
pub mod testing;
