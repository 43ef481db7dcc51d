//! The server's end of a launcher's lifeline. The launcher kills its command when this is closed, also by the end of the
//! process; so nobody else may hold it, and it never waits.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use crate::{
    launch::{Report, TERMINATE},
    sandbox::Order,
};

/// One end of a socket, closed in every program that is started.
pub(crate) struct Lifeline(UnixStream);

impl Lifeline {
    /// A lifeline, and the end that becomes the launcher's standard input; the order is in it already.
    pub(crate) fn new(order: &Order) -> io::Result<(Self, OwnedFd)> {
        // Not a pipe: that can be opened again by name, and a command could hold its own lifeline.
        let (ours, theirs) = UnixStream::pair()?;
        order.send(&ours)?;
        ours.set_nonblocking(true)?;
        Ok((Self(ours), theirs.into()))
    }

    /// Asks the command and its group to end.
    pub(crate) fn terminate(&self) {
        // It fails when the launcher is gone, which is what is wanted. One byte always has room.
        let _ = (&self.0).write(&[TERMINATE]);
    }

    /// Has everything killed; the report can still be read.
    pub(crate) fn end(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// What the launcher said at its end; to be asked after it, once.
    pub(crate) fn report(&self) -> Option<Report> {
        let mut bytes = [0; Report::SIZE];
        (&self.0).read_exact(&mut bytes).ok()?;
        Report::decode(bytes)
    }
}
