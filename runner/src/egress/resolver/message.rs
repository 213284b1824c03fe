//! DNS messages (RFC 1035): a query for the addresses of a name, and the addresses in its answer.
//!
//! An answer comes from another machine: every read is checked against its length, and compression pointers lead
//! backwards only, so that reading a name ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HEADER_BYTES: usize = 12;
const NAME_BYTES_MAX: usize = 255;
const LABEL_BYTES_MAX: usize = 63;
const ALIASES_MAX: usize = 16;
const CLASS_IN: u16 = 1;
const TYPE_CNAME: u16 = 5;
const FLAG_RESPONSE: u16 = 0x8000;
const FLAG_TRUNCATED: u16 = 0x0200;
const FLAG_RECURSION_DESIRED: u16 = 0x0100;
const OPCODE_MASK: u16 = 0x7800;
const RCODE_MASK: u16 = 0x000f;
const RCODE_NO_ERROR: u16 = 0;
const RCODE_NAME_ERROR: u16 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const BOTH: [Self; 2] = [Self::V6, Self::V4];

    const fn record_type(self) -> u16 {
        match self {
            Self::V4 => 1,
            Self::V6 => 28,
        }
    }

    fn address(self, data: &[u8]) -> Option<IpAddr> {
        match self {
            Self::V4 => <[u8; 4]>::try_from(data).ok().map(|octets| Ipv4Addr::from(octets).into()),
            Self::V6 => <[u8; 16]>::try_from(data).ok().map(|octets| Ipv6Addr::from(octets).into()),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Empty if the name exists and has no address of the family.
    Addresses(Vec<IpAddr>),
    NoSuchName,
    /// The answer is incomplete: repeat the query over TCP.
    Truncated,
    /// The server did not answer the question; another one may.
    ServerFailed,
}

/// A query with recursion; `None` if the name cannot be a domain name.
pub fn query(id: u16, name: &str, family: Family) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(HEADER_BYTES + name.len() + 6);
    for field in [id, FLAG_RECURSION_DESIRED, 1, 0, 0, 0] {
        message.extend(field.to_be_bytes());
    }
    message.extend(encode_name(name)?);
    message.extend(family.record_type().to_be_bytes());
    message.extend(CLASS_IN.to_be_bytes());
    Some(message)
}

fn encode_name(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|_| label.len() <= LABEL_BYTES_MAX)?;
        if length == 0 {
            return None;
        }
        bytes.push(length);
        bytes.extend(label.to_ascii_lowercase().bytes());
    }
    bytes.push(0);
    (bytes.len() <= NAME_BYTES_MAX).then_some(bytes)
}

/// The answer to `query(id, name, family)`; `None` if the message is malformed or answers another question.
pub fn answer(message: &[u8], id: u16, name: &str, family: Family) -> Option<Answer> {
    let mut reader = Reader { message, position: 0 };
    if reader.u16()? != id {
        return None;
    }
    let flags = reader.u16()?;
    let (questions, records) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    let asked = encode_name(name)?;
    if flags & (FLAG_RESPONSE | OPCODE_MASK) != FLAG_RESPONSE || questions != 1 {
        return None;
    }
    if (reader.name()?, reader.u16()?, reader.u16()?) != (asked.clone(), family.record_type(), CLASS_IN) {
        return None;
    }
    match flags & RCODE_MASK {
        RCODE_NO_ERROR if flags & FLAG_TRUNCATED != 0 => return Some(Answer::Truncated),
        RCODE_NO_ERROR => {}
        RCODE_NAME_ERROR => return Some(Answer::NoSuchName),
        _ => return Some(Answer::ServerFailed),
    }
    let records: Vec<_> = (0..records).map(|_| reader.record(family)).collect::<Option<_>>()?;
    Some(Answer::Addresses(follow(asked, &records)))
}

/// The addresses of a name, or of the name it is an alias of.
fn follow(mut name: Vec<u8>, records: &[Record]) -> Vec<IpAddr> {
    for _ in 0..ALIASES_MAX {
        let of_name = || records.iter().filter(|record| record.owner == name);
        let addresses: Vec<_> = of_name().filter_map(|record| record.address()).collect();
        if !addresses.is_empty() {
            return addresses;
        }
        match of_name().find_map(Record::alias) {
            Some(alias) => name = alias.clone(),
            None => break,
        }
    }
    Vec::new()
}

struct Record {
    owner: Vec<u8>,
    data: Data,
}

enum Data {
    Address(IpAddr),
    Alias(Vec<u8>),
    Other,
}

impl Record {
    fn address(&self) -> Option<IpAddr> {
        match self.data {
            Data::Address(address) => Some(address),
            Data::Alias(_) | Data::Other => None,
        }
    }

    fn alias(&self) -> Option<&Vec<u8>> {
        match &self.data {
            Data::Alias(name) => Some(name),
            Data::Address(_) | Data::Other => None,
        }
    }
}

struct Reader<'a> {
    message: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let taken = self.message.get(self.position..self.position.checked_add(bytes)?)?;
        self.position += bytes;
        Some(taken)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.take(bytes).map(|_| ())
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// A name in lower case, without compression.
    fn name(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        // Where the reader continues: behind the first pointer.
        let mut after = None;
        loop {
            let start = self.position;
            let length = *self.take(1)?.first()?;
            match length {
                0 => break,
                1..=63 => {
                    name.push(length);
                    name.extend(self.take(length.into())?.to_ascii_lowercase());
                }
                0xc0.. => {
                    let low = *self.take(1)?.first()?;
                    let target = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    after = after.or(Some(self.position));
                    // Only backwards, so that no pointer is followed twice.
                    self.position = (target < start).then_some(target)?;
                }
                64..=0xbf => return None,
            }
            if name.len() >= NAME_BYTES_MAX {
                return None;
            }
        }
        self.position = after.unwrap_or(self.position);
        name.push(0);
        Some(name)
    }

    fn record(&mut self, family: Family) -> Option<Record> {
        let owner = self.name()?;
        let (kind, class) = (self.u16()?, self.u16()?);
        self.skip(4)?;
        let length = usize::from(self.u16()?);
        let start = self.position;
        let data = self.take(length)?;
        let data = match kind {
            _ if class != CLASS_IN => Data::Other,
            TYPE_CNAME => {
                Data::Alias(Reader { message: self.message.get(..start + length)?, position: start }.name()?)
            }
            _ if kind == family.record_type() => Data::Address(family.address(data)?),
            _ => Data::Other,
        };
        Some(Record { owner, data })
    }
}
