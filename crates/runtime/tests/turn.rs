//! The agent loop from outside: a scripted model, tools that do what a test says, and a sink that remembers everything.

#[cfg(test)]
#[path = "turn/calls.rs"]
mod calls;
#[cfg(test)]
#[path = "turn/cancel.rs"]
mod cancel;
#[cfg(test)]
#[path = "turn/compaction.rs"]
mod compaction;
#[cfg(test)]
#[path = "turn/context.rs"]
mod context;
#[cfg(test)]
#[path = "turn/fallback.rs"]
mod fallback;
#[cfg(test)]
#[path = "turn/permission.rs"]
mod permission;
#[cfg(test)]
#[path = "turn/speech.rs"]
mod speech;
#[cfg(test)]
#[path = "turn/support.rs"]
mod support;
#[cfg(test)]
#[path = "turn/system.rs"]
mod system;
