//! Messages with descriptors, between the supervisor and the processes of a cage; SCM_RIGHTS in unix(7).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// As many descriptors as one message takes, unix(7).
pub const MOST: usize = 253;

/// Two ends of a socket that keeps messages apart.
///
/// # Errors
/// The kernel's.
pub fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends bytes, at least one, with descriptors, [`MOST`] at most.
///
/// # Errors
/// The kernel's: `EPIPE` where the other end is closed, `ECONNRESET` where it had left something unread.
pub fn send(to: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); SendAncillaryMessage::ScmRights(descriptors).size()];
    let mut message = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        message.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(to, &[IoSlice::new(bytes)], &mut message, SendFlags::NOSIGNAL).map(drop)
}

/// Waits for a message: how many bytes of it there are, none where the other end is closed, and its descriptors.
///
/// # Errors
/// The kernel's.
pub fn receive(from: impl AsFd, bytes: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&from, &mut [IoSliceMut::new(bytes)], &mut message, RecvFlags::CMSG_CLOEXEC)
    })?;
    let descriptors = message.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, descriptors.flatten().collect()))
}
