//! What a launcher is told before it starts its command: the first message on the lifeline, with the handles of the session's
//! directories beside it. Not arguments and not environment, which other processes can read. Refuses what is too long.

use std::{
    ffi::OsStr,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            net::UnixStream,
        },
    },
    path::PathBuf,
};

use crate::sandbox::{Access, Limits};

/// Bytes of a message. It has to fit into a socket's buffer, because it is sent before anybody reads; thousands of paths do.
const MAX_BYTES: usize = 64 * 1024;

/// Handles in a message; the system takes 253.
const MAX_HANDLES: usize = 200;

const CONFINE: u8 = 1;
const NETWORK: u8 = 2;
const LOCAL_SOCKETS: u8 = 4;

/// What a launcher is told.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The limits of each process of the command.
    pub(crate) limits: Limits,
    /// What the command may touch; `None` for everything that the user may.
    pub(crate) confine: Option<Confine>,
}

/// What a command may touch.
#[derive(Debug, Default)]
pub(crate) struct Confine {
    /// Whether it may open network connections.
    pub(crate) network: bool,
    /// Whether it may use sockets of the file system, wherever they lie.
    pub(crate) local_sockets: bool,
    /// Directories that are known by their handles.
    pub(crate) handles: Vec<(OwnedFd, Access)>,
    /// Files and directories that are known by their names.
    pub(crate) paths: Vec<(PathBuf, Access)>,
    /// What lies in these stays closed, wherever it lies.
    pub(crate) hidden: Vec<PathBuf>,
}

impl Order {
    /// Puts the order into the socket.
    pub(crate) fn send(&self, socket: &UnixStream) -> io::Result<()> {
        let body = self.encode();
        let handles: &[(OwnedFd, Access)] = self.confine.as_ref().map_or(&[], |confine| &confine.handles);
        if body.len() > MAX_BYTES || handles.len() > MAX_HANDLES {
            return Err(too_long());
        }
        let mut message = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
        message.extend_from_slice(&body);
        // What is short by a byte would be taken for a broken launcher; the buffer is empty and larger than this.
        if put(socket, &message, handles)? == message.len() { Ok(()) } else { Err(too_long()) }
    }

    /// Takes the order out of the socket; waits for it.
    pub(crate) fn receive(socket: &UnixStream) -> io::Result<Self> {
        let (size, handles) = take(socket)?;
        let size = usize::try_from(u32::from_le_bytes(size)).unwrap_or(usize::MAX);
        if size > MAX_BYTES {
            return Err(too_long());
        }
        let mut body = vec![0; size];
        (&mut &*socket).read_exact(&mut body)?;
        decode(&body, handles).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for limit in self.limits.as_array() {
            out.extend_from_slice(&limit.unwrap_or(u64::MAX).to_le_bytes());
        }
        let Some(confine) = &self.confine else {
            out.push(0);
            return out;
        };
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(CONFINE | flag(confine.network, NETWORK) | flag(confine.local_sockets, LOCAL_SOCKETS));
        count(&mut out, confine.handles.len());
        out.extend(confine.handles.iter().map(|(_, access)| access.code()));
        count(&mut out, confine.paths.len());
        for (path, access) in &confine.paths {
            out.push(access.code());
            text(&mut out, path.as_os_str());
        }
        count(&mut out, confine.hidden.len());
        for path in &confine.hidden {
            text(&mut out, path.as_os_str());
        }
        out
    }
}

fn decode(mut body: &[u8], handles: Vec<OwnedFd>) -> Option<Order> {
    let mut limits = [None; Limits::COUNT];
    for limit in &mut limits {
        let (number, rest) = body.split_first_chunk::<8>()?;
        *limit = Some(u64::from_le_bytes(*number)).filter(|limit| *limit != u64::MAX);
        body = rest;
    }
    let limits = Limits::from_array(limits);
    let flags = byte(&mut body)?;
    if flags & CONFINE == 0 {
        return body.is_empty().then_some(Order { limits, confine: None });
    }
    let mut confine =
        Confine { network: flags & NETWORK != 0, local_sockets: flags & LOCAL_SOCKETS != 0, ..Confine::default() };
    // A handle that did not arrive leaves its access behind, and the order is refused as a whole.
    if number(&mut body)? != handles.len() {
        return None;
    }
    for handle in handles {
        confine.handles.push((handle, Access::from_code(byte(&mut body)?)?));
    }
    for _ in 0..number(&mut body)? {
        let access = Access::from_code(byte(&mut body)?)?;
        confine.paths.push((path(&mut body)?, access));
    }
    for _ in 0..number(&mut body)? {
        confine.hidden.push(path(&mut body)?);
    }
    body.is_empty().then_some(Order { limits, confine: Some(confine) })
}

fn count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn text(out: &mut Vec<u8>, text: &OsStr) {
    count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn byte(body: &mut &[u8]) -> Option<u8> {
    let (first, rest) = body.split_first()?;
    *body = rest;
    Some(*first)
}

fn number(body: &mut &[u8]) -> Option<usize> {
    let (number, rest) = body.split_first_chunk::<4>()?;
    *body = rest;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

fn path(body: &mut &[u8]) -> Option<PathBuf> {
    let size = number(body)?;
    let (path, rest) = body.split_at_checked(size)?;
    *body = rest;
    Some(PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())))
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the directories of the session are too many for a sandbox")
}

/// Sends bytes with handles beside them.
#[cfg(target_os = "linux")]
fn put(socket: &UnixStream, message: &[u8], handles: &[(OwnedFd, Access)]) -> io::Result<usize> {
    use std::{io::IoSlice, mem::MaybeUninit};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    let borrowed: Vec<_> = handles.iter().map(|(handle, _)| handle.as_fd()).collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_HANDLES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(too_long());
    }
    Ok(sendmsg(socket, &[IoSlice::new(message)], &mut beside, SendFlags::NOSIGNAL)?)
}

/// Receives the size with the handles beside it.
#[cfg(target_os = "linux")]
fn take(socket: &UnixStream) -> io::Result<([u8; 4], Vec<OwnedFd>)> {
    use std::{io::IoSliceMut, mem::MaybeUninit};

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

    let mut size = [0; 4];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_HANDLES))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut size)], &mut beside, flags)?;
    if got.bytes != size.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let handles = beside.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(handles) => handles.collect(),
        _ => Vec::new(),
    });
    Ok((size, handles.collect()))
}

/// Sends bytes; nothing here knows a directory by its handle.
#[cfg(not(target_os = "linux"))]
fn put(socket: &UnixStream, message: &[u8], handles: &[(OwnedFd, Access)]) -> io::Result<usize> {
    use std::io::Write;

    let _ = handles.iter().map(|(handle, _)| handle.as_fd());
    (&mut &*socket).write(message)
}

/// Receives the size.
#[cfg(not(target_os = "linux"))]
fn take(socket: &UnixStream) -> io::Result<([u8; 4], Vec<OwnedFd>)> {
    let mut size = [0; 4];
    (&mut &*socket).read_exact(&mut size)?;
    Ok((size, Vec::new()))
}

#[cfg(test)]
mod tests;
