//! The proxy of a command: parses its requests, and decides which of them are allowed.
//!
//! Pure: bytes and addresses in, a verdict out. This crate opens no socket, looks up no name and reads no clock.
//! [`route`] is the only way to get an address to connect to.
//!
//! ```
//! use std::convert::Infallible;
//! use std::net::IpAddr;
//!
//! use avfs_egress::{Outside, Target, route};
//! use avfs_request::AllowList;
//!
//! struct Names;
//! impl Outside for Names {
//!     type Error = Infallible;
//!     fn resolve(&self, _name: &str) -> Result<Vec<IpAddr>, Infallible> {
//!         Ok(vec![IpAddr::from([93, 184, 215, 14])])
//!     }
//!     fn own_addresses(&self) -> Result<Vec<IpAddr>, Infallible> {
//!         Ok(Vec::new())
//!     }
//! }
//!
//! let list = AllowList::parse("example.com")?;
//! let allowed = Target::parse(b"example.com:443", None)?;
//! assert_eq!(route(&list, &allowed, &Names).unwrap().addresses().count(), 1);
//! let other = Target::parse(b"example.org:443", None)?;
//! assert!(route(&list, &other, &Names).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
