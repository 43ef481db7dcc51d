//! Files as the client has them: its unsaved changes count where it lends its files, the disk counts everywhere else.
//! It refuses to ask about anything the jail or the rules refuse; those paths never reach the client.

use std::{io::Read, path::PathBuf, sync::Arc};

use zeroclaw_policy::{Action, Judgement, Replaces, RootedPath, judge};

use crate::{
    client::{ClientError, ClientFiles, Lines},
    jail::{Files, JailError, MAX_REPLACED, digest},
    tool::{
        ToolContext, ToolFailure,
        args::{reading, writing},
        text::{Encoding, SNIFFED, sniff},
    },
};

/// The largest file that the client is asked about; what is larger is read from the disk, where it can be streamed.
const MAX_ASKED: u64 = 16 * 1024 * 1024;

/// Whom a file is asked of.
enum Place {
    /// The disk: binary, UTF-16 and very large files are nothing that a client sends as text.
    Disk,
    /// The client, by this real path.
    Client { real: PathBuf, on_disk: bool },
}

fn place(files: &Files<'_>, path: &RootedPath) -> Result<Place, ToolFailure> {
    let mut opened = match files.open_read(path) {
        Ok(opened) => opened,
        // It may be a file that was never saved.
        Err(JailError::NotFound { .. }) => {
            return Ok(Place::Client { real: files.absent_place(path)?, on_disk: false });
        }
        Err(error) => return Err(error.into()),
    };
    let mut start = Vec::with_capacity(SNIFFED);
    let failed = |source| ToolFailure::from(JailError::Io { path: path.absolute().to_owned(), source });
    (&mut opened.file).take(SNIFFED as u64).read_to_end(&mut start).map_err(failed)?;
    Ok(match sniff(&start) {
        Encoding::Bytes if opened.size <= MAX_ASKED => Place::Client { real: opened.real, on_disk: true },
        Encoding::Bytes | Encoding::Utf16Le | Encoding::Utf16Be | Encoding::Binary => Place::Disk,
    })
}

/// Reads lines of a file from the client; `None` means that the disk counts.
pub(super) async fn read(
    context: &ToolContext,
    path: &RootedPath,
    lines: Lines,
) -> Result<Option<String>, ToolFailure> {
    let Some(reader) = &context.client.reader else { return Ok(None) };
    let asked = path.clone();
    let Place::Client { real, on_disk } = reading(context, move |files| place(files, &asked)).await? else {
        return Ok(None);
    };
    let text = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Err(ToolFailure::Cancelled),
        text = reader.read(&real, lines) => text,
    };
    match text {
        // Some clients answer so for a file that is not there.
        Ok(text) if text.is_empty() && !on_disk => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(ClientError::Absent | ClientError::Missing) => Ok(None),
        // There is nothing that could be newer than the disk, whatever the client calls it.
        Err(ClientError::Refused(_)) if !on_disk => Ok(None),
        Err(
            error @ (ClientError::Refused(_)
            | ClientError::TimedOut
            | ClientError::Gone
            | ClientError::Unclear
            | ClientError::Busy),
        ) => Err(ToolFailure::Failed(format!("`{}` was not read: {error}", path.absolute().display()))),
    }
}

/// The whole text of a file that a tool is about to change; `None` means that the disk counts.
pub(super) async fn before_change(
    context: &ToolContext,
    tool: &str,
    path: &RootedPath,
) -> Result<Option<String>, ToolFailure> {
    if context.client.reader.is_none() {
        return Ok(None);
    }
    // The change itself is judged later; one that is refused anyway must not reach the client before.
    let action =
        Action::Write { path: path.clone(), content: Arc::from([]), replaces: Replaces::Nothing, pins: Vec::new() };
    if let Judgement::Refused(_) = judge(&context.rules, context.jail.roots(), tool, action) {
        return Ok(None);
    }
    let Some(text) = read(context, path, Lines::default()).await? else { return Ok(None) };
    if context.client.writer.is_some() {
        return Ok(Some(text));
    }
    // It can be read there and not written: what is not saved would be lost or get into each other's way.
    let asked = path.clone();
    let on_disk = reading(context, move |files| match files.read_bounded(&asked, MAX_REPLACED) {
        Ok(bytes) => Ok(bytes),
        Err(JailError::NotFound { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    });
    if lines_of(&String::from_utf8_lossy(&on_disk.await?)) == lines_of(&text) {
        return Ok(None);
    }
    let shown = path.absolute().display();
    Err(ToolFailure::Failed(format!("`{shown}` has changes in the client that are not saved; ask the user to save it")))
}

/// The text as editors compare it: without byte order mark, line ends alike.
fn lines_of(text: &str) -> Vec<&str> {
    text.strip_prefix('\u{feff}').unwrap_or(text).lines().collect()
}

/// Writes a file through the client, when it still is what the change was prepared against.
/// False means that the client is not there any more and nothing was written.
pub(super) async fn write(
    context: &ToolContext,
    writer: &dyn ClientFiles,
    path: &RootedPath,
    content: &[u8],
    replaces: Replaces,
) -> Result<bool, ToolFailure> {
    let absolute = path.absolute();
    let text = std::str::from_utf8(content)
        .map_err(|_| ToolFailure::Failed(format!("`{}` is not text, which a client needs", absolute.display())))?;
    let theirs = read(context, path, Lines::default()).await?.map(|text| Replaces::Content(digest(text.as_bytes())));
    let asked = path.clone();
    let real = writing(context, move |files| {
        let now = match theirs {
            Some(theirs) => theirs,
            None => match files.read_bounded(&asked, MAX_REPLACED) {
                Ok(bytes) => Replaces::Content(digest(&bytes)),
                Err(JailError::NotFound { .. }) => Replaces::Nothing,
                Err(error) => return Err(error.into()),
            },
        };
        if now != replaces {
            return Err(JailError::Changed { path: asked.absolute().to_owned() }.into());
        }
        Ok(files.write_place(&asked)?)
    })
    .await?;
    let written = tokio::select! {
        biased;
        // Nobody is told that it did not happen: the question is withdrawn, and the client may have acted before.
        () = context.cancel.cancelled() => {
            let note = format!("cancelled; the client may have written `{}` all the same", absolute.display());
            return Err(ToolFailure::Failed(note));
        }
        written = writer.write(&real, text) => written,
    };
    match written {
        Ok(()) => Ok(true),
        Err(ClientError::Absent) => Ok(false),
        Err(error @ (ClientError::TimedOut | ClientError::Gone | ClientError::Unclear)) => Err(ToolFailure::Failed(
            format!("{error}; whether `{}` was written is not known, read it again", absolute.display()),
        )),
        Err(error @ (ClientError::Missing | ClientError::Refused(_) | ClientError::Busy)) => {
            Err(ToolFailure::Failed(format!("`{}` was not written: {error}", absolute.display())))
        }
    }
}
