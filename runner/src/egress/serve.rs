//! Accepts connections and handles each from its first byte to its last.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{SocketFlags, accept_with};

use avfs_egress::{HttpAsk, NoRoute, Refusal, route};
use avfs_engine::{Connection, ConnectionVerdict};
use avfs_request::AllowList;

use super::answer;
use super::client::{Ask, Client, Manner, NoAsk};
use super::dial::{DialError, World, dial};
use super::log::Log;
use super::pump::{Moved, Upward, pump};
use super::stop::{Stop, Woken};
use crate::sys::Errno;

/// Further connections wait in the kernel's backlog until one of these ends.
const CONNECTIONS_AT_ONCE_MAX: usize = 256;
/// The interval for checking whether there is room again.
const PAUSE: Duration = Duration::from_millis(20);
/// Longer than any run.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

pub struct Context {
    pub list: AllowList,
    pub log: Arc<Log>,
    pub stop: Stop,
}

/// Accepts connections until the run is over, or the listener fails. All connections have ended when this returns.
pub fn serve(listener: OwnedFd, context: &Context) {
    let open = AtomicUsize::new(0);
    std::thread::scope(|scope| accept_all(scope, listener, context, &open));
}

/// Closes the listener when it returns, not when the last connection ends.
fn accept_all<'scope>(
    scope: &'scope Scope<'scope, '_>,
    listener: OwnedFd,
    context: &'scope Context,
    open: &'scope AtomicUsize,
) {
    loop {
        while open.load(Ordering::Relaxed) >= CONNECTIONS_AT_ONCE_MAX {
            if pause(&context.stop) == Woken::Stopped {
                return;
            }
        }
        match context.stop.wait(listener.as_fd(), PollFlags::IN, Instant::now() + FOREVER) {
            Woken::Ready => {}
            Woken::Stopped | Woken::Late => return,
        }
        let client = match accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(client) => client,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => continue,
            // Other connections may release resources.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => match pause(&context.stop) {
                Woken::Stopped => return,
                Woken::Ready | Woken::Late => continue,
            },
            Err(errno) => {
                tracing::warn!(%errno, "the proxy accepts no more connections");
                return;
            }
        };
        let counted = Counted::begin(open);
        let thread = std::thread::Builder::new().name("connection".to_owned());
        // If no thread can be started, the connection is closed without having reached anything.
        let spawned = thread.spawn_scoped(scope, move || {
            let _counted = counted;
            follow(client, context);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "a connection was closed: cannot start a thread for it");
        }
    }
}

fn pause(stop: &Stop) -> Woken {
    stop.wait_any([], Instant::now() + PAUSE)
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn begin(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of a connection.
struct Followed {
    address: Option<IpAddr>,
    verdict: ConnectionVerdict,
    moved: Moved,
}

impl Followed {
    fn nowhere(address: Option<IpAddr>, verdict: ConnectionVerdict) -> Self {
        Self { address, verdict, moved: Moved::default() }
    }
}

fn follow(client: OwnedFd, context: &Context) {
    let began = Instant::now();
    let mut client = Client::new(client, &context.stop);
    let (host, port, followed) = match client.ask() {
        Ok(ask) => {
            let (host, port) = (ask.shown.clone(), ask.port);
            (host, port, connect(client, ask, context))
        }
        // The client sent no request.
        Err(NoAsk::Gone) => return,
        Err(why) => {
            client.dismiss(&answer::misunderstood(&why));
            (String::new(), 0, Followed::nowhere(None, ConnectionVerdict::Failed(why.to_string())))
        }
    };
    context.log.add(Connection {
        host,
        port,
        address: followed.address,
        verdict: followed.verdict,
        bytes_up: followed.moved.up,
        bytes_down: followed.moved.down,
        began: context.log.since_the_beginning(began),
        lasted: began.elapsed(),
    });
}

fn connect(client: Client<'_>, ask: Ask, context: &Context) -> Followed {
    let target = match &ask.target {
        Ok(target) => target,
        Err(error) => return refuse(client, &ask, &Refusal::from(*error), &context.list),
    };
    let world = World { stop: &context.stop };
    let dialled = match route(&context.list, target, &world) {
        Ok(route) => dial(&route, &context.stop),
        Err(NoRoute::Refused(refusal)) => return refuse(client, &ask, &refusal, &context.list),
        Err(NoRoute::Failed(error)) => Err(error),
        Err(NoRoute::Nowhere) => Err(DialError::Nowhere),
    };
    let (server, address) = match dialled {
        Ok(dialled) => dialled,
        Err(error) => {
            let text = format!("{}:{} cannot be reached: {error}", ask.shown, ask.port);
            client.dismiss(&answer::failed(&ask.manner, &error, &text));
            return Followed::nowhere(error.address(), ConnectionVerdict::Failed(error.to_string()));
        }
    };
    let moved = match client.say(&answer::connected(&ask.manner)) {
        Ok(()) => {
            let (upward, head) = match ask.manner {
                Manner::Socks | Manner::Http(HttpAsk::Connect) => (Upward::Tunnel, Vec::new()),
                Manner::Http(HttpAsk::Fetch { onward, framing }) => (Upward::Body(framing.body()), onward),
            };
            let (client, early) = client.into_parts();
            pump(&client, &server, upward, head, &early, &context.stop)
        }
        Err(_) => Moved::default(),
    };
    Followed { address: Some(address), verdict: ConnectionVerdict::Allowed, moved }
}

fn refuse(client: Client<'_>, ask: &Ask, refusal: &Refusal, list: &AllowList) -> Followed {
    let mut text = format!("{}:{} is refused: {refusal}", ask.shown, ask.port);
    let remedy = ask.target.as_ref().ok().and_then(|target| refusal.remedy(target));
    if let Some(place) = remedy {
        text.push_str(&format!("\nhint: to allow it, run with: --net allow={list},{place}"));
    }
    client.dismiss(&answer::refused(&ask.manner, &text));
    Followed::nowhere(refusal.address(), ConnectionVerdict::Refused(refusal.to_string()))
}
