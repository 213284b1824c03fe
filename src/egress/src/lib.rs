//! What a command may reach through its proxy: how its requests are read, and what is said to them.
//!
//! Pure: bytes and addresses in, a verdict out. Nothing here opens a socket, looks a name up or reads a clock; the
//! only way to an address to dial leads through [`route`].
#![forbid(unsafe_code)]

mod address;
mod body;
mod head;
#[cfg(test)]
mod head_tests;
mod judge;
mod proxy_env;
mod socks;
mod target;

pub use address::{Special, special};
pub use body::{Body, BodyError};
pub use head::{Framing, HEAD_BYTES_MAX, Head, HeadError, HttpAsk};
pub use judge::{NoRoute, Outside, Refusal, Route, place, route};
pub use proxy_env::{PROXY_PORT, with_proxy};
pub use socks::{GREETED, NO_METHOD, Reply, SocksAsk, SocksError, greeting, request};
pub use target::{Host, HostError, Target};
