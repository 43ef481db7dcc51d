//! Directory handles of a session's roots; the only way from a tool to the file system.
//! Every path is opened below a handle, so `..`, symbolic links and races cannot leave the root.

/// The opened roots of one session.
#[derive(Debug)]
pub struct Jail {}
