//! Asks name servers, over UDP and, for answers that do not fit, over TCP.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::config::Config;
use super::message::{Answer, Family, answer, query};

const DATAGRAM_BYTES_MAX: usize = 4096;

/// The addresses of a name, from the first server that knows.
pub fn ask_servers(name: &str, config: &Config, port: u16) -> io::Result<Vec<IpAddr>> {
    let mut failure = None;
    for candidate in config.candidates(name) {
        match ask_about(&candidate, config, port) {
            Ok(found) if found.is_empty() => {}
            Ok(found) => return Ok(found),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name does not exist")))
}

fn ask_about(name: &str, config: &Config, port: u16) -> io::Result<Vec<IpAddr>> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "no name server answered");
    for _ in 0..config.attempts {
        for server in config.servers(port) {
            match ask_server(server, name, config) {
                Ok(found) => return Ok(found),
                Err(error) => failure = error,
            }
        }
    }
    Err(failure)
}

/// One question to one server, for one family.
struct Question {
    id: u16,
    family: Family,
    message: Vec<u8>,
    answer: Option<Answer>,
}

impl Question {
    fn new(name: &str, family: Family) -> io::Result<Self> {
        let mut id = [0; 2];
        getrandom::fill(&mut id).map_err(io::Error::other)?;
        let id = u16::from_ne_bytes(id);
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not a domain name");
        Ok(Self { id, family, message: query(id, name, family).ok_or_else(invalid)?, answer: None })
    }
}

fn ask_server(server: SocketAddr, name: &str, config: &Config) -> io::Result<Vec<IpAddr>> {
    let until = Instant::now() + config.timeout;
    let mut questions = Vec::new();
    for family in Family::BOTH {
        questions.push(Question::new(name, family)?);
    }
    let heard = if config.tcp { Ok(()) } else { ask_udp(server, name, &mut questions, until) };
    let mut failure = None;
    let mut found = Vec::new();
    for mut question in questions {
        if config.tcp || question.answer == Some(Answer::Truncated) {
            question.answer = Some(ask_tcp(server, name, &question, until)?);
        }
        match question.answer {
            Some(Answer::Addresses(addresses)) => found.extend(addresses),
            Some(Answer::NoSuchName) | None => {}
            Some(Answer::Truncated | Answer::ServerFailed) => {
                failure = Some(io::Error::other(format!("the name server {} failed", server.ip())));
            }
        }
    }
    // Some servers never answer for one of the families: the addresses of the other one are enough.
    if found.is_empty() {
        heard?;
        failure.map_or(Ok(()), Err)?;
    }
    Ok(found)
}

/// Sends all questions at once and waits until each has an answer.
fn ask_udp(server: SocketAddr, name: &str, questions: &mut [Question], until: Instant) -> io::Result<()> {
    let local: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((local, 0))?;
    // The kernel drops datagrams from other addresses and reports that nothing listens there.
    socket.connect(server)?;
    for question in &*questions {
        socket.send(&question.message)?;
    }
    let mut buffer = [0; DATAGRAM_BYTES_MAX];
    while questions.iter().any(|question| question.answer.is_none()) {
        socket.set_read_timeout(Some(left(until)?))?;
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
            Err(error) => return Err(error),
        };
        let message = buffer.get(..length).unwrap_or_default();
        for question in questions.iter_mut().filter(|question| question.answer.is_none()) {
            question.answer = answer(message, question.id, name, question.family);
        }
    }
    Ok(())
}

fn ask_tcp(server: SocketAddr, name: &str, question: &Question, until: Instant) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, left(until)?)?;
    stream.set_write_timeout(Some(left(until)?))?;
    let length = u16::try_from(question.message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question.message.as_slice()].concat())?;
    let mut length = [0; 2];
    read_exact(&mut stream, &mut length, until)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    read_exact(&mut stream, &mut message, until)?;
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "malformed answer of a name server");
    answer(&message, question.id, name, question.family).ok_or_else(malformed)
}

/// Fills the buffer. The timeout of a socket starts again with each read: a server that sends single bytes would
/// prolong it.
fn read_exact(stream: &mut TcpStream, buffer: &mut [u8], until: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time that is left; sockets refuse a timeout of zero.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left) }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the name server did not answer in time")
}
