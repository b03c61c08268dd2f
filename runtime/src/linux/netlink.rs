//! Requests to the kernel over netlink(7), and its answers. No library: two handfuls of messages are sent, and none is read
//! but whether they were done.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::NETFILTER;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// The kernel's part that a socket speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Interfaces, addresses and routes, rtnetlink(7).
    Route,
    /// Packet filters and redirection.
    Netfilter,
}

/// A socket that speaks to a part of the kernel, about the network namespace in which it was made.
#[derive(Debug)]
pub struct Netlink(OwnedFd);

impl Netlink {
    /// Opens one.
    ///
    /// # Errors
    /// The kernel's: `EPROTONOSUPPORT` where it has no such part.
    pub fn open(part: Part) -> io::Result<Netlink> {
        // The route part has number 0.
        let protocol = match part {
            Part::Route => None,
            Part::Netfilter => Some(NETFILTER),
        };
        Ok(Netlink(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?))
    }

    /// Has the kernel do all of these, in this order.
    ///
    /// # Errors
    /// The kernel's on the first that it does not do; on later ones it may have tried.
    pub fn ask(&self, requests: &[Request]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (number, request) in (0_u32..).zip(requests) {
            request.write(number, &mut bytes);
        }
        if rustix::io::retry_on_intr(|| send(&self.0, &bytes, SendFlags::empty()))? != bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        // It has done all by now, and the answers wait.
        let mut done = 0;
        let mut block = [0_u8; 8192];
        loop {
            match recv(&self.0, &mut block, RecvFlags::DONTWAIT) {
                Ok((length, _)) => done += answers(&block[..length])?,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(why) => return Err(why.into()),
            }
        }
        let wanted = requests.iter().filter(|request| request.answered).count();
        if done == wanted {
            Ok(())
        } else {
            Err(io::Error::other(format!("{done} of {wanted} requests were answered")))
        }
    }
}

/// Flags of the header.
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
/// There may be none yet, and one is to be made.
pub const CREATE: u16 = 0x400 | 0x200;
/// At the end of a list.
pub const APPEND: u16 = 0x800;

/// `struct nlmsghdr`: length, type, flags, number, sender.
const HEADER: usize = 16;

/// The type of an answer that holds an error number, 0 for none.
const ANSWER: u16 = 2;

/// How many requests these answers say are done.
fn answers(mut bytes: &[u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some((header, rest)) = bytes.split_at_checked(HEADER) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        if kind == ANSWER {
            let number = rest.first_chunk().map_or(libc::EPROTO, |bytes| -i32::from_ne_bytes(*bytes));
            if number != 0 {
                return Err(io::Error::from_raw_os_error(number));
            }
            done += 1;
        }
        bytes = bytes.get(padded(length.max(HEADER))..).unwrap_or_default();
    }
    Ok(done)
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    kind: u16,
    flags: u16,
    /// Whether the kernel says that it is done.
    answered: bool,
    body: Vec<u8>,
}

impl Request {
    /// A request of this type: the part's own header, then attributes.
    pub fn new(kind: u16, flags: u16, header: &[u8], attributes: &Attributes) -> Request {
        let mut body = header.to_vec();
        pad(&mut body);
        body.extend(&attributes.0);
        Request { kind, flags, answered: true, body }
    }

    /// The same without an answer: the marks around a batch.
    pub fn mark(kind: u16, header: &[u8]) -> Request {
        Request { answered: false, ..Request::new(kind, 0, header, &Attributes::default()) }
    }

    fn write(&self, number: u32, to: &mut Vec<u8>) {
        let flags = REQUEST | self.flags | if self.answered { ACKNOWLEDGE } else { 0 };
        to.extend(((HEADER + self.body.len()) as u32).to_ne_bytes());
        to.extend(self.kind.to_ne_bytes());
        to.extend(flags.to_ne_bytes());
        to.extend(number.to_ne_bytes());
        to.extend([0; 4]);
        to.extend(&self.body);
        pad(to);
    }
}

/// Attributes of a request, `struct nlattr`: length, type, value.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// One more.
    pub fn with(mut self, kind: u16, value: &[u8]) -> Attributes {
        self.0.extend(((4 + value.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        pad(&mut self.0);
        self
    }

    /// One more, whose value is attributes.
    pub fn nest(self, kind: u16, inside: &Attributes) -> Attributes {
        const NESTED: u16 = 0x8000;
        self.with(kind | NESTED, &inside.0)
    }
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(padded(bytes.len()), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_laid_out_as_netlink_says() {
        let attributes = Attributes::default().with(1, &[9]).nest(2, &Attributes::default().with(3, &[7; 4]));
        let mut bytes = Vec::new();
        Request::new(24, CREATE, &[2, 0, 0], &attributes).write(5, &mut bytes);
        let mut wanted = Vec::new();
        wanted.extend(40_u32.to_ne_bytes());
        wanted.extend(24_u16.to_ne_bytes());
        wanted.extend(0x605_u16.to_ne_bytes());
        wanted.extend(5_u32.to_ne_bytes());
        wanted.extend([0; 4]);
        wanted.extend([2, 0, 0, 0]);
        wanted.extend(5_u16.to_ne_bytes().into_iter().chain(1_u16.to_ne_bytes()).chain([9, 0, 0, 0]));
        wanted.extend(12_u16.to_ne_bytes().into_iter().chain(0x8002_u16.to_ne_bytes()));
        wanted.extend(8_u16.to_ne_bytes().into_iter().chain(3_u16.to_ne_bytes()).chain([7; 4]));
        assert_eq!(bytes, wanted);
    }

    /// An interface that is not there, and a type of message that no kernel has.
    #[test]
    fn the_kernels_error_comes_back() {
        let netlink = Netlink::open(Part::Route).unwrap();
        let request = |kind| Request::new(kind, 0, &[0; 16], &Attributes::default());
        assert_eq!(netlink.ask(&[request(0x7FFF)]).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
        // RTM_DELLINK of nothing.
        assert!(netlink.ask(&[request(17)]).is_err());
    }

    #[test]
    fn answers_are_counted_up_to_the_first_error() {
        let answer = |number: i32| {
            let mut bytes = Vec::new();
            Request::new(ANSWER, 0, &(-number).to_ne_bytes(), &Attributes::default()).write(0, &mut bytes);
            bytes
        };
        assert_eq!(answers(&[answer(0), answer(0)].concat()).unwrap(), 2);
        assert_eq!(answers(&[answer(0), answer(1)].concat()).unwrap_err().raw_os_error(), Some(1));
        assert_eq!(answers(&answer(0)[..HEADER]).unwrap_err().raw_os_error(), Some(libc::EPROTO));
        assert_eq!(answers(b"too short").unwrap(), 0);
    }
}
