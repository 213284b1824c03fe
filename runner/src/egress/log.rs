//! The log of connections: the first ones in full, the rest counted.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use avfs_engine::{Connection, Connections};

const CONNECTIONS_MAX: usize = 1000;

pub struct Log {
    /// When the command started.
    began: Instant,
    connections: Mutex<Connections>,
}

impl Log {
    pub fn new(began: Instant) -> Self {
        Self { began, connections: Mutex::default() }
    }

    pub fn since_the_beginning(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.began)
    }

    pub fn add(&self, connection: Connection) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.list.len() < CONNECTIONS_MAX {
            connections.list.push(connection);
        } else {
            connections.left_off += 1;
        }
    }

    /// In the order of their start.
    pub fn take(&self) -> Connections {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = std::mem::take(&mut *connections);
        taken.list.sort_by_key(|connection| connection.began);
        taken
    }
}

#[cfg(test)]
mod tests {
    use avfs_engine::ConnectionVerdict;

    use super::*;

    #[test]
    fn connections_beyond_the_limit_are_counted() {
        let log = Log::new(Instant::now());
        for number in (0..1005_u64).rev() {
            log.add(Connection {
                host: "a.org".to_owned(),
                port: 80,
                address: None,
                verdict: ConnectionVerdict::Allowed,
                bytes_up: 0,
                bytes_down: 0,
                began: Duration::from_millis(number),
                lasted: Duration::ZERO,
            });
        }
        let taken = log.take();
        assert_eq!((taken.list.len(), taken.left_off), (1000, 5));
        assert!(taken.list.is_sorted_by_key(|connection| connection.began));
    }
}
