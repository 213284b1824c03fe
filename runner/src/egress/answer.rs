//! Replies to a client, in its own protocol.

use avfs_egress::{HttpAsk, NO_METHOD, Reply, SocksError};

use super::client::{Manner, NoAsk};
use super::dial::DialError;
use crate::sys::Errno;

/// The reply to an accepted request. A fetch gets the server's own response.
pub fn connected(manner: &Manner) -> Vec<u8> {
    match manner {
        Manner::Socks => Reply::Succeeded.bytes().to_vec(),
        Manner::Http(HttpAsk::Connect) => b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
        Manner::Http(HttpAsk::Fetch { .. }) => Vec::new(),
    }
}

/// The reply to a request that the allow list refuses.
pub fn refused(manner: &Manner, text: &str) -> Vec<u8> {
    match manner {
        Manner::Socks => Reply::Refused.bytes().to_vec(),
        Manner::Http(_) => http("403 Forbidden", text),
    }
}

/// The reply to a request that failed.
pub fn failed(manner: &Manner, error: &DialError, text: &str) -> Vec<u8> {
    let (reply, status) = match error {
        DialError::Lookup { .. } | DialError::Nowhere => (Reply::HostUnreachable, "502 Bad Gateway"),
        DialError::Late => (Reply::TimedOut, "504 Gateway Timeout"),
        DialError::Busy | DialError::Own(_) | DialError::Stopped => {
            (Reply::Failed, "503 Service Unavailable")
        }
        DialError::Connect { source, .. } => {
            let reply = match *source {
                Errno::CONNREFUSED => Reply::ConnectionRefused,
                Errno::NETUNREACH => Reply::NetworkUnreachable,
                Errno::HOSTUNREACH => Reply::HostUnreachable,
                Errno::TIMEDOUT => Reply::TimedOut,
                _ => Reply::Failed,
            };
            (reply, "502 Bad Gateway")
        }
    };
    match manner {
        Manner::Socks => reply.bytes().to_vec(),
        Manner::Http(_) => http(status, text),
    }
}

/// The reply to a malformed request.
pub fn misunderstood(why: &NoAsk) -> Vec<u8> {
    match why {
        NoAsk::Gone | NoAsk::Foreign => Vec::new(),
        NoAsk::Late => http("408 Request Timeout", &why.to_string()),
        NoAsk::Http(_) => http("400 Bad Request", &why.to_string()),
        NoAsk::Socks(SocksError::Version) => Vec::new(),
        NoAsk::Socks(SocksError::Method) => NO_METHOD.to_vec(),
        NoAsk::Socks(SocksError::Command) => Reply::Command.bytes().to_vec(),
        NoAsk::Socks(SocksError::AddressKind) => Reply::AddressKind.bytes().to_vec(),
        NoAsk::Socks(SocksError::Malformed) => Reply::Failed.bytes().to_vec(),
    }
}

fn http(status: &str, text: &str) -> Vec<u8> {
    let body = format!("avfs: {text}\n");
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
