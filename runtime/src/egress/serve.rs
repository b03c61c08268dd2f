//! The cage's name server: datagrams and connections.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrLike, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

use super::dns;
use super::engine::State;

/// How long a connection may stay without a question, and how long it may take one, or an answer.
const IDLE: Duration = Duration::from_secs(10);
/// Connections at once.
pub const MOST_CONNECTIONS: usize = 64;
/// Questions that are answered before others have their turn.
const TURN: usize = 32;

/// Wants to know the address that each datagram was sent to.
///
/// # Errors
/// The kernel's.
pub fn want_destinations(socket: &std::net::UdpSocket) -> io::Result<()> {
    match socket.local_addr()? {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?,
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?,
    }
    Ok(())
}

/// Answers datagrams for ever.
///
/// # Errors
/// The kernel's.
pub async fn datagrams(socket: UdpSocket, state: Rc<State>) -> io::Result<()> {
    let v4 = socket.local_addr()?.is_ipv4();
    loop {
        socket.readable().await?;
        for _ in 0..TURN {
            let one = || if v4 { one_v4(&socket, &state) } else { one_v6(&socket, &state) };
            match socket.try_io(Interest::READABLE, one) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
                // A client that is gone is told by the next call.
                done => drop(done),
            }
        }
        tokio::task::yield_now().await;
    }
}

fn one_v4(socket: &UdpSocket, state: &Rc<State>) -> io::Result<()> {
    one::<SockaddrIn>(socket, state, |message, answer, from| {
        let ControlMessageOwned::Ipv4PacketInfo(mut info) = message else { return None };
        // The route decides by which interface it leaves.
        (info.ipi_spec_dst, info.ipi_ifindex) = (info.ipi_addr, 0);
        Some(send(socket, answer, &ControlMessage::Ipv4PacketInfo(&info), from))
    })
}

fn one_v6(socket: &UdpSocket, state: &Rc<State>) -> io::Result<()> {
    one::<SockaddrIn6>(socket, state, |message, answer, from| {
        let ControlMessageOwned::Ipv6PacketInfo(info) = message else { return None };
        Some(send(socket, answer, &ControlMessage::Ipv6PacketInfo(&info), from))
    })
}

/// Takes one datagram and answers it from where it went to.
fn one<Address: SockaddrLike + Copy>(
    socket: &UdpSocket,
    state: &Rc<State>,
    reply: impl Fn(ControlMessageOwned, &[u8], &Address) -> Option<io::Result<()>>,
) -> io::Result<()> {
    let mut buffer = [0_u8; dns::LONGEST];
    let mut space = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo);
    let (length, from, info) = {
        let mut into = [IoSliceMut::new(&mut buffer)];
        let received = recvmsg::<Address>(socket.as_raw_fd(), &mut into, Some(&mut space), MsgFlags::MSG_DONTWAIT)?;
        if received.flags.contains(MsgFlags::MSG_TRUNC) {
            return Ok(());
        }
        (received.bytes, received.address, received.cmsgs()?.next())
    };
    let (Some(from), Some(info)) = (from, info) else { return Ok(()) };
    match dns::answer(&buffer[..length], |asked| state.judge(asked)) {
        Some(answer) => reply(info, &answer, &from).unwrap_or(Ok(())),
        None => Ok(()),
    }
}

fn send<Address: SockaddrLike>(
    socket: &UdpSocket,
    answer: &[u8],
    from: &ControlMessage<'_>,
    to: &Address,
) -> io::Result<()> {
    let parts = [IoSlice::new(answer)];
    match sendmsg(socket.as_raw_fd(), &parts, std::slice::from_ref(from), MsgFlags::MSG_DONTWAIT, Some(to)) {
        // It is not for reading that this waits; an answer that finds no room is lost, as datagrams are.
        Ok(_) | Err(nix::errno::Errno::EAGAIN) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

/// Answers connections for ever.
pub async fn connections(listener: TcpListener, state: Rc<State>) {
    loop {
        if let Some(stream) = super::engine::accept(&listener).await {
            connection(stream, &state);
        }
    }
}

/// Answers one connection, where there is a place for it.
pub fn connection(stream: TcpStream, state: &Rc<State>) {
    let Some(place) = state.dns_place() else { return super::copy::reset(stream) };
    let state = Rc::clone(state);
    tokio::task::spawn_local(async move {
        if let Err(why) = converse(&stream, &state).await {
            tracing::debug!("a connection for names ended: {why}");
        }
        drop(place);
    });
}

/// Questions and answers with two bytes of length before each, RFC 7766.
async fn converse(stream: &TcpStream, state: &Rc<State>) -> io::Result<()> {
    let mut message = vec![0; dns::LONGEST];
    loop {
        if !timeout(IDLE, fill(stream, &mut message[..2])).await?? {
            return Ok(());
        }
        let length = usize::from(u16::from_be_bytes([message[0], message[1]]));
        let Some(room) = message.get_mut(..length) else { return Err(io::ErrorKind::InvalidData.into()) };
        if !timeout(IDLE, fill(stream, room)).await?? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(answer) = dns::answer(room, |asked| state.judge(asked)) {
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            let answer = [&length.to_be_bytes()[..], &answer].concat();
            timeout(IDLE, super::through::write(stream, &answer)).await??;
        }
        tokio::task::yield_now().await;
    }
}

/// Whether as much came; not where the other side had ended before.
async fn fill(stream: &TcpStream, mut room: &mut [u8]) -> io::Result<bool> {
    let all = room.len();
    while !room.is_empty() {
        stream.readable().await?;
        match stream.try_read(room) {
            Ok(0) if room.len() == all => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => room = &mut room[count..],
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
    Ok(true)
}
